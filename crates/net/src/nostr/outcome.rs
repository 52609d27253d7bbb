//! Interprets a relay's answer (`OK`) to a published event.

/// The outcome of publishing an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At least one relay accepted it.
    Accepted,
    /// No relay accepted it, and at least one refused it for its size.
    TooLarge {
        /// That relay's reason.
        reason: String,
    },
    /// No relay accepted it.
    Lost {
        /// The last relay's reason.
        reason: String,
    },
}

/// What one relay's `OK` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The relay has the event.
    Accepted,
    /// The event is too large for the relay.
    TooLarge,
    /// The relay limits the rate: try again later.
    Later,
    /// The relay refuses the event for another reason.
    Refused,
}

/// Texts by which relays say that an event is too large. An unclear refusal must not count as one,
/// since it would restart the transfer with smaller pieces.
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

/// Interprets the text of an `OK false`.
pub(crate) fn verdict(text: &str) -> Verdict {
    let text = text.to_ascii_lowercase();
    let prefix = text.split(':').next().unwrap_or_default().trim();
    match prefix {
        // The relay has the event already, from an earlier attempt.
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
