//! The verdict in `Throughline-Continuity`: what the proxy says of a stream as it answers (wire contract, section 4).
//! Law: what `spell` prints, `parse` reads; from anybody else it takes an RFC 9651 dictionary, and guesses at nothing.
//! Why a client needs it beside the ids: only it says that the events themselves are held, and why a stream was reset.
//! Next: `dictionary.rs`, then `../guard/mod.rs`.

use crate::pure::epoch::{Epoch, Reason};
use crate::pure::limits::VERDICT_BYTES_MAX;

mod dictionary;

use dictionary::{Bare, Dictionary, Member};

/// The name of the header field, in lower case.
pub const FIELD: &str = "throughline-continuity";

/// The evidence that an SSE answer begins with (wire contract, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No cursor was asked and nothing was ever written on this stream.
    Live {
        /// The stream's epoch.
        epoch: Epoch,
    },
    /// Everything after the cursor is held and follows.
    Resumed {
        /// The stream's epoch.
        epoch: Epoch,
        /// The position that the client presented.
        from: u64,
        /// Events held after it.
        replayed: u64,
        /// The window's capacity, in events.
        window: u32,
    },
    /// Continuity is lost, and why.
    Reset {
        /// Why.
        reason: Reason,
        /// The epoch that goes on from here.
        epoch: Epoch,
    },
}

/// Why a header field holds no verdict. None of these is evidence of anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NoVerdict {
    /// It says nothing that is known here.
    Absent,
    /// It is no dictionary, is longer than [`VERDICT_BYTES_MAX`], or a verdict lacks what it must have.
    Malformed,
    /// It says more than one.
    Several,
}

impl Verdict {
    /// As an RFC 9651 dictionary with one member.
    pub fn spell(self) -> String {
        match self {
            Self::Live { epoch } => format!("live; epoch=\"{}\"", epoch.spelled()),
            Self::Resumed {
                epoch,
                from,
                replayed,
                window,
            } => format!(
                "resumed; epoch=\"{}\"; from=\"{from}\"; replayed={replayed}; window={window}",
                epoch.spelled()
            ),
            Self::Reset { reason, epoch } => format!("reset; reason={reason}; epoch=\"{}\"", epoch.spelled()),
        }
    }

    /// Reads the field's value; several lines of it are joined with a comma first, as HTTP says.
    ///
    /// Members and parameters that are not known are stepped over: a later proxy may say more.
    ///
    /// # Errors
    /// [`NoVerdict`]: nothing can be concluded from it.
    pub fn parse(field: &str) -> Result<Self, NoVerdict> {
        if field.len() > VERDICT_BYTES_MAX {
            return Err(NoVerdict::Malformed);
        }
        let mut found = None;
        for member in Dictionary::new(field) {
            let member = member.ok_or(NoVerdict::Malformed)?;
            let Some(read) = known(&member) else { continue };
            match found.replace((member.key, read)) {
                // The same key again: the last one counts, says the RFC.
                Some((key, _)) if key != member.key => return Err(NoVerdict::Several),
                Some(_) | None => {}
            }
        }
        match found {
            Some((_, verdict)) => verdict,
            None => Err(NoVerdict::Absent),
        }
    }

    /// The epoch that goes on from here.
    pub const fn epoch(self) -> Epoch {
        match self {
            Self::Live { epoch } | Self::Resumed { epoch, .. } | Self::Reset { epoch, .. } => epoch,
        }
    }
}

/// What a member of a known name says; `None`: its name is not known.
fn known(member: &Member<'_>) -> Option<Result<Verdict, NoVerdict>> {
    let read = match member.key {
        "live" => epoch_in(member).map(|epoch| Verdict::Live { epoch }),
        "resumed" => resumed(member),
        "reset" => reset(member),
        _ => return None,
    };
    let said = read.filter(|_| member.value == Some(Bare::True));
    Some(said.ok_or(NoVerdict::Malformed))
}

fn resumed(member: &Member<'_>) -> Option<Verdict> {
    Some(Verdict::Resumed {
        epoch: epoch_in(member)?,
        from: match member.parameter("from")? {
            Bare::Text(from) => plain_number(from)?,
            Bare::Integer(_) | Bare::Token(_) | Bare::True | Bare::False | Bare::Other => return None,
        },
        replayed: integer(member, "replayed")?,
        window: u32::try_from(integer(member, "window")?).ok()?,
    })
}

fn reset(member: &Member<'_>) -> Option<Verdict> {
    let word = match member.parameter("reason")? {
        Bare::Token(word) => word,
        Bare::Integer(_) | Bare::Text(_) | Bare::True | Bare::False | Bare::Other => return None,
    };
    Some(Verdict::Reset {
        reason: Reason::named(word)?,
        epoch: epoch_in(member)?,
    })
}

fn epoch_in(member: &Member<'_>) -> Option<Epoch> {
    match member.parameter("epoch")? {
        Bare::Text(spelled) => Epoch::parse(spelled),
        Bare::Integer(_) | Bare::Token(_) | Bare::True | Bare::False | Bare::Other => None,
    }
}

fn integer(member: &Member<'_>, name: &str) -> Option<u64> {
    match member.parameter(name)? {
        Bare::Integer(number) => u64::try_from(number).ok(),
        Bare::Text(_) | Bare::Token(_) | Bare::True | Bare::False | Bare::Other => None,
    }
}

