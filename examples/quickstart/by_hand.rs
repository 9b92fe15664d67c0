//! What to type to cut a call by hand and to take it up again, with nothing but a shell and curl.
//! Law: what is printed is what `--once` runs, so it works as it stands.
//! Next: back to `../quickstart.rs`, or on to `src/lib.rs`.

use std::net::SocketAddr;

use tokio::process::Command;

/// Loaves of the call that is cut: enough to be in the middle after half a second.
const LOAVES: u32 = 150;

/// The commands, for a proxy that listens here.
pub(crate) fn commands(at: SocketAddr) -> String {
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}"#;
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"bake","arguments":{{"n":{LOAVES}}},"_meta":{{"progressToken":1}}}}}}"#
    );
    format!(
        "  # a session
  mcp() {{ curl -sN http://{at}/mcp -H 'content-type: application/json' -H 'accept: application/json, text/event-stream' \"$@\"; }}
  session=$(mcp -i -d '{hello}' | tr -d '\\r' | grep -i '^mcp-session-id:')
  mcp -H \"$session\" -d '{ready}'

  # a call, cut after half a second
  mcp -H \"$session\" -m 0.5 -d '{call}' | tee half

  # the rest of it, and its result
  mcp -H \"$session\" -i -H \"last-event-id: $(sed -n 's/^id: //p' half | tail -1)\"
"
    )
}

/// Runs the commands in a directory of their own; whether the two halves make one whole.
pub(crate) async fn try_them(commands: &str) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("throughline-quickstart-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let output = Command::new("bash")
        .args(["-c", commands])
        .current_dir(&folder)
        .output()
        .await;
    let _left = std::fs::remove_dir_all(&folder);
    let output = output.map_err(|error| format!("bash: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let (half, rest) = said
        .split_once("HTTP/1.1 200")
        .ok_or_else(|| format!("no resumption in:\n{said}"))?;
    for loaf in 1..=LOAVES {
        let message = format!(r#""progress":{loaf}.0"#);
        let count = half.matches(&message).count() + rest.matches(&message).count();
        if count != 1 {
            return Err(format!("loaf {loaf} came {count} times:\n{said}"));
        }
    }
    match rest.contains(&format!("{LOAVES} loaves")) {
        true => Ok(()),
        false => Err(format!("no result in:\n{said}")),
    }
}
