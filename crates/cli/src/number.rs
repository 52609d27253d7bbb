//! Numbers of options, with words for a person who wrote something else.

use std::str::FromStr;

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
    let seconds = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    seconds.ok_or_else(|| "write seconds, as in 30 or 0.5, or 0 for ever".to_owned())
}
