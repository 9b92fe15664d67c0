//! Which resources a client subscribed to, so that a reset can say which to read again.
//! Law: bounded in number and bytes; what was not remembered is known to be missing, and the list stands for it.
//! Next: `../stream/reset.rs`, which tells them.

use crate::pure::limits::{SUBSCRIPTION_BYTES_MAX, SUBSCRIPTIONS_MAX};

/// Whether a subscription is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remembered {
    /// Yes.
    Yes,
    /// No: a bound is reached. A reset can't name it.
    Forgotten,
}

/// The resources that a client subscribed to, in the order of subscription. It owns no memory before the first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subscriptions {
    kept: Option<Box<Kept>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Kept {
    uris: Vec<Box<str>>,
    bytes: usize,
    forgotten: u64,
}

impl Subscriptions {
    /// The client subscribed, and the backend accepted.
    pub fn add(&mut self, uri: &str) -> Remembered {
        let kept = self.kept.get_or_insert_default();
        if kept.uris.iter().any(|known| **known == *uri) {
            return Remembered::Yes;
        }
        if kept.uris.len() == SUBSCRIPTIONS_MAX || kept.bytes + uri.len() > SUBSCRIPTION_BYTES_MAX {
            kept.forgotten += 1;
            return Remembered::Forgotten;
        }
        kept.bytes += uri.len();
        kept.uris.push(uri.into());
        Remembered::Yes
    }

    /// The client unsubscribed, and the backend accepted.
    pub fn remove(&mut self, uri: &str) {
        let Some(kept) = &mut self.kept else { return };
        if let Some(nth) = kept.uris.iter().position(|known| **known == *uri) {
            kept.bytes -= uri.len();
            kept.uris.remove(nth);
        }
    }

    /// What is remembered.
    pub fn uris(&self) -> &[Box<str>] {
        self.kept.as_ref().map_or(&[], |kept| &kept.uris)
    }

    /// How many were not remembered. Not taken back: which one an unsubscription meant is not known.
    pub fn forgotten(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_are_a_bounded_set() {
        let mut subscriptions = Subscriptions::default();
        for (uri, expected) in [("a", 1), ("b", 2), ("a", 2)] {
            assert_eq!(subscriptions.add(uri), Remembered::Yes);
            assert_eq!(subscriptions.uris().len(), expected);
        }
        subscriptions.remove("a");
        subscriptions.remove("c");
        assert_eq!(subscriptions.uris(), ["b".into()]);
        for n in 1..SUBSCRIPTIONS_MAX {
            assert_eq!(subscriptions.add(&n.to_string()), Remembered::Yes);
        }
        assert_eq!(subscriptions.add("one more"), Remembered::Forgotten);
        assert_eq!(subscriptions.add("b"), Remembered::Yes, "known already");
        assert_eq!(subscriptions.forgotten(), 1);
    }

    #[test]
    fn their_bytes_are_bounded() {
        let mut subscriptions = Subscriptions::default();
        let long = "x".repeat(SUBSCRIPTION_BYTES_MAX);
        assert_eq!(subscriptions.add(&long), Remembered::Yes);
        assert_eq!(subscriptions.add("y"), Remembered::Forgotten);
        subscriptions.remove(&long);
        assert_eq!(subscriptions.add("y"), Remembered::Yes);
    }
}
