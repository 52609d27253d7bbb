//! Parses and formats sizes: `900KB` is in units of 1000, `32MiB` in units of 1024.

use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(
                "a size is a whole number that is not negative, such as 900KB or 32MiB".to_owned(),
            );
        }
        if unit.starts_with(['.', ',']) {
            return Err("no fractions: write 1500KB for 1.5 MB".to_owned());
        }
        let factor: usize = match unit.trim() {
            "" | "B" => 1,
            "KB" | "kB" => 1000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => {
                return Err(format!(
                    "{unit:?} is no unit; use B, KB, MB, GB, KiB, MiB or GiB"
                ));
            }
        };
        let bytes = number
            .parse()
            .ok()
            .and_then(|number: usize| number.checked_mul(factor));
        bytes
            .map(Self)
            .ok_or_else(|| "the size is too large for this machine".to_owned())
    }
}

/// Formats a size for people.
pub(crate) fn show(bytes: usize) -> String {
    let bytes = bytes as f64;
    match bytes {
        _ if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        _ if bytes >= 1e6 => format!("{:.2} MB", bytes / 1e6),
        _ if bytes >= 1e3 => format!("{:.1} KB", bytes / 1e3),
        _ => format!("{bytes} B"),
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
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for wrong in [
            "",
            "KB",
            "-1",
            "1.5MB",
            "10XB",
            "99999999999999999999",
            "99999999999GiB",
        ] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
