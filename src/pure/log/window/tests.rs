//! The window against a naive model that forgets nothing, and a table of what it refuses.
//! Law: a walk is decided by its seed alone.
//! Next: `../segment.rs`.

use super::Window;
use crate::pure::epoch::{Epoch, Seq};
use crate::pure::limits::LOG_AGE_PARTS;
use crate::pure::log::ages::MARKS_MAX;
use crate::pure::log::{
    Bounds, EndMark, Entry, Full, Millis, Position, Refused, Replay, Slices, Span, TakenBy, View,
};
use crate::pure::sse::Text;

const EPOCH: Epoch = Epoch::from_random(7);
const LARGE: Bounds = Bounds {
    events: u32::MAX,
    bytes: 1 << 20,
    age: Millis(u64::MAX),
};

fn entry(data: &[u8]) -> Entry<'_> {
    Entry {
        prefix: b"k.g.m.",
        end: EndMark::Open,
        event: b"",
        data: Text::of(data),
    }
}

fn frame(seq: u64, data: &str) -> Vec<u8> {
    let lines: String = data.split('\n').map(|line| format!("data: {line}\n")).collect();
    format!("id: k.g.m.{seq}\nevent: message\n{lines}\n").into_bytes()
}

fn filled(bounds: Bounds, events: u64) -> Window {
    let mut window = Window::new(EPOCH, bounds);
    for n in 1..=events {
        window.emit(entry(b"{}"), Millis(n)).unwrap();
    }
    window
}

/// Reads what is held from a position on, in writes that take `step` bytes each.
fn read(window: &Window, mut at: Position, upto: Seq, step: usize) -> (Vec<u8>, Position) {
    let mut all = Vec::new();
    loop {
        let mut slices = Slices::new();
        match window.view(at, upto, &mut slices) {
            View::Here => {}
            View::Nothing => return (all, at),
            view @ (View::Fetch | View::Gone { .. }) => panic!("{view:?} at {at:?} of {:?}", window.span()),
        }
        assert!(slices.bytes() > 0);
        let take = slices.bytes().min(step);
        let mut left = take;
        for slice in slices.as_slice() {
            let part = &slice[..left.min(slice.len())];
            all.extend_from_slice(part);
            left -= part.len();
        }
        at = window.advance(at, take);
    }
}

#[test]
fn a_cursor_is_honoured_whole_or_refused_with_evidence() {
    let few = Bounds { events: 10, ..LARGE };
    let other = Epoch::from_random(8);
    let gap = |missing, oldest, by| {
        Err(Refused::Gap {
            missing,
            oldest: Seq::new(oldest),
            by,
        })
    };
    let future = |asked, last| {
        Err(Refused::Future {
            asked: Seq::new(asked),
            last: Seq::new(last),
        })
    };
    let replay = |from, events| {
        Ok(Replay {
            from: Seq::new(from),
            events,
        })
    };
    let mismatch = Err(Refused::EpochMismatch {
        asked: other,
        current: EPOCH,
    });
    let mut buried = filled(few, 15);
    buried.bury();
    let mut aged = filled(
        Bounds {
            age: Millis(1_000),
            ..LARGE
        },
        15,
    );
    aged.shed(Millis(2_000), None);
    let check = |window: &Window, epoch, after, expected: Result<Replay, Refused>| {
        assert_eq!(
            window.resume(epoch, Seq::new(after)),
            expected,
            "after {after} of {:?}",
            window.span()
        );
    };
    for (window, epoch, after, expected) in [
        (&filled(few, 0), EPOCH, 0, replay(0, 0)),
        (&filled(few, 0), EPOCH, 1, future(1, 0)),
        (&filled(few, 0), other, 0, mismatch),
        (&filled(few, 10), EPOCH, 0, replay(0, 10)),
        (&filled(few, 11), EPOCH, 0, gap(1, 2, TakenBy::Window)),
        (&filled(few, 11), EPOCH, 1, replay(1, 10)),
        (&filled(few, 15), EPOCH, 2, gap(3, 6, TakenBy::Window)),
        (&filled(few, 15), EPOCH, 5, replay(5, 10)),
        (&filled(few, 15), EPOCH, 14, replay(14, 1)),
        (&filled(few, 15), EPOCH, 15, replay(15, 0)),
        (&filled(few, 15), EPOCH, 16, future(16, 15)),
        (&filled(few, 15), EPOCH, u64::MAX, future(u64::MAX, 15)),
        (&filled(few, 15), other, 14, mismatch),
        (&filled(few, 15), other, u64::MAX, mismatch),
        (&buried, EPOCH, 14, gap(1, 16, TakenBy::Budget)),
        (&buried, EPOCH, 15, replay(15, 0)),
        (&aged, EPOCH, 3, gap(12, 16, TakenBy::Window)),
        (&aged, EPOCH, 15, replay(15, 0)),
    ] {
        check(window, epoch, after, expected);
    }
}

