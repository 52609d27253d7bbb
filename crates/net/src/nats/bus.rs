//! A connection to NATS: its options, how often it was lost, and what the server denied.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr};
use tokio::sync::watch;

use super::error::NatsError;
use crate::plain_text::plain_text;
use crate::ws::{Identity, Roots, client_config, provider};

/// How many messages may wait to be written; those of a session are bounded by its window before.
const QUEUE: usize = 128;

/// How many messages of one subscription may wait to be read.
const SUBSCRIPTION: usize = 8192;

/// How many denials of the server are remembered.
const DENIALS: usize = 16;

/// A server that does not answer a ping in this time is gone.
const PING: Duration = Duration::from_secs(15);

/// The credentials for a NATS server. They are never printed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credentials {
    /// A name and a password.
    User(String, String),
    /// A token.
    Token(String),
    /// A file with a JWT and the seed of its key.
    File(PathBuf),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(..) => f.write_str("User(…)"),
            Self::Token(_) => f.write_str("Token(…)"),
            Self::File(file) => f.debug_tuple("File").field(file).finish(),
        }
    }
}

/// Where sessions are opened, and how.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// Host and port of a NATS server, or of several of one cluster, with commas between them.
    pub server: String,
    /// The subject at which sessions are opened.
    pub subject: String,
    /// The queue group of the servers at this subject.
    pub queue: String,
    /// What the subjects of sessions begin with; the user must be allowed to publish and to subscribe to
    /// everything below it.
    pub inbox: String,
    /// The name by which the NATS server knows this connection.
    pub name: String,
    /// The credentials for the server.
    pub credentials: Option<Credentials>,
    /// Whether to demand TLS.
    pub secure: bool,
    /// The certificates to trust.
    pub roots: Roots,
    /// The certificate to show to a server that asks for one.
    pub identity: Option<Identity>,
    /// How long connecting may take.
    pub timeout: Duration,
    /// The window: how many bytes may be on their way to this side of a session, or wait there to be taken;
    /// one message more is allowed.
    pub window: u64,
}

impl NatsOptions {
    /// The default options for a subject of a server.
    pub fn new(server: impl Into<String>, subject: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            subject: subject.into(),
            queue: "sessions".to_owned(),
            inbox: "_INBOX".to_owned(),
            name: String::new(),
            credentials: None,
            secure: false,
            roots: Roots::Native,
            identity: None,
            timeout: Duration::from_secs(10),
            window: super::WINDOW,
        }
    }

    fn check(&self) -> Result<(), NatsError> {
        let wrong = |subject: &str, reason| NatsError::Subject {
            subject: subject.to_owned(),
            reason,
        };
        for subject in [&self.subject, &self.inbox, &self.queue] {
            if let Some(reason) = bad_subject(subject) {
                return Err(wrong(subject, reason));
            }
        }
        Ok(())
    }
}

/// What is wrong with a subject that messages are to be published to.
pub(super) fn bad_subject(subject: &str) -> Option<&'static str> {
    if subject.is_empty() || subject.len() > 256 {
        return Some("it must have 1 to 256 bytes");
    }
    if subject.split('.').any(str::is_empty) {
        return Some("a part of it, between two dots, is empty");
    }
    let fine = |byte: u8| byte.is_ascii_graphic() && byte != b'*' && byte != b'>';
    (!subject.bytes().all(fine)).then_some("use visible ASCII characters, and neither * nor >")
}

/// A connection to NATS. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Bus {
    pub(super) client: Client,
    pub(super) options: Arc<NatsOptions>,
    said: Arc<Said>,
}

/// What the client library has reported about the connection.
#[derive(Debug)]
struct Said {
    /// How often it was lost.
    losses: watch::Sender<u64>,
    /// What the server denied.
    denials: watch::Sender<Denials>,
}

/// What the server denied so far.
#[derive(Debug, Default)]
struct Denials {
    count: u64,
    /// Its words, the latest last.
    last: VecDeque<String>,
}

impl Denials {
    fn add(&mut self, words: String) {
        self.count += 1;
        self.last.push_back(words);
        if self.last.len() > DENIALS {
            self.last.pop_front();
        }
    }

    /// The first one after so many that names this subject, or of any subject.
    fn since(&self, count: u64, subject: Option<&str>) -> Option<&String> {
        let new = usize::try_from(self.count - count).unwrap_or(usize::MAX);
        let known = self.last.len().saturating_sub(new);
        let names = |words: &&String| {
            subject.is_none_or(|subject| words.contains(&format!("\"{subject}\"")))
        };
        self.last.iter().skip(known).find(names)
    }
}

