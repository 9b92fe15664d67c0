//! A call of a client, from its POST to its outcome, over as many connections as that takes.
//! Law: one that was lost before its head may be sent again as it was; it is the same for so long, and no longer.
//! Next: `batch.rs`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{End, PATIENCE, Person};
use crate::clock::pass;
use crate::http::{Answered, Talk};
use crate::oracle::Outcome;
use crate::trail::{Kind, Trail, outcome_of};

/// So long after it was first sent, the same request may be sent again and is still the same. The wire contract knows it
/// for 10 s after its answer was taken.
pub(crate) const SAME_REQUEST: Duration = Duration::from_secs(8);

impl Person {
    /// Makes one call and follows it to its end.
    pub(super) async fn call(mut self, id: u64) {
        if self.chance.percent(self.streets.ways.steals) {
            self.steal().await;
        }
        if self.revision == "2025-03-26" && self.chance.percent(25) {
            return self.batch(id).await;
        }
        let token = format!("{}:{id}", self.label);
        let steps = self.chance.below(8);
        let pace = self.chance.between(0, 1_500);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "work",
            "arguments": {"token": token, "steps": steps, "pace": pace}, "_meta": {"progressToken": token}}});
        let kind = Kind::Answer {
            token: token.clone(),
            id,
            steps,
        };
        let mut trail = Trail::new(&self.label, kind);
        self.oracle().called(&token);
        self.makes = vec![token.clone()];
        let first = Instant::now();
        loop {
            trail.sent();
            let answered = self.send("POST", &[], &body.to_string()).await;
            // With another credential it would be another request.
            self.renewed = 0;
            match answered {
                Answered::Stream(head, talk) => {
                    self.renewed = self.streets.papers.renewed;
                    trail.opened(self.oracle(), (&head, self.asked_by(&talk)), None);
                    return self.follow_call(talk, trail, &token).await;
                }
                Answered::Whole(head, body) if head.status() == 200 => {
                    let message: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
                    if message["id"] != id {
                        return self
                            .oracle()
                            .violated(format!("{token} was answered with {body}"));
                    }
                    let outcome = outcome_of(self.oracle(), &token, &message);
                    return self.oracle().told(&token, self.streets.plant.outcome(outcome));
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    self.session_ended();
                    // Of what was sent before, a session that is gone says nothing.
                    let outcome = match trail.times_sent() {
                        1 => Outcome::NotExecuted("404".to_owned()),
                        _ => Outcome::Unknown("404".to_owned()),
                    };
                    return self.oracle().told(&token, outcome);
                }
                Answered::Whole(head, body) => {
                    return self
                        .oracle()
                        .violated(format!("{token} was answered {} {body}", head.status()));
                }
                Answered::Lost
                    if first.elapsed() < SAME_REQUEST && self.chance.percent(self.streets.ways.repeats) =>
                {
                    self.oracle().saw(format!("{token} is sent again"));
                    self.oracle().counted("repeats");
                    pass(self.chance.millis(0, 1_000)).await;
                }
                Answered::Lost => return self.oracle().gave_up(&token, "lost before its head"),
            }
        }
    }

    /// Follows a call's stream over as many connections as it takes.
    pub(super) async fn follow_call(&mut self, talk: Talk, mut trail: Trail, token: &str) {
        let mut calm_since = None;
        let mut end = self.follow(talk, &mut trail, None).await;
        loop {
            match end {
                End::Told(outcome) => return self.oracle().told(token, self.streets.plant.outcome(outcome)),
                // It can't ask for the rest, and nothing told it that there is one.
                End::Orderly if trail.cursor.is_none() => {
                    let what = format!("{token} ended in order, with no outcome and no id");
                    return self.oracle().violated(what);
                }
                End::Orderly | End::Broken => {}
            }
            let Some(cursor) = trail.cursor.clone() else {
                return self.oracle().gave_up(token, "lost before its first id");
            };
            if self.streets.calm.is_here() {
                let since = *calm_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return self.oracle().violated(format!("{token} hangs after the storm"));
                }
            }
            pass(self.chance.millis(100, 2_000)).await;
            end = match self.send("GET", &[("last-event-id", &cursor)], "").await {
                Answered::Stream(mut head, talk) => {
                    self.streets.plant.verdict(&mut head, Some(&cursor));
                    trail.opened(self.oracle(), (&head, self.asked_by(&talk)), Some(&cursor));
                    self.follow(talk, &mut trail, None).await
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    self.session_ended();
                    End::Told(Outcome::Unknown("session gone".to_owned()))
                }
                Answered::Whole(head, body) => {
                    return self.oracle().violated(format!(
                        "{token}: its resume was answered {} {body}",
                        head.status()
                    ));
                }
                Answered::Lost => End::Broken,
            };
        }
    }
}
