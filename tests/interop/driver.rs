//! The matrix's drive with the official Rust SDK as the client, inside this process.
//! Law: it demands what `lab/matrix.mjs` and `lab/matrix.py` demand, feature by feature, and says the same lines.
//! Next: `fixture.rs`.

// Sampling and logging are deprecated as of 2026-07-28, and still what most clients and servers speak.
#![allow(deprecated)]

use std::net::SocketAddr;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult, ErrorData,
    Implementation, LoggingMessageNotificationParam, ProgressNotificationParam,
    ResourceUpdatedNotificationParam, ServerResult,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long what must come may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// What has come.
#[derive(Clone, Default, Debug)]
struct Inbox {
    logs: Vec<Value>,
    updated: Vec<String>,
    changed: usize,
    progress: Vec<u64>,
}

#[derive(Clone)]
struct Listener(watch::Sender<Inbox>);

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder()
            .enable_sampling()
            .enable_elicitation()
            .build();
        ClientConfig::new(capabilities, Implementation::new("lab-rust", "1"))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let content = json!({ "type": "text", "text": "sampled" });
        typed(json!({ "role": "assistant", "content": content, "model": "lab" }))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        typed(json!({ "action": "accept", "content": { "username": "u", "email": "e" } }))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0
            .send_modify(|inbox| inbox.progress.push(params.progress as u64));
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.send_modify(|inbox| inbox.logs.push(params.data));
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.send_modify(|inbox| inbox.updated.push(params.uri));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.send_modify(|inbox| inbox.changed += 1);
    }
}

/// A connected client.
pub(crate) struct Driver {
    service: RunningService<RoleClient, Listener>,
    inbox: watch::Sender<Inbox>,
}

/// How one feature came out.
pub(crate) type Felt = Result<(), String>;

impl Driver {
    /// Connects and initializes.
    pub(crate) async fn connect(to: SocketAddr) -> Result<Self, String> {
        let (inbox, _) = watch::channel(Inbox::default());
        let transport = StreamableHttpClientTransport::from_uri(format!("http://{to}/mcp"));
        let service = Listener(inbox.clone())
            .serve(transport)
            .await
            .map_err(|error| error.to_string())?;
        Ok(Self { service, inbox })
    }

    /// Drives through every feature.
    pub(crate) async fn drive(&self) -> Vec<(&'static str, Felt)> {
        vec![
            ("initialize", Ok(())),
            ("resume", self.resume().await),
            (
                "cut",
                self.progressing("slow", slow("cut", 8), "cut:done", &[1, 2, 3, 4, 5, 6, 7, 8])
                    .await,
            ),
            (
                "progress",
                self.progressing("test_tool_with_progress", json!({}), "progressed", &[0, 50, 100])
                    .await,
            ),
            ("sampling", self.sampling().await),
            ("elicitation", self.elicitation().await),
            ("logging", self.logging().await),
            ("subscription", self.subscription().await),
            ("list_changed", self.list_changed().await),
            ("cancellation", self.cancellation().await),
        ]
    }

    async fn call(&self, tool: &'static str, given: Value) -> Result<String, String> {
        let params =
            CallToolRequestParams::new(tool).with_arguments(given.as_object().cloned().unwrap_or_default());
        let result = timeout(PATIENCE, self.service.call_tool(params))
            .await
            .map_err(|_| "the call hangs".to_owned())?
            .map_err(|error| error.to_string())?;
        let text = result.content.first().and_then(|content| content.as_text());
        let text = text.map(|text| text.text.clone()).unwrap_or_default();
        if result.is_error == Some(true) {
            return Err(text);
        }
        Ok(text)
    }

