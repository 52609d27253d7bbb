//! Writes numbers and strings as `JSON.stringify` does.

/// How many bytes at the start need no escape in a JSON string and do not end it.
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    // Most strings are short, and not worth a block.
    let start = bytes.len().min(BLOCK / 2);
    if let Some(at) = bytes[..start].iter().position(special) {
        return at;
    }
    let mut run = start;
    for block in bytes[start..].chunks_exact(BLOCK) {
        // Without an early exit, so that the compiler vectorizes it.
        if block
            .iter()
            .fold(false, |found, byte| found | special(byte))
        {
            break;
        }
        run += BLOCK;
    }
    let rest = &bytes[run..];
    run + rest.iter().position(special).unwrap_or(rest.len())
}

/// Appends a string with its quotes.
pub(super) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    loop {
        let (plain, from) = rest.split_at(plain_run(rest.as_bytes()));
        out.push_str(plain);
        let Some(&special) = from.as_bytes().first() else {
            break;
        };
        match special {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => {
                const HEX: [char; 16] = [
                    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
                ];
                out.push_str("\\u00");
                out.push(HEX[usize::from(control >> 4)]);
                out.push(HEX[usize::from(control & 15)]);
            }
        }
        rest = &from[1..];
    }
    out.push('"');
}

/// Appends a number; NaN and infinities become `null`.
pub(super) fn write_number(number: f64, out: &mut String) {
    if !number.is_finite() {
        return out.push_str("null");
    }
    if number == 0.0 {
        return out.push('0'); // −0 too
    }
    if number < 0.0 {
        out.push('-');
    }
    // Rust and JavaScript choose the same shortest digits; only the position of the point differs.
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(|&c| c != '.').collect();
    let exponent: i32 = exponent.parse().unwrap_or(0);
    write_digits(&digits, exponent, out);
}

/// Writes `digits`, with the point after the first one, times ten to the power of `exponent`.
fn write_digits(digits: &str, exponent: i32, out: &mut String) {
    let zeros = |count: i32| std::iter::repeat_n('0', usize::try_from(count).unwrap_or(0));
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let point = exponent + 1;
    if (1..=21).contains(&point) {
        if count <= point {
            out.push_str(digits);
            out.extend(zeros(point - count));
        } else {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
            out.extend([whole, ".", fraction]);
        }
    } else if (-5..=0).contains(&point) {
        out.push_str("0.");
        out.extend(zeros(-point));
        out.push_str(digits);
    } else {
        let (first, fraction) = digits.split_at(1);
        out.push_str(first);
        if !fraction.is_empty() {
            out.extend([".", fraction]);
        }
        let sign = if exponent < 0 { "e-" } else { "e+" };
        out.extend([sign, &exponent.unsigned_abs().to_string()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let table = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (-1.25e22, "-1.25e+22"),
            (123456789012345680000.0, "123456789012345680000"),
            (9007199254740991.0, "9007199254740991"),
            (0.1, "0.1"),
            (0.1 + 0.2, "0.30000000000000004"),
            (0.000001, "0.000001"),
            (0.00000123, "0.00000123"),
            (1e-7, "1e-7"),
            (1.5e-9, "1.5e-9"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (1234.5678, "1234.5678"),
            (f64::NAN, "null"),
            (f64::INFINITY, "null"),
            (f64::NEG_INFINITY, "null"),
        ];
        for (number, expected) in table {
            let mut out = String::new();
            write_number(number, &mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn strings() {
        let table = [
            ("", r#""""#),
            (
                "plain é 😀 / \u{7f}\u{2028}",
                "\"plain é 😀 / \u{7f}\u{2028}\"",
            ),
            (
                "\u{0}\u{1f}\u{8}\u{c}\n\r\t\"\\",
                r#""\u0000\u001f\b\f\n\r\t\"\\""#,
            ),
            ("\u{b}\u{1b}", r#""\u000b\u001b""#),
        ];
        for (text, expected) in table {
            let mut out = String::new();
            write_string(text, &mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn plain_run_stops_at_the_first_special_byte_wherever_it_is() {
        for len in 0..100 {
            for at in 0..=len {
                let mut bytes = vec![b'x'; len];
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = [b'"', b'\\', 0x1f][at % 3];
                }
                assert_eq!(plain_run(&bytes), at);
            }
        }
    }
}
