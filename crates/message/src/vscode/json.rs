//! A JSON lexer, and a validator that builds no values and cannot overflow the stack.

use super::ecma;

/// Why a text cannot be read as JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Not JSON.
    #[error("not JSON at byte {at}")]
    Malformed {
        /// Where it stops being JSON.
        at: usize,
    },
    /// It nests deeper than the limit.
    #[error("JSON nests deeper than {limit}; flatten it or raise the limit")]
    TooDeep {
        /// The limit on nesting.
        limit: usize,
    },
    /// A string has a lone surrogate, which JavaScript's strings can hold and Rust's cannot.
    #[error("string with a lone surrogate at byte {at}; read the raw text instead")]
    LoneSurrogate {
        /// Where the string begins.
        at: usize,
    },
}

/// The kind of the outermost value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Array,
    Other,
}

/// Validates the whole text. Open brackets are kept on the heap, one byte each, up to `nesting`.
pub(super) fn check(text: &str, nesting: usize) -> Result<Root, JsonError> {
    let mut lexer = Lexer::new(text);
    let root = match lexer.peek_token() {
        Some(b'[') => Root::Array,
        _ => Root::Other,
    };
    let mut open: Vec<u8> = Vec::new();
    loop {
        // A value begins.
        let first = lexer.token()?;
        match first {
            b'[' | b'{' => {
                if open.len() == nesting {
                    return Err(JsonError::TooDeep { limit: nesting });
                }
                let close = if first == b'[' { b']' } else { b'}' };
                if !lexer.skip_if(close) {
                    open.push(close);
                    if close == b'}' {
                        lexer.key()?;
                    }
                    continue;
                }
            }
            b'"' => {
                lexer.string()?;
            }
            b'-' | b'0'..=b'9' => {
                lexer.at -= 1;
                lexer.skip_number()?;
            }
            other => {
                lexer.scalar(other)?;
            }
        }
        // A value has ended, and with it perhaps the object or array that contains it.
        loop {
            let Some(&close) = open.last() else {
                return lexer.end().map(|()| root);
            };
            match lexer.token()? {
                b',' => {
                    if close == b'}' {
                        lexer.key()?;
                    }
                    break;
                }
                token if token == close => {
                    open.pop();
                }
                _ => return Err(lexer.malformed_before()),
            }
        }
    }
}

/// A literal or a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Number(f64),
}

/// The inside of a string, not unescaped.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawString<'a> {
    pub(super) inside: &'a str,
    pub(super) escaped: bool,
    /// Where the inside begins, for errors.
    pub(super) at: usize,
}

/// Reads the tokens of a text.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte that is not white space, without consuming it.
    pub(super) fn peek_token(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
        self.peek()
    }

    /// Consumes the next byte that is not white space.
    pub(super) fn token(&mut self) -> Result<u8, JsonError> {
        let token = self.peek_token().ok_or(self.malformed())?;
        self.at += 1;
        Ok(token)
    }

    /// Consumes the next token if it is this one.
    pub(super) fn skip_if(&mut self, token: u8) -> bool {
        let found = self.peek_token() == Some(token);
        self.at += usize::from(found);
        found
    }

    /// Reads a key and its colon.
    pub(super) fn key(&mut self) -> Result<RawString<'a>, JsonError> {
        if !self.skip_if(b'"') {
            return Err(self.malformed());
        }
        let key = self.string()?;
        if !self.skip_if(b':') {
            return Err(self.malformed());
        }
        Ok(key)
    }

    /// Reads the rest of a string whose opening quote was consumed.
    pub(super) fn string(&mut self) -> Result<RawString<'a>, JsonError> {
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += ecma::plain_run(&self.text.as_bytes()[self.at..]);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.escape()?;
                    escaped = true;
                }
                _ => return Err(self.malformed()),
            }
        }
        let inside = &self.text[start..self.at];
        self.at += 1;
        Ok(RawString {
            inside,
            escaped,
            at: start,
        })
    }

    /// Reads the rest of a literal or a number whose first byte was consumed.
    pub(super) fn scalar(&mut self, first: u8) -> Result<Scalar, JsonError> {
        self.at -= 1;
        match first {
            b'n' => self.literal("null", Scalar::Null),
            b't' => self.literal("true", Scalar::Bool(true)),
            b'f' => self.literal("false", Scalar::Bool(false)),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(self.malformed()),
        }
    }

    /// Checks that only white space follows.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek_token() {
            None => Ok(()),
            Some(_) => Err(self.malformed()),
        }
    }

    /// The error for the byte that was consumed last.
    pub(super) fn malformed_before(&self) -> JsonError {
        JsonError::Malformed { at: self.at - 1 }
    }

    fn malformed(&self) -> JsonError {
        JsonError::Malformed { at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let rest = &self.text.as_bytes()[self.at + 1..];
        let len = match rest {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_hexdigit()) => 6,
            _ => return Err(self.malformed()),
        };
        self.at += len;
        Ok(())
    }

    fn literal(&mut self, word: &str, value: Scalar) -> Result<Scalar, JsonError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.malformed());
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Scalar, JsonError> {
        let start = self.at;
        self.skip_number()?;
        // A number that is too large becomes infinity and one that is too small zero, as in JavaScript.
        let number = self.text[start..self.at].parse();
        number.map(Scalar::Number).map_err(|_| self.malformed())
    }

    /// Skips a number, checking its grammar.
    fn skip_number(&mut self) -> Result<(), JsonError> {
        self.at += usize::from(self.peek() == Some(b'-'));
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.malformed());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammar() {
        let good = [
            "null",
            " true ",
            "[]",
            "{}",
            "[1,2]",
            "{\"a\":[{}]}",
            "-0",
            "1.5e+3",
            "1E-2",
            "\"\\u00e9\\ud800\\\"\"",
            "[[],[[]]]",
            "\t{ \"a\" : 1 , \"b\" : \"\u{7f}é\" }\r\n",
            "1e999",
        ];
        for text in good {
            assert!(check(text, 10).is_ok(), "{text}");
        }
        let bad = [
            "",
            " ",
            "[",
            "]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "[1}",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "- 1",
            "nul",
            "nulll",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u12",
            "\"a\nb\"",
            "1 2",
            "[]]",
            "{\"a\":1]",
            "NaN",
            "undefined",
            "\u{feff}[]",
            "'a'",
        ];
        for text in bad {
            assert!(check(text, 10).is_err(), "{text}");
        }
    }

    #[test]
    fn agrees_with_serde_json_on_random_token_soup() {
        let tokens = [
            "[", "]", "{", "}", ",", ":", "\"a\"", "1", "-2.5e3", "null", "true", " ", "\"\\n\"",
            "\"",
        ];
        let mut random = super::super::tests::Random::new(0x5eed_0001);
        let mut good = 0;
        for _ in 0..200_000 {
            let len = random.below(9);
            let text: String = (0..len)
                .map(|_| tokens[random.below(tokens.len())])
                .collect();
            let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            good += usize::from(theirs);
            assert_eq!(check(&text, 100).is_ok(), theirs, "{text}");
        }
        assert!(good > 1000);
    }

    #[test]
    fn depth_is_bounded_and_takes_no_stack() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(check(&nested(3), 3), Ok(Root::Array));
        assert_eq!(check(&nested(4), 3), Err(JsonError::TooDeep { limit: 3 }));
        assert_eq!(check(&nested(1_000_000), usize::MAX), Ok(Root::Array));
        assert_eq!(check("{\"a\":[]}", 2), Ok(Root::Other));
    }
}
