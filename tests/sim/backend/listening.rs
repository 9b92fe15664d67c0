//! A replica's standalone streams: one to a session, with notes as they are told, or a replay where it stores them.
//! Law: a second one is refused while the first stands; a cursor that is not its own reaches nobody.
//! Next: `stored.rs`.

use std::io;

use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Here, NOTES, answer, stream_head};
use crate::http::{Head, Talk};
use crate::weather::{Listening, Storing};

impl Here {
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
        let standing = {
            let mut replica = self.replica();
            replica.begun += 1;
            let begun = replica.begun;
            match replica.sessions.get_mut(sid) {
                None => Err("404 Not Found"),
                Some(session) if session.listener.is_some() => Err("409 Conflict"),
                Some(session) => {
                    session.listener = Some((begun, to));
                    Ok(begun)
                }
            }
        };
        match standing {
            Err(status) => answer(&mut talk, status, "", "").await,
            Ok(standing) => {
                let outcome = match self.site.ways.storing {
                    Storing::None => self.listen(&mut talk, notes).await,
                    Storing::Tidy | Storing::Sloppy => self.listen_stored(&mut talk, sid).await,
                };
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
                    self.event(talk, Some(&mut at), &note).await?;
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
