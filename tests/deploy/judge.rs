//! The judge: what was lost silently, repeated, crossed, run twice, or left without an outcome.
//! Law: it judges by what a client had and by what it was told, never by how much survived; what was told is no loss.
//! Every judgement has its evidence. `prove` shows that each fault is found, since a judge that sees nothing is no proof.
//! Next: `replica.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::replica::Ledger;

/// What may never happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Fault {
    /// A message is missing, and nobody said so.
    Silent,
    /// A message came again.
    Repeated,
    /// A message came after a later one.
    Disordered,
    /// A call was begun more than once.
    RunTwice,
    /// A message, or an answer, of another session or call.
    Crossed,
    /// A request had no outcome within its bound.
    NoOutcome,
    /// A call was begun of which its client was told that it was not.
    RanAllTheSame,
    /// A session was lost by a pause, which loses nothing.
    LostByPause,
    /// An answer that is forbidden: a status, a stream without a verdict.
    Forbidden,
}

impl Fault {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Silent,
        Self::Repeated,
        Self::Disordered,
        Self::RunTwice,
        Self::Crossed,
        Self::NoOutcome,
        Self::RanAllTheSame,
        Self::LostByPause,
        Self::Forbidden,
    ];

    /// Its heading in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Repeated => "again",
            Self::Disordered => "order",
            Self::RunTwice => "twice",
            Self::Crossed => "crossed",
            Self::NoOutcome => "no end",
            Self::RanAllTheSame => "lied",
            Self::LostByPause => "paused",
            Self::Forbidden => "forbid",
        }
    }
}

/// A fault and its evidence.
pub(crate) type Found = (Fault, String);

/// What a client hears on one stream: numbered messages by tag, each dense from 1.
#[derive(Default, Debug)]
pub(crate) struct Ear {
    sequences: HashMap<String, Sequence>,
}

#[derive(Debug)]
struct Sequence {
    n: u64,
    last: u64,
    seen: BTreeSet<u64>,
    /// Whether a break was told since the last message.
    gap: Gap,
}

/// What a gap before the next message means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gap {
    Silent,
    Told,
}

/// Where a sequence stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// All of it came.
    Whole,
    /// Some is missing, and a break was told behind what came last.
    Broken,
    /// Some is missing, and nothing was told.
    Waiting,
}

impl Ear {
    /// Messages 1 to n with this tag may come from now on.
    pub(crate) fn expect(&mut self, tag: &str, n: u64) {
        let sequence = Sequence {
            n,
            last: 0,
            seen: BTreeSet::new(),
            gap: Gap::Silent,
        };
        self.sequences.insert(tag.to_owned(), sequence);
    }

    /// A message came.
    pub(crate) fn hear(&mut self, tag: &str, number: u64) -> Result<(), Found> {
        let Some(sequence) = self.sequences.get_mut(tag) else {
            return Err((Fault::Crossed, format!("{tag}:{number} was never asked for here")));
        };
        let last = sequence.last;
        if !sequence.seen.insert(number) {
            return Err((Fault::Repeated, format!("{tag}:{number} again, after {last}")));
        }
        if number < last {
            return Err((Fault::Disordered, format!("{tag}:{number} after {last}")));
        }
        let gap = std::mem::replace(&mut sequence.gap, Gap::Silent);
        sequence.last = number;
        match gap {
            Gap::Silent if number > last + 1 => Err((
                Fault::Silent,
                format!("{tag}: {number} after {last}, and nothing was told"),
            )),
            Gap::Silent | Gap::Told => Ok(()),
        }
    }

    /// The client was told that continuity is lost.
    pub(crate) fn told(&mut self) {
        for sequence in self.sequences.values_mut() {
            sequence.gap = Gap::Told;
        }
    }

    /// Where a sequence stands.
    pub(crate) fn stands(&self, tag: &str) -> Heard {
        match self.sequences.get(tag) {
            Some(sequence) if sequence.last == sequence.n => Heard::Whole,
            Some(sequence) if sequence.gap == Gap::Told => Heard::Broken,
            Some(_) | None => Heard::Waiting,
        }
    }

    /// How it stands, in words.
    pub(crate) fn evidence(&self, tag: &str) -> String {
        self.sequences.get(tag).map_or_else(String::new, |sequence| {
            format!(
                "{tag}: {} of {} came, and nothing was told",
                sequence.last, sequence.n
            )
        })
    }
}

/// The account of one run, shared by its clients.
#[derive(Clone)]
pub(crate) struct Account(Arc<Shared>);

struct Shared {
    book: Mutex<Book>,
    results: watch::Sender<usize>,
}

#[derive(Default)]
struct Book {
    tally: BTreeMap<String, usize>,
    faults: BTreeMap<Fault, Vec<String>>,
    calls: Vec<(String, Ran)>,
}