impl Bus {
    pub(super) async fn connect(options: &NatsOptions) -> Result<Self, NatsError> {
        options.check()?;
        let said = Arc::new(Said {
            losses: watch::Sender::new(0),
            denials: watch::Sender::default(),
        });
        let hears = said.clone();
        let mut connect = ConnectOptions::new()
            .name(&options.name)
            .connection_timeout(options.timeout)
            .request_timeout(Some(super::OPEN_TIME))
            .ping_interval(PING)
            .custom_inbox_prefix(&options.inbox)
            .client_capacity(QUEUE)
            .subscription_capacity(SUBSCRIPTION)
            .event_callback(move |event| {
                hears.hear(&event);
                std::future::ready(())
            });
        connect = match &options.credentials {
            None => connect,
            Some(Credentials::User(user, password)) => {
                connect.user_and_password(user.clone(), password.clone())
            }
            Some(Credentials::Token(token)) => connect.token(token.clone()),
            Some(Credentials::File(file)) => {
                let read = connect.credentials_file(file).await;
                read.map_err(|error| NatsError::Credentials {
                    file: file.clone(),
                    reason: error.to_string(),
                })?
            }
        };
        let server = &options.server;
        if options.secure {
            let identity = options.identity.as_ref();
            let config = client_config(server, &options.roots, identity).await?;
            connect = connect.require_tls(true).tls_client_config(config);
        }
        let unreachable = |reason: String| NatsError::Unreachable {
            server: server.clone(),
            reason,
        };
        let addresses = server.split(',').map(|server| {
            let address = format!("nats://{server}").parse::<ServerAddr>();
            address.map_err(|error| unreachable(error.to_string()))
        });
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let client = connect.connect(addresses).await.map_err(|error| {
            let reason = with_causes(&error);
            match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    NatsError::Unauthorized {
                        server: server.clone(),
                        reason,
                    }
                }
                _ => unreachable(reason),
            }
        })?;
        Ok(Self {
            client,
            options: Arc::new(options.clone()),
            said,
        })
    }

    /// How often the connection was lost so far.
    pub(super) fn losses(&self) -> u64 {
        *self.said.losses.borrow()
    }

    /// Waits until the connection was lost once more.
    pub(super) async fn lost_since(&self, losses: u64) {
        let mut now = self.said.losses.subscribe();
        // The sender is kept, so that this cannot fail.
        let _ = now.wait_for(|now| *now > losses).await;
    }

    /// Whether there is a connection at the moment.
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// How often the server denied something so far.
    pub(super) fn denials(&self) -> u64 {
        self.said.denials.borrow().count
    }

    /// Waits until the server denied something after so many denials: at this subject, or at any.
    pub(super) async fn denied_since(&self, count: u64, subject: Option<&str>) -> NatsError {
        let mut denials = self.said.denials.subscribe();
        let new = |denials: &Denials| denials.since(count, subject).cloned();
        let denied = denials.wait_for(|denials| new(denials).is_some()).await;
        let reason = denied.ok().and_then(|denials| new(&denials));
        NatsError::Denied {
            server: self.options.server.clone(),
            reason: reason.unwrap_or_default(),
        }
    }

    /// A subject that nobody can guess.
    pub(super) fn fresh_subject(&self) -> Result<String, NatsError> {
        Ok(format!("{}.{}", self.options.inbox, self.fresh_name()?))
    }

    /// Letters and digits that nobody can guess, and that no other program has.
    pub(super) fn fresh_name(&self) -> Result<String, NatsError> {
        let mut bytes = [0; 24];
        let filled = provider().secure_random.fill(&mut bytes);
        filled.map_err(|_| self.failed("this system has no random numbers"))?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub(super) fn failed(&self, error: impl fmt::Display) -> NatsError {
        NatsError::Failed {
            server: self.options.server.clone(),
            reason: error.to_string(),
        }
    }
}

impl Said {
    fn hear(&self, event: &Event) {
        match event {
            Event::Disconnected => {
                self.losses.send_modify(|losses| *losses += 1);
                tracing::warn!("the connection to the NATS server was lost");
            }
            // Also when this side closes it, at the end of a session.
            Event::Closed => self.losses.send_modify(|losses| *losses += 1),
            Event::Connected => tracing::debug!("connected to a NATS server"),
            Event::ServerError(error) => {
                let text = plain_text(error);
                tracing::warn!(error = %text, "the NATS server reports an error");
                if text.to_ascii_lowercase().contains("permissions violation") {
                    self.denials.send_modify(|denials| denials.add(text));
                }
            }
            event => tracing::debug!(%event, "the connection to the NATS server reports"),
        }
    }
}

/// An error with its causes.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_no_wildcards_and_no_empty_parts() {
        for (subject, fine) in [
            ("tools", true),
            ("tools.v1", true),
            ("_INBOX.a", true),
            ("", false),
            (".", false),
            ("a..b", false),
            ("a.", false),
            ("a.*", false),
            ("a.>", false),
            ("a b", false),
            ("a\r\nPUB", false),
            ("ä", false),
        ] {
            assert_eq!(bad_subject(subject).is_none(), fine, "{subject:?}");
        }
    }

    // LINE-6
    #[test]
    fn a_denial_concerns_who_asked_for_that_subject_since() {
        let mut denials = Denials::default();
        denials.add("permissions violation for publish to \"a\"".to_owned());
        assert!(denials.since(0, Some("a")).is_some() && denials.since(0, None).is_some());
        assert_eq!(denials.since(0, Some("b")), None);
        assert_eq!(denials.since(1, None), None, "of before");
        for _ in 0..2 * DENIALS {
            denials.add("permissions violation for subscription to \"b\"".to_owned());
        }
        assert_eq!(denials.last.len(), DENIALS);
        assert_eq!(denials.since(0, Some("a")), None, "forgotten");
        assert!(denials.since(denials.count - 1, Some("b")).is_some());
    }

    #[test]
    fn credentials_are_not_printed() {
        let shown = format!(
            "{:?} {:?}",
            Credentials::User("anna".into(), "s3cret".into()),
            Credentials::Token("s3cret".into())
        );
        assert_eq!(shown, "User(…) Token(…)");
    }
}
