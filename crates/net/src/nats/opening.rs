//! The JSON request and reply by which two sides open a session.

use serde::{Deserialize, Serialize};

use super::bus::{Bus, bad_subject};

/// What each side tells the other about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Side {
    /// The subject that it subscribes to.
    pub(super) subject: String,
    /// The largest message that its NATS server takes.
    pub(super) max_payload: usize,
    /// Its window: how many bytes may be on their way to it.
    pub(super) window: u64,
    /// Whether it only probes which messages pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) probe: bool,
}

/// The reply to a request for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Reply {
    Opened(Side),
    Refused { error: String },
}

impl Side {
    pub(super) fn new(bus: &Bus, subject: &str) -> Self {
        Self {
            subject: subject.to_owned(),
            max_payload: bus.client.max_payload(),
            window: bus.options.window,
            probe: false,
        }
    }

    /// Refuses a side whose subject is not below the inbox: messages to it could reach another program.
    pub(super) fn check(&self, inbox: &str) -> Result<(), String> {
        if !is_below(&self.subject, inbox) || bad_subject(&self.subject).is_some() {
            return Err(format!("the subject of a session must begin with {inbox}."));
        }
        match self.max_payload > super::MESSAGE_HEAD && self.window > 0 {
            true => Ok(()),
            false => Err("max_payload and window must be larger".to_owned()),
        }
    }
}

/// Whether a subject begins with the prefix of inboxes.
pub(super) fn is_below(subject: &str, inbox: &str) -> bool {
    let rest = subject.strip_prefix(inbox);
    rest.is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    // LINE-6
    #[test]
    fn a_side_cannot_name_the_subject_of_somebody_else() {
        let side = |subject: &str| Side {
            subject: subject.to_owned(),
            max_payload: 65536,
            window: 1,
            probe: false,
        };
        for (subject, fine) in [
            ("_INBOX.a1", true),
            ("_INBOX.a.b", true),
            ("_INBOX", false),
            ("_INBOX.", false),
            ("_INBOXES.a", false),
            ("_INBOX.>", false),
            ("$SYS.REQ.SERVER.PING", false),
            ("tools", false),
        ] {
            assert_eq!(side(subject).check("_INBOX").is_ok(), fine, "{subject}");
        }
        let reply: Reply =
            serde_json::from_str(r#"{"error":"full"}"#).unwrap_or_else(|error| Reply::Refused {
                error: error.to_string(),
            });
        assert_eq!(
            reply,
            Reply::Refused {
                error: "full".to_owned()
            }
        );
    }
}