/// What a client was told of whether its call ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ran {
    /// It has its result.
    Yes,
    /// It was told that it did not run.
    No,
    /// It was told nothing certain.
    Perhaps,
}

/// A run, judged.
pub(crate) struct Judged {
    /// What was counted, by its words.
    pub(crate) tally: BTreeMap<String, usize>,
    /// What was found, with its evidence.
    pub(crate) faults: BTreeMap<Fault, Vec<String>>,
}

impl Account {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            book: Mutex::default(),
            results: watch::channel(0).0,
        }))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().expect("nobody panics while holding it")
    }

    /// One more of these.
    pub(crate) fn count(&self, words: &str) {
        *self.book().tally.entry(words.to_owned()).or_default() += 1;
        if words == RESULT {
            self.0.results.send_modify(|results| *results += 1);
        }
    }

    /// How many of these there are.
    pub(crate) fn counted(&self, words: &[&str]) -> usize {
        let book = self.book();
        words.iter().filter_map(|words| book.tally.get(*words)).sum()
    }

    /// A fault was found.
    pub(crate) fn found(&self, (fault, evidence): Found) {
        self.book().faults.entry(fault).or_default().push(evidence);
    }

    /// A call ended, and its client was told so much.
    pub(crate) fn ended(&self, tag: &str, ran: Ran) {
        self.book().calls.push((tag.to_owned(), ran));
    }

    /// Waits until so many more calls had their result. The caller bounds its time.
    pub(crate) async fn more_results(&self, more: usize) {
        let mut results = self.0.results.subscribe();
        let enough = *results.borrow() + more;
        let _run_over = results.wait_for(|results| *results >= enough).await;
    }

    /// Compares what clients were told with what the servers wrote down.
    pub(crate) fn judge(&self, ledger: &Ledger) -> Judged {
        let mut book = std::mem::take(&mut *self.book());
        for (tag, ran) in &book.calls {
            let found = match (ledger.begun(tag), ran) {
                (2.., _) => (
                    Fault::RunTwice,
                    format!("{tag} was begun {} times", ledger.begun(tag)),
                ),
                (1, Ran::No) => (
                    Fault::RanAllTheSame,
                    format!("{tag} was begun, and its client told that not"),
                ),
                (0, Ran::Yes) => (
                    Fault::Crossed,
                    format!("{tag} has a result, and no server began it"),
                ),
                (0, Ran::No | Ran::Perhaps) | (1, Ran::Yes | Ran::Perhaps) => continue,
            };
            book.faults.entry(found.0).or_default().push(found.1);
        }
        Judged {
            tally: book.tally,
            faults: book.faults,
        }
    }
}

/// The words for a call that had its own result.
pub(crate) const RESULT: &str = "result";

/// Shows that each fault is found, and that what was told is none.
pub(crate) fn prove() {
    let story = |numbers: &[Option<u64>]| {
        let mut ear = Ear::default();
        ear.expect("a", 4);
        let heard = numbers.iter().map(|number| match number {
            Some(number) => ear.hear("a", *number).err().map(|(fault, _)| fault),
            None => {
                ear.told();
                None
            }
        });
        (heard.flatten().collect::<Vec<_>>(), ear.stands("a"))
    };
    for (numbers, faults, stands) in [
        (&[Some(1), Some(2), Some(3), Some(4)][..], &[][..], Heard::Whole),
        (&[Some(1), Some(3)], &[Fault::Silent], Heard::Waiting),
        (&[Some(2)], &[Fault::Silent], Heard::Waiting),
        (&[Some(1), None, Some(4)], &[], Heard::Whole),
        (&[None, Some(2), Some(4)], &[Fault::Silent], Heard::Whole),
        (&[Some(1), None], &[], Heard::Broken),
        (&[Some(1), None, Some(1)], &[Fault::Repeated], Heard::Broken),
        (
            &[Some(1), None, Some(3), Some(2)],
            &[Fault::Disordered],
            Heard::Waiting,
        ),
    ] {
        assert_eq!(story(numbers), (faults.to_vec(), stands), "{numbers:?}");
    }
    let mut ear = Ear::default();
    assert!(matches!(ear.hear("b", 1), Err((Fault::Crossed, _))));
    let ledger = Ledger::default();
    for tag in ["twice", "twice", "once", "refused"] {
        ledger.write(tag);
    }
    let account = Account::new();
    for (tag, ran) in [
        ("twice", Ran::Perhaps),
        ("once", Ran::Yes),
        ("refused", Ran::No),
        ("never", Ran::Yes),
        ("spared", Ran::No),
    ] {
        account.ended(tag, ran);
    }
    let faults: Vec<Fault> = account.judge(&ledger).faults.into_keys().collect();
    assert_eq!(faults, [Fault::RunTwice, Fault::Crossed, Fault::RanAllTheSame]);
}
