//! The suite that every store passes, as data: call [`check`] with a way to make an empty store.
//! Law: nothing here knows which store it tries; an append may take time, so every read waits for `kept` first.
//! Absent on purpose: budgets of a process, which are a store's own business.
//! Next: `memory.rs`.

use std::future::poll_fn;
use std::task::{Context, Poll, Wake, Waker};

use crate::pure::epoch::{Epoch, EpochEnd, Reason, Seq, Tombstone};
use crate::pure::log::{Bounds, EndMark, Entry, Full, Millis, Position, Slices, Struck, TakenBy, View};
use crate::store::{Claim, Closing, Found, LogLoss, Store, StreamKey, StreamLog};

const BOUNDS: Bounds = Bounds {
    events: 100,
    bytes: 1 << 20,
    age: Millis(10_000),
};
const FIRST: Epoch = Epoch::from_random(1);
const SECOND: Epoch = Epoch::from_random(2);

/// Tries everything that the contract says on stores that `make` gives.
pub(crate) async fn check<S: Store>(make: impl Fn() -> S) {
    what_is_kept_is_shown_whole(&make()).await;
    what_must_not_be_shown_again_is_replaced_in_its_place(&make()).await;
    every_write_length_leads_to_the_same_bytes(&make()).await;
    bounds_evict_and_a_reader_forbids_it(&make()).await;
    ends_outlive_data(&make()).await;
    a_newer_claim_fences_the_older(&make()).await;
    an_epoch_is_never_used_again(&make()).await;
    streams_and_sessions_do_not_mix(&make()).await;
}

fn key(session: u8, stream: &str) -> StreamKey {
    StreamKey {
        session: [session; 16],
        stream: stream.into(),
    }
}

fn claim(epoch: Epoch) -> Claim {
    Claim {
        epoch,
        bounds: BOUNDS,
    }
}

fn entry(data: &str, end: EndMark) -> Entry<'_> {
    Entry {
        prefix: b"p.",
        end,
        event: b"",
        data: crate::pure::sse::Text::of(data.as_bytes()),
    }
}

fn frame(n: u64) -> String {
    format!("id: p.{n}\nevent: message\ndata: {{\"n\":{n}}}\n\n")
}

async fn push<L: StreamLog>(log: &mut L, count: u64, now: Millis) -> Seq {
    let mut last = log.span().last;
    for _ in 0..count {
        let data = format!("{{\"n\":{}}}", last.get() + 1);
        let seq = log.push(entry(&data, EndMark::Open), now).unwrap();
        assert_eq!(seq, last.next(), "dense from 1");
        last = seq;
    }
    kept(log, last).await.unwrap();
    last
}

/// Waits until everything up to `upto` is kept.
async fn kept<L: StreamLog>(log: &mut L, upto: Seq) -> Result<(), LogLoss> {
    let mut have = Seq::START;
    while have < upto {
        have = poll_fn(|cx| log.poll_kept(cx, have)).await?;
    }
    Ok(())
}

async fn close<L: StreamLog>(log: &mut L, how: Closing) -> Result<(), LogLoss> {
    poll_fn(|cx| log.poll_close(cx, how)).await
}

fn read<L: StreamLog>(log: &L, after: u64, upto: Seq, step: usize) -> String {
    let mut at = Position {
        after: Seq::new(after),
        skip: 0,
    };
    let mut bytes = Vec::new();
    loop {
        let mut slices = Slices::new();
        match log.view(at, upto, &mut slices) {
            View::Here => {}
            View::Nothing => {
                assert_eq!((at.after, at.skip), (upto, 0));
                return String::from_utf8(bytes).unwrap();
            }
            view @ (View::Fetch | View::Gone { .. }) => panic!("{view:?} at {at:?}"),
        }
        let offered: Vec<u8> = slices
            .as_slice()
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        assert_eq!(offered.len(), slices.bytes());
        let take = step.min(offered.len());
        bytes.extend_from_slice(&offered[..take]);
        at = log.advance(at, take);
    }
}