#[test]
fn a_hold_forbids_eviction_and_a_full_window_stays_as_it_was() {
    let mut window = filled(Bounds { events: 4, ..LARGE }, 4);
    window.hold(Some(Seq::new(1)));
    assert_eq!(
        window.emit(entry(b"{}"), Millis(9)),
        Ok(Seq::new(5)),
        "the first was had"
    );
    let before = window.span();
    assert_eq!(window.emit(entry(b"{}"), Millis(9)), Err(Full));
    assert_eq!(window.span(), before);
    assert_eq!(window.shed(Millis(u64::MAX), Some(usize::MAX)), 0);
    assert_eq!(window.span(), before);
    window.hold(Some(Seq::new(2)));
    assert_eq!(window.emit(entry(b"{}"), Millis(9)), Ok(Seq::new(6)));
    window.hold(None);
    assert!(window.shed(Millis(9), Some(1)) > 0);
    assert_eq!(
        window.span(),
        Span {
            first: Seq::new(7),
            last: Seq::new(6),
            bytes: 0,
            taken_by: TakenBy::Budget
        }
    );
}

#[test]
fn one_event_is_always_taken_when_nothing_is_held() {
    let mut window = Window::new(
        EPOCH,
        Bounds {
            events: 8,
            bytes: 2_048,
            age: Millis(u64::MAX),
        },
    );
    let huge = "x".repeat(100_000);
    window.hold(Some(Seq::START));
    assert_eq!(window.emit(entry(huge.as_bytes()), Millis(0)), Ok(Seq::new(1)));
    assert_eq!(
        window.emit(entry(b"{}"), Millis(0)),
        Err(Full),
        "the reader has not had it"
    );
    let (bytes, at) = read(
        &window,
        Position {
            after: Seq::START,
            skip: 0,
        },
        Seq::new(1),
        999,
    );
    assert_eq!(
        (bytes, at),
        (
            frame(1, &huge),
            Position {
                after: Seq::new(1),
                skip: 0
            }
        )
    );
    window.hold(Some(Seq::new(1)));
    assert_eq!(window.emit(entry(b"{}"), Millis(0)), Ok(Seq::new(2)));
    assert!(window.bytes() <= 2_048, "{}", window.bytes());
}

#[test]
fn bounds_of_nothing_hold_the_newest_event_alone() {
    let mut window = Window::new(
        EPOCH,
        Bounds {
            events: 0,
            bytes: 0,
            age: Millis(0),
        },
    );
    for n in 1..=100 {
        assert_eq!(window.emit(entry(&[b'x'; 5_000]), Millis(n / 2)), Ok(Seq::new(n)));
        assert_eq!(
            (window.span().first, window.span().last),
            (Seq::new(n), Seq::new(n))
        );
        assert!(window.bytes() < 6_000);
    }
    window.shed(Millis(50), None);
    assert_eq!(window.bytes(), 0, "too old at once");
}

