//! Removes line breaks and the control sequences of terminals from text.

use breakbulk::net::is_unsafe_to_show;

/// A text of several lines, without control characters. All but its first line are indented, so that
/// none passes for another message.
pub(crate) fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| plain(line, false)).collect();
    lines.join("\n  ")
}

/// The text without line breaks and control characters; colours may stay.
pub(super) fn plain(text: &str, colours: bool) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let colour = if colours { colour_length(rest) } else { 0 };
        let taken = colour.max(character.len_utf8());
        match character {
            _ if colour > 0 => plain.push_str(&rest[..colour]),
            '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => plain.push(' '),
            character if is_unsafe_to_show(character) => plain.push('\u{fffd}'),
            character => plain.push(character),
        }
        rest = &rest[taken..];
    }
    plain
}

/// The length of a terminal's control sequence at the beginning of a text, if it changes nothing but colours.
fn colour_length(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\u{1b}[") else {
        return 0;
    };
    let end = numbers.find(|it: char| !it.is_ascii_digit() && it != ';');
    match end {
        Some(end) if numbers[end..].starts_with('m') => end + 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_a_line_and_gives_no_orders() {
        for (text, colours, expected) in [
            ("plain 世界", false, "plain 世界"),
            ("two\nlines\r\n", false, "two lines  "),
            ("\u{1b}[31mred", false, "\u{fffd}[31mred"),
            ("\u{1b}[2m\u{1b}[31mred", true, "\u{1b}[2m\u{1b}[31mred"),
            (
                "\u{1b}[2Jgone\u{1b}]0;t\u{7}",
                true,
                "\u{fffd}[2Jgone\u{fffd}]0;t\u{fffd}",
            ),
            ("\u{9b}31m\u{202e}", true, "\u{fffd}31m\u{fffd}"),
        ] {
            assert_eq!(plain(text, colours), expected, "{text:?}");
        }
        assert_eq!(indented("one\ntwo\u{1b}[m"), "one\n  two\u{fffd}[m");
    }
}