async fn what_is_kept_is_shown_whole<S: Store>(store: &S) {
    let key = key(1, "g");
    assert_eq!(store.peek(&key).await, Ok(Found::Nothing));
    let mut log = store.open(&key, claim(FIRST)).await.unwrap();
    let Ok(Found::Alive { epoch, span }) = store.peek(&key).await else {
        panic!("it is open")
    };
    assert_eq!((epoch, span.first, span.last), (FIRST, Seq::new(1), Seq::START));
    let mut slices = Slices::new();
    let start = Position {
        after: Seq::START,
        skip: 0,
    };
    assert_eq!(log.view(start, Seq::new(5), &mut slices), View::Nothing);
    let last = push(&mut log, 20, Millis(1)).await;
    let Ok(Found::Alive { epoch, span }) = store.peek(&key).await else {
        panic!("it is open")
    };
    assert_eq!((epoch, span.first, span.last), (FIRST, Seq::new(1), last));
    for after in 0..=20 {
        let expected: String = (after + 1..=20).map(frame).collect();
        assert_eq!(read(&log, after, last, usize::MAX), expected);
        let expected: String = (after + 1..=18).map(frame).collect();
        if after <= 18 {
            assert_eq!(read(&log, after, Seq::new(18), usize::MAX), expected);
        }
    }
    let marked = log.push(entry("{\"n\":21}", EndMark::Last), Millis(2)).unwrap();
    kept(&mut log, marked).await.unwrap();
    assert_eq!(
        read(&log, 20, marked, usize::MAX),
        "id: p.21~\nevent: message\ndata: {\"n\":21}\n\n"
    );
    assert_eq!(
        log.push(entry("{}", EndMark::Open), Millis(3)),
        Err(Full),
        "nothing follows the end mark"
    );
}

async fn what_must_not_be_shown_again_is_replaced_in_its_place<S: Store>(store: &S) {
    let mut log = store.open(&key(9, "g"), claim(FIRST)).await.unwrap();
    let last = push(&mut log, 12, Millis(1)).await;
    let words: [&[u8]; 3] = [b"much too long for it", b"{}", b"1"];
    assert_eq!(log.strike(Seq::new(7), &words), Struck::Replaced);
    assert_eq!(log.strike(Seq::new(8), &words[..1]), Struck::TooShort);
    assert_eq!(log.strike(Seq::START, &words), Struck::NotHeld);
    assert_eq!(log.strike(last.next(), &words), Struck::NotHeld);
    let told = |n: u64| match n {
        7 => frame(7).replace("{\"n\":7}", "{}     "),
        n => frame(n),
    };
    let expected: String = (3..=12).map(told).collect();
    for step in [1, 7, usize::MAX] {
        assert_eq!(read(&log, 2, last, step), expected);
    }
}

async fn every_write_length_leads_to_the_same_bytes<S: Store>(store: &S) {
    let mut log = store.open(&key(1, "g"), claim(FIRST)).await.unwrap();
    let last = push(&mut log, 4, Millis(1)).await;
    let expected: String = (1..=4).map(frame).collect();
    for step in 1..=expected.len() {
        assert_eq!(read(&log, 0, last, step), expected, "in steps of {step}");
    }
}

async fn bounds_evict_and_a_reader_forbids_it<S: Store>(store: &S) {
    let mut log = store.open(&key(1, "g"), claim(FIRST)).await.unwrap();
    log.hold(Some(Seq::START));
    push(&mut log, 100, Millis(1)).await;
    assert_eq!(log.push(entry("{}", EndMark::Open), Millis(1)), Err(Full));
    assert_eq!((log.span().first, log.span().last), (Seq::new(1), Seq::new(100)));
    assert_eq!(
        log.shed(Millis(1_000_000), Some(usize::MAX)),
        0,
        "a reader stands before them"
    );
    log.hold(Some(Seq::new(30)));
    let last = push(&mut log, 30, Millis(2)).await;
    let span = log.span();
    assert_eq!(
        (span.first, span.last, span.taken_by),
        (Seq::new(31), last, TakenBy::Window)
    );
    let mut slices = Slices::new();
    let gone = log.view(
        Position {
            after: Seq::new(29),
            skip: 0,
        },
        last,
        &mut slices,
    );
    assert_eq!(
        (gone, slices.is_empty()),
        (View::Gone { oldest: Seq::new(31) }, true)
    );
    log.hold(None);
    let before = log.span().bytes;
    let gone = log.shed(Millis(2), Some(usize::MAX));
    assert_eq!(
        (gone, log.span().bytes, log.span().taken_by),
        (before, 0, TakenBy::Budget)
    );
    let last = push(&mut log, 3, Millis(3)).await;
    assert_eq!(
        read(&log, 130, last, 10),
        (131..=133).map(frame).collect::<String>()
    );
    log.shed(Millis(20_000), None);
    assert_eq!(
        (log.span().first, log.span().taken_by),
        (last.next(), TakenBy::Window),
        "too old"
    );
}

