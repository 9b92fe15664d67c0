//! Days of the calendar: what a number of days since 1970 is called.
//! Law: the proleptic Gregorian calendar in UTC, any day whose year fits.
//! Absent on purpose: a clock, time zones, and spellings, which are their users'.
//! Next: `limits.rs`.

/// Year, month (1-12) and day (1-31) of a day counted from 1970-01-01. Years are counted from March, so that the
/// leap day is the last of its year and months have a regular length.
pub const fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + (month <= 2) as u64;
    (year, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_names() {
        for (day, expected) in [
            (0, (1970, 1, 1)),
            (11_015, (2000, 2, 28)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(day), expected);
        }
    }
}
