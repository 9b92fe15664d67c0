//! Two replicas of a real MCP server, throughline in front of them, and a real client whose connection is cut.
//! It shows what is lost without the proxy and with it, then stays up to be tried by hand.
//! Law: servers and client are the official Rust SDK's, unmodified; the network that loses bytes is `quickstart/relay.rs`.
//! Run it with `cargo run --release --example quickstart`; `-- --once` tries the commands itself, and ends.
//! Next: `quickstart/server.rs`.

#[path = "quickstart/by_hand.rs"]
mod by_hand;
#[path = "quickstart/client.rs"]
mod client;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "quickstart/relay.rs"]
mod relay;
#[path = "quickstart/server.rs"]
mod server;
#[path = "quickstart/table.rs"]
mod table;
#[path = "quickstart/trial.rs"]
mod trial;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use throughline::app::App;
use throughline::config::{self, Flags};

/// The configuration that the README shows; only the addresses are this run's own.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/minimal.toml");

#[tokio::main]
async fn main() -> ExitCode {
    match story().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn story() -> Result<(), String> {
    let once = std::env::args().any(|argument| argument == "--once");
    let (first, _first) = server::start().await.map_err(|error| error.to_string())?;
    let (second, _second) = server::start().await.map_err(|error| error.to_string())?;
    let proxy = front(&[first, second]).await?;
    let at = proxy.addresses()[0];
    println!("\n  MCP server, replica 1   http://{first}/mcp      (the official Rust SDK's)");
    println!("  MCP server, replica 2   http://{second}/mcp");
    println!("  throughline             http://{at}/mcp      (config/minimal.toml, ports apart)\n");
    println!(
        "  A client calls a tool and listens for notifications, {} messages each. Its network cuts both",
        trial::MESSAGES
    );
    println!(
        "  connections in the middle, and takes the {} messages with it that are on their way.\n",
        trial::LOST
    );

    let (direct, proxied) = tokio::join!(trial::run(first), trial::run(at));
    let direct = table::Column {
        heading: "directly",
        trial: direct?,
    };
    let proxied = table::Column {
        heading: "through throughline",
        trial: proxied?,
    };
    let whole = proxied.is_whole();
    table::print(&[direct, proxied]);
    if !whole {
        return Err("the proxy did not deliver everything once".to_owned());
    }

    let commands = by_hand::commands(at);
    println!("\n  Now by hand, with curl:\n\n{commands}");
    if once {
        by_hand::try_them(&commands).await?;
        println!("  (tried: the two halves make one whole)");
    } else {
        println!("  Everything stays up until you press Ctrl-C.");
        tokio::signal::ctrl_c().await.map_err(|error| error.to_string())?;
    }
    proxy.drain().await;
    Ok(())
}

/// Starts the proxy in front of these replicas.
async fn front(replicas: &[SocketAddr]) -> Result<App, String> {
    let urls: Vec<String> = replicas
        .iter()
        .map(|replica| format!("\"http://{replica}/mcp\""))
        .collect();
    let flags = Flags {
        config: Some(Path::new(CONFIG).to_owned()),
        listen: vec!["127.0.0.1:0".to_owned()],
        admin: Some("off".to_owned()),
        set: vec![format!("upstream.replicas=[{}]", urls.join(", "))],
        ..Flags::default()
    };
    let (config, _warnings) = config::read(&flags).map_err(|problems| problems.to_string())?;
    App::start(config).await.map_err(|error| error.to_string())
}
