//! The real binary, started for one test and stopped with it.
//! Law: what a test waits for is a line of the proxy's own log or bytes on a socket, never time.
//! Next: `session.rs`.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;

use crate::client::Client;
use crate::peer::DEADLINE;

/// The secret of every proxy here, so that one started anew knows the sessions of the one before.
const SECRET: &str = "wire-tests-secret-of-more-than-16-bytes";

/// A running proxy.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    child: Child,
    lines: Receiver<Value>,
    /// Lines that came while a test waited for others.
    seen: RefCell<Vec<Value>>,
}

impl Proxy {
    /// A proxy before these replicas, with these settings.
    pub(crate) fn start(upstreams: &[&str], settings: &[&str]) -> Self {
        Self::with_args(&args_of(upstreams, settings))
    }

    /// The same, which may have so many files and sockets open.
    pub(crate) fn start_with_files(max: u32, upstreams: &[&str], settings: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {max}; exec \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_throughline"));
        Self::spawn_by(command, &beside(&args_of(upstreams, settings)))
    }

    /// A proxy with these arguments beside those that every test needs.
    pub(crate) fn with_args(args: &[&str]) -> Self {
        Self::spawn(&beside(args))
    }

    /// A proxy with this file, which says everything.
    pub(crate) fn configured(file: &std::path::Path) -> Self {
        Self::spawn(&["--config", file.to_str().expect("a path in UTF-8")])
    }

    fn spawn(args: &[&str]) -> Self {
        Self::spawn_by(Command::new(env!("CARGO_BIN_EXE_throughline")), args)
    }

    fn spawn_by(mut command: Command, args: &[&str]) -> Self {
        let mut child = command
            .arg("run")
            .args(args)
            .env("THROUGHLINE_SECRET", SECRET)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("standard error"));
        let (to_test, lines) = channel();
        thread::spawn(move || {
            for line in stderr.lines() {
                let Ok(line) = line else { return };
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if to_test.send(line).is_err() {
                    return;
                }
            }
        });
        let mut proxy = Self {
            address: ([127, 0, 0, 1], 0).into(),
            child,
            lines,
            seen: RefCell::default(),
        };
        let line = proxy.logged("listening");
        proxy.address = line["address"]
            .as_str()
            .expect("an address")
            .parse()
            .expect("an address");
        proxy
    }

    /// The next line with this message; lines of before are looked at once.
    pub(crate) fn logged(&self, message: &str) -> Value {
        self.line(message, |_| true)
    }

    fn line(&self, message: &str, matches: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(message, |line| {
            line["message"].as_str() == Some(message) && matches(line)
        })
    }

    fn wait_for(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut seen = self.seen.borrow_mut();
        if let Some(at) = seen.iter().position(&is_it) {
            return seen.remove(at);
        }
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) if is_it(&line) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no line `{what}` came; these did:\n{}", listing(&seen)),
            }
        }
    }

    /// The next line in which this field says this.
    pub(crate) fn logged_with(&self, field: &str, says: &str) -> Value {
        self.wait_for(&format!("{field}={says}"), |line| {
            line[field].as_str() == Some(says)
        })
    }

    /// Whether such a line was among those that came while a test waited for others.
    pub(crate) fn has_logged(&self, message: &str) -> bool {
        let seen = self.seen.borrow();
        seen.iter().any(|line| line["message"].as_str() == Some(message))
    }

    /// The next line with this message that is about this session.
    pub(crate) fn logged_of(&self, session: &str, message: &str) -> Value {
        self.line(message, |line| line["session"].as_str() == Some(session))
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
        self.logged("drain began");
    }

    /// The process's id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, which: &str) {
        let told = Command::new("kill")
            .args([which, &self.child.id().to_string()])
            .status();
        assert!(told.expect("kill runs").success());
    }

    /// Where the operator looks. Call: once.
    pub(crate) fn operator(&self) -> SocketAddr {
        let line = self.logged("listening for the operator");
        let address = line["address"].as_str().expect("an address");
        address.parse().expect("an address")
    }

    /// Waits for its end and answers its exit code.
    pub(crate) fn exit_code(mut self) -> i32 {
        // The log ends with the process; until then this waits, within the deadline of each line.
        while self.lines.recv_timeout(DEADLINE).is_ok() {}
        let status: ExitStatus = self.child.wait().expect("it ends");
        status.code().expect("an exit code, no signal")
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(self) {}
}

fn args_of<'a>(upstreams: &[&'a str], settings: &[&'a str]) -> Vec<&'a str> {
    let upstreams = upstreams.iter().flat_map(|url| ["--upstream", url]);
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    upstreams.chain(settings).collect()
}

/// These arguments beside those that every test needs.
fn beside<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["--listen", "127.0.0.1:0", "--admin", "off"];
    all.extend([
        "--set",
        "log.format=json",
        "--set",
        "log.filter=throughline=debug",
    ]);
    all.extend(["--set", "server.workers=2"]);
    all.extend(args);
    all
}

fn listing(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let ended = self.child.try_wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the proxy's end, if it ended by itself: {ended:?}");
            let mut lines = self.seen.borrow_mut();
            lines.extend(self.lines.iter());
            eprintln!("the proxy said:\n{}", listing(&lines));
        }
    }
}
