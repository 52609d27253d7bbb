//! Times of records: microseconds since 1970, and as people write them, in UTC.

use std::time::SystemTime;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Microseconds since 1970.
pub(super) fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// `20261116T182003.123456Z`, for the name of a file.
pub(super) fn file_name(micros: u64) -> String {
    let (year, month, day) = date_of(micros);
    let (hour, minute, second) = clock_of(micros);
    let rest = micros % SECOND;
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{rest:06}Z")
}

/// `2026-11-16`.
pub fn date(micros: u64) -> String {
    let (year, month, day) = date_of(micros);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `18:20:03.123`.
pub fn clock(micros: u64) -> String {
    let (hour, minute, second) = clock_of(micros);
    let millis = micros % SECOND / 1000;
    format!("{hour:02}:{minute:02}:{second:02}.{millis:03}")
}

fn clock_of(micros: u64) -> (u64, u64, u64) {
    let second = micros % DAY / SECOND;
    (second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day, in the calendar that counts from a first of March, so that the leap day is the last
/// one of a year (Hinnant's civil_from_days).
fn date_of(micros: u64) -> (u64, u64, u64) {
    let days = micros / DAY + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_clocks() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_399, "2000-02-28 23:59:59.000"),
            (951_782_400, "2000-02-29 00:00:00.000"),
            (1_709_164_800, "2024-02-29 00:00:00.000"),
            (1_709_251_200, "2024-03-01 00:00:00.000"),
            (1_795_000_000, "2026-11-18 11:06:40.000"),
            (4_102_444_799, "2099-12-31 23:59:59.000"),
        ] {
            let at = seconds * SECOND;
            assert_eq!(format!("{} {}", date(at), clock(at)), expected);
        }
        let at = 1_795_000_000 * SECOND + 12_345;
        assert_eq!(file_name(at), "20261118T110640.012345Z");
        assert_eq!(clock(at), "11:06:40.012");
        // No time makes it fail.
        assert!(date(u64::MAX).len() > 8);
    }
}
