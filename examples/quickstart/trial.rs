//! One trial: a client, a way to the servers, and a network that loses a piece of both streams.
//! Law: the same cuts on every way; what is counted is what the client was told.
//! Next: `table.rs`.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::client::{Client, Notes};
use crate::relay::{Exchange, How, Kind, Plan, Point, Relay, Spread, at_once};

/// Messages on each stream.
pub(crate) const MESSAGES: u32 = 60;
/// Events that pass before the cut.
pub(crate) const BEFORE: usize = 10;
/// Events that are lost with the connection.
pub(crate) const LOST: usize = 25;
/// How long a trial may take; a call without an answer by then is hung.
const PATIENCE: Duration = Duration::from_secs(15);

/// How a call fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// With an error, in these words.
    Error(String),
    /// Without any.
    Hung,
}

/// What came of a trial.
#[derive(Debug)]
pub(crate) struct Trial {
    /// How the call ended.
    pub(crate) call: Result<String, Failure>,
    /// What the client was told.
    pub(crate) notes: Notes,
}

/// Cuts the first call and the first standalone stream, and takes what was on the way with it.
fn lose_a_piece(exchange: &Exchange) -> Plan {
    let baking = exchange.body.contains("\"bake\"");
    match exchange.kind {
        Kind::Call if baking && exchange.nth == 1 => Plan::Cut(
            Point {
                events: BEFORE,
                bytes: 0,
            },
            How::Lose(LOST),
            at_once(),
        ),
        Kind::Listen if exchange.nth == 1 => Plan::Cut(
            Point {
                events: BEFORE,
                bytes: 0,
            },
            How::Lose(LOST),
            at_once(),
        ),
        Kind::Call | Kind::Listen | Kind::Resume | Kind::Other => Plan::Pass,
    }
}

/// Runs the trial on one way to the servers.
pub(crate) async fn run(to: SocketAddr) -> Result<Trial, String> {
    let relay = Relay::start(vec![to], Spread::Connections, lose_a_piece)
        .await
        .map_err(|error| error.to_string())?;
    let until = Instant::now() + PATIENCE;
    let connected = timeout_at(until, Client::connect(relay.address())).await;
    let client = connected.map_err(|_| "a client could not connect")??;
    // The standalone stream first: the notifications must find it open.
    let _open = timeout_at(until, relay.until(|tally| tally.answered(Kind::Listen) > 0)).await;
    let call = match timeout_at(until, client.call("bake", MESSAGES)).await {
        Ok(call) => call.map_err(Failure::Error),
        Err(_) => Err(Failure::Hung),
    };
    let _started = timeout_at(until, client.call("watch", MESSAGES)).await;
    let _all = timeout_at(until, client.until(|notes| notes.orders.contains(&MESSAGES))).await;
    Ok(Trial {
        call,
        notes: client.notes(),
    })
}