async fn ends_outlive_data<S: Store>(store: &S) {
    let key = key(1, "pi7");
    let mut log = store.open(&key, claim(FIRST)).await.unwrap();
    let last = push(&mut log, 3, Millis(1)).await;
    close(&mut log, Closing::End).await.unwrap();
    assert_eq!(
        read(&log, 1, last, 10),
        frame(2) + &frame(3),
        "an ended log stays readable"
    );
    let finished = Tombstone {
        epoch: FIRST,
        last,
        end: EpochEnd::Finished,
    };
    assert_eq!(store.peek(&key).await, Ok(Found::Ended(vec![finished])));
    drop(log);
    assert_eq!(store.peek(&key).await, Ok(Found::Ended(vec![finished])));
    let mut log = store.open(&key, claim(SECOND)).await.unwrap();
    let last = push(&mut log, 2, Millis(1)).await;
    let lost = Tombstone {
        epoch: SECOND,
        last,
        end: EpochEnd::Lost(Reason::BackendLost),
    };
    close(&mut log, Closing::Bury(lost)).await.unwrap();
    drop(log);
    assert_eq!(store.peek(&key).await, Ok(Found::Ended(vec![finished, lost])));
}

/// Counts nothing, knows only that it was woken.
struct Woken(std::sync::atomic::AtomicBool);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

async fn a_newer_claim_fences_the_older<S: Store>(store: &S) {
    let key = key(1, "g");
    let mut older = store.open(&key, claim(FIRST)).await.unwrap();
    let last = push(&mut older, 2, Millis(1)).await;
    let woken = std::sync::Arc::new(Woken(false.into()));
    let waker = Waker::from(std::sync::Arc::clone(&woken));
    assert_eq!(
        older.poll_kept(&mut Context::from_waker(&waker), last),
        Poll::Pending
    );
    let mut newer = store.open(&key, claim(SECOND)).await.unwrap();
    let fenced = poll_fn(|cx| older.poll_kept(cx, last)).await;
    assert_eq!(fenced, Err(LogLoss::Fenced));
    assert!(
        woken.0.load(std::sync::atomic::Ordering::SeqCst),
        "the owner that waits is told"
    );
    assert_eq!(close(&mut older, Closing::End).await, Err(LogLoss::Fenced));
    let lost = Tombstone {
        epoch: FIRST,
        last,
        end: EpochEnd::Lost(Reason::UpstreamGap),
    };
    assert_eq!(
        close(&mut older, Closing::Bury(lost)).await,
        Ok(()),
        "its owner knows best"
    );
    let Ok(Found::Alive { epoch, .. }) = store.peek(&key).await else {
        panic!("the newer is open")
    };
    assert_eq!(epoch, SECOND);
    drop(older);
    let newest = push(&mut newer, 1, Millis(1)).await;
    let Ok(Found::Alive { epoch, span }) = store.peek(&key).await else {
        panic!("the newer is open")
    };
    assert_eq!(
        (epoch, span.last),
        (SECOND, newest),
        "what the older does changes nothing"
    );
    drop(newer);
    let Ok(Found::Ended(ends)) = store.peek(&key).await else {
        panic!("none is open")
    };
    assert_eq!(ends.first(), Some(&lost));
}

async fn an_epoch_is_never_used_again<S: Store>(store: &S) {
    let key = key(1, "g");
    let mut log = store.open(&key, claim(FIRST)).await.unwrap();
    assert_eq!(store.open(&key, claim(FIRST)).await.err(), Some(LogLoss::Fenced));
    let last = push(&mut log, 1, Millis(1)).await;
    assert_eq!(last, Seq::new(1), "the refused claim changed nothing");
    close(&mut log, Closing::End).await.unwrap();
    assert_eq!(store.open(&key, claim(FIRST)).await.err(), Some(LogLoss::Fenced));
}

async fn streams_and_sessions_do_not_mix<S: Store>(store: &S) {
    let mut one = store.open(&key(1, "g"), claim(FIRST)).await.unwrap();
    let mut other = store.open(&key(2, "g"), claim(FIRST)).await.unwrap();
    let mut post = store.open(&key(1, "pi7"), claim(FIRST)).await.unwrap();
    for (log, count) in [(&mut one, 1), (&mut other, 2), (&mut post, 3)] {
        assert_eq!(push(log, count, Millis(1)).await, Seq::new(count));
    }
    for (key, count) in [(key(1, "g"), 1), (key(2, "g"), 2), (key(1, "pi7"), 3)] {
        let Ok(Found::Alive { span, .. }) = store.peek(&key).await else {
            panic!("{key:?} is open")
        };
        assert_eq!(span.last, Seq::new(count));
    }
    assert_eq!(store.peek(&key(2, "pi7")).await, Ok(Found::Nothing));
}
