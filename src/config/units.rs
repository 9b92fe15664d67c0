//! Times and sizes as people write them: `30s`, `250ms`, `24h`, `8MiB`.
//! Law: one number, one unit, no fractions, no guesses; what is nearly right is refused with the right spelling.
//! Next: `bounds.rs`.

use std::time::Duration;

/// Units of time, largest first, in milliseconds.
const TIMES: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Units of size, largest first, in bytes.
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Why a text is no time or no size, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NotAQuantity {
    /// What is wrong.
    pub(super) what: String,
    /// What to do.
    pub(super) advice: String,
}

/// A time such as `250ms`, `30s`, `5m`, `24h` or `7d`.
///
/// # Errors
/// No number, no unit, another unit, or more than 64 bits of milliseconds.
pub(super) fn time(text: &str) -> Result<Duration, NotAQuantity> {
    quantity(
        text,
        &TIMES,
        "a time",
        "write a number and ms, s, m, h or d, e.g. \"30s\"",
    )
    .map(Duration::from_millis)
}

/// A size such as `512B`, `64KiB`, `8MiB` or `1GiB`.
///
/// # Errors
/// No number, no unit, another unit, or more than fits this machine's addresses.
pub(super) fn size(text: &str) -> Result<usize, NotAQuantity> {
    let advice = "write a number and B, KiB, MiB or GiB, e.g. \"8MiB\"";
    let bytes = quantity(text, &SIZES, "a size", advice)?;
    usize::try_from(bytes).map_err(|_| NotAQuantity {
        what: format!("`{text}` is too large"),
        advice: advice.into(),
    })
}

fn quantity(text: &str, units: &[(&str, u64)], what: &str, advice: &str) -> Result<u64, NotAQuantity> {
    let refuse = |what: String, advice: String| Err(NotAQuantity { what, advice });
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return refuse(format!("`{text}` is not {what}"), advice.into());
    }
    if unit.is_empty() {
        return refuse(format!("`{text}` has no unit"), advice.into());
    }
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        // `8mb` and `8 MiB` leave no doubt about what is meant, so the advice is the finished value.
        let plain = unit.trim().to_ascii_lowercase();
        let near = units.iter().map(|(name, _)| name).find(|name| {
            let name = name.to_ascii_lowercase();
            plain == name || plain == name.replace('i', "") || plain == name.trim_end_matches("ib")
        });
        let advice = near.map_or_else(|| advice.to_owned(), |unit| format!("write \"{number}{unit}\""));
        return refuse(
            format!("`{unit}` is not a unit of {}", what.trim_start_matches("a ")),
            advice,
        );
    };
    match number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*scale))
    {
        Some(quantity) => Ok(quantity),
        None => refuse(format!("`{text}` is too large"), advice.into()),
    }
}

/// A time as a person would write it; whole units only.
pub(super) fn time_text(time: Duration) -> String {
    text(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), &TIMES)
}

/// A size as a person would write it; whole units only.
pub(super) fn size_text(bytes: usize) -> String {
    text(bytes as u64, &SIZES)
}

fn text(quantity: u64, units: &[(&str, u64)]) -> String {
    let (unit, scale) = units
        .iter()
        .find(|(_, scale)| quantity >= *scale && quantity.is_multiple_of(*scale))
        .or(units.last())
        .copied()
        .unwrap_or(("", 1));
    format!("{}{unit}", quantity / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: PartialEq + std::fmt::Debug>(
        got: Result<T, NotAQuantity>,
        expected: Result<T, (&str, &str)>,
    ) {
        match (got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected),
            (Err(got), Err((what, advice))) => {
                assert!(got.what.contains(what) && got.advice.contains(advice), "{got:?}");
            }
            (got, expected) => panic!("{got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn times() {
        check(time("250ms"), Ok(Duration::from_millis(250)));
        check(time("0s"), Ok(Duration::ZERO));
        check(time("30s"), Ok(Duration::from_secs(30)));
        check(time("5m"), Ok(Duration::from_secs(300)));
        check(time("24h"), Ok(Duration::from_secs(86_400)));
        check(time("7d"), Ok(Duration::from_secs(604_800)));
        check(time(""), Err(("is not a time", "\"30s\"")));
        check(time("s"), Err(("is not a time", "\"30s\"")));
        check(time("-1s"), Err(("is not a time", "\"30s\"")));
        check(time("30"), Err(("has no unit", "\"30s\"")));
        check(time("30S"), Err(("`S` is not a unit of time", "write \"30s\"")));
        check(time("30 s"), Err(("is not a unit", "write \"30s\"")));
        check(time("1.5s"), Err(("is not a unit", "write a number")));
        check(time("3µs"), Err(("is not a unit", "write a number")));
        check(time("99999999999999999999s"), Err(("too large", "")));
        check(time("18446744073709551615d"), Err(("too large", "")));
    }

    #[test]
    fn sizes() {
        check(size("0B"), Ok(0));
        check(size("64KiB"), Ok(65_536));
        check(size("8MiB"), Ok(8_388_608));
        check(size("1GiB"), Ok(1 << 30));
        check(size("8MB"), Err(("`MB` is not a unit of size", "write \"8MiB\"")));
        check(size("8mib"), Err(("`mib` is not a unit", "write \"8MiB\"")));
        check(size("8k"), Err(("`k` is not a unit", "write \"8KiB\"")));
        check(size("8 MiB"), Err(("is not a unit", "write \"8MiB\"")));
        check(size("8"), Err(("has no unit", "\"8MiB\"")));
        check(size("99999999999GiB"), Err(("too large", "")));
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for millis in [0, 1, 250, 1_000, 1_500, 15_000, 90_000, 3_600_000, 86_400_000] {
            let there = Duration::from_millis(millis);
            check(time(&time_text(there)), Ok(there));
        }
        for bytes in [0, 1, 1_000, 1_024, 65_536, 8 << 20, 3 << 30] {
            check(size(&size_text(bytes)), Ok(bytes));
        }
        assert_eq!(time_text(Duration::from_secs(86_400)), "1d");
        assert_eq!(size_text(8 << 20), "8MiB");
    }
}
