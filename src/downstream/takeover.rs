//! The takeover: an SSE answer over HTTP/1 leaves hyper and gets the socket itself.
//! Law: the request is read whole and hyper holds nothing unsent (`tap`); only then is the connection taken apart.
//! How: the request's future leaves a `Takeover` on the desk and stays pending; the loop around hyper finds it, takes
//! socket and read-ahead out of hyper, gives a sink to the stream's ticket, and ends. Nothing of hyper stays in memory.
//! Why: a parked stream costs no task and no buffer, and a burst costs one vectored write for many events.
//! Next: `framing.rs`, `sink_http1.rs`.

use std::sync::Arc;

use crate::downstream::framing::BodyEnd;
use crate::downstream::front::{Front, Link};
use crate::downstream::head;
use crate::downstream::sink_http1::{After, Http1Sink};
use crate::net::Io;
use crate::relay::answer::{Attach, Opening, Serve};

/// An SSE answer that waits for its socket.
pub(crate) struct Takeover {
    head: Box<[u8]>,
    ticket: Box<dyn Attach>,
    body_end: BodyEnd,
    after: After,
}

impl Takeover {
    /// The answer's head is written here; the ticket waits for the socket.
    pub(crate) fn new(opening: Opening, body_end: BodyEnd, after: After) -> Self {
        Self {
            head: head::of_stream(&opening.headers, body_end, after),
            ticket: opening.ticket,
            body_end,
            after,
        }
    }

    /// Gives the connection to the stream.
    pub(crate) fn attach<T: Io, S: Serve>(self, link: Link<T>, front: Arc<Front<S>>) {
        let sink = Http1Sink::new(link, front, self.head, self.body_end, self.after);
        self.ticket.attach(Box::new(sink));
    }
}
