//! Bearer tokens: checked, and read from files.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use breakbulk_link::lock;
#[cfg(feature = "nats")]
use breakbulk_net::nats::Credentials;
use breakbulk_net::ws::{Bearer, Tokens};

/// How often a file of tokens is checked for changes, when clients come.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A longer file is not read.
const LONGEST: u64 = 1 << 20;

/// The name of the only token of a file.
const ONLY: &str = "token";

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadToken {
    /// Nothing is there.
    #[error("the token is empty; put a token there or leave it out")]
    Empty,
    /// It cannot travel in an HTTP header.
    #[error("this is no token: use visible ASCII characters, without spaces")]
    Characters,
    /// A line of a file with several tokens is not understood.
    #[error("line {0} is not understood; write a name, a space and a token on each line")]
    Line(usize),
    /// Two tokens have one name, or two names one token.
    #[error("line {0} repeats a name or a token of another line; each must be there once")]
    Twice(usize),
}

/// Why there is no token in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("token-file {}: {error}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Others than its owner can read or change it.
    #[error(
        "token-file {} is open to others (mode {mode:04o}); do: chmod 600 {}", file.display(), file.display()
    )]
    OpenToOthers {
        /// The file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// What is in it is no token.
    #[error("token-file {}: {error}", file.display())]
    Bad {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: BadToken,
    },
}

/// The one token in a file, without the spaces and line breaks around it.
///
/// # Errors
/// If the file cannot be read, is open to others than its owner, or holds no token.
pub fn token_from_file(file: &Path) -> Result<Bearer, TokenError> {
    let (text, _) = read(file)?;
    token(text.trim()).map_err(|error| TokenError::Bad {
        file: file.to_owned(),
        error,
    })
}

/// The user and password, or the token, that a NATS server wants, from a file that nobody else can read.
#[cfg(feature = "nats")]
pub(crate) fn nats_credentials(file: &Path) -> Result<Credentials, TokenError> {
    let (text, _) = read(file)?;
    let text = text.trim();
    token(text).map_err(|error| TokenError::Bad {
        file: file.to_owned(),
        error,
    })?;
    Ok(match text.split_once(':') {
        Some((user, password)) => Credentials::User(user.to_owned(), password.to_owned()),
        None => Credentials::Token(text.to_owned()),
    })
}

/// A token, if it can travel in an HTTP header.
///
/// # Errors
/// If it is empty, or has other characters than visible ASCII.
pub fn token(text: &str) -> Result<Bearer, BadToken> {
    match text {
        "" => Err(BadToken::Empty),
        _ if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Bearer::new(text)),
        _ => Err(BadToken::Characters),
    }
}

/// The tokens in a file: one token alone, or on each line a name and a token (`#` begins a comment). A file
/// that is changed is read again; while it cannot be read, or is wrong, the earlier tokens stay valid.
#[derive(Debug)]
pub struct TokenFile {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: Vec<(String, Bearer)>,
    version: Version,
    looked: Instant,
}

/// How a changed file is recognised: by the time of its last change, and its size.
pub(crate) type Version = (Option<SystemTime>, u64);

impl TokenFile {
    /// Reads the tokens of a file.
    ///
    /// # Errors
    /// If the file cannot be read, is open to others than its owner, or holds no tokens.
    pub fn open(file: &Path) -> Result<Self, TokenError> {
        let (tokens, version) = load(file)?;
        Ok(Self {
            file: file.to_owned(),
            state: Mutex::new(State {
                tokens,
                version,
                looked: Instant::now(),
            }),
        })
    }

    /// Reads the file again if it was changed.
    fn look(&self, state: &mut State, now: Instant) {
        if now < state.looked + LOOK_AGAIN {
            return;
        }
        state.looked = now;
        let version = std::fs::metadata(&self.file)
            .map(|data| version(&data))
            .ok();
        if version == Some(state.version) {
            return;
        }
        match load(&self.file) {
            Ok((tokens, version)) => {
                tracing::info!(tokens = tokens.len(), file = %self.file.display(), "tokens were read again");
                (state.tokens, state.version) = (tokens, version);
            }
            Err(error) => {
                tracing::error!(%error, "the changed token-file cannot be used: its tokens of before still hold; correct the file");
            }
        }
    }
}

