//! One read buffer and one request buffer for each thread, lent for the length of one poll.
//! Law: nothing borrowed from here outlives the poll; an idle connection pins no buffer.
//! Why taken out and put back: a callback that comes here again gets a fresh buffer instead of a panic.
//! Next: `upstream/exchange.rs`.

use std::cell::Cell;

/// Size of the read buffer, in bytes: what a burst of events fills, and no more than a CPU's cache holds. What is read at
/// once is written at once, and ids make it longer by an eighth or so: it must stay below the 64 KiB that the kernel
/// sends as one segment. A second, short segment behind a full one waits for the pacing of BBR, with a timer set and
/// taken for each: a fifth of the CPU time of a burst (perf, Linux 6, loopback).
const READ_BYTES: usize = 48 * 1024;

/// A request buffer that grew past this many bytes (a large header) is given back to the allocator.
const REQUEST_BYTES_KEPT: usize = 16 * 1024;

thread_local! {
    static READ: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static REQUEST: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the thread's read buffer. Its content is arbitrary.
pub(super) fn with_read<R>(reader: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut buffer = READ
        .take()
        .unwrap_or_else(|| vec![0; READ_BYTES].into_boxed_slice());
    let outcome = reader(&mut buffer);
    READ.set(Some(buffer));
    outcome
}

/// Lends the thread's request buffer, empty.
pub(super) fn with_request<R>(writer: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = REQUEST.take();
    buffer.clear();
    let outcome = writer(&mut buffer);
    if buffer.capacity() <= REQUEST_BYTES_KEPT {
        REQUEST.set(buffer);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_lent_again_and_a_second_borrower_gets_its_own() {
        let first = with_read(|outer| {
            outer[0] = 7;
            with_read(|inner| assert_ne!(inner.as_ptr(), outer.as_ptr()));
            outer.as_ptr() as usize
        });
        with_read(|again| assert_eq!((again.as_ptr() as usize, again.len()), (first, READ_BYTES)));

        with_request(|request| request.extend_from_slice(b"GET"));
        with_request(|request| {
            assert!(request.is_empty() && request.capacity() >= 3);
            request.reserve(REQUEST_BYTES_KEPT * 2);
        });
        with_request(|request| assert_eq!(request.capacity(), 0));
    }
}
