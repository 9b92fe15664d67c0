//! Passive health: what the outcome of real exchanges says of a replica, beside the probes.
//! Law: only so many failures in a row eject, for a time that doubles with each ejection; one success ends both the row
//! and the ejection. What a backend says in a status is no failure: it answered.
//! After its time an ejected replica is on trial: it may be chosen, and one more failure ejects it again.
//! Absent on purpose: the clock (an argument), and any consequence for the sessions that it has.
//! Next: `choose.rs`.

use crate::pure::log::Millis;
use crate::telemetry::words::EjectedFor;

/// How much is borne.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tolerance {
    /// Failures in a row that eject; 0 = never.
    pub after: u32,
    /// How long the first ejection lasts.
    pub first: Millis,
    /// How long one lasts at most; so long after the last one, ejections are short again.
    pub longest: Millis,
}

/// What shows that a replica is well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// It takes connections.
    Connected,
    /// It answers.
    Answered,
}

/// What one more failure means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blow {
    /// It is borne.
    Borne {
        /// Failures in a row so far.
        failures: u32,
    },
    /// The replica is ejected: it takes no new session until then.
    Ejected {
        /// Failures in a row that led to it.
        failures: u32,
        /// When it is tried again.
        until: Millis,
    },
}

/// What is remembered of one replica. Call: [`Ejection::failed`] or [`Ejection::proved`], once for each exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ejection {
    failures: u32,
    /// Ejections without a calm time between them.
    times: u32,
    out: Option<Out>,
    /// When the last ejection was or will be over.
    last: Option<Millis>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Out {
    why: EjectedFor,
    until: Millis,
}

impl Ejection {
    /// An exchange failed.
    pub fn failed(&mut self, why: EjectedFor, tolerance: Tolerance, now: Millis) -> Blow {
        self.failures = self.failures.saturating_add(1);
        let failures = self.failures;
        let enough = match self.out {
            // Its sessions go on failing; that says nothing new.
            Some(out) if now.0 < out.until.0 => return Blow::Borne { failures },
            // On trial.
            Some(_) => tolerance.after > 0,
            None => tolerance.after > 0 && failures >= tolerance.after,
        };
        if !enough {
            return Blow::Borne { failures };
        }
        if self
            .last
            .is_some_and(|last| now.0.saturating_sub(last.0) >= tolerance.longest.0)
        {
            self.times = 0;
        }
        let doubled = 2_u64
            .checked_pow(self.times)
            .and_then(|factor| tolerance.first.0.checked_mul(factor));
        let wait = doubled.unwrap_or(tolerance.longest.0).min(tolerance.longest.0);
        let until = Millis(now.0.saturating_add(wait));
        self.times = self.times.saturating_add(1);
        self.out = Some(Out { why, until });
        self.last = Some(until);
        Blow::Ejected { failures, until }
    }

    /// It was shown to be well. Whether that ended an ejection. That it takes connections says nothing to one that was
    /// ejected since it does not answer.
    pub fn proved(&mut self, proof: Proof) -> Proved {
        let why = self.out.map(|out| out.why);
        match (why, proof) {
            (Some(EjectedFor::Unanswered), Proof::Connected) => Proved::Nothing,
            // A row of early ends is not broken by a connection either.
            (None, Proof::Connected) => Proved::Nothing,
            (None, Proof::Answered) => {
                self.failures = 0;
                Proved::Nothing
            }
            (Some(_), Proof::Connected | Proof::Answered) => {
                self.failures = 0;
                self.out = None;
                Proved::Returned
            }
        }
    }

    /// Until when it is ejected, if it is.
    pub fn until(&self) -> Option<Millis> {
        self.out.map(|out| out.until)
    }

    /// Whether nothing is held against it.
    pub fn is_clear(&self) -> bool {
        self.failures == 0 && self.out.is_none()
    }
}

/// What a proof changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proved {
    /// Nothing that others would notice.
    Nothing,
    /// It is back: it takes new sessions again.
    Returned,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance {
        after: 3,
        first: Millis(100),
        longest: Millis(350),
    };

    /// Steps `TIME SIGN`: `r` refused, `e` no answer, `c` a connection, `a` an answer. Answers: `.`, `>UNTIL`, `back`.
    fn check(steps: &str, expected: &str) {
        let mut ejection = Ejection::default();
        let mut got = Vec::new();
        for step in steps.split(", ") {
            let (time, sign) = step.split_once(' ').unwrap();
            let now = Millis(time.parse().unwrap());
            let mut fail = |why| match ejection.failed(why, TOLERANCE, now) {
                Blow::Borne { .. } => ".".to_owned(),
                Blow::Ejected { until, .. } => format!(">{}", until.0),
            };
            got.push(match sign {
                "r" => fail(EjectedFor::Unreached),
                "e" => fail(EjectedFor::Unanswered),
                _ => match ejection.proved(if sign == "c" {
                    Proof::Connected
                } else {
                    Proof::Answered
                }) {
                    Proved::Nothing => ".".to_owned(),
                    Proved::Returned => "back".to_owned(),
                },
            });
        }
        assert_eq!(got.join(" "), expected, "{steps}");
    }

    #[test]
    fn failures_in_a_row_eject_and_one_success_ends_it() {
        check("0 r, 1 r, 2 r", ". . >102");
        check("0 r, 1 r, 2 a, 3 r, 4 r, 5 r", ". . . . . >105");
        check("0 r, 1 e, 2 r, 3 a, 4 r", ". . >102 back .");
        // A connection is proof enough against refusals, and none against early ends.
        check("0 r, 1 r, 2 r, 3 c", ". . >102 back");
        check("0 e, 1 e, 2 e, 3 c, 4 a", ". . >102 . back");
        check("0 e, 1 e, 2 c, 3 e", ". . . >103");
    }

    #[test]
    fn each_ejection_is_longer_until_there_was_calm() {
        // Within its time nothing is said anew; after it, one failure is enough.
        check(
            "0 r, 0 r, 0 r, 50 r, 100 r, 300 r, 650 r",
            ". . >100 . >300 >650 >1000",
        );
        // Back, and soon out again: the time goes on doubling; after a calm time it begins anew.
        check("0 r, 0 r, 0 r, 10 a, 20 r, 20 r, 20 r", ". . >100 back . . >220");
        check(
            "0 r, 0 r, 0 r, 10 a, 460 r, 460 r, 460 r",
            ". . >100 back . . >560",
        );
    }

    #[test]
    fn nothing_is_ejected_where_that_is_off() {
        let mut ejection = Ejection::default();
        let off = Tolerance {
            after: 0,
            ..TOLERANCE
        };
        for n in 1..=50 {
            let blow = ejection.failed(EjectedFor::Unreached, off, Millis(0));
            assert_eq!(blow, Blow::Borne { failures: n });
        }
        assert_eq!(ejection.until(), None);
        assert!(!ejection.is_clear());
        ejection.proved(Proof::Answered);
        assert!(ejection.is_clear());
    }
}
