//! What is known of a replica's health, and what a probe's outcome changes about it.
//! Law: a condition changes only after `fall` failures or `rise` successes in a row; a replica not probed is healthy.
//! Absent on purpose: the probe itself (`upstream/prober_task.rs`) and any consequence for sessions:
//! a failed probe is never session loss by itself (wire contract, section 7).
//! Next: `routing/choose.rs`.

/// Whether a replica takes new sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Condition {
    /// It does.
    Healthy,
    /// Its probes failed: it takes no new session; sessions that it has stay.
    Unhealthy,
}

impl Condition {
    /// The word for it in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// What one probe found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It answered as it should.
    Passed,
    /// It did not.
    Failed,
}

/// A replica's condition changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// What it is now.
    pub to: Condition,
    /// Probes in a row that said so.
    pub after: u32,
}

/// Judges a replica by its probes. Call: [`Judge::note`] once for each probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judge {
    fall: u32,
    rise: u32,
    condition: Condition,
    against: u32,
}

impl Judge {
    /// A judge of a replica in this condition. `fall` and `rise` count probes; 0 counts as 1.
    pub const fn new(fall: u32, rise: u32, condition: Condition) -> Self {
        Self {
            fall,
            rise,
            condition,
            against: 0,
        }
    }

    /// Takes one finding; answers a transition exactly when the condition changes.
    pub fn note(&mut self, finding: Finding) -> Option<Transition> {
        let (to, enough) = match (self.condition, finding) {
            (Condition::Healthy, Finding::Passed) | (Condition::Unhealthy, Finding::Failed) => {
                self.against = 0;
                return None;
            }
            (Condition::Healthy, Finding::Failed) => (Condition::Unhealthy, self.fall),
            (Condition::Unhealthy, Finding::Passed) => (Condition::Healthy, self.rise),
        };
        self.against = self.against.saturating_add(1);
        if self.against < enough {
            return None;
        }
        let after = self.against;
        (self.condition, self.against) = (to, 0);
        Some(Transition { to, after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` is a probe that passed, `-` one that failed; the answer has `U` or `D` where the condition changed.
    fn check(fall: u32, rise: u32, probes: &str, changes: &str) {
        let mut judge = Judge::new(fall, rise, Condition::Healthy);
        let got: String = probes
            .chars()
            .map(|probe| {
                let finding = if probe == '+' {
                    Finding::Passed
                } else {
                    Finding::Failed
                };
                match judge.note(finding) {
                    None => '.',
                    Some(Transition {
                        to: Condition::Healthy,
                        after,
                    }) => {
                        assert_eq!(after, rise.max(1));
                        'U'
                    }
                    Some(Transition {
                        to: Condition::Unhealthy,
                        after,
                    }) => {
                        assert_eq!(after, fall.max(1));
                        'D'
                    }
                }
            })
            .collect();
        assert_eq!(got, changes, "fall {fall}, rise {rise}, probes {probes}");
    }

    #[test]
    fn a_condition_changes_after_enough_in_a_row_and_is_told_once() {
        check(3, 2, "+++", "...");
        check(3, 2, "---", "..D");
        check(3, 2, "------", "..D...");
        check(3, 2, "--+--+---", "........D");
        check(3, 2, "---++", "..D.U");
        check(3, 2, "---+-++", "..D...U");
        check(1, 1, "-+-+", "DUDU");
        check(0, 0, "-+", "DU");
    }
}
