//! A command line as words: quotes and backslashes as a shell reads them, and nothing else of a shell.

/// Why a command line cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadWords {
    /// A quote without its end.
    #[error("a {0} is not closed")]
    Unclosed(char),
    /// A backslash at the end.
    #[error("a backslash at the end escapes nothing")]
    Backslash,
    /// Nothing at all.
    #[error("there is no command")]
    Empty,
}

/// Splits a command line at spaces. `'…'` is taken as it is; in `"…"` a backslash escapes `"`, `\`,
/// `$` and a backquote; elsewhere it escapes anything. There are no variables, pipes or patterns.
pub fn split(line: &str) -> Result<Vec<String>, BadWords> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\\' => {
                let escaped = rest.next().ok_or(BadWords::Backslash)?;
                word.get_or_insert_default().push(escaped);
            }
            '\'' | '"' => quoted(c, &mut rest, word.get_or_insert_default())?,
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if words.is_empty() {
        return Err(BadWords::Empty);
    }
    Ok(words)
}

fn quoted(
    quote: char,
    rest: &mut impl Iterator<Item = char>,
    word: &mut String,
) -> Result<(), BadWords> {
    loop {
        match rest.next().ok_or(BadWords::Unclosed(quote))? {
            c if c == quote => return Ok(()),
            '\\' if quote == '"' => match rest.next().ok_or(BadWords::Unclosed(quote))? {
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
            ("a|b > $c *", vec!["a|b", ">", "$c", "*"]),
            ("größe '世 界'", vec!["größe", "世 界"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        for (line, error) in [
            ("", BadWords::Empty),
            (" \t", BadWords::Empty),
            ("a 'b", BadWords::Unclosed('\'')),
            ("a \"b\\\"", BadWords::Unclosed('"')),
            ("a\\", BadWords::Backslash),
        ] {
            assert_eq!(split(line), Err(error), "{line}");
        }
    }
}
