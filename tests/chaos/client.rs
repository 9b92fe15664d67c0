//! Raw clients: session after session, each with a listener, a round of numbered notes and calls with numbered progress.
//! Law: it resumes with the last id that it saw, as the SDKs do, over connections that break; what it was told goes to its
//! trails (`../sim/trail.rs`), which judge. Every wait for an answer is bounded, and running into a bound is a violation.
//! What it does follows from its seed. Next: `talk.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::http::{Answered, Blocks, Event, Talk};
use crate::oracle::Outcome;
use crate::pace::pass;
use crate::street::{Again, Street, THE_PROXY};
use crate::talk::{BOUND, Line};
use crate::trail::{Kind, Meaning, Trail, outcome_of};

/// A call that has no outcome after so long hangs: what is configured, every fault's length, and a busy machine.
const CALL_MAX: Duration = Duration::from_secs(90);
/// The notes of a session are whole, or their loss is said, this long after the last one came.
const NOTES_MAX: Duration = Duration::from_secs(60);
/// How long a client goes on listening behind a loss that was said and the time that its notes would have taken.
const BEHIND_LOSS: Duration = Duration::from_secs(4);
/// How long the proxy waits for the head of a backend's standalone stream. A listener that was answered later may stand
/// before the backend's stream does, and what that says meanwhile goes nowhere, whoever is between.
const HEAD_WAITED_FOR: Duration = Duration::from_millis(1_800);
/// So long after it was first sent, the same request may be sent again and is still the same (wire contract, 7).
const SAME_REQUEST: Duration = Duration::from_secs(8);

/// How one connection of a stream ended.
enum End {
    Told(Outcome),
    Orderly,
    Broken,
}

/// Somebody with one session.
#[derive(Clone)]
struct Person {
    street: Street,
    line: Line,
    label: String,
    /// The session is over: its client would begin a new one.
    gone: Arc<AtomicBool>,
    /// Calls after one another share a connection, as far as it lives.
    spare: Arc<Mutex<Option<Talk>>>,
}

/// The standalone stream of a session, as its listener and whoever waits for it see it.
#[derive(Clone)]
struct Notes {
    trail: Arc<Mutex<Trail>>,
    heard: watch::Sender<u64>,
}

impl Notes {
    fn trail(&self) -> MutexGuard<'_, Trail> {
        self.trail.lock().expect("no panic while it is held")
    }
}

/// The whole of a client: one session after another, until the round ends.
pub(crate) async fn run(name: String, street: Street) {
    for life in 0.. {
        if !street.goes_on() {
            return;
        }
        let label = format!("{name}.{life}");
        let mut street = street.clone();
        street.chance = street.chance.fork(&label);
        if let Some(person) = Person::open(label, street).await {
            person.live().await;
        }
    }
}

impl Person {
    /// Opens a session; a client tries again while the round goes on.
    async fn open(label: String, mut street: Street) -> Option<Self> {
        let revision = *street.chance.pick(&["2025-06-18", "2025-11-25", "2025-11-25"]);
        let mut line = Line::new(label.clone(), revision, &street);
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": label, "version": "1"}}});
        while street.goes_on() {
            match line.send("POST", None, &hello.to_string()).await {
                Answered::Whole(head, _) if head.status() == 200 => {
                    let session = head.field("mcp-session-id").unwrap_or_default();
                    line.session = session.to_owned();
                    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
                    line.send("POST", None, ready).await;
                    street.oracle.saw(format!("{label} began at {revision}"));
                    street.oracle.counted("sessions");
                    return Some(Self {
                        street,
                        line,
                        label,
                        gone: Arc::default(),
                        spare: Arc::default(),
                    });
                }
                Answered::Whole(head, body) if !matches!(head.status(), 502..=504) => {
                    let what = format!("{label}: initialize was answered {} {body}", head.status());
                    street.oracle.violated(what);
                    return None;
                }
                Answered::Whole(..) | Answered::Stream(..) | Answered::Lost => {}
            }
            pass(street.chance.millis(100, 500)).await;
        }
        None
    }

    /// The same person, doing something else.
    fn another(&self, what: &str) -> Self {
        let mut other = self.clone();
        other.street.chance = self.street.chance.fork(what);
        other
    }

