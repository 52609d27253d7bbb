//! Numbers of options, with words for a person who wrote something else.

use std::str::FromStr;
use std::time::Duration;

/// A whole number.
pub(crate) fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    let wrong = |_| "write a whole number, as in 30".to_owned();
    text.parse().map_err(wrong)
}

/// A whole number that is not zero.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    match whole(text)? {
        0 => Err("it must be at least 1".to_owned()),
        number => Ok(number),
    }
}

/// A number of seconds, which may have a fraction; 0 is for ever.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| Duration::try_from_secs_f64(*seconds).is_ok());
    seconds.ok_or_else(|| "write seconds, as in 30 or 0.5, or 0 for ever".to_owned())
}

/// The time limit that such an option sets; none for 0.
pub(crate) fn time_limit(seconds: f64) -> Option<Duration> {
    let limit = Duration::try_from_secs_f64(seconds).ok();
    limit.filter(|_| seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_a_time_limit_or_for_ever() {
        for (text, limit) in [
            ("30", Some(Duration::from_secs(30))),
            ("0.5", Some(Duration::from_millis(500))),
            ("0", None),
            ("0.0", None),
            ("-0", None),
        ] {
            assert_eq!(seconds(text).map(time_limit), Ok(limit), "{text}");
        }
        for wrong in ["", "soon", "-1", "nan", "inf", "1e300", "30s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
