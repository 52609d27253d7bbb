//! Splits a command line into words: quotes and backslashes work as in a shell, nothing else does.

/// Why a command line cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// A quote is not closed.
    #[error("a {0} is not closed")]
    Unclosed(char),
    /// The line ends in a backslash.
    #[error("a backslash at the end escapes nothing")]
    Backslash,
    /// The line is empty.
    #[error("there is no command")]
    Empty,
    /// A word is shell syntax, such as a pipe.
    #[error(
        "{word:?} means something to a shell, and there is none here; use sh -c '…' around the whole, or quote it if it is an argument"
    )]
    Shell {
        /// The word.
        word: String,
    },
}

/// Splits a command line at spaces. `'…'` is taken literally; in `"…"` a backslash escapes `"`, `\`, `$`
/// and a backquote; elsewhere it escapes any character. There are no variables, pipes or patterns; an
/// unquoted word that would be a pipe, a list or a redirection in a shell is an error.
pub fn split(line: &str) -> Result<Vec<String>, SplitError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    // The unquoted parts of a word; each quoted part is replaced by a letter.
    let mut bare = String::new();
    let mut rest = line.chars();
    loop {
        let Some(c) = rest.next() else {
            finish(&mut word, &mut bare, &mut words)?;
            break;
        };
        match c {
            ' ' | '\t' | '\n' | '\r' => finish(&mut word, &mut bare, &mut words)?,
            '\\' => {
                let escaped = rest.next().ok_or(SplitError::Backslash)?;
                word.get_or_insert_default().push(escaped);
                bare.push('q');
            }
            '\'' | '"' => {
                quoted(c, &mut rest, word.get_or_insert_default())?;
                bare.push('q');
            }
            c => {
                word.get_or_insert_default().push(c);
                bare.push(c);
            }
        }
    }
    if words.is_empty() {
        return Err(SplitError::Empty);
    }
    Ok(words)
}

/// Ends a word, and checks that it is not shell syntax.
fn finish(
    word: &mut Option<String>,
    bare: &mut String,
    words: &mut Vec<String>,
) -> Result<(), SplitError> {
    let is_shell = is_shell(&std::mem::take(bare));
    match word.take() {
        Some(word) if is_shell => Err(SplitError::Shell { word }),
        word => {
            words.extend(word);
            Ok(())
        }
    }
}

/// Whether a word is clearly shell syntax: `|`, `&&`, `;`, `x;`, `>file`, `2>&1`. A `&` or `>` inside a
/// word may be part of a URL or a tag.
fn is_shell(bare: &str) -> bool {
    let redirection = bare.trim_start_matches(|c: char| c.is_ascii_digit() || c == '&');
    matches!(bare, "|" | "||" | "|&" | "&" | "&&")
        || bare.ends_with(';')
        || redirection.starts_with(['>', '<'])
}

fn quoted(
    quote: char,
    rest: &mut impl Iterator<Item = char>,
    word: &mut String,
) -> Result<(), SplitError> {
    loop {
        match rest.next().ok_or(SplitError::Unclosed(quote))? {
            c if c == quote => return Ok(()),
            '\\' if quote == '"' => match rest.next().ok_or(SplitError::Unclosed(quote))? {
                c @ ('"' | '\\' | '$' | '`') => word.push(c),
                c => word.extend(['\\', c]),
            },
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_as_a_shell_has_them() {
        for (line, words) in [
            ("cat", vec!["cat"]),
            ("  cat\t-u \n", vec!["cat", "-u"]),
            (
                r#"sh -c 'echo "$HOME" \ done'"#,
                vec!["sh", "-c", r#"echo "$HOME" \ done"#],
            ),
            (r#"a "b c" d"e"f"#, vec!["a", "b c", "def"]),
            (r#""a\"b\\c\d\$""#, vec![r#"a"b\c\d$"#]),
            (r"a\ b \'c \\", vec!["a b", "'c", r"\"]),
            (r#"'' """#, vec!["", ""]),
            (
                "a|b $c * x&y --to=<z>",
                vec!["a|b", "$c", "*", "x&y", "--to=<z>"],
            ),
            (
                r#"a '|' "&&" \; 'x;' '>'f"#,
                vec!["a", "|", "&&", ";", "x;", ">f"],
            ),
            ("größe '世 界'", vec!["größe", "世 界"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        let shell = |word: &str| SplitError::Shell {
            word: word.to_owned(),
        };
        for (line, error) in [
            ("cat | tee", shell("|")),
            ("a || b", shell("||")),
            ("a && b", shell("&&")),
            ("a &", shell("&")),
            ("a; b", shell("a;")),
            ("a ; b", shell(";")),
            ("a > b", shell(">")),
            ("a >>b", shell(">>b")),
            ("a <b", shell("<b")),
            ("a 2>&1", shell("2>&1")),
            ("a 2>/dev/null", shell("2>/dev/null")),
            ("a &>'b c'", shell("&>b c")),
            ("", SplitError::Empty),
            (" \t", SplitError::Empty),
            ("a 'b", SplitError::Unclosed('\'')),
            ("a \"b\\\"", SplitError::Unclosed('"')),
            ("a\\", SplitError::Backslash),
        ] {
            assert_eq!(split(line), Err(error), "{line}");
        }
    }
}
