//! What a relay's answer to an event means.

/// What became of a published event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A relay has it.
    Accepted,
    /// No relay took it, and one of them for its size.
    TooLarge {
        /// What that relay said.
        reason: String,
    },
    /// No relay took it.
    Lost {
        /// What the last of them said.
        reason: String,
    },
}

/// What one relay's `OK` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It has the event.
    Accepted,
    /// The event is too large for it.
    TooLarge,
    /// It wants to be asked later.
    Later,
    /// It does not take it, for another reason.
    Refused,
}

/// Words by which relays name an event's size as the reason. Only a size is ever taken for one: a
/// vague refusal must not start a transfer over.
const SIZE_WORDS: [&str; 10] = [
    "too large",
    "too big",
    "too long",
    "oversize",
    "size limit",
    "max size",
    "maximum size",
    "exceeds maximum length",
    "max message length",
    "max_message_length",
];

/// Reads the text of an `OK false`.
pub(crate) fn verdict(text: &str) -> Verdict {
    let text = text.to_ascii_lowercase();
    let prefix = text.split(':').next().unwrap_or_default().trim();
    match prefix {
        // It was there before: a second attempt, or another of our own.
        "duplicate" => Verdict::Accepted,
        "rate-limited" => Verdict::Later,
        _ if SIZE_WORDS.iter().any(|words| text.contains(words)) => Verdict::TooLarge,
        _ => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_words() {
        for (text, expected) in [
            ("duplicate: already have this event", Verdict::Accepted),
            ("rate-limited: slow down there chief", Verdict::Later),
            ("Rate-Limited: too large a number of events", Verdict::Later),
            ("invalid: event too large", Verdict::TooLarge),
            ("blocked: event too large: 70000", Verdict::TooLarge),
            ("error: message too big", Verdict::TooLarge),
            ("invalid: content is too long", Verdict::TooLarge),
            (
                "invalid: exceeds maximum length of 65536",
                Verdict::TooLarge,
            ),
            ("error: exceeds max size", Verdict::TooLarge),
            ("pow: difficulty 26 is less than 30", Verdict::Refused),
            ("blocked: you are banned", Verdict::Refused),
            ("error: could not connect to the database", Verdict::Refused),
            ("", Verdict::Refused),
            ("large", Verdict::Refused),
        ] {
            assert_eq!(verdict(text), expected, "{text}");
        }
    }
}
