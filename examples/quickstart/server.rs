//! A real MCP server: the official Rust SDK's, unmodified, with two tools of our own.
//! Law: it knows nothing of proxies, cuts or resumption; whatever it can do about a lost connection is the SDK's.
//! `bake` reports its progress on the answer to its call; `watch` sends notifications on the session's standalone stream.
//! Next: `client.rs`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    ErrorData, ProgressNotificationParam, RequestMetaObject, ResourceUpdatedNotificationParam,
    ServerCapabilities, ServerConfig,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{Peer, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Time between two messages.
const PACE: Duration = Duration::from_millis(10);

/// How many messages a tool sends.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
pub(crate) struct Count {
    /// How many.
    n: u32,
}

/// The server's two tools.
#[derive(Clone)]
struct Bakery;

#[tool_router]
impl Bakery {
    #[tool(description = "Bakes n loaves: one progress notification for each, then the result.")]
    async fn bake(
        Parameters(Count { n }): Parameters<Count>,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        let token = meta.get_progress_token();
        for loaf in 1..=n {
            tokio::time::sleep(PACE).await;
            if let Some(token) = &token {
                let progress =
                    ProgressNotificationParam::new(token.clone(), f64::from(loaf)).with_total(f64::from(n));
                let _client_gone = peer.notify_progress(progress).await;
            }
        }
        Ok(format!("{n} loaves"))
    }

    #[tool(
        description = "Sends n numbered notifications/resources/updated on the session's standalone stream."
    )]
    async fn watch(
        Parameters(Count { n }): Parameters<Count>,
        peer: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        tokio::spawn(async move {
            for order in 1..=n {
                tokio::time::sleep(PACE).await;
                let changed = ResourceUpdatedNotificationParam::new(format!("order://{order}"));
                let _client_gone = peer.notify_resource_updated(changed).await;
            }
        });
        Ok(format!("watching {n} orders"))
    }
}

#[tool_handler]
impl ServerHandler for Bakery {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_resources()
                .build(),
        )
    }
}

/// Starts one replica on a free loopback port.
pub(crate) async fn start() -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let service: StreamableHttpService<Bakery, LocalSessionManager> = StreamableHttpService::new(
        || Ok(Bakery),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            eprintln!("a replica ended: {error}");
        }
    });
    Ok((address, task))
}
