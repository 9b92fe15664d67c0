//! A backend's store of events: each stream of a session, whole, and whoever is sent what is new of it.
//! Law: an id is found in the stream that it was given out in; what follows it is all that follows it.
//! Sloppy ones replay first and look for news a moment later: what comes between is stored and never sent, as it is with
//! the Python and TypeScript SDKs.
//! Next: `backend.rs`.

use std::collections::BTreeMap;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// One stored event: its id and its data, which is empty for a priming event.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) id: String,
    pub(crate) data: String,
}

/// Everything stored of one session.
#[derive(Default)]
pub(crate) struct Archive {
    given: u64,
    streams: BTreeMap<String, Stream>,
}

#[derive(Default)]
struct Stream {
    events: Vec<Stored>,
    live: Option<UnboundedSender<Stored>>,
    is_over: Over,
}

/// Whether a stream's last event is stored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Over {
    #[default]
    No,
    Yes,
}

impl Archive {
    pub(crate) fn has(&self, stream: &str) -> bool {
        self.streams.contains_key(stream)
    }

    /// Stores an event, and sends it to whoever is sent this stream.
    pub(crate) fn add(&mut self, stream: &str, data: String, over: Over) {
        self.given += 1;
        let stored = Stored {
            id: format!("e{}", self.given),
            data,
        };
        let stream = self.streams.entry(stream.to_owned()).or_default();
        stream.events.push(stored.clone());
        if let Some(live) = &stream.live {
            let _ = live.send(stored);
        }
        if over == Over::Yes {
            stream.is_over = over;
            stream.live = None;
        }
    }

    /// From now on this caller is sent what is new of a stream; nobody else is.
    pub(crate) fn attach(&mut self, stream: &str) -> UnboundedReceiver<Stored> {
        let (live, news) = unbounded_channel();
        let stream = self.streams.entry(stream.to_owned()).or_default();
        if stream.is_over == Over::No {
            stream.live = Some(live);
        }
        news
    }

    /// The stream that an id was given out in, and what follows it.
    pub(crate) fn after(&self, id: &str) -> Option<(String, Vec<Stored>)> {
        self.streams.iter().find_map(|(name, stream)| {
            let at = stream.events.iter().position(|stored| stored.id == id)?;
            Some((name.clone(), stream.events[at + 1..].to_vec()))
        })
    }
}
