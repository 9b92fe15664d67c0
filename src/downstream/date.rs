//! The `Date` field of the answers whose head is written here, formatted once a second for each worker thread.
//! Law: IMF-fixdate, always 29 bytes (RFC 9110, section 5.6.7).
//! Why: hyper's own cache is private, and a taken-over answer no longer passes through hyper.
//! Next: `sink_http1.rs`.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::pure::calendar::civil;

/// Length of a formatted date, in bytes.
pub(crate) const DATE_BYTES: usize = 29;

const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

thread_local! {
    static CACHED: Cell<(u64, [u8; DATE_BYTES])> = const { Cell::new((u64::MAX, [0; DATE_BYTES])) };
}

/// The date now. A clock before 1970 counts as 1970.
pub(crate) fn now() -> [u8; DATE_BYTES] {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (second, date) = CACHED.get();
    if second == seconds {
        return date;
    }
    let date = format(seconds);
    CACHED.set((seconds, date));
    date
}

/// Formats seconds since 1970. Years past 9999 wrap: the format has four digits.
fn format(seconds: u64) -> [u8; DATE_BYTES] {
    let (day, in_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day_of_month) = civil(day);
    let mut out = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    out[..3].copy_from_slice(DAYS[(day % 7) as usize]);
    two_digits(&mut out[5..7], day_of_month);
    out[8..11].copy_from_slice(MONTHS[(month - 1) as usize]);
    two_digits(&mut out[12..14], year / 100 % 100);
    two_digits(&mut out[14..16], year % 100);
    two_digits(&mut out[17..19], in_day / 3_600);
    two_digits(&mut out[20..22], in_day / 60 % 60);
    two_digits(&mut out[23..25], in_day % 60);
    out
}

fn two_digits(out: &mut [u8], n: u64) {
    out[0] = b'0' + (n / 10 % 10) as u8;
    out[1] = b'0' + (n % 10) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: u64, date: &str) {
        assert_eq!(std::str::from_utf8(&format(seconds)).unwrap(), date);
    }

    #[test]
    fn dates_are_formatted() {
        check(0, "Thu, 01 Jan 1970 00:00:00 GMT");
        check(784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT");
        check(951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT");
        check(951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT");
        check(1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT");
        check(1_709_251_200, "Fri, 01 Mar 2024 00:00:00 GMT");
        check(4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT");
    }

    #[test]
    fn the_cache_gives_a_date_of_the_right_shape() {
        assert_eq!(now().len(), DATE_BYTES);
        assert!(now().ends_with(b" GMT"));
    }
}
