//! One client: it opens a session, listens, calls, has its own bad network, and begins anew when its session is gone.
//! Law: it resumes as the SDKs do; every call has its outcome within `BOUND`, or that is a fault.
//! What it does follows from its number. Its pauses are its behaviour, as the SDKs' are; none of them decides a judgement.
//! Next: `call.rs`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::json;
use throughline::guard::{NoVerdict, Verdict};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::call::{Outcome, Slow};
use crate::http::{Event, Network, Next, REVISION, Stream, Voice, request, verdict};
use crate::judge::{Account, Ear, Fault, Heard, RESULT, Ran};
use crate::replica::Offers;

/// When a request has no outcome: a call's 5 s, the proxy's wait for a replica, a pause, and a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(40);
/// Notifications of one round.
const NOTES: u64 = 12;
/// Time between two of them, in milliseconds.
const NOTES_INTERVAL_MS: u64 = 400;
/// How long the proxy waits for the head of a backend's standalone stream before it answers without.
const HEAD_WAITED_FOR: Duration = Duration::from_secs(2);
/// Pause before a client asks again that was refused or cut off.
const AGAIN: Duration = Duration::from_millis(500);

/// What makes a client.
#[derive(Clone)]
pub(crate) struct Setting {
    /// Where the proxy is.
    pub(crate) at: SocketAddr,
    /// What the servers have.
    pub(crate) offers: Offers,
    /// Where everything is written down.
    pub(crate) account: Account,
    /// Whether the run goes on.
    pub(crate) going: watch::Receiver<bool>,
}

/// One session of a client.
pub(crate) struct Life {
    pub(crate) name: String,
    pub(crate) voice: Voice,
    pub(crate) account: Account,
    pub(crate) slow: Slow,
    ear: Mutex<Ear>,
    /// Moves when something was heard or told.
    heard: watch::Sender<u64>,
    gone: watch::Sender<bool>,
    ids: AtomicU64,
    going: watch::Receiver<bool>,
    /// Whether something went wrong since the client's last result.
    troubled: Arc<AtomicBool>,
    dice: Mutex<Dice>,
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    fn new(number: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    }

