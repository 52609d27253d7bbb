//! Which endpoint was probably meant by one that is written wrong.
//!
//! Nothing of an address is repeated, since it may hold a secret: a suggestion is the form of an
//! endpoint, or the name of an option or of its value.

use crate::nearest::nearest;

/// The beginning of each endpoint and its form, for people to read: the one list of them.
const FORMS: &[(&str, &str)] = &[
    ("stdio", "stdio:"),
    ("exec", "exec:COMMAND"),
    ("tcp", "tcp://HOST:PORT"),
    ("unix", "unix:PATH"),
    ("ws", "ws://HOST:PORT/PATH"),
    ("wss", "wss://HOST:PORT/PATH"),
    ("ws+unix", "ws+unix:PATH"),
    ("nostr", "cep22+nostr:RELAY"),
    ("cep22+nostr", "cep22+nostr:RELAY"),
    ("ahp+ws", "ws://HOST:PORT/PATH"),
    ("ahp+wss", "wss://HOST:PORT/PATH"),
    ("whole+ws", "whole+ws://HOST:PORT/PATH"),
    ("whole+wss", "whole+wss://HOST:PORT/PATH"),
    ("loro+ws", "loro+ws://HOST:PORT/PATH"),
    ("loro+wss", "loro+wss://HOST:PORT/PATH"),
    ("ahp+ws+unix", "ws+unix:PATH"),
    ("whole+ws+unix", "whole+ws+unix:PATH"),
    ("loro+ws+unix", "loro+ws+unix:PATH"),
    ("http", "http://HOST:PORT/PATH"),
    ("http+unix", "http+unix:PATH"),
    ("https", "https://HOST:PORT/PATH"),
    ("ahp+http", "ahp+http://HOST:PORT/PATH"),
    ("ahp+https", "ahp+https://HOST:PORT/PATH"),
    ("nats", "nats://HOST:PORT/SUBJECT"),
    ("tls", "tls://HOST:PORT/SUBJECT"),
    ("loro+http", "loro+http://HOST:PORT"),
    ("loro+https", "loro+https://HOST:PORT"),
];

/// Words that people use for an endpoint that is called otherwise here.
const OTHERS: &[(&str, &str)] = &[
    ("-", "stdio:"),
    ("cmd", "exec:COMMAND"),
    ("command", "exec:COMMAND"),
    ("file", "unix:PATH"),
    ("pipe", "stdio:"),
    ("process", "exec:COMMAND"),
    ("relay", "cep22+nostr:RELAY"),
    ("run", "exec:COMMAND"),
    ("sh", "exec:COMMAND"),
    ("shell", "exec:COMMAND"),
    ("socket", "unix:PATH"),
    ("stdin", "stdio:"),
    ("stdout", "stdio:"),
    ("udp", "tcp://HOST:PORT"),
];

/// All forms, for an error that has no better suggestion.
pub(super) fn forms() -> String {
    let mut forms: Vec<&str> = Vec::new();
    for (scheme, form) in FORMS {
        if !scheme.contains('+') && !forms.contains(form) {
            forms.push(form);
        }
    }
    let last = forms.pop().unwrap_or_default();
    format!("an endpoint is {} or {last}", forms.join(", "))
}

/// The form that is meant by a beginning, with or without a wire, or by a text without a colon.
pub(super) fn meant(scheme: &str, rest: &str) -> Option<&'static str> {
    let lower = scheme.to_ascii_lowercase();
    if let Some((_, form)) = OTHERS.iter().find(|(word, _)| *word == lower) {
        return Some(form);
    }
    if rest.starts_with(|c: char| c.is_ascii_digit()) && !lower.contains('+') {
        // A host and a port, without a transport before them.
        return Some("tcp://HOST:PORT or ws://HOST:PORT/PATH");
    }
    if lower.starts_with(['/', '.', '~']) {
        return Some("unix:PATH or exec:COMMAND");
    }
    if !lower.is_empty() && lower.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some("tcp://PORT or ws://PORT to listen");
    }
    // Short words of `OTHERS` are similar to almost any word.
    let others = OTHERS.iter().filter(|(word, _)| word.len() > 3);
    let all: Vec<_> = FORMS.iter().chain(others).collect();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let name = nearest(&lower, &names)?;
    all.iter()
        .find(|(it, _)| *it == name)
        .map(|(_, form)| *form)
}
