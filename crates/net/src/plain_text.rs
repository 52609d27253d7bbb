//! Text that came from a peer, made safe for a log or a terminal.

use std::fmt::{Display, Write};

/// The longest text that is shown, in characters.
const LONGEST: usize = 500;

/// The text without control characters, and shortened: a peer must not be able to forge a line of the log, or
/// to control a terminal. Characters that change the direction of writing are replaced as well.
pub fn plain_text(text: impl Display) -> String {
    shortened(text, LONGEST)
}

/// Like [`plain_text`], but for a line whose length the caller limits: it is not shortened.
#[cfg(feature = "process")]
pub(crate) fn plain_line(line: &str) -> String {
    shortened(line, usize::MAX)
}

fn shortened(text: impl Display, longest: usize) -> String {
    let mut plain = String::new();
    let mut out = Plain {
        plain: &mut plain,
        left: longest,
    };
    if write!(out, "{text}").is_err() {
        plain.push('…');
    }
    plain
}

/// Writes at most `left` characters, and then ends the formatting by an error.
struct Plain<'t> {
    plain: &'t mut String,
    left: usize,
}

impl Write for Plain<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for character in text.chars() {
            if self.left == 0 {
                return Err(std::fmt::Error);
            }
            self.left -= 1;
            match character {
                '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => self.plain.push(' '),
                character if is_unsafe_to_show(character) => self.plain.push('\u{fffd}'),
                character => self.plain.push(character),
            }
        }
        Ok(())
    }
}

/// Whether a character controls a terminal, breaks a line, or reorders or hides the text around it. Text of a
/// peer is shown without such characters; `admin/page/dom.js` of the gateway has the same set.
pub fn is_unsafe_to_show(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_is_one_line_without_orders() {
        let long = "é".repeat(600);
        let cut = format!("{}…", "é".repeat(500));
        for (text, expected) in [
            ("plain, with ünicode 世界", "plain, with ünicode 世界"),
            ("two\r\nlines", "two  lines"),
            ("\u{1b}[31mred\u{7}", "\u{fffd}[31mred\u{fffd}"),
            ("c1 \u{9b}31m", "c1 \u{fffd}31m"),
            ("over\u{202e}ride", "over\u{fffd}ride"),
            ("mark\u{61c} tag\u{e0041}", "mark\u{fffd} tag\u{fffd}"),
            (&long, &cut),
        ] {
            assert_eq!(plain_text(text), expected);
        }
        assert_eq!(plain_text(format_args!("{}\n{}", 1, 2)), "1 2");
    }
}