    async fn until(&self, what: &str, mut enough: impl FnMut(&Inbox) -> bool) -> Felt {
        let mut inbox = self.inbox.subscribe();
        let came = timeout(PATIENCE, inbox.wait_for(|inbox| enough(inbox))).await;
        match came {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("{what} did not come: {:?}", self.inbox.borrow().clone())),
        }
    }

    async fn resume(&self) -> Felt {
        self.call("emit", json!({ "tag": "resume", "n": 20, "interval_ms": 50 }))
            .await?;
        let mine = |inbox: &Inbox| -> Vec<u64> {
            let mine = inbox.logs.iter().filter(|data| data["tag"] == "resume");
            mine.filter_map(|data| data["seq"].as_u64()).collect()
        };
        self.until("the last message", |inbox| mine(inbox).len() >= 20)
            .await?;
        same(&sorted(mine(&self.inbox.borrow())), &(1..=20).collect())
    }

    async fn progressing(&self, tool: &'static str, given: Value, text: &str, steps: &[u64]) -> Felt {
        self.inbox.send_modify(|inbox| inbox.progress.clear());
        same(&self.call(tool, given).await?, &text.to_owned())?;
        self.until("progress", |inbox| inbox.progress.len() >= steps.len())
            .await?;
        same(&sorted(self.inbox.borrow().progress.clone()), &steps.to_vec())
    }

    async fn sampling(&self) -> Felt {
        let text = self.call("test_sampling", json!({ "prompt": "hello" })).await?;
        same(&text, &"LLM response: sampled".to_owned())
    }

    async fn elicitation(&self) -> Felt {
        let text = self
            .call("test_elicitation", json!({ "message": "who?" }))
            .await?;
        if text.contains("action=accept") && text.contains("\"u\"") {
            Ok(())
        } else {
            Err(text)
        }
    }

    async fn logging(&self) -> Felt {
        let level = typed(json!({ "level": "info" })).map_err(said)?;
        self.service.set_level(level).await.map_err(said)?;
        self.call("test_tool_with_logging", json!({})).await?;
        let wanted = [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed",
        ];
        self.until("a log message", |inbox| {
            wanted
                .iter()
                .all(|words| inbox.logs.iter().any(|data| data == words))
        })
        .await
    }

    async fn subscription(&self) -> Felt {
        let uri = "test://watched-resource";
        let which = json!({ "uri": uri });
        let subscribe = typed(which.clone()).map_err(said)?;
        self.service.subscribe(subscribe).await.map_err(said)?;
        self.call("touch", which.clone()).await?;
        self.until("the update", |inbox| inbox.updated.iter().any(|one| one == uri))
            .await?;
        let unsubscribe = typed(which).map_err(said)?;
        self.service.unsubscribe(unsubscribe).await.map_err(said)
    }

    async fn list_changed(&self) -> Felt {
        self.call("change_tools", json!({})).await?;
        self.until("the change", |inbox| inbox.changed > 0).await
    }

    async fn cancellation(&self) -> Felt {
        self.inbox.send_modify(|inbox| inbox.progress.clear());
        let given = slow("cancel", 100).as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new("slow").with_arguments(given);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let running = self
            .service
            .send_cancellable_request(request, PeerRequestOptions::no_options())
            .await
            .map_err(said)?;
        self.until("progress", |inbox| !inbox.progress.is_empty()).await?;
        let id = running.id.clone();
        let peer = running.peer.clone();
        let note = typed(json!({ "requestId": id, "reason": "no more" })).map_err(said)?;
        peer.notify_cancelled(note).await.map_err(said)?;
        match timeout(PATIENCE, running.await_response()).await {
            Ok(Ok(ServerResult::CallToolResult(result))) => {
                let text = serde_json::to_string(&result).unwrap_or_default();
                // A server may answer what it had; it may not go on.
                if text.contains("cancel:done") {
                    Err(text)
                } else {
                    Ok(())
                }
            }
            // An error, or no answer at all: both are what the revision allows.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// This SDK hands each notification to a task of its own: their order, and whether they come before the result, is no promise.
fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}

fn slow(tag: &str, steps: u64) -> Value {
    json!({ "tag": tag, "steps": steps, "interval_ms": 100 })
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn same<T: PartialEq + std::fmt::Debug>(is: &T, must: &T) -> Felt {
    if is == must {
        return Ok(());
    }
    Err(format!("{is:?} instead of {must:?}"))
}