#[test]
fn nothing_follows_the_end_mark() {
    let mut window = filled(LARGE, 1);
    assert_eq!(
        window.emit(
            Entry {
                end: EndMark::Last,
                ..entry(b"{}")
            },
            Millis(2)
        ),
        Ok(Seq::new(2))
    );
    assert_eq!(window.emit(entry(b"{}"), Millis(3)), Err(Full));
    assert_eq!((window.end(), window.span().last), (EndMark::Last, Seq::new(2)));
}

#[test]
fn age_takes_events_in_time_and_not_much_before() {
    let age = 1_600;
    let mut window = Window::new(
        EPOCH,
        Bounds {
            age: Millis(age),
            ..LARGE
        },
    );
    let mut written = Vec::new();
    for step in 0..2_000_u64 {
        let now = step * 7;
        let seq = window.emit(entry(b"{}"), Millis(now)).unwrap();
        written.push(now);
        let held = &written[(window.span().first.get() - 1) as usize..];
        assert!(now - held[0] < age, "an event was held for {} ms", now - held[0]);
        if seq.get() > held.len() as u64 {
            let gone = written[(window.span().first.get() - 2) as usize];
            assert!(
                now - gone >= age - age / LOG_AGE_PARTS,
                "an event went after {} ms",
                now - gone
            );
        }
        assert!(window.ages.marks() <= MARKS_MAX);
    }
    window.hold(Some(Seq::START));
    for step in 0..1_000_u64 {
        window.emit(entry(b"{}"), Millis(100_000 + step * 150)).unwrap();
        assert!(window.ages.marks() <= MARKS_MAX);
    }
    window.hold(None);
    window.shed(Millis(10_000_000), None);
    assert_eq!((window.bytes(), window.span().taken_by), (0, TakenBy::Window));
}

#[test]
fn an_idle_window_costs_little_and_small_streams_cost_what_they_hold() {
    assert!(size_of::<Window>() <= 200, "{}", size_of::<Window>());
    assert_eq!(Window::new(EPOCH, LARGE).bytes(), 0);
    let mut window = filled(LARGE, 3);
    assert!(window.bytes() <= 1_100, "{}", window.bytes());
    window.compact();
    assert!(window.bytes() <= 200, "{}", window.bytes());
    let (bytes, _) = read(
        &window,
        Position {
            after: Seq::START,
            skip: 0,
        },
        Seq::new(3),
        7,
    );
    assert_eq!(bytes, [frame(1, "{}"), frame(2, "{}"), frame(3, "{}")].concat());
    let seq = window.emit(entry(b"[]"), Millis(5)).unwrap();
    let (bytes, _) = read(
        &window,
        Position {
            after: Seq::new(2),
            skip: 0,
        },
        seq,
        usize::MAX,
    );
    assert_eq!(bytes, [frame(3, "{}"), frame(4, "[]")].concat());
}

/// A small generator, so that a seed reruns a walk.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Every byte ever appended, where each frame ends, and where the reader stands.
struct Model {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    held: Option<u64>,
    now: u64,
}

