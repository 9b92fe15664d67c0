//! A real MCP server on the official Rust SDK, in a process of its own: this program, started again with `--serve`.
//! Law: the same two tools and the same words as `../lab/server.py`; it ends with its standard input.
//! Next: `client.rs`.

use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    ErrorData, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, RequestMetaObject,
    ServerCapabilities, ServerConfig,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{Peer, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until};

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Slow {
    tag: String,
    steps: u32,
    interval_ms: u64,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Emit {
    tag: String,
    n: u32,
    interval_ms: u64,
}

#[derive(Clone)]
struct Tools;

async fn pace(interval_ms: u64) {
    sleep_until(Instant::now() + Duration::from_millis(interval_ms)).await;
}

#[tool_router]
impl Tools {
    #[tool(description = "So many progress notifications, then a result.")]
    async fn slow(
        Parameters(Slow {
            tag,
            steps,
            interval_ms,
        }): Parameters<Slow>,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        println!("{}", json!({ "ev": "began", "tag": tag }));
        let token = meta.get_progress_token();
        for step in 1..=steps {
            pace(interval_ms).await;
            if let Some(token) = &token {
                let progress = ProgressNotificationParam::new(token.clone(), f64::from(step));
                let _client_gone = peer.notify_progress(progress.with_total(f64::from(steps))).await;
            }
        }
        Ok(format!("{tag}:done"))
    }

    #[tool(description = "So many numbered log notifications on the standalone GET stream; answers at once.")]
    async fn emit(
        Parameters(Emit { tag, n, interval_ms }): Parameters<Emit>,
        peer: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        println!("{}", json!({ "ev": "began", "tag": tag }));
        let answer = format!("{tag}:emitting");
        tokio::spawn(async move {
            for seq in 1..=n {
                pace(interval_ms).await;
                let data = json!({ "tag": tag, "seq": seq });
                let note = LoggingMessageNotificationParam::new(LoggingLevel::Info, data);
                let _client_gone = peer.notify_logging_message(note).await;
            }
        });
        Ok(answer)
    }
}

#[tool_handler]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_logging()
                .build(),
        )
    }
}

/// Serves on this port until standard input ends.
pub(crate) async fn serve(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let port = listener.local_addr()?.port();
    let service: StreamableHttpService<Tools, LocalSessionManager> = StreamableHttpService::new(
        || Ok(Tools),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    println!("{}", json!({ "ev": "listening", "port": port, "path": "/mcp" }));
    std::thread::spawn(|| {
        let _ended = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    axum::serve(listener, router).await
}
