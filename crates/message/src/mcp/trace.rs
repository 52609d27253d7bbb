//! The W3C trace context of a request: `params._meta.traceparent`.

use std::fmt;
use std::ops::Range;

use crate::jsonrpc::{member, range_in};

/// A `traceparent` of version 00: which trace a request belongs to, and which span it is a child of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    /// The trace.
    pub trace: [u8; 16],
    /// The span of the sender.
    pub span: [u8; 8],
    /// What was decided about the trace.
    pub flags: u8,
}

impl Traceparent {
    /// Reads the form `00-TRACE-SPAN-FLAGS`, in lower-case hexadecimal digits. `None` for another version,
    /// and for a trace or span of zeros, which the recommendation calls invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("00-")?;
        if rest.len() != 52 || !rest.is_ascii() {
            return None;
        }
        let (trace, rest) = rest.split_at(32);
        let (span, rest) = rest.strip_prefix('-')?.split_at(16);
        let flags = rest.strip_prefix('-')?;
        let parsed = Self {
            trace: hex(trace)?,
            span: hex(span)?,
            flags: hex::<1>(flags)?[0],
        };
        (parsed.trace != [0; 16] && parsed.span != [0; 8]).then_some(parsed)
    }

    /// Whether the spans of this trace are recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|it| write!(f, "{it:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|it| write!(f, "{it:02x}"))?;
        write!(f, "-{:02x}", self.flags)
    }
}

/// The `traceparent` in the params of a request, and its range there, without the quotes. `None` if there is
/// none, or it cannot be read.
pub fn traceparent(params: &str) -> Option<(Range<usize>, Traceparent)> {
    let meta = member(params, "_meta")?;
    let value = member(meta.get(), "traceparent")?;
    let text = value.get().strip_prefix('"')?.strip_suffix('"')?;
    Some((range_in(params, text), Traceparent::parse(text)?))
}

fn hex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Upper case is not valid.
fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    // TRACE-2
    #[test]
    fn a_traceparent_is_found_in_meta_and_read_strictly() {
        let parsed = Traceparent::parse(GOOD).unwrap();
        assert_eq!(parsed.to_string(), GOOD);
        assert!(parsed.is_sampled());
        assert_eq!(parsed.span, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        for wrong in [
            "",
            "00",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-äbf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Traceparent::parse(wrong), None, "{wrong}");
        }
        let params = format!(r#"{{"name":"x", "_meta": {{"a":1,"traceparent" : "{GOOD}"}}}}"#);
        let (range, found) = traceparent(&params).unwrap();
        assert_eq!((&params[range], found), (GOOD, parsed));
        for without in [
            r#"{}"#,
            r#"[]"#,
            r#"{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#,
            r#"{"_meta":{"traceparent":7}}"#,
            r#"{"_meta":{"traceparent":""}}"#,
            r#"{"_meta":[]}"#,
        ] {
            assert_eq!(traceparent(without), None, "{without}");
        }
    }
}