impl Model {
    fn append(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    fn last(&self) -> u64 {
        self.ends.len() as u64 - 1
    }

    fn between(&self, after: u64, upto: u64) -> &[u8] {
        &self.bytes[self.ends[after as usize]..self.ends[upto as usize]]
    }

    /// What must be true of the window after every step.
    fn agree(&self, window: &Window, bounds: Bounds, before: Span) {
        let span = window.span();
        let held = span.last.next().since(span.first);
        assert_eq!(span.last.get(), self.last());
        assert!(span.first >= before.first && span.first <= span.last.next());
        assert!(held <= u64::from(bounds.events));
        assert!(span.bytes <= bounds.bytes || held <= 1, "{span:?}");
        let live: u64 = self.between(span.first.get() - 1, span.last.get()).len() as u64;
        assert!(span.bytes as u64 >= live, "{span:?} holds {live}");
        if let Some(reader) = self.held {
            assert!(
                span.first.get() <= before.first.get().max(reader + 1),
                "{span:?} past reader {reader}"
            );
        }
        assert_eq!(span.bytes == 0, held == 0);
    }

    fn read_anywhere(&self, window: &Window, dice: &mut Dice) {
        let span = window.span();
        let after = dice.below(span.last.get() as usize + 1) as u64;
        let upto = after + dice.below((span.last.get() - after).min(60) as usize + 1) as u64;
        let mut slices = Slices::new();
        if after + 1 < span.first.get() && upto > after {
            let at = Position {
                after: Seq::new(after),
                skip: 0,
            };
            assert_eq!(
                window.view(at, Seq::new(upto), &mut slices),
                View::Gone { oldest: span.first }
            );
            return;
        }
        let expected = self.between(after, upto);
        let step = 1 + dice.below(3_000);
        let skip = if upto > after {
            dice.below(self.between(after, after + 1).len())
        } else {
            0
        };
        let (bytes, at) = read(
            window,
            Position {
                after: Seq::new(after),
                skip,
            },
            Seq::new(upto),
            step,
        );
        assert_eq!(bytes, expected[skip..]);
        assert_eq!(
            at,
            Position {
                after: Seq::new(upto),
                skip: 0
            }
        );
    }
}

fn walk(seed: u64, bounds: Bounds, sizes: usize) {
    let mut dice = Dice(seed);
    let mut window = Window::new(EPOCH, bounds);
    let mut model = Model {
        bytes: Vec::new(),
        ends: vec![0],
        held: None,
        now: 0,
    };
    for _ in 0..3_000 {
        let before = window.span();
        match dice.below(10) {
            0 => {
                let reader = before.first.get() - 1
                    + dice.below(before.last.next().since(before.first) as usize + 1) as u64;
                model.held = Some(reader);
                window.hold(Some(Seq::new(reader)));
            }
            1 if dice.below(3) == 0 => {
                model.held = None;
                window.hold(None);
            }
            2 if dice.below(8) == 0 => {
                let want = dice.below(2 * bounds.bytes);
                let gone = window.shed(Millis(model.now), Some(want));
                assert_eq!(before.bytes - window.bytes(), gone);
                assert!(gone >= want || model.held.is_some() || window.bytes() == 0);
            }
            3 => window.compact(),
            4 => model.now += dice.below(200) as u64,
            _ => {
                let mut data = "x".repeat(dice.below(sizes));
                if dice.below(5) == 0 {
                    data.insert(dice.below(data.len() + 1), '\n');
                }
                let seq = model.last() + 1;
                let mut event = entry(data.as_bytes());
                // As the decoder hands it out, and as it was put together.
                if dice.below(2) == 0 && !data.contains('\n') {
                    event.data = Text::of_line(data.as_bytes());
                }
                match window.emit(event, Millis(model.now)) {
                    Ok(given) => {
                        assert_eq!(given.get(), seq);
                        model.append(&frame(seq, &data));
                    }
                    Err(Full) => {
                        let reader = model.held.expect("only a reader makes a window full");
                        assert!(reader < before.last.get());
                    }
                }
            }
        }
        model.agree(&window, bounds, before);
        model.read_anywhere(&window, &mut dice);
    }
    assert!(
        model.last() > 500,
        "seed {seed} appended {} events only",
        model.last()
    );
}

#[test]
fn walks_agree_with_a_model_that_forgets_nothing() {
    for seed in 1..=4 {
        for (bounds, sizes) in [
            (
                Bounds {
                    events: 1,
                    bytes: 1 << 20,
                    age: Millis(u64::MAX),
                },
                300,
            ),
            (
                Bounds {
                    events: 50,
                    bytes: 1 << 20,
                    age: Millis(u64::MAX),
                },
                300,
            ),
            (
                Bounds {
                    events: 5_000,
                    bytes: 3_000,
                    age: Millis(u64::MAX),
                },
                300,
            ),
            (
                Bounds {
                    events: 5_000,
                    bytes: 200_000,
                    age: Millis(u64::MAX),
                },
                9_000,
            ),
            (
                Bounds {
                    events: 5_000,
                    bytes: 1 << 20,
                    age: Millis(2_000),
                },
                2_000,
            ),
        ] {
            walk(seed * 0x9e37_79b9, bounds, sizes);
        }
    }
}
