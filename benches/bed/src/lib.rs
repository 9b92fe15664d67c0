//! What the mock server and the load generator share: the clock, the mark of a payload, the bound on open files.
//! Law: one clock for every process of the machine, so that an event's age is a subtraction.
//! Next: `bin/mockserver.rs`, `bin/loadgen/main.rs`.

/// CLOCK_MONOTONIC in nanoseconds: the same clock in every process of one machine.
#[inline]
pub fn now_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// Marker that starts the payload of every benchmark event: `"@<20 digits ns>#<10 digits seq>#xxx…`.
pub const MARK: &[u8] = b"\"@";

pub fn put_digits(buf: &mut [u8], mut v: u64) {
    for b in buf.iter_mut().rev() {
        *b = b'0' + (v % 10) as u8;
        v /= 10;
    }
}

pub fn get_digits(buf: &[u8]) -> Option<u64> {
    let mut v = 0u64;
    for &b in buf {
        if !b.is_ascii_digit() {
            return None;
        }
        v = v.wrapping_mul(10).wrapping_add((b - b'0') as u64);
    }
    Some(v)
}

pub fn raise_nofile() -> u64 {
    unsafe {
        let mut r = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut r);
        r.rlim_cur = r.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &r);
        r.rlim_cur
    }
}