impl Tokens for TokenFile {
    fn holder(&self, header: &[u8]) -> Option<String> {
        let mut state = lock(&self.state);
        self.look(&mut state, Instant::now());
        // All tokens are compared, so that the time of an answer does not tell which one was nearly right.
        let admitted =
            state
                .tokens
                .iter()
                .fold(None, |found, (name, token)| match token.admits(header) {
                    true => Some(name),
                    false => found,
                });
        admitted.cloned()
    }
}

type Loaded = (Vec<(String, Bearer)>, Version);

fn load(file: &Path) -> Result<Loaded, TokenError> {
    let (text, version) = read(file)?;
    let tokens = parse(&text).map_err(|error| TokenError::Bad {
        file: file.to_owned(),
        error,
    })?;
    Ok((tokens, version))
}

/// The text of a file that only its owner can read.
pub(crate) fn read(file: &Path) -> Result<(String, Version), TokenError> {
    let wrong = |error| TokenError::Read {
        file: file.to_owned(),
        error,
    };
    let opened = std::fs::File::open(file).map_err(wrong)?;
    let metadata = opened.metadata().map_err(wrong)?;
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777;
        // A pipe, as of a shell's <(…), belongs to whoever made it.
        if metadata.is_file() && mode & 0o077 != 0 {
            return Err(TokenError::OpenToOthers {
                file: file.to_owned(),
                mode,
            });
        }
    }
    let mut text = String::new();
    opened
        .take(LONGEST)
        .read_to_string(&mut text)
        .map_err(wrong)?;
    Ok((text, version(&metadata)))
}

fn version(metadata: &std::fs::Metadata) -> Version {
    (metadata.modified().ok(), metadata.len())
}

fn parse(text: &str) -> Result<Vec<(String, Bearer)>, BadToken> {
    let mut tokens: Vec<(String, Bearer)> = Vec::new();
    let lines = text.lines().map(str::trim).enumerate();
    let lines: Vec<_> = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    if let [(_, only)] = lines[..]
        && !only.contains(char::is_whitespace)
    {
        return Ok(vec![(ONLY.to_owned(), token(only)?)]);
    }
    for (index, line) in lines {
        let number = index + 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, secret] = words[..] else {
            return Err(BadToken::Line(number));
        };
        let secret = token(secret)?;
        let is_there = |(known, token): &(String, Bearer)| known == name || *token == secret;
        if tokens.iter().any(is_there) {
            return Err(BadToken::Twice(number));
        }
        tokens.push((name.to_owned(), secret));
    }
    match tokens.is_empty() {
        true => Err(BadToken::Empty),
        false => Ok(tokens),
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tokens_have_names_and_are_there_once() {
        for (text, expected) in [
            ("s3cret\n", Ok(vec!["token"])),
            (
                "# of the office\nanna a1\n\n bert b2 \n",
                Ok(vec!["anna", "bert"]),
            ),
            ("anna a1", Ok(vec!["anna"])),
            ("", Err(BadToken::Empty)),
            ("# nobody", Err(BadToken::Empty)),
            ("sécret", Err(BadToken::Characters)),
            ("anna a1 b2", Err(BadToken::Line(1))),
            ("anna a1\nb2", Err(BadToken::Line(2))),
            ("anna a1\nanna a2", Err(BadToken::Twice(2))),
            ("anna a1\nbert a1", Err(BadToken::Twice(2))),
        ] {
            let names = parse(text).map(|tokens| {
                let names = tokens.into_iter().map(|(name, _)| name);
                names.collect::<Vec<_>>()
            });
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(names, expected, "{text:?}");
        }
    }

    // PROG-17
    #[test]
    fn a_file_is_its_owners_alone_and_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        write("anna a1\n", 0o644);
        let error = TokenFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("is open to others (mode 0644)"), "{error}");
        write("anna a1\n", 0o600);
        let tokens = TokenFile::open(&path).unwrap();
        let holder = |token: &str| {
            // As if enough time had passed.
            lock(&tokens.state).looked -= LOOK_AGAIN;
            tokens.holder(format!("Bearer {token}").as_bytes())
        };
        assert_eq!(holder("a1").as_deref(), Some("anna"));
        assert_eq!(holder("b2"), None);
        write("anna a1\nbert b2\n", 0o600);
        assert_eq!(holder("b2").as_deref(), Some("bert"));
        // A file that is wrong changes nothing.
        write("nonsense without end and sense\n", 0o600);
        assert_eq!(holder("b2").as_deref(), Some("bert"));
        write("bert b2\n", 0o600);
        assert_eq!(holder("a1"), None);
    }
}
