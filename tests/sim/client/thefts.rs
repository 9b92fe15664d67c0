//! Clients that show what is not theirs: a cursor of somebody else's on their own session, or on its owner's.
//! Law: nothing of another session comes of it, and nothing of it is confirmed.
//! Next: `../papers.rs`.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::{Person, Stolen};
use crate::http::{Answered, Blocks, Talk};
use crate::papers;
use crate::plant::Plant;

impl Person {
    /// Presents somebody else's cursor, on its own session or on theirs: nothing of theirs may come.
    pub(super) async fn steal(&mut self) {
        let stolen = {
            let loot = self.streets.loot.lock().expect("no panic while it is held");
            let others: Vec<_> = loot
                .iter()
                .filter(|stolen| stolen.whose != self.label)
                .cloned()
                .collect();
            if others.is_empty() {
                return;
            }
            self.chance.pick(&others).clone()
        };
        self.oracle().counted("thefts");
        if self.streets.papers.kind != papers::Kind::None && self.chance.percent(60) {
            return self.trespass(stolen).await;
        }
        let Answered::Stream(head, talk) = self.send("GET", &[("last-event-id", &stolen.cursor)], "").await
        else {
            return;
        };
        let verdict = head.field("throughline-continuity").unwrap_or_default();
        // Where the stream was about to be reset anyway, that reason is told.
        // Where its own credential is not judged yet, none is told.
        if !verdict.is_empty() && !verdict.starts_with("reset") {
            self.oracle().violated(format!(
                "{}: a stolen cursor was answered {verdict:?}",
                self.label
            ));
        }
        self.brings_nothing(talk).await;
    }

    /// Goes to somebody else's session with its own credential.
    pub(super) async fn trespass(&mut self, stolen: Stolen) {
        self.oracle().counted("trespasses");
        let mut thief = self.another("trespass");
        thief.token = stolen.token;
        if self.streets.plant == Plant::AnswersStrangers {
            // As it looks where the proxy takes everybody for whom the session is of.
            thief.person = stolen.whose.clone();
        }
        if thief.chance.percent(20) {
            if let Answered::Whole(head, _) = thief.send("DELETE", &[], "").await
                && head.status() < 300
            {
                let (label, whose) = (&self.label, &stolen.whose);
                self.oracle()
                    .violated(format!("{label} ended the session of {whose}"));
            }
            return;
        }
        let cursor = [("last-event-id", stolen.cursor.as_str())];
        let fields = if thief.chance.percent(50) {
            &cursor[..]
        } else {
            &[]
        };
        let Answered::Stream(head, talk) = thief.send("GET", fields, "").await else {
            return;
        };
        if let Some(verdict) = head.field("throughline-continuity") {
            let (label, whose) = (&self.label, &stolen.whose);
            self.oracle()
                .violated(format!("{label} was told {verdict:?} of a stream of {whose}"));
        }
        self.brings_nothing(talk).await;
    }

    /// Reads for a moment what a theft brings.
    pub(super) async fn brings_nothing(&self, mut talk: Talk) {
        let mut blocks = Blocks::default();
        // Where it came to hold its own standalone stream, notes of its own go on coming.
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until
            && let Ok(Ok(piece)) = timeout(Duration::from_secs(2), talk.piece()).await
        {
            if piece.is_empty() || blocks.add(&piece).is_err() {
                return;
            }
            while let Ok(Some(event)) = blocks.next() {
                let message: Value =
                    serde_json::from_str(event.data.as_deref().unwrap_or_default()).unwrap_or(Value::Null);
                let whose = message["params"]["data"]["tag"].as_str();
                if whose.is_some_and(|whose| whose != self.label)
                    || !message["params"]["progressToken"].is_null()
                {
                    self.oracle()
                        .violated(format!("{}: a theft brought {message}", self.label));
                }
            }
        }
    }
}
