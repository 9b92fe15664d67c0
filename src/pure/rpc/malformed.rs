//! What can be wrong with a JSON-RPC text: which fault, and at which byte.
//! Law: the list is closed, and each fault has one meaning that a person can look up here.
//! Absent on purpose: what follows. A client's text is refused, a backend's is passed on unread.
//! Next: `scan.rs`.

use std::fmt;

/// What is wrong with a text that should be a JSON-RPC message. The sender's fault: refuse, or pass it on unread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// It is not UTF-8.
    NotUtf8,
    /// It ends in the middle of a value.
    Truncated,
    /// This byte can't stand here.
    Syntax,
    /// It is nested deeper than [`JSON_DEPTH_MAX`](crate::pure::limits::JSON_DEPTH_MAX).
    TooDeep,
    /// Something follows the value.
    Trailing,
    /// The value, or an element of the batch, is not an object.
    NotAMessage,
    /// A batch without messages.
    EmptyBatch,
    /// A batch of more than [`BATCH_MESSAGES_MAX`](crate::pure::limits::BATCH_MESSAGES_MAX) messages.
    BatchTooLong,
    /// A member that decides what the message is stands there twice.
    MemberTwice,
    /// A member differs from one that decides only by case: some readers would take it for that one.
    MemberLookalike,
    /// An id that is neither a string nor a number, or `null` on a request.
    IdKind,
    /// An id of more than [`REQUEST_ID_BYTES_MAX`](crate::pure::limits::REQUEST_ID_BYTES_MAX) bytes.
    IdTooLong,
    /// A method that is not a string.
    MethodKind,
    /// A string that must be understood holds half of a surrogate pair.
    LoneSurrogate,
    /// It is a call and an answer at once, or a result and an error.
    Ambiguous,
    /// It is neither a call nor an answer.
    Shapeless,
}

impl Fault {
    /// In words, for people.
    pub const fn what(self) -> &'static str {
        match self {
            Self::NotUtf8 => "not UTF-8",
            Self::Truncated => "the JSON text ends too early",
            Self::Syntax => "not JSON",
            Self::TooDeep => "nested too deeply",
            Self::Trailing => "something follows the JSON value",
            Self::NotAMessage => "a JSON-RPC message is an object",
            Self::EmptyBatch => "a batch needs a message",
            Self::BatchTooLong => "too many messages in a batch",
            Self::MemberTwice => "a member stands there twice",
            Self::MemberLookalike => "a member differs from a JSON-RPC one only by case",
            Self::IdKind => "an id is a string or a number",
            Self::IdTooLong => "the id is too long",
            Self::MethodKind => "a method is a string",
            Self::LoneSurrogate => "a string holds half of a surrogate pair",
            Self::Ambiguous => "it could be more than one kind of message",
            Self::Shapeless => "neither a method nor a result nor an error",
        }
    }
}

/// A text that is no JSON-RPC message: what is wrong, and at which byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    at: usize,
    fault: Fault,
}

impl Malformed {
    pub(super) const fn new(at: usize, fault: Fault) -> Self {
        Self { at, fault }
    }

    /// The byte at which it was noticed, from 0.
    pub const fn at(self) -> usize {
        self.at
    }

    /// What is wrong.
    pub const fn fault(self) -> Fault {
        self.fault
    }

    /// What is wrong, in words.
    pub const fn what(self) -> &'static str {
        self.fault.what()
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (byte {})", self.what(), self.at)
    }
}

impl std::error::Error for Malformed {}