/// A number in its one spelling.
fn plain_number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch::from_random(0x0123_4567_89ab_cdef);
    const RESUMED: Verdict = Verdict::Resumed {
        epoch: EPOCH,
        from: 5,
        replayed: 12,
        window: 1024,
    };

    #[test]
    fn what_is_spelt_is_read() {
        let mut verdicts = vec![Verdict::Live { epoch: EPOCH }, RESUMED];
        verdicts.extend(Reason::ALL.map(|reason| Verdict::Reset { reason, epoch: EPOCH }));
        for verdict in verdicts {
            assert_eq!(Verdict::parse(&verdict.spell()), Ok(verdict));
            assert_eq!(verdict.epoch(), EPOCH);
        }
        assert_eq!(
            RESUMED.spell(),
            "resumed; epoch=\"ASNFZ4mrze8\"; from=\"5\"; replayed=12; window=1024"
        );
        let live = Verdict::Live { epoch: EPOCH };
        assert_eq!(live.spell(), "live; epoch=\"ASNFZ4mrze8\"");
        let reset = Verdict::Reset {
            reason: Reason::WindowExceeded,
            epoch: EPOCH,
        };
        assert_eq!(
            reset.spell(),
            "reset; reason=window_exceeded; epoch=\"ASNFZ4mrze8\""
        );
    }

    #[test]
    fn any_spelling_of_the_dictionary_is_read() {
        for field in [
            "resumed;window=1024;replayed=12;from=\"5\";epoch=\"ASNFZ4mrze8\"",
            "  resumed=?1;epoch=\"ASNFZ4mrze8\"; from=\"5\";  replayed=12;window=1024  ",
            "later=(1 \"a;,\" tok);x, resumed;epoch=\"ASNFZ4mrze8\";from=\"5\";replayed=12;window=1024;more=:YQ==:,y=1.5",
            "live=?0,live;a=\"\\\"\", resumed;epoch=\"ASNFZ4mrze8\";from=\"5\";replayed=12;window=1024",
            "resumed, resumed;epoch=\"AAAAAAAAAAA\";epoch=\"ASNFZ4mrze8\";from=\"5\";replayed=12;window=1024",
        ] {
            let expected = match field.starts_with("live") {
                true => Err(NoVerdict::Several),
                false => Ok(RESUMED),
            };
            assert_eq!(Verdict::parse(field), expected, "{field}");
        }
    }

    #[test]
    fn what_says_too_little_says_nothing() {
        use NoVerdict::{Absent, Malformed, Several};
        for (field, why) in [
            ("", Absent),
            ("alive; epoch=\"ASNFZ4mrze8\"", Absent),
            ("live", Malformed),
            ("live=?0; epoch=\"ASNFZ4mrze8\"", Malformed),
            ("live; epoch=ASNFZ4mrze8", Malformed),
            ("live; epoch=\"ASNFZ4mrze9\"", Malformed), // Not its one spelling.
            ("live; epoch=\"ASNFZ4mrze8\",", Malformed),
            ("Live; epoch=\"ASNFZ4mrze8\"", Malformed),
            ("live; epoch=\"ASNFZ4mrze8", Malformed),
            ("reset; epoch=\"ASNFZ4mrze8\"", Malformed),
            ("reset; reason=tired; epoch=\"ASNFZ4mrze8\"", Malformed),
            ("reset; reason=\"evicted\"; epoch=\"ASNFZ4mrze8\"", Malformed),
            (
                "resumed; epoch=\"ASNFZ4mrze8\"; from=\"5\"; replayed=12",
                Malformed,
            ),
            (
                "resumed; epoch=\"ASNFZ4mrze8\"; from=\"05\"; replayed=12; window=1",
                Malformed,
            ),
            (
                "resumed; epoch=\"ASNFZ4mrze8\"; from=5; replayed=12; window=1",
                Malformed,
            ),
            (
                "resumed; epoch=\"ASNFZ4mrze8\"; from=\"5\"; replayed=-1; window=1",
                Malformed,
            ),
            (
                "live; epoch=\"ASNFZ4mrze8\", reset; reason=evicted; epoch=\"ASNFZ4mrze8\"",
                Several,
            ),
        ] {
            assert_eq!(Verdict::parse(field), Err(why), "{field}");
        }
        let long = format!("{}, x={}", RESUMED.spell(), "1".repeat(VERDICT_BYTES_MAX));
        assert_eq!(Verdict::parse(&long), Err(Malformed));
    }

    #[test]
    fn nothing_makes_it_panic() {
        let field =
            "later=(1 \"a;,\" tok);x, reset; reason=evicted; epoch=\"ASNFZ4mrze8\"; b=:YQ==:; c=@1; d=%\"x\"";
        assert!(Verdict::parse(field).is_ok());
        for end in 0..field.len() {
            let _read = Verdict::parse(&field[..end]);
            for odd in ["\"", "(", ";", ",", "=", "é", "\u{0}", "-", ":"] {
                let _read = Verdict::parse(&format!("{}{odd}{}", &field[..end], &field[end..]));
            }
        }
    }
}
