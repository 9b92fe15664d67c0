//! Every bound of the pure floor, with its unit and the reason for it.
//! Law: nothing that grows with what a peer sends is without a bound that has a name here.
//! Bounds that an operator may set live in `config/`; these are the ones nobody should have to touch.
//! Next: `epoch.rs`.

/// Longest event id that is ever printed or parsed, in bytes (wire contract, section 3).
pub const EVENT_ID_BYTES_MAX: usize = 118;

/// Longest client-facing session token, in bytes. Below what common servers allow for one header field.
pub const SESSION_TOKEN_BYTES_MAX: usize = 2_048;

/// Longest session id of a backend that still fits a token, in bytes. A longer one makes `initialize` fail.
pub const BACKEND_SESSION_BYTES_MAX: usize = 1_024;

/// Longest string request id that is spelled out in an event id, in bytes; a longer one is hashed.
pub const STRING_ID_BYTES_MAX: usize = 42;

/// Most digits of an integer request id that is spelled out in an event id: all that 64 bits need.
pub const INTEGER_ID_DIGITS_MAX: usize = 19;

/// Deepest nesting that the JSON reader follows. Deeper input is refused instead of followed.
pub const JSON_DEPTH_MAX: usize = 128;

/// Shortest secret of the key ring, in bytes: 128 bits, so that nobody can try them all.
pub const SECRET_BYTES_MIN: usize = 16;

/// Longest raw token of a JSON-RPC id, in bytes. Ids are kept for as long as their request runs.
pub const REQUEST_ID_BYTES_MAX: usize = 1_024;

/// Most messages in one JSON-RPC batch: the list made of them is bounded apart from the body's bytes.
pub const BATCH_MESSAGES_MAX: usize = 1_024;

/// Longest head of a backend's answer, in bytes, and the most fields in it.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most header fields in a backend's answer.
pub const RESPONSE_FIELDS_MAX: usize = 100;

/// How many events back a backend's stream is asked again from: common servers cache 16, so these are surely held.
pub const OVERLAP_EVENTS_MAX: usize = 12;

/// Longest `Throughline-Continuity` that a client reads, in bytes: ten times what the proxy writes.
pub const VERDICT_BYTES_MAX: usize = 1_024;

/// Keys that a ledger in memory remembers by default, 32 bytes each and as much again to find them: some 6 MB.
pub const LEDGER_KEYS_MAX: usize = 65_536;

/// Streams of one session that may hold data at the same time.
pub const SESSION_STREAMS_MAX: usize = 64;

/// Tombstones that one session remembers; the oldest goes first.
pub const SESSION_TOMBSTONES_MAX: usize = 256;

/// Subscriptions that one session remembers, for a reset to name; a reset says the list for the rest.
pub const SUBSCRIPTIONS_MAX: usize = 256;

/// Bytes of all URIs that one session remembers as subscribed.
pub const SUBSCRIPTION_BYTES_MAX: usize = 64 * 1_024;

/// Size of a log's first piece of storage, in bytes: most streams carry a few events and end.
pub const LOG_SEGMENT_BYTES_MIN: usize = 512;

/// Size of a busy log's pieces of storage, in bytes: small beside any window, large beside an event.
pub const LOG_SEGMENT_BYTES_MAX: usize = 16 * 1_024;

/// A frame longer than this part of a piece gets a piece of its own, so that a piece's unused end stays small.
pub const LOG_SEGMENT_SHARE: usize = 4;

/// Pieces that a window is at least divided into, so that making room takes a small part of it.
pub const LOG_SEGMENTS_MIN: usize = 8;

/// Marks from which a connection's acknowledged position is told, 16 bytes each: dense near its end, sparse before.
pub const ACK_MARKS_MAX: usize = 32;

/// Requests of a backend that one stream remembers as unanswered; more than a client ever has open at once. Of the
/// older ones, a reset can't say that they are withdrawn.
pub const SERVER_REQUESTS_MAX: usize = 64;

/// Keep-alives for which a connection that takes nothing still counts as alive (wire contract, section 5).
pub const LIVELY_KEEPALIVES: u64 = 2;

/// How long the rest of a half-sent frame may take when its connection is superseded, in milliseconds.
pub const HALF_FRAME_MS_MAX: u64 = 1_000;

/// Parts of the age bound that a log tells apart: an event goes at most this part of the bound too early.
pub const LOG_AGE_PARTS: u64 = 16;

const _: () = assert!(BACKEND_SESSION_BYTES_MAX < SESSION_TOKEN_BYTES_MAX);
const _: () = assert!(EVENT_ID_BYTES_MAX < 128);

/// Interim answers (1xx) that are skipped before a final one. A server sends one or two.
pub const INTERIM_ANSWERS_MAX: usize = 8;

/// Longest extension of one chunk, in bytes. Nothing known sends any; none is read.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 256;

/// Longest trailers of one body, in bytes, without line ends. None is read.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;
const _: () = assert!(LOG_SEGMENT_BYTES_MIN <= LOG_SEGMENT_BYTES_MAX);
const _: () = assert!(ACK_MARKS_MAX >= 4);
