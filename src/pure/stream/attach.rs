//! Who receives a stream: the newest connection wins, and what becomes of the one before it.
//! Law: the old one gets no further frame, the new one never waits (wire contract, section 5).
//! One case sets the old one aside instead: clients that open a second GET without a cursor while the first is
//! alive would, if it were ended, bring it back, and the two would push each other out for ever.
//! Next: `reset.rs`.

use crate::pure::limits::LIVELY_KEEPALIVES;
use crate::pure::log::Millis;

/// What a new connection presents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presented {
    /// A cursor of this stream: it is the same client, come back.
    Cursor,
    /// None.
    Nothing,
}

/// The connection that receives the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// When it last took a byte.
    pub took_at: Millis,
    /// Where its last write ended.
    pub at: Boundary,
}

/// Whether a frame is half sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundary {
    /// No: the connection may end, or be told something else.
    Whole,
    /// Yes: its rest must go out, or the connection is reset.
    Half,
}

/// What happens to the connection that stands when another one comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Succession {
    /// Nothing: there is none.
    Vacant,
    /// It ends at once, in an orderly way.
    End,
    /// It is sent the rest of its half frame, for [`crate::pure::limits::HALF_FRAME_MS_MAX`]; then it is reset.
    FinishFrame,
    /// It stays and is told nothing but comments.
    SetAside,
}

/// Decides what happens to the connection that stands. `keepalive` is how often an idle one is told a comment: one
/// that took nothing for two of them is taken for dead.
pub const fn succession(
    standing: Option<Standing>,
    presented: Presented,
    now: Millis,
    keepalive: Millis,
) -> Succession {
    let Some(standing) = standing else {
        return Succession::Vacant;
    };
    let silent = now.0.saturating_sub(standing.took_at.0);
    let lively = silent <= keepalive.0.saturating_mul(LIVELY_KEEPALIVES);
    match (presented, standing.at) {
        (Presented::Nothing, Boundary::Whole) if lively => Succession::SetAside,
        (Presented::Nothing | Presented::Cursor, Boundary::Whole) => Succession::End,
        (Presented::Nothing | Presented::Cursor, Boundary::Half) => Succession::FinishFrame,
    }
}

/// How long a stream goes on without a client, and a client without taking anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// How long an idle connection is told nothing (`keepalive`).
    pub keepalive: Millis,
    /// How long a client may take nothing of what is offered (`stall_max`).
    pub stall: Millis,
    /// How long a stream is read on without a client (`detached_max`).
    pub detached: Millis,
}

/// How a stream stands towards its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Client {
    /// Attached, and everything was taken.
    Idle {
        /// When the last of it was.
        took_at: Millis,
    },
    /// Attached, and something is offered that it has not taken.
    Offered {
        /// When it last took anything.
        took_at: Millis,
    },
    /// Nobody is attached.
    Away {
        /// Since when.
        since: Millis,
    },
}

/// What time asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Nothing before this time.
    Later(Millis),
    /// A comment.
    Comment,
    /// The connection ends at an event's boundary; the log stays.
    EndConnection,
    /// The stream is given up: what runs is cancelled upstream, a tombstone outlives the data.
    GiveUp,
}

impl Patience {
    /// Decides what time asks for.
    pub const fn due(self, client: Client, now: Millis) -> Due {
        let (at, then) = match client {
            Client::Idle { took_at } => (took_at.0.saturating_add(self.keepalive.0), Due::Comment),
            Client::Offered { took_at } => (took_at.0.saturating_add(self.stall.0), Due::EndConnection),
            Client::Away { since } => (since.0.saturating_add(self.detached.0), Due::GiveUp),
        };
        if now.0 >= at { then } else { Due::Later(Millis(at)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_wins_and_a_living_listener_is_set_aside() {
        let stands = |took_at, at| {
            Some(Standing {
                took_at: Millis(took_at),
                at,
            })
        };
        for (standing, presented, expected) in [
            (None, Presented::Cursor, Succession::Vacant),
            (None, Presented::Nothing, Succession::Vacant),
            (
                stands(99_000, Boundary::Whole),
                Presented::Cursor,
                Succession::End,
            ),
            (stands(0, Boundary::Whole), Presented::Cursor, Succession::End),
            (
                stands(99_000, Boundary::Half),
                Presented::Cursor,
                Succession::FinishFrame,
            ),
            (
                stands(70_000, Boundary::Whole),
                Presented::Nothing,
                Succession::SetAside,
            ),
            (
                stands(69_999, Boundary::Whole),
                Presented::Nothing,
                Succession::End,
            ),
            (
                stands(99_000, Boundary::Half),
                Presented::Nothing,
                Succession::FinishFrame,
            ),
            (
                stands(200_000, Boundary::Whole),
                Presented::Nothing,
                Succession::SetAside,
            ),
        ] {
            let decided = succession(standing, presented, Millis(100_000), Millis(15_000));
            assert_eq!(decided, expected, "{standing:?} {presented:?}");
        }
    }

    #[test]
    fn time_asks_for_one_thing() {
        let patience = Patience {
            keepalive: Millis(15),
            stall: Millis(60),
            detached: Millis(300),
        };
        for (client, now, expected) in [
            (Client::Idle { took_at: Millis(10) }, 24, Due::Later(Millis(25))),
            (Client::Idle { took_at: Millis(10) }, 25, Due::Comment),
            (
                Client::Offered { took_at: Millis(10) },
                69,
                Due::Later(Millis(70)),
            ),
            (Client::Offered { took_at: Millis(10) }, 70, Due::EndConnection),
            (Client::Away { since: Millis(10) }, 309, Due::Later(Millis(310))),
            (Client::Away { since: Millis(10) }, 310, Due::GiveUp),
            (
                Client::Away {
                    since: Millis(u64::MAX),
                },
                5,
                Due::Later(Millis(u64::MAX)),
            ),
        ] {
            assert_eq!(patience.due(client, Millis(now)), expected, "{client:?} at {now}");
        }
    }
}