    fn is_over(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// One session's life: it listens, asks for notes, calls, has them all, and ends.
    async fn live(self) {
        let trail = Trail::new(&self.label, Kind::Notes).with(self.street.verdicts);
        let notes = Notes {
            trail: Arc::new(Mutex::new(trail)),
            heard: watch::channel(0).0,
        };
        let (opened, mut open) = watch::channel(false);
        let asked = Instant::now();
        let mut listening = JoinSet::new();
        listening.spawn(self.another("listener").listen(notes.clone(), opened));
        let is_open = timeout(CALL_MAX, open.wait_for(|open| *open)).await.is_ok();
        let told = match is_open && asked.elapsed() < HEAD_WAITED_FOR {
            true => self.ask_for_notes().await,
            false => {
                self.street.oracle.counted("late listeners");
                0
            }
        };
        let began = Instant::now();
        let mut calls = JoinSet::new();
        for nth in 0..self.street.load.calls {
            calls.spawn(self.another(&format!("call {nth}")).call(10 + nth));
            while calls.len() > 1 {
                calls.join_next().await;
            }
        }
        while calls.join_next().await.is_some() {}
        if told > 0 {
            self.hear_out(&notes, told, began).await;
        }
        listening.abort_all();
        if !self.is_over() {
            self.line.send("DELETE", None, "").await;
        }
    }

    /// Asks for this session's notes; how many will be told, if that is certain.
    async fn ask_for_notes(&self) -> u64 {
        let load = self.street.load;
        let arguments = json!({"tag": self.label, "n": load.notes, "interval_ms": load.notes_interval_ms});
        let mut asking = self.another("notes");
        match asking.ask(&self.label, 1, ("emit", arguments, 0)).await {
            Some(Outcome::Result) => load.notes,
            Some(Outcome::NotExecuted(_) | Outcome::Unknown(_)) | None => 0,
        }
    }

    /// Waits until all notes came, or it was said that they won't.
    async fn hear_out(&self, notes: &Notes, told: u64, began: Instant) {
        let load = self.street.load;
        let over = Duration::from_millis(told * load.notes_interval_ms) + BEHIND_LOSS;
        let mut heard = notes.heard.subscribe();
        loop {
            if notes.trail().number() >= told {
                return self.street.oracle.counted("notes whole");
            }
            if self.is_over() {
                return self.street.oracle.counted("notes ended with their session");
            }
            let is_said = notes.trail().caught_up(told);
            let patience = match is_said {
                true => over.saturating_sub(began.elapsed()).max(BEHIND_LOSS),
                false => NOTES_MAX,
            };
            match (timeout(patience, heard.changed()).await, is_said) {
                (Ok(Ok(())), _) => {}
                (Ok(Err(_)), _) => return,
                (Err(_), true) => return self.street.oracle.counted("notes broken, said"),
                (Err(_), false) => {
                    let number = notes.trail().number();
                    let what = format!(
                        "{} notes: {told} were told, it stands at {number}, and nothing is said",
                        self.label
                    );
                    return self.street.oracle.violated(what);
                }
            }
        }
    }

    /// Makes one call with progress.
    async fn call(mut self, id: u64) {
        if self.is_over() {
            return;
        }
        let load = self.street.load;
        let steps = self.street.chance.below(load.steps_max + 1);
        let token = format!("{}:{id}", self.label);
        let arguments = json!({"tag": token, "steps": steps, "interval_ms": load.steps_interval_ms});
        self.ask(&token, id, ("slow", arguments, steps)).await;
    }

    /// Calls a tool and follows the call to its one outcome; `None`: it was lost before the client had anything of it.
    async fn ask(
        &mut self,
        token: &str,
        id: u64,
        (tool, arguments, steps): (&str, Value, u64),
    ) -> Option<Outcome> {
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool,
            "arguments": arguments, "_meta": {"progressToken": token}}});
        let kind = Kind::Answer {
            token: token.to_owned(),
            id,
            steps,
        };
        let trail = Trail::new(&self.label, kind).with(self.street.verdicts);
        self.street.oracle.called(token);
        self.street.oracle.sent(token, Some(THE_PROXY));
        let asked = timeout(
            CALL_MAX,
            self.until_its_end(trail, (token, id), &body.to_string()),
        )
        .await;
        let oracle = Arc::clone(&self.street.oracle);
        match asked {
            Ok(Ok(outcome)) => {
                let outcome = self.street.plant.outcome(outcome);
                oracle.told(token, outcome.clone());
                Some(outcome)
            }
            Ok(Err(why)) => {
                oracle.gave_up(token, &why);
                None
            }
            Err(_) => {
                oracle.violated(format!("{token}: has no outcome after {CALL_MAX:?}"));
                oracle.gave_up(token, "it hangs");
                None
            }
        }
    }

    async fn until_its_end(
        &mut self,
        mut trail: Trail,
        (token, id): (&str, u64),
        body: &str,
    ) -> Result<Outcome, String> {
        let oracle = Arc::clone(&self.street.oracle);
        let first = Instant::now();
        let talk = loop {
            trail.sent();
            let spare = self.spare.lock().expect("no panic while it is held").take();
            match self.line.send_on(spare, ("POST", None, body)).await {
                Answered::Stream(head, talk) => {
                    trail.opened(&oracle, (&head, None), None);
                    break talk;
                }
                Answered::Whole(head, body) if head.status() == 200 => {
                    let message: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
                    if message["id"] != id {
                        oracle.violated(format!("{token}: was answered with {body}"));
                    }
                    self.street.event();
                    return Ok(outcome_of(&oracle, token, &message));
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    self.gone.store(true, Ordering::Relaxed);
                    return Ok(Outcome::NotExecuted("404".to_owned()));
                }
                Answered::Whole(head, body) => {
                    oracle.violated(format!("{token}: was answered {} {body}", head.status()));
                    return Err(format!("answered {}", head.status()));
                }
                Answered::Lost
                    if self.street.again == Again::WithinBound
                        && first.elapsed() < SAME_REQUEST
                        && self.street.chance.percent(50) =>
                {
                    oracle.saw(format!("{token}: is sent again"));
                    oracle.counted("repeats");
                    pass(self.street.chance.millis(0, 1_000)).await;
                }
                Answered::Lost => return Err("lost before its head".to_owned()),
            }
        };
        self.follow_call(talk, trail, token).await
    }

    /// Follows a call's stream over as many connections as it takes.
    async fn follow_call(&mut self, talk: Talk, mut trail: Trail, token: &str) -> Result<Outcome, String> {
        let oracle = Arc::clone(&self.street.oracle);
        let mut end = self.follow(talk, |event| trail.took(&oracle, event)).await;
        loop {
            if let End::Told(outcome) = end {
                return Ok(outcome);
            }
            let Some(cursor) = trail.cursor.clone() else {
                return Err("lost before its first id".to_owned());
            };
            pass(self.street.chance.millis(50, 800)).await;
            end = match self.line.send("GET", Some(&cursor), "").await {
                Answered::Stream(mut head, talk) => {
                    self.street.plant.verdict(&mut head, Some(&cursor));
                    trail.opened(&oracle, (&head, None), Some(&cursor));
                    self.follow(talk, |event| trail.took(&oracle, event)).await
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    self.gone.store(true, Ordering::Relaxed);
                    End::Told(Outcome::Unknown("session gone".to_owned()))
                }
                Answered::Whole(head, body) => {
                    let what = format!("{token}: its resume was answered {} {body}", head.status());
                    oracle.violated(what);
                    return Err("its resume was refused".to_owned());
                }
                Answered::Lost => End::Broken,
            };
        }
    }

    /// Reads one connection of a stream until it ends, or its request is answered and the stream has ended behind that.
    async fn follow(&mut self, mut talk: Talk, mut took: impl FnMut(&Event) -> Meaning) -> End {
        let oracle = Arc::clone(&self.street.oracle);
        let mut blocks = Blocks::default();
        let mut outcome = None;
        loop {
            let piece = match timeout(BOUND, talk.piece()).await {
                Ok(Ok(piece)) => piece,
                Ok(Err(_)) => return outcome.map_or(End::Broken, End::Told),
                Err(_) => {
                    oracle.violated(format!("{}: a stream is silent, without a comment", self.label));
                    return outcome.map_or(End::Broken, End::Told);
                }
            };
            if piece.is_empty() {
                if !blocks.is_whole() {
                    oracle.violated(format!("{}: half a frame at an orderly end", self.label));
                }
                return match outcome {
                    Some(outcome) => {
                        *self.spare.lock().expect("no panic while it is held") = Some(talk);
                        End::Told(outcome)
                    }
                    None => End::Orderly,
                };
            }
            let mut read = blocks.add(&piece);
            loop {
                let event = match read.and_then(|()| blocks.next()) {
                    Ok(Some(event)) => event,
                    Ok(None) => break,
                    Err(error) => {
                        oracle.violated(format!("{}: a malformed stream: {error}", self.label));
                        return End::Broken;
                    }
                };
                read = Ok(());
                if event.data.as_deref().is_some_and(|data| !data.is_empty()) {
                    self.street.event();
                }
                for event in self.street.plant.events(event, &mut self.street.chance) {
                    if let Meaning::Ended(told) = took(&event) {
                        outcome = Some(told);
                    }
                }
            }
        }
    }

    /// Listens on the standalone stream, connection after connection, until its session is gone or nobody wants it.
    async fn listen(mut self, notes: Notes, opened: watch::Sender<bool>) {
        let oracle = Arc::clone(&self.street.oracle);
        loop {
            let forgets = self.street.again == Again::WithinBound && self.street.chance.percent(5);
            let cursor = notes.trail().cursor.clone().filter(|_| !forgets);
            match self.line.send("GET", cursor.as_deref(), "").await {
                Answered::Stream(mut head, talk) => {
                    self.street.plant.verdict(&mut head, cursor.as_deref());
                    notes.trail().opened(&oracle, (&head, None), cursor.as_deref());
                    opened.send_replace(true);
                    let took = |event: &Event| {
                        let meaning = notes.trail().took(&oracle, event);
                        notes.heard.send_modify(|heard| *heard += 1);
                        meaning
                    };
                    self.follow(talk, took).await;
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    self.gone.store(true, Ordering::Relaxed);
                    opened.send_replace(true);
                    notes.heard.send_modify(|heard| *heard += 1);
                    return;
                }
                Answered::Whole(head, body) => {
                    let what = format!(
                        "{} notes: its listener was answered {} {body}",
                        self.label,
                        head.status()
                    );
                    return oracle.violated(what);
                }
                Answered::Lost => {}
            }
            // A reset can be said by a head alone; whoever waits must look again.
            notes.heard.send_modify(|heard| *heard += 1);
            pass(self.street.chance.millis(50, 800)).await;
        }
    }
}
