//! The inside of JSON strings, without the quotes: escaping, unescaping, counting escapes, and base64.
//!
//! Text without escapes is copied 32 bytes at a time. After a block with an escape, the next blocks are
//! shuffled without testing whether they have one: in quote-heavy text the processor would mispredict that
//! branch every few bytes.
//!
//! ```
//! let mut escaped = Vec::new();
//! breakbulk_escape::escape(b"say \"hi\"", &mut escaped);
//! assert_eq!(escaped, br#"say \"hi\""#);
//!
//! let mut text = Vec::new();
//! breakbulk_escape::unescape(&escaped, &mut text)?;
//! assert_eq!(text, b"say \"hi\"");
//! # Ok::<(), breakbulk_escape::Invalid>(())
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod base64;
pub mod portable;
mod tables;
mod unicode;

/// Why a text is not the inside of a JSON string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// It has an unescaped quote, a control character or a wrong escape.
    Syntax,
    /// It has a lone surrogate, which is no character.
    LoneSurrogate,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Syntax => "an unescaped quote, a control character or a wrong escape",
            Self::LoneSurrogate => "a lone surrogate",
        })
    }
}

impl std::error::Error for Invalid {}

/// How many characters of a text are escaped, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Escapes {
    /// Quotes and backslashes: a backslash before the character itself.
    pub itself: usize,
    /// Control characters with a letter: `\n`.
    pub letter: usize,
    /// Other control characters: `\u0001`.
    pub unicode: usize,
}

/// Appends `text` escaped for a JSON string: only control characters, quotes and backslashes are
/// escaped.
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        // SAFETY: the processor has the features.
        return unsafe { avx2::escape(text, out) };
    }
    portable::escape(text, out);
}

/// Appends the unescaped inside of a JSON string. No more memory is reserved than `raw` is long.
///
/// # Errors
/// If it is not the inside of a JSON string; a part may have been appended then.
pub fn unescape(raw: &[u8], out: &mut Vec<u8>) -> Result<(), Invalid> {
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        // SAFETY: the processor has the features.
        return unsafe { avx2::unescape(raw, out) };
    }
    portable::unescape(raw, out)
}

/// The place of the quote that ends a JSON string whose inside begins with `text`; `None` if there is none,
/// or a control character or a wrong escape before it. Lone surrogates pass.
pub fn string_end(text: &[u8]) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        // SAFETY: the processor has the features.
        return unsafe { avx2::string_end(text) };
    }
    portable::string_end(text)
}

/// Counts the characters of a text that are escaped.
pub fn count(text: &[u8]) -> Escapes {
    #[cfg(target_arch = "x86_64")]
    if avx2::available() {
        // SAFETY: the processor has the features.
        return unsafe { avx2::count(text) };
    }
    portable::count(text)
}
