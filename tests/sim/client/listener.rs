//! A client's standalone stream, from the first GET until nothing more is awaited of it.
//! Law: everything that was told to its client comes, or it is said that it won't.
//! Next: `thefts.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::{PATIENCE, Person};
use crate::clock::pass;
use crate::http::Answered;
use crate::trail::{Kind, Trail};
use crate::weather::Listening;

impl Person {
    /// Listens on the standalone stream until everything else is done and a note of the calm has come.
    pub(super) async fn listen(mut self, done: Arc<AtomicBool>) {
        let mut trail = Trail::new(&self.label, Kind::Notes);
        loop {
            if self.is_over() {
                return;
            }
            let forgets = self.chance.percent(self.streets.ways.forgets) && !self.streets.calm.is_here();
            let cursor = trail.cursor.clone().filter(|_| !forgets);
            let fields: Vec<(&str, &str)> = cursor
                .iter()
                .map(|cursor| ("last-event-id", cursor.as_str()))
                .collect();
            match self.send("GET", &fields, "").await {
                Answered::Stream(mut head, talk) => {
                    self.streets.plant.verdict(&mut head, cursor.as_deref());
                    trail.opened(self.oracle(), (&head, self.asked_by(&talk)), cursor.as_deref());
                    self.follow(talk, &mut trail, Some(&done)).await;
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    return self.session_ended();
                }
                Answered::Whole(head, _)
                    if head.status() == 405 && self.streets.listening == Listening::Refused =>
                {
                    return;
                }
                Answered::Whole(head, body) => {
                    return self.oracle().violated(format!(
                        "{}: its listener was answered {} {body}",
                        self.label,
                        head.status()
                    ));
                }
                Answered::Lost => {}
            }
            if self.has_rested(&trail, &done) {
                return;
            }
            pass(self.chance.millis(100, 2_000)).await;
        }
    }

    /// Whether nothing more is awaited of the standalone stream: all that was told until everything else was done has
    /// come, or it is said that it won't.
    pub(super) fn has_rested(&mut self, trail: &Trail, done: &AtomicBool) -> bool {
        if !done.load(Ordering::Relaxed) || !self.streets.calm.is_here() {
            return false;
        }
        let told = self.streets.site.told(&self.label);
        let (since, told) = *self.goal.get_or_insert((Instant::now(), told));
        if trail.caught_up(told) {
            return true;
        }
        let hangs = since.elapsed() > PATIENCE;
        if hangs {
            let what = format!(
                "{}: {told} notes were told, and it stands at {}",
                self.label,
                trail.number()
            );
            self.oracle().violated(what);
        }
        hangs
    }
}
