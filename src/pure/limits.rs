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

/// Most header fields of a client's request that is read without hyper; real ones have a dozen.
pub const USUAL_FIELDS_MAX: usize = 32;

/// How many events back a backend's stream is asked again from: common servers cache 16, so these are surely held.
pub const OVERLAP_EVENTS_MAX: usize = 12;

/// Longest event id of a backend that is kept, in bytes: a header field of any server has room for it. Who sends a
/// longer one can't be asked again from there.
pub const UPSTREAM_ID_BYTES_MAX: usize = 1_024;

/// Events of a standalone stream that are recognised when its backend says them again: twice what common servers cache.
pub const UPSTREAM_CACHE_EVENTS: usize = 32;

/// Events that one asking of a backend may show before the next one confirms them, remembered by id and digest: 64 KiB at
/// the longest ids. What is beyond them is shown by the next asking.
pub const SHOWN_EVENTS_MAX: usize = 64;

/// Shortest time from one asking that confirms events to the next one, in milliseconds: a busy stream is confirmed in
/// batches, and its backend is not asked for each event.
pub const CONFIRM_MS_MIN: u64 = 250;

/// How long a backend that is asked again has for the events that it must say again, in milliseconds.
pub const REATTACHED_PROOF_MS_MAX: u64 = 2_000;

/// Longest wait before a stream that broke is asked for, in milliseconds: a moment for the backend to notice the break.
pub const REATTACH_WAIT_MS: u64 = 250;

/// Times in a row that a backend may be asked again and bring nothing; with the last one the answer is given up.
pub const EMPTY_ANSWERS_MAX: u32 = 2;

/// Requests of an HTTP+SSE session that were answered in the backend's place and whose late answers are left out. More
/// than clients have under way; beyond them a late answer passes, and its client knows no such request any more.
pub const LATE_ANSWERS_MAX: usize = 64;

/// Longest wait before a backend is asked again, in milliseconds, unless it asks for a longer one itself.
pub const REASK_MS_MAX: u64 = 10_000;
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
pub const LOG_SEGMENT_BYTES_MIN: usize = 256;

/// Size of a busy log's pieces of storage, in bytes: small beside any window, large beside an event.
pub const LOG_SEGMENT_BYTES_MAX: usize = 16 * 1_024;

/// A frame longer than this part of a piece gets a piece of its own, so that a piece's unused end stays small.
pub const LOG_SEGMENT_SHARE: usize = 4;

/// Pieces that a window is at least divided into, so that making room takes a small part of it.
pub const LOG_SEGMENTS_MIN: usize = 8;

/// Marks from which a connection's acknowledged position is told, 16 bytes each: dense near its end, sparse before.
pub const ACK_MARKS_MAX: usize = 32;

/// Proofs of one session's credentials under way at a time, each for another credential, and such as are asked about at
/// once though nobody knows them: more than clients have, and a stranger who makes credentials up does not make the proxy
/// flood the backend.
pub const PROOFS_MAX: usize = 8;

/// How often one more credential that nobody knows is asked about after that, in milliseconds.
pub const PROOF_EVERY_MS: u64 = 1_000;

/// Requests of a backend that one stream remembers as unanswered; more than a client ever has open at once. One
/// more, and the oldest is answered with an error.
pub const SERVER_REQUESTS_MAX: usize = 64;

/// Requests of a backend's that the proxy answered in its client's place, remembered for each session so that a client's
/// own answer goes nowhere: as many as a few streams have open at once.
pub const ANSWERED_HERE_MAX: usize = 4 * SERVER_REQUESTS_MAX;

/// How often a lost session may be begun anew within [`REINITIALIZATIONS_WINDOW_MS`]: a backend that loses its sessions
/// more often is broken, and its clients should know.
pub const REINITIALIZATIONS_MAX: usize = 5;

/// The time over which those are counted, in milliseconds.
pub const REINITIALIZATIONS_WINDOW_MS: u64 = 10 * 60 * 1_000;

/// How long a lost session waits for a replica that can be reached, in milliseconds: a deploy is over by then.
pub const RECOVERY_MS_MAX: u64 = 10 * 60 * 1_000;

/// Longest beginning of a session (`initialize` and the capabilities in its answer) that is kept, in bytes. Real ones
/// are below 4 KiB. A session with a longer one ends when its backend loses it.
pub const OPENING_BYTES_MAX: usize = 64 * 1_024;

/// Deepest nesting of capabilities that is compared: MCP has three levels.
pub const CAPABILITY_DEPTH_MAX: usize = 16;

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

/// Credentials of one session that are remembered as accepted: its clients, and a token's successors. The one whose
/// time ends first goes.
pub const CREDENTIALS_MAX: usize = 8;

/// How long the backend's word on a credential holds, in milliseconds: one that was revoked reads a log no longer.
pub const ACCEPTANCE_MS_MAX: u64 = 5 * 60 * 1_000;

/// Longest payload of a JWT that is read, in bytes of base64. Header fields are seldom longer than 8 KiB altogether.
pub const JWT_BYTES_MAX: usize = 16 * 1_024;

/// How long a POST that comes again is the same one after its answer was taken whole, in milliseconds. Whoever repeats a
/// request because an answer was lost does so within seconds; a client that starts its ids again may come later.
pub const REPEAT_MS_MAX: u64 = 10_000;

/// Answers to finished POSTs that one session remembers, the oldest forgotten first: more than a client has under way.
pub const REPEATS_MAX: usize = 32;

/// Longest answer that is remembered after it was taken whole, in bytes: nearly all of them; a longer one costs time to
/// copy and memory for nobody.
pub const REPEAT_ANSWER_BYTES_MAX: usize = 64 * 1_024;

/// Bytes of remembered answers of all sessions together: a burst on all of them at once must not take the machine.
pub const REPEAT_TOTAL_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// Bytes of answers that one session remembers, whoever took them: two of the longest that are read whole.
pub const REPEAT_BYTES_MAX: usize = 2 * 1_024 * 1_024;

/// Longest finished stream that is kept for a repeat though its client has acknowledged all of it, in bytes.
pub const REPEAT_STREAM_BYTES_MAX: usize = 64 * 1_024;

/// Tasks of one upstream whose replica is remembered, the oldest forgotten first: 64 bytes each, so 1 MB.
pub const TASK_HOMES_MAX: usize = 16_384;

/// How long it is remembered, in milliseconds: as long as a session may last by default.
pub const TASK_HOME_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

/// Log lines that wait to be written, in bytes: some four thousand of them, the noise of a second in which every client
/// comes back. Beyond it they are lost, and counted.
pub const LOG_LINES_BYTES_MAX: usize = 1_024 * 1_024;

/// Room that is kept for them while little is logged, in bytes.
pub const LOG_LINES_BYTES_KEPT: usize = 16 * 1_024;
