//! Real clients and servers of 2026-07-28 through the real binary: each with each.
//! Law: what is asked of a run is what client and server say that they saw.
//! It needs the packages of `tests/install.sh`. The other revisions are in `interop.rs`.
//! Next: `wire/stateless.rs`, for what real ones can't be made to do.

#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "wire/client.rs"]
mod client;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "wire/peer.rs"]
mod peer;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/place.rs"]
mod place;
#[path = "interop/port.rs"]
mod port;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "wire/proxy.rs"]
mod proxy;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::port::Held;
use crate::proxy::Proxy;

/// How long a real program may take to say its next word. It bounds a hang, and measures nothing.
const WORD_MAX: Duration = Duration::from_secs(60);

/// An SDK that speaks the revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sdk {
    TypeScript,
    Python,
}

/// A program of the lab, and what it says.
struct Program {
    child: Child,
    /// It ends when this is closed.
    _stdin: ChildStdin,
    said: Receiver<Value>,
    what: String,
}

impl Program {
    fn start(sdk: Sdk, args: &[&str]) -> Self {
        let script = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab").join(name);
        let mut command = match sdk {
            Sdk::TypeScript => {
                let mut command = place::node();
                command.arg(script("modern.mjs"));
                command
            }
            Sdk::Python => {
                let mut command = Command::new(place::lab().join("py2/bin/python"));
                command.arg(script("modern.py"));
                command
            }
        };
        let mut child = command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the packages of tests/install.sh");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (to_test, said) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(value) = serde_json::from_str(&line) {
                    let _ = to_test.send(value);
                }
            }
        });
        Self {
            _stdin: child.stdin.take().expect("it is piped"),
            child,
            said,
            what: format!("{sdk:?} {}", args[0]),
        }
    }

    fn next(&self) -> Value {
        let said = self.said.recv_timeout(WORD_MAX);
        said.unwrap_or_else(|_| panic!("{} says nothing more", self.what))
    }

    #[track_caller]
    fn says(&self, expected: Value) {
        assert_eq!(self.next(), expected, "{}", self.what);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One round of all that the revision has, and the end of the proxy while the client listens.
fn check(client: Sdk, server: Sdk) {
    let server = Program::start(server, &["server"]);
    let port = server.next()["port"].as_u64().expect("a port");
    let proxy = Proxy::start(&[&format!("http://127.0.0.1:{port}/mcp")], &[]);
    let client = Program::start(client, &["client", &format!("http://{}/mcp", proxy.address)]);
    client.says(json!({"ev": "ready", "protocol": "2026-07-28"}));
    client.says(json!({"ev": "tools", "names": ["change", "slow"]}));
    client.says(json!({"ev": "answer", "text": "whole:done", "progress": [1, 2, 3]}));
    server.says(json!({"ev": "began", "tag": "whole"}));
    server.says(json!({"ev": "ended", "tag": "whole"}));
    // It withdraws a call by going away, and the server hears of it.
    client.says(json!({"ev": "withdrawn"}));
    server.says(json!({"ev": "began", "tag": "left"}));
    server.says(json!({"ev": "cancelled", "tag": "left"}));
    client.says(json!({"ev": "subscribed"}));
    client.says(json!({"ev": "changed", "what": "ToolsListChanged"}));
    proxy.terminate();
    client.says(json!({"ev": "over", "how": "graceful"}));
    assert_eq!(proxy.exit_code(), 0);
}

#[test]
fn each_with_each() {
    for client in [Sdk::TypeScript, Sdk::Python] {
        for server in [Sdk::TypeScript, Sdk::Python] {
            check(client, server);
        }
    }
}

/// A server that is away is no server of another era: the client says that it could not be asked.
#[test]
fn nobody_there() {
    for client in [Sdk::TypeScript, Sdk::Python] {
        let nobody = Held::any().expect("a port");
        let proxy = Proxy::start(&[&nobody.url()], &[]);
        let client = Program::start(client, &["client", &format!("http://{}/mcp", proxy.address)]);
        let said = client.next();
        assert_eq!(said["ev"], "over", "{said}");
        let how = said["how"].as_str().expect("words");
        assert!(how.contains("503") || how.contains("error response"), "{how}");
    }
}
