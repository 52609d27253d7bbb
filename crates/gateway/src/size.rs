//! Sizes as people write them: `900KB`, `900kb` and `900K` count in thousands, `32MiB` in 1024s.

use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// It does not begin with digits.
    #[error("a size is a whole number, as in 900KB or 32MiB, and not negative")]
    NoNumber,
    /// It has a fraction.
    #[error("no fractions: write 1500KB for 1.5 MB")]
    Fraction,
    /// A unit that does not exist.
    #[error("{0:?} is no unit; use B, KB, MB, GB, KiB, MiB or GiB")]
    Unit(String),
    /// A number that this machine cannot hold.
    #[error("that is more than this machine can count")]
    TooLarge,
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::NoNumber);
        }
        if unit.starts_with(['.', ',']) {
            return Err(SizeError::Fraction);
        }
        // A letter alone is read as the smaller of its two meanings: a cap that is too small still works.
        let factor: usize = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" => 1000,
            "m" | "mb" => 1_000_000,
            "g" | "gb" => 1_000_000_000,
            "ki" | "kib" => 1 << 10,
            "mi" | "mib" => 1 << 20,
            "gi" | "gib" => 1 << 30,
            _ => return Err(SizeError::Unit(unit.to_owned())),
        };
        let number = number.parse().ok();
        let bytes = number.and_then(|number: usize| number.checked_mul(factor));
        bytes.map(Self).ok_or(SizeError::TooLarge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("64", 64),
            ("64B", 64),
            ("900KB", 900_000),
            ("32MiB", 32 << 20),
            ("1 GiB", 1 << 30),
            ("4MB", 4_000_000),
            ("1M", 1_000_000),
            ("1m", 1_000_000),
            ("1mb", 1_000_000),
            ("900kB", 900_000),
            ("900K", 900_000),
            ("2g", 2_000_000_000),
            ("32mib", 32 << 20),
            ("64Ki", 64 << 10),
            ("7b", 7),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for wrong in [
            "",
            "KB",
            "-1",
            "1.5MB",
            "10XB",
            "10KBs",
            "1MM",
            "99999999999999999999",
            "99999999999GiB",
        ] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
