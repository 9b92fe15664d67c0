//! A replica's standalone streams: one to a session, with notes as they are told, or a replay where it stores them.
//! Law: a second one is refused, or says nothing, while the first stands; a cursor that is not its own reaches nobody.
//! Next: `stored.rs`.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Here, NOTES, answer, stream_head};
use crate::clock::pass;
use crate::http::{Head, Talk};
use crate::kept::Stored;
use crate::weather::{Listening, Storing};

/// So long a server may take that hears late of a stream's end, in milliseconds.
const HEARS_WITHIN_MS: u64 = 60;

impl Here {
    /// A server that was paused hears first of what has ended meanwhile.
    async fn hear_of_ends(&self) {
        let was_paused = self.replica().paused_until.take().is_some();
        if was_paused && self.site.ways.listening == Listening::Echoing {
            pass(Duration::from_millis(2 * HEARS_WITHIN_MS)).await;
        }
    }

    pub(super) async fn get(&self, mut talk: Talk, sid: &str, head: &Head) -> io::Result<()> {
        match head.field("last-event-id") {
            Some(id) if self.site.ways.storing != Storing::None && id.starts_with('e') => {
                let knows = self.replica().sessions.contains_key(sid);
                if knows {
                    return self.replay(&mut talk, sid, id).await;
                }
            }
            Some(id) => self
                .site
                .oracle
                .violated(format!("the cursor {id} reached a backend")),
            None => {}
        }
        if self.site.ways.listening == Listening::Refused {
            return answer(&mut talk, "405 Method Not Allowed", "", "").await;
        }
        let (to, notes) = unbounded_channel();
        self.hear_of_ends().await;
        let standing = {
            let mut replica = self.replica();
            replica.begun += 1;
            let begun = replica.begun;
            match replica.sessions.get_mut(sid) {
                None => Err("404 Not Found"),
                Some(session) if session.listener.is_some() => Err("409 Conflict"),
                Some(session) => {
                    for said in &session.said {
                        let _ = to.send(said.clone());
                    }
                    session.listener = Some((begun, to));
                    Ok(begun)
                }
            }
        };
        match standing {
            Err("409 Conflict") if self.site.ways.listening == Listening::Echoing => {
                self.site.oracle.counted("streams of which nothing came");
                let (_kept, nothing) = unbounded_channel();
                self.listen(&mut talk, nothing).await
            }
            Err(status) => answer(&mut talk, status, "", "").await,
            Ok(standing) => {
                let outcome = match self.site.ways.storing {
                    Storing::None => self.listen(&mut talk, notes).await,
                    Storing::Tidy | Storing::Sloppy => self.listen_stored(&mut talk, sid).await,
                };
                if self.site.ways.listening == Listening::Echoing {
                    let time = self.site.chance().millis(0, HEARS_WITHIN_MS);
                    pass(time).await;
                }
                let mut replica = self.replica();
                if let Some(session) = replica.sessions.get_mut(sid)
                    && session
                        .listener
                        .as_ref()
                        .is_some_and(|(begun, _)| *begun == standing)
                {
                    session.listener = None;
                }
                outcome
            }
        }
    }

    pub(super) async fn listen_stored(&self, talk: &mut Talk, sid: &str) -> io::Result<()> {
        let news = self
            .replica()
            .sessions
            .get_mut(sid)
            .map(|session| session.archive.attach(NOTES));
        let Some(mut news) = news else { return Ok(()) };
        stream_head(talk, "").await?;
        let mut stray = [0; 16];
        loop {
            tokio::select! {
                biased;
                stored = news.recv() => {
                    let Some(stored) = stored else { return Ok(()) };
                    self.breathe().await;
                    self.stored_event(talk, &stored).await?;
                }
                read = talk.wire.read(&mut stray) => {
                    if read? == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// A note that has its own number for an id: the same whenever it is said.
    async fn numbered(&self, talk: &mut Talk, note: &str) -> io::Result<()> {
        let message: Value = serde_json::from_str(note).expect("a note of ours");
        let id = format!("{}/0", message["params"]["data"]["seq"]);
        let data = note.to_owned();
        self.stored_event(talk, &Stored { id, data }).await
    }

    pub(super) async fn listen(
        &self,
        talk: &mut Talk,
        mut notes: UnboundedReceiver<String>,
    ) -> io::Result<()> {
        stream_head(talk, "").await?;
        let mut at = 0;
        let mut stray = [0; 16];
        loop {
            tokio::select! {
                biased;
                note = notes.recv() => {
                    let Some(note) = note else { return Ok(()) };
                    self.breathe().await;
                    match self.site.ways.listening {
                        Listening::Echoing => self.numbered(talk, &note).await?,
                        Listening::Offered | Listening::Refused => {
                            self.event(talk, Some(&mut at), &note).await?;
                        }
                    }
                }
                read = talk.wire.read(&mut stray) => {
                    if read? == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }
}
