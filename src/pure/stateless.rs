//! Requests that stand for themselves (wire contract, section 11): what one is about, as far as a proxy must know, and
//! where tasks live.
//! Law: what is not known of a task is not guessed. A request about one that nobody here saw begin goes to any replica,
//! and what that says holds.
//! Absent on purpose: sessions, and HTTP.
//! Why digests of task ids: a server may make them of any length, and they are as good as keys.
//! Next: `relay/stateless.rs`.

use std::collections::{HashMap, VecDeque};

use memchr::memmem;
use sha2::{Digest, Sha256};

use crate::pure::limits::{TASK_HOME_MS_MAX, TASK_HOMES_MAX};
use crate::pure::log::Millis;
use crate::pure::rpc::{self, RequestId};
use crate::pure::session_token::ReplicaKey;

/// What a request that stands for itself is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errand {
    /// It opens a stream of notifications, which goes on until somebody ends it.
    Listen,
    /// It asks for a task, or tells it something.
    Task(TaskKey),
    /// Anything else.
    Other,
}

impl Errand {
    /// What this body is about. One that is no single message is about nothing in particular.
    pub fn of(body: &[u8]) -> Self {
        let method = rpc::lookup(body, &["method"]).and_then(rpc::text);
        match method.as_deref() {
            Some("subscriptions/listen") => Self::Listen,
            Some(method) if method.starts_with("tasks/") => {
                TaskKey::at(body, &["params", "taskId"]).map_or(Self::Other, Self::Task)
            }
            Some(_) | None => Self::Other,
        }
    }
}

/// A task, as far as it must be told from others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TaskKey([u8; 16]);

impl TaskKey {
    /// The task that this answer says was begun, in the words of 2026-07-28 or of 2025-11-25.
    pub fn begun_by(answer: &[u8]) -> Option<Self> {
        // Nearly every answer begins none, and is not read for it.
        memmem::find(answer, b"\"taskId\"")?;
        Self::at(answer, &["result", "taskId"]).or_else(|| Self::at(answer, &["result", "task", "taskId"]))
    }

    fn at(body: &[u8], path: &[&str]) -> Option<Self> {
        let id = rpc::lookup(body, path).and_then(rpc::text)?;
        let digest = Sha256::digest(id.as_bytes());
        digest.first_chunk().copied().map(Self)
    }
}

/// On which replica tasks were begun: bounded in number and in age, the oldest forgotten first.
#[derive(Default, Debug)]
pub struct TaskHomes {
    homes: HashMap<TaskKey, Home>,
    order: VecDeque<TaskKey>,
}

#[derive(Clone, Copy, Debug)]
struct Home {
    replica: ReplicaKey,
    since: Millis,
}

impl TaskHomes {
    /// A task was begun on this replica. One that was known already stays where it was first said to be.
    pub fn begun(&mut self, task: TaskKey, replica: ReplicaKey, now: Millis) {
        self.forget_old(now);
        if self.homes.contains_key(&task) {
            return;
        }
        if self.order.len() == TASK_HOMES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.homes.remove(&oldest);
        }
        self.homes.insert(task, Home { replica, since: now });
        self.order.push_back(task);
    }

    /// The replica on which it was begun; `None`: not known, or not any more.
    pub fn of(&self, task: TaskKey, now: Millis) -> Option<ReplicaKey> {
        let home = self.homes.get(&task)?;
        is_kept(*home, now).then_some(home.replica)
    }

    fn forget_old(&mut self, now: Millis) {
        while let Some(oldest) = self.order.front() {
            match self.homes.get(oldest) {
                Some(home) if is_kept(*home, now) => return,
                Some(_) | None => {
                    self.homes.remove(oldest);
                    self.order.pop_front();
                }
            }
        }
    }
}

const fn is_kept(home: Home, now: Millis) -> bool {
    now.0.saturating_sub(home.since.0) < TASK_HOME_MS_MAX
}

/// The answer to `subscriptions/listen`, which says that the stream ends on purpose. Its client may listen again.
pub fn listening_ended(id: &RequestId) -> Vec<u8> {
    let id = id.as_str();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> TaskKey {
        let body = format!(r#"{{"method":"tasks/get","params":{{"taskId":"{id}"}}}}"#);
        match Errand::of(body.as_bytes()) {
            Errand::Task(key) => key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_request_is_about() {
        for (body, expected) in [
            (
                r#"{"id":1,"method":"subscriptions/listen","params":{}}"#,
                Errand::Listen,
            ),
            (r#"{"id":1,"method":"tasks/list","params":{}}"#, Errand::Other),
            (
                r#"{"id":1,"method":"tasks/get","params":{"taskId":7}}"#,
                Errand::Other,
            ),
            (
                r#"{"id":1,"method":"tools/call","params":{"taskId":"a"}}"#,
                Errand::Other,
            ),
            (
                r#"[{"id":1,"method":"tasks/get","params":{"taskId":"a"}}]"#,
                Errand::Other,
            ),
            ("", Errand::Other),
        ] {
            assert_eq!(Errand::of(body.as_bytes()), expected, "{body}");
        }
        assert_ne!(key("a"), key("b"));
        assert_eq!(key("a"), key("\\u0061"));
    }

    #[test]
    fn which_task_an_answer_begins() {
        for (answer, expected) in [
            (
                r#"{"id":1,"result":{"resultType":"task","taskId":"a","status":"working"}}"#,
                Some(key("a")),
            ),
            (r#"{"id":1,"result":{"task":{"taskId":"a"}}}"#, Some(key("a"))),
            (r#"{"id":1,"result":{"content":[{"text":"\"taskId\""}]}}"#, None),
            (r#"{"id":1,"result":{"content":[]}}"#, None),
            (r#"{"id":1,"error":{"data":{"taskId":"a"}}}"#, None),
        ] {
            assert_eq!(TaskKey::begun_by(answer.as_bytes()), expected, "{answer}");
        }
    }

    #[test]
    fn tasks_are_remembered_within_bounds() {
        let (one, two) = (ReplicaKey::of("u", "a:1"), ReplicaKey::of("u", "b:1"));
        let mut homes = TaskHomes::default();
        homes.begun(key("a"), one, Millis(0));
        homes.begun(key("a"), two, Millis(1));
        homes.begun(key("b"), two, Millis(5));
        let last = TASK_HOME_MS_MAX - 1;
        assert_eq!(homes.of(key("a"), Millis(last)), Some(one));
        assert_eq!(homes.of(key("a"), Millis(last + 1)), None);
        assert_eq!(homes.of(key("b"), Millis(last + 1)), Some(two));
        assert_eq!(homes.of(key("c"), Millis(0)), None);
        for n in 0..TASK_HOMES_MAX {
            homes.begun(key(&format!("t{n}")), one, Millis(6));
        }
        assert_eq!(homes.homes.len(), TASK_HOMES_MAX);
        assert_eq!(homes.of(key("b"), Millis(6)), None, "the oldest goes first");
        homes.begun(key("z"), two, Millis(last + 100));
        assert_eq!(
            (homes.homes.len(), homes.order.len()),
            (1, 1),
            "what is too old is freed"
        );
    }

    #[test]
    fn how_a_listener_is_told_that_it_is_over() {
        let id = RequestId::from_raw(br#""listen-1""#).unwrap();
        assert_eq!(
            String::from_utf8(listening_ended(&id)).unwrap(),
            r#"{"jsonrpc":"2.0","id":"listen-1","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"listen-1"}}}"#
        );
    }
}