    /// One of `0..sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A client's own pause.
pub(crate) async fn pace(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

/// The whole of a client: one session after another, until the run ends.
pub(crate) async fn run(number: usize, setting: Setting) {
    let troubled = Arc::new(AtomicBool::new(false));
    for life in 0.. {
        let name = format!("c{number}.{life}");
        let Some(life) = Life::open(name, number, &setting, Arc::clone(&troubled)).await else {
            return;
        };
        let (opened, mut open) = watch::channel(false);
        let listener = tokio::spawn(Arc::clone(&life).listen(opened));
        drop(timeout(BOUND, open.wait_for(|open| *open)).await);
        // One in five has two calls under way.
        let second = async {
            if number.is_multiple_of(5) {
                life.calls("b").await;
            }
        };
        tokio::join!(life.calls("a"), second, life.rounds(setting.offers));
        listener.abort();
        if !life.is_gone() {
            let _ended = timeout(BOUND, life.voice.delete()).await;
        }
        if !*setting.going.borrow() {
            return;
        }
    }
}

impl Life {
    async fn open(
        name: String,
        number: usize,
        setting: &Setting,
        troubled: Arc<AtomicBool>,
    ) -> Option<Arc<Self>> {
        let account = setting.account.clone();
        let client = json!({ "name": "deploy", "version": "1" });
        let hello = json!({ "protocolVersion": REVISION, "capabilities": {}, "clientInfo": client });
        while *setting.going.borrow() {
            let mut voice = Voice::new(setting.at);
            let answer = match timeout(
                BOUND,
                voice.post(&request(0, "initialize", hello.clone()), Network::Sound),
            )
            .await
            {
                Err(_) => {
                    account.found((Fault::NoOutcome, format!("{name}: initialize")));
                    return None;
                }
                Ok(Err(error)) => {
                    account.found((Fault::Forbidden, format!("{name}: initialize: {error}")));
                    pace(AGAIN).await;
                    continue;
                }
                Ok(Ok(answer)) => answer,
            };
            let session = answer
                .headers()
                .get("mcp-session-id")
                .and_then(|id| id.to_str().ok());
            match (answer.status().as_u16(), session) {
                (200, Some(session)) => voice.session = session.to_owned(),
                (status, _) => {
                    account.count(&format!("initialize {status}"));
                    pace(AGAIN).await;
                    continue;
                }
            }
            drop(answer.bytes().await);
            let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            match timeout(BOUND, voice.post(&ready, Network::Sound)).await {
                Ok(Ok(answer)) => account.count(&format!("initialized {}", answer.status().as_u16())),
                Ok(Err(error)) => account.found((Fault::Forbidden, format!("{name}: initialized: {error}"))),
                Err(_) => account.found((Fault::NoOutcome, format!("{name}: initialized"))),
            }
            account.count("sessions");
            return Some(Arc::new(Self {
                name,
                voice,
                account,
                slow: Slow::of(setting.offers),
                ear: Mutex::default(),
                heard: watch::channel(0).0,
                gone: watch::channel(false).0,
                ids: AtomicU64::new(1),
                going: setting.going.clone(),
                troubled,
                dice: Mutex::new(Dice::new(number)),
            }));
        }
        None
    }

    pub(crate) fn ear(&self) -> MutexGuard<'_, Ear> {
        self.ear.lock().expect("nobody panics while holding it")
    }

    pub(crate) fn roll(&self, sides: u64) -> u64 {
        self.dice
            .lock()
            .expect("nobody panics while holding it")
            .roll(sides)
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    fn goes_on(&self) -> bool {
        *self.going.borrow() && !self.is_gone()
    }

    /// Calls, one after the other, until the session or the run ends.
    async fn calls(&self, hand: &str) {
        for nth in 0.. {
            if !self.goes_on() {
                return;
            }
            // Mostly short, up to 5 s.
            let steps = [1, 2, 3, 5, 8, 20][self.roll(6) as usize];
            let tag = format!("{}.{hand}{nth}", self.name);
            let outcome = self.call(&tag, steps).await;
            let ran = self.settle(&tag, &outcome);
            self.account.ended(&tag, ran);
            if ran != Ran::Yes {
                pace(AGAIN).await;
            }
        }
    }

    /// Rounds of notifications, one after the other.
    async fn rounds(&self, offers: Offers) {
        match offers {
            Offers::Calls => return,
            Offers::CallsAndNotes => {}
        }
        for nth in 0.. {
            if !self.goes_on() {
                return;
            }
            let tag = format!("{}.n{nth}", self.name);
            self.ear().expect(&tag, NOTES);
            let outcome = self.emit(&tag, NOTES, NOTES_INTERVAL_MS).await;
            match self.settle(&tag, &outcome) {
                Ran::Yes => self.hear_out(&tag).await,
                Ran::No | Ran::Perhaps => pace(AGAIN).await,
            }
        }
    }

    /// Waits until a round is whole, or its break was told.
    async fn hear_out(&self, tag: &str) {
        let mut heard = self.heard.subscribe();
        let mut gone = self.gone.subscribe();
        let end = async {
            loop {
                match self.ear().stands(tag) {
                    Heard::Whole => return "round whole",
                    Heard::Broken => return "round broken, told",
                    Heard::Waiting => {}
                }
                tokio::select! {
                    biased;
                    _ = gone.wait_for(|gone| *gone) => return "round ended with its session",
                    _ = heard.changed() => {}
                }
            }
        };
        match timeout(BOUND, end).await {
            Ok(words) => self.account.count(words),
            Err(_) => {
                let evidence = self.ear().evidence(tag);
                self.account.found((Fault::Silent, evidence));
            }
        }
    }

    /// Writes down how a call ended; what its client was told of whether it ran.
    fn settle(&self, tag: &str, outcome: &Outcome) -> Ran {
        self.account.count(&outcome.words());
        if let Some(fault) = outcome.fault() {
            self.account
                .found((fault, format!("{tag}: {}", outcome.evidence())));
        }
        let ran = outcome.ran();
        match ran {
            Ran::Yes => {
                if self.troubled.swap(false, Ordering::Relaxed) {
                    self.account.count("recovered");
                }
                debug_assert_eq!(outcome.words(), RESULT);
            }
            Ran::No | Ran::Perhaps => self.troubled.store(true, Ordering::Relaxed),
        }
        if outcome.ends_session() {
            self.gone.send_replace(true);
        }
        ran
    }

    /// The standalone stream, connection after connection.
    async fn listen(self: Arc<Self>, opened: watch::Sender<bool>) {
        let mut cursor: Option<String> = None;
        let asked_at = Instant::now();
        loop {
            let answer = match self.voice.get(cursor.as_deref()).await {
                Ok(answer) => answer,
                Err(error) => {
                    self.account
                        .found((Fault::Forbidden, format!("{}: the stream: {error}", self.name)));
                    pace(AGAIN).await;
                    continue;
                }
            };
            match answer.status().as_u16() {
                200 => self.connected(&answer, cursor.is_some()),
                404 => {
                    self.account.count("gone on the stream");
                    self.gone.send_replace(true);
                    return;
                }
                status => {
                    self.account
                        .found((Fault::Forbidden, format!("{}: the stream: {status}", self.name)));
                    opened.send_replace(true);
                    return;
                }
            }
            if !opened.send_replace(true) && asked_at.elapsed() >= HEAD_WAITED_FOR {
                // Then it stands before the backend's does, and what that sends meanwhile goes nowhere.
                self.account.count("stream answered before the backend's");
            }
            let pause = self.hear(Stream::of(answer), &mut cursor).await;
            pace(pause).await;
        }
    }

    /// The head of an answer to a GET.
    fn connected(&self, answer: &reqwest::Response, asked: bool) {
        let verdict = verdict(answer.headers());
        match verdict {
            Ok(Verdict::Live { .. }) if !asked => {}
            Ok(Verdict::Resumed { .. }) if asked => self.account.count("resumed"),
            Ok(Verdict::Reset { reason, .. }) => {
                self.account.count(&format!("reset {reason}"));
                self.told();
            }
            // A credential that nobody has judged yet is held on comments; what it gets then must stand for itself.
            Err(NoVerdict::Absent) => self.account.count("held without a verdict"),
            Ok(Verdict::Live { .. } | Verdict::Resumed { .. })
            | Err(NoVerdict::Malformed | NoVerdict::Several) => {
                let evidence = format!("{}: asked: {asked}, said: {verdict:?}", self.name);
                self.account.found((Fault::Forbidden, evidence));
            }
        }
    }

    fn told(&self) {
        self.ear().told();
        self.heard.send_modify(|moves| *moves += 1);
    }

    /// One connection, to its end; how long to pause after it. Now and then the client's own network fails.
    async fn hear(&self, mut stream: Stream, cursor: &mut Option<String>) -> Duration {
        let mut pause = Duration::from_secs(1);
        let cut_after = 5 + self.roll(40);
        let mut notes = 0;
        loop {
            let event = match stream.next().await {
                Next::Event(event) => event,
                Next::End => {
                    self.account.count("stream ended");
                    return pause;
                }
                Next::Broken => {
                    self.account.count("stream broken");
                    return pause;
                }
            };
            if let Some(retry) = event.retry {
                pause = Duration::from_millis(retry);
            }
            if event.id.is_some() {
                cursor.clone_from(&event.id);
            }
            notes += self.take(&event);
            if notes >= cut_after {
                self.account.count("own cuts");
                return AGAIN;
            }
        }
    }

    /// One event of the standalone stream; whether it was a note.
    fn take(&self, event: &Event) -> u64 {
        let message = &event.message;
        if event.kind == "reset" {
            let reason = message["params"]["reason"].as_str().unwrap_or("?");
            self.account.count(&format!("reset {reason}"));
            self.told();
            return 0;
        }
        let crossed = |what: &str| {
            let evidence = format!("{}: {what}: {message}", self.name);
            self.account.found((Fault::Crossed, evidence));
        };
        match message["method"].as_str() {
            Some("notifications/message") => {
                let data = &message["params"]["data"];
                match (data["tag"].as_str(), data["seq"].as_u64()) {
                    (Some(tag), Some(seq)) => {
                        if let Err(found) = self.ear().hear(tag, seq) {
                            self.account.found(found);
                        }
                        self.heard.send_modify(|moves| *moves += 1);
                        1
                    }
                    _ => 0,
                }
            }
            Some("notifications/progress") => {
                crossed("progress on the standalone stream");
                0
            }
            Some(_) => 0,
            None => {
                if message["id"] != serde_json::Value::Null {
                    crossed("an answer on the standalone stream");
                }
                0
            }
        }
    }
}
