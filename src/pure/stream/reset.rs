//! What a listener is told when continuity is lost, in terms that it already understands (wire contract, section 6).
//! Law: it is told to read again whatever it holds a copy of.
//! What can't be said so (task status, servers that declare nothing) shows only in the header and the `reset` event.
//! Absent on purpose: the errors of calls (`../refusal.rs`), ids and frames; the log gives those, as to every event.
//! Next: `../session/mod.rs`, which knows what was declared and subscribed.

use std::borrow::Cow;

use crate::pure::epoch::{Epoch, Reason};
use crate::pure::refusal::{self, List, LogLevel, Withdrawal};
use crate::pure::rpc::RequestId;
use crate::pure::session::Subscriptions;
use crate::pure::session_token::{Declared, Flags};
use crate::pure::stream::Agent;

/// One event that tells a reset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Say<'a> {
    /// For clients that know of throughline: `event: reset`.
    Notice,
    /// For people: a log message, at this level of the client's if it is graver than `warning`.
    Warning(Option<LogLevel>),
    /// A list may have changed.
    ListChanged(List),
    /// A resource may have changed.
    ResourceUpdated(&'a str),
    /// A request of the backend's died: its answer is not waited for.
    Withdrawn(&'a RequestId),
}

/// Why, and the epoch that the client stands in now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Why.
    pub reason: Reason,
    /// The epoch.
    pub epoch: Epoch,
}

impl Say<'_> {
    /// The event's type; empty for `message`.
    pub const fn event(&self) -> &'static [u8] {
        match self {
            Self::Notice => b"reset",
            Self::Warning(_) | Self::ListChanged(_) | Self::ResourceUpdated(_) | Self::Withdrawn(_) => b"",
        }
    }

    /// The event's data: one line of JSON-RPC.
    pub fn data(&self, told: Told) -> Cow<'static, [u8]> {
        let Told { reason, epoch } = told;
        match *self {
            Self::Notice => refusal::reset_notice(reason, epoch).into(),
            Self::Warning(level) => refusal::reset_warning(level, reason, epoch).into(),
            Self::ListChanged(list) => refusal::list_changed(list).into(),
            Self::ResourceUpdated(uri) => refusal::resource_updated(uri).into(),
            Self::Withdrawn(id) => refusal::cancelled(id, Withdrawal::Reset(reason)).into(),
        }
    }
}

/// What is known of the session whose standalone stream is reset.
#[derive(Clone, Copy, Debug)]
pub struct Listener<'a> {
    /// What the backend declared.
    pub declared: Flags,
    /// The level that the client asked for, if it did.
    pub level: Option<LogLevel>,
    /// What it subscribed to. For what of it is not remembered, the list of resources stands.
    pub subscribed: &'a Subscriptions,
    /// The backend's requests on this stream that it has not answered.
    pub pending: &'a [RequestId],
    /// What kind of client it is.
    pub agent: Agent,
    /// When it is told to read again.
    pub reread: Reread,
}

/// When a listener is told to read again what it holds copies of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reread {
    /// With the reset.
    Now,
    /// Once the backend's stream stands, with another reset: what it read before that could change unseen.
    Later,
}

/// What the standalone stream tells, in this order: the notice for those that know it, the withdrawals, the warning,
/// then what to read again.
pub fn of_standalone<'a>(listener: Listener<'a>) -> impl Iterator<Item = Say<'a>> {
    let Listener {
        declared,
        level,
        subscribed,
        pending,
        agent,
        reread,
    } = listener;
    let notice = agent.bears_other_types().then_some(Say::Notice);
    let declared = match reread {
        Reread::Now => declared,
        Reread::Later => Flags::NONE,
    };
    let warning = declared.has(Declared::Logging).then_some(Say::Warning(level));
    let incomplete = reread == Reread::Now && subscribed.forgotten() > 0;
    let lists = List::ALL
        .into_iter()
        .filter(move |list| declared.has(list.declared_by()) || (*list == List::Resources && incomplete));
    let resources = if declared.has(Declared::ResourcesSubscribe) {
        subscribed.uris()
    } else {
        &[]
    };
    notice
        .into_iter()
        .chain(pending.iter().map(Say::Withdrawn))
        .chain(warning)
        .chain(lists.map(Say::ListChanged))
        .chain(resources.iter().map(|uri| Say::ResourceUpdated(uri)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: Told = Told {
        reason: Reason::WindowExceeded,
        epoch: Epoch::from_random(1),
    };

    fn id(raw: &str) -> RequestId {
        RequestId::from_raw(raw.as_bytes()).unwrap()
    }

    #[test]
    fn a_listener_is_told_what_was_declared() {
        let all = Declared::ALL.into_iter().fold(Flags::NONE, Flags::with);
        let mut subscribed = Subscriptions::default();
        subscribed.add("file:///a");
        subscribed.add("file:///b");
        let pending = [id("4")];
        let level = Some(LogLevel::Error);
        let listener = Listener {
            declared: all,
            level,
            subscribed: &subscribed,
            pending: &pending,
            agent: Agent::Other,
            reread: Reread::Now,
        };
        let told = |listener| of_standalone(listener).collect::<Vec<_>>();
        let withdrawn = Say::Withdrawn(&pending[0]);
        let lists = List::ALL.map(Say::ListChanged);
        let expected = [
            Say::Notice,
            withdrawn.clone(),
            Say::Warning(level),
            lists[0].clone(),
            lists[1].clone(),
            lists[2].clone(),
            Say::ResourceUpdated("file:///a"),
            Say::ResourceUpdated("file:///b"),
        ];
        assert_eq!(told(listener), expected);
        assert_eq!(
            told(Listener {
                agent: Agent::Java,
                ..listener
            }),
            expected[1..]
        );
        assert_eq!(
            told(Listener {
                declared: Flags::NONE,
                ..listener
            }),
            [Say::Notice, withdrawn.clone()]
        );
        assert_eq!(
            told(Listener {
                reread: Reread::Later,
                ..listener
            }),
            [Say::Notice, withdrawn]
        );
        let tools = Flags::NONE.with(Declared::ToolsListChanged);
        let quiet = Listener {
            declared: tools,
            pending: &[],
            agent: Agent::Java,
            ..listener
        };
        assert_eq!(told(quiet), [Say::ListChanged(List::Tools)]);
        let mut subscribed = subscribed.clone();
        subscribed.add(&"x".repeat(1 << 20));
        let more = Listener {
            subscribed: &subscribed,
            ..quiet
        };
        assert_eq!(
            told(more),
            [Say::ListChanged(List::Tools), Say::ListChanged(List::Resources)]
        );
    }

    #[test]
    fn what_is_said_is_one_line_of_json_rpc() {
        let id = id("7");
        for (say, event, expected) in [
            (
                Say::Notice,
                "reset",
                r#""method":"notifications/throughline/reset""#,
            ),
            (Say::Warning(Some(LogLevel::Alert)), "", r#""level":"alert""#),
            (
                Say::ListChanged(List::Prompts),
                "",
                r#""method":"notifications/prompts/list_changed""#,
            ),
            (Say::ResourceUpdated("file:///a"), "", r#""uri":"file:///a""#),
            (Say::Withdrawn(&id), "", r#""method":"notifications/cancelled""#),
        ] {
            assert_eq!(say.event(), event.as_bytes());
            let data = String::from_utf8(say.data(TOLD).into_owned()).unwrap();
            assert!(data.contains(expected) && !data.contains('\n'), "{data}");
            crate::pure::rpc::read(data.as_bytes()).unwrap();
        }
    }
}
