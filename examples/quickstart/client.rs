//! A real MCP client: the official Rust SDK's, unmodified. It writes down what it is told and judges nothing.
//! Law: reconnecting is the SDK's own affair; nothing here helps it.
//! Next: `relay.rs`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use rmcp::model::{CallToolRequestParams, ProgressNotificationParam, ResourceUpdatedNotificationParam};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use tokio::sync::watch;

/// What the client was told, in the order of its coming.
#[derive(Clone, Default, Debug)]
pub(crate) struct Notes {
    /// Progress of the call.
    pub(crate) progress: Vec<u32>,
    /// Notifications of the standalone stream.
    pub(crate) orders: Vec<u32>,
}

/// Writes the notes.
struct Diary {
    notes: Mutex<Notes>,
    changed: watch::Sender<Notes>,
}

impl Diary {
    fn write(&self, write: impl FnOnce(&mut Notes)) {
        let mut notes = self.notes.lock().expect("nobody panics while writing");
        write(&mut notes);
        self.changed.send_replace(notes.clone());
    }
}

/// The handler that the SDK calls.
#[derive(Clone)]
struct Listener(Arc<Diary>);

impl ClientHandler for Listener {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.write(|notes| notes.progress.push(params.progress as u32));
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let order = params
            .uri
            .rsplit('/')
            .next()
            .and_then(|order| order.parse::<u32>().ok());
        self.0.write(|notes| notes.orders.extend(order));
    }
}

/// A connected client.
pub(crate) struct Client {
    service: RunningService<RoleClient, Listener>,
    notes: watch::Receiver<Notes>,
}

impl Client {
    /// Connects and initializes.
    pub(crate) async fn connect(to: SocketAddr) -> Result<Self, String> {
        let (changed, notes) = watch::channel(Notes::default());
        let listener = Listener(Arc::new(Diary {
            notes: Mutex::new(Notes::default()),
            changed,
        }));
        let transport = StreamableHttpClientTransport::from_uri(format!("http://{to}/mcp"));
        let service = listener
            .serve(transport)
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self { service, notes })
    }

    /// Calls a tool and answers the text of its result.
    pub(crate) async fn call(&self, tool: &'static str, n: u32) -> Result<String, String> {
        let arguments = serde_json::json!({ "n": n })
            .as_object()
            .cloned()
            .unwrap_or_default();
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = self
            .service
            .call_tool(params)
            .await
            .map_err(|error| error.to_string())?;
        let text = result
            .content
            .first()
            .and_then(|content| content.as_text())
            .map(|text| text.text.clone());
        Ok(text.unwrap_or_default())
    }

    /// What it was told until now.
    pub(crate) fn notes(&self) -> Notes {
        self.notes.borrow().clone()
    }

    /// Waits until what it was told satisfies `enough`. The caller bounds its time.
    pub(crate) async fn until(&self, enough: impl FnMut(&Notes) -> bool) {
        let mut notes = self.notes.clone();
        let _closed = notes.wait_for(enough).await;
    }
}
