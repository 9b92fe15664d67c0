//! How a raw client sends a request and reads its answer, up to the head of a stream.
//! Law: whatever a strict reader would refuse is a violation, but for what a cut connection leaves; no wait is endless.
//! Next: `sdk.rs`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::http::{Answered, Talk};
use crate::oracle::Oracle;
use crate::street::Street;

/// A request has the head of its answer, and an open stream its next comment, within this time: the proxy's longest
/// configured wait, every fault's length, and a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(45);

/// One client's way to the proxy.
#[derive(Clone)]
pub(crate) struct Line {
    label: String,
    revision: &'static str,
    at: SocketAddr,
    oracle: Arc<Oracle>,
    /// Its session's id; empty before there is one.
    pub(crate) session: String,
}

impl Line {
    /// One that has no session yet.
    pub(crate) fn new(label: String, revision: &'static str, street: &Street) -> Self {
        Self {
            label,
            revision,
            at: street.at,
            oracle: Arc::clone(&street.oracle),
            session: String::new(),
        }
    }

    /// Sends one request on a connection of its own.
    pub(crate) async fn send(&self, method: &str, cursor: Option<&str>, body: &str) -> Answered {
        self.send_on(None, (method, cursor, body)).await
    }

    /// The same on a connection that has carried one before.
    pub(crate) async fn send_on(&self, spare: Option<Talk>, request: (&str, Option<&str>, &str)) -> Answered {
        match timeout(BOUND, self.try_send(spare, request)).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                let what = format!("{}: a malformed answer: {error}", self.label);
                self.oracle.violated(what);
                Answered::Lost
            }
            Ok(Err(_)) => Answered::Lost,
            Err(_) => {
                let (method, cursor, _) = request;
                let what = format!("{}: a {method} from {cursor:?} hangs", self.label);
                self.oracle.violated(what);
                Answered::Lost
            }
        }
    }

    async fn try_send(
        &self,
        spare: Option<Talk>,
        (method, cursor, body): (&str, Option<&str>, &str),
    ) -> io::Result<Answered> {
        let mut talk = match spare {
            Some(talk) => talk,
            None => {
                let wire = TcpStream::connect(self.at).await?;
                let port = wire.local_addr()?.port();
                self.oracle
                    .saw(format!("{}: {method} from port {port}: {cursor:?}", self.label));
                Talk::new(wire)
            }
        };
        let mut text = format!(
            "{method} /mcp HTTP/1.1\r\nhost: {}\r\nuser-agent: node\r\naccept: application/json, text/event-stream\r\n",
            self.at
        );
        if !self.session.is_empty() {
            text.push_str(&format!(
                "mcp-session-id: {}\r\nmcp-protocol-version: {}\r\n",
                self.session, self.revision
            ));
        }
        if let Some(cursor) = cursor {
            text.push_str(&format!("last-event-id: {cursor}\r\n"));
        }
        if !body.is_empty() {
            text.push_str("content-type: application/json\r\n");
        }
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        talk.send(&text).await?;
        talk.answered().await
    }
}
