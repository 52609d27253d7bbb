//! Converts Rust types to a message's JSON with serde.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};

use super::ecma::write_number;
use super::text::Text;

/// Writes any serializable value as JSON, with fractions and exponents as JavaScript writes them.
/// Integers keep all their digits.
///
/// ```
/// use breakbulk_message::vscode::to_json;
///
/// assert_eq!(to_json(&(1, 2.0, 1e21, "é"))?, r#"[1,2,1e+21,"é"]"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn to_json(value: &(impl Serialize + ?Sized)) -> Result<Text, serde_json::Error> {
    let mut out = Vec::with_capacity(32);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Ecma);
    value.serialize(&mut serializer)?;
    // serde_json writes only UTF-8; a raw value inside was checked when it was created.
    let exact = out.into_boxed_slice();
    Text::from_utf8(exact.into()).map_err(serde::ser::Error::custom)
}

/// serde_json's compact format, with numbers as in JavaScript.
struct Ecma;

impl Formatter for Ecma {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let whole = value as i64;
        if value.abs() < 1e15 && whole as f64 == value {
            return CompactFormatter.write_i64(writer, whole);
        }
        let mut text = String::new();
        write_number(value, &mut text);
        writer.write_all(text.as_bytes())
    }

    fn write_f32<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        // The shortest text of the f32, as in serde_json: converted to f64 first, it would have
        // more digits.
        match value.to_string().parse() {
            Ok(value) => self.write_f64(writer, value),
            Err(_) => writer.write_all(b"null"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_javascripts() {
        let table = [
            (0.0, "0"),
            (-0.0, "0"),
            (-3.0, "-3"),
            (1.5, "1.5"),
            (1e15, "1000000000000000"),
            (1e21, "1e+21"),
            (1e-7, "1e-7"),
            (5e-324, "5e-324"),
            (f64::NAN, "null"),
        ];
        for (number, text) in table {
            assert_eq!(to_json(&number).unwrap(), text);
        }
        assert_eq!(to_json(&0.1_f32).unwrap(), "0.1");
        assert_eq!(to_json(&u64::MAX).unwrap(), "18446744073709551615");
    }
}
