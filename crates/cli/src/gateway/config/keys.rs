//! The keys that the top of a file and each route may have: the options of the command line, and the
//! files of a listener.

use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use super::super::options::RouteOptions;
use super::super::settings::ListenerFiles;
use crate::size::Size;

/// A key, and how its value is written.
pub(super) struct Key {
    pub(super) name: &'static str,
    example: &'static str,
}

const fn key(name: &'static str, example: &'static str) -> Key {
    Key { name, example }
}

/// The keys of a route, with the names of the command line.
pub(super) const KEYS: &[Key] = &[
    key("max-frame", "\"900KB\""),
    key("max-message", "\"32MiB\""),
    key("fragment", "\"8MiB\""),
    key("preset", "\"aws-api-gateway\""),
    key("max-sessions", "256"),
    key("max-per-address", "64"),
    key("rate-per-address", "500"),
    key("trust-proxy", "\"x-forwarded-for\""),
    key("allow-host", "\"gateway.example\""),
    key("origin", "\"https://app.example\""),
    key("allow-user", "1000"),
    key("allow-remote", "true"),
    key("no-probe", "true"),
    key("no-check", "true"),
    key("grace", "10"),
    key("resume-for", "60"),
    key("token-file", "\"FILE\""),
    key("cert", "\"FILE\""),
    key("key", "\"FILE\""),
    key("ca", "\"FILE\""),
];

/// How the value of a key is written.
pub(super) fn example(name: &str) -> &'static str {
    let known = KEYS.iter().find(|key| key.name == name);
    match (known, name) {
        (Some(key), _) => key.example,
        (None, "name") => "\"tools\"",
        (None, "memory") => "\"1GiB\"",
        (None, "state") => "\"FILE\"",
        (None, "address") => "\"127.0.0.1:9090\"",
        (None, "show-bodies" | "bodies") => "true",
        (None, "folder") => "\"DIR\"",
        (None, "size") => "\"256MiB\"",
        (None, "age") => "24",
        (None, "format") => "\"json\"",
        (None, "filter") => "\"info\"",
        (None, "fleet") => "\"nats://HOST:PORT\"",
        (None, _) => "\"ENDPOINT\"",
    }
}

type Value<'a> = Spanned<DeValue<'a>>;

/// Sets one option; `None` if there is none of this name. An empty error says that the value is of another
/// kind.
pub(super) fn set(
    options: &mut RouteOptions,
    files: &mut ListenerFiles,
    name: &str,
    value: &Value<'_>,
) -> Option<Result<(), String>> {
    let guests = &mut options.guests;
    Some(match name {
        "max-frame" => put(&mut options.max_frame, size(value)),
        "max-message" => put(&mut options.max_message, size(value)),
        "fragment" => put(&mut options.fragment, size(value)),
        "preset" => put(&mut options.preset, text(value)),
        "max-sessions" => put(&mut options.max_sessions, number(value)),
        "max-per-address" => put(&mut guests.max_per_address, number(value)),
        "rate-per-address" => put(&mut guests.rate_per_address, number(value)),
        "trust-proxy" => {
            let header = text(value).and_then(|name| {
                let parsed = name.parse();
                parsed.map_err(|error: breakbulk::net::UnknownProxyHeader| error.to_string())
            });
            put(&mut guests.trust_proxy, header)
        }
        "allow-host" => list(value, text).map(|hosts| guests.hosts = hosts),
        "origin" => list(value, text).map(|origins| guests.origins = origins),
        #[cfg(unix)]
        "allow-user" => list(value, number).map(|users| guests.users = users),
        "allow-remote" => flag(value).map(|flag| options.allow_remote = flag),
        "no-probe" => flag(value).map(|flag| options.no_probe = flag),
        "no-check" => flag(value).map(|flag| options.no_check = flag),
        "grace" => put(&mut options.grace, number(value)),
        "resume-for" => put(&mut options.resume_for, number(value)),
        "token-file" => put(&mut files.token_file, text(value).map(PathBuf::from)),
        "cert" => put(&mut files.cert, text(value).map(PathBuf::from)),
        "key" => put(&mut files.key, text(value).map(PathBuf::from)),
        "ca" => put(&mut files.ca, text(value).map(PathBuf::from)),
        _ => return None,
    })
}

/// The error of a value, with an example if the value is of another kind.
pub(super) fn complaint(name: &str, value: &Value<'_>, what: String) -> String {
    match what.is_empty() {
        true => format!(
            "{name}: this is {}; write {name} = {}",
            kind(value),
            example(name)
        ),
        false => format!("{name}: {what}"),
    }
}

fn put<T>(place: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    value.map(|value| *place = Some(value))
}

/// A text. An empty error says that it is something else.
pub(super) fn text(value: &Value<'_>) -> Result<String, String> {
    match value.get_ref() {
        DeValue::String(text) if text.is_empty() => Err("the text is empty".to_owned()),
        DeValue::String(text) => Ok(text.to_string()),
        _ => Err(String::new()),
    }
}

/// A size, as text or as a number of bytes.
pub(super) fn size(value: &Value<'_>) -> Result<Size, String> {
    match value.get_ref() {
        DeValue::String(text) => text
            .parse()
            .map_err(|error: breakbulk::gateway::SizeError| error.to_string()),
        DeValue::Integer(_) => number(value).map(Size),
        _ => Err(String::new()),
    }
}

/// A whole number that is not negative.
pub(super) fn number<T: TryFrom<u128>>(value: &Value<'_>) -> Result<T, String> {
    match value.get_ref() {
        DeValue::Integer(digits) => {
            let number = whole(digits).and_then(|number| T::try_from(number).ok());
            number.ok_or_else(|| format!("{digits} is negative or too large"))
        }
        _ => Err(String::new()),
    }
}

/// The digits of an integer may stand in groups, and in another base.
fn whole(digits: &DeInteger<'_>) -> Option<u128> {
    let text: String = digits.as_str().chars().filter(|it| *it != '_').collect();
    u128::from_str_radix(&text, digits.radix()).ok()
}

/// Yes or no.
pub(super) fn flag(value: &Value<'_>) -> Result<bool, String> {
    match value.get_ref() {
        DeValue::Boolean(flag) => Ok(*flag),
        _ => Err(String::new()),
    }
}

/// One value, or a list of them.
fn list<T>(
    value: &Value<'_>,
    read: impl Fn(&Value<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    match value.get_ref() {
        DeValue::Array(values) => values.iter().map(read).collect(),
        _ => read(value).map(|value| vec![value]),
    }
}

/// What a value is, for people to read.
fn kind(value: &Value<'_>) -> &'static str {
    match value.get_ref() {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use super::*;

    // OPS-1
    #[test]
    fn a_file_has_every_option_of_a_route() {
        let command = RouteOptions::augment_args(Command::new("route"));
        let options: Vec<String> = command
            .get_arguments()
            .filter_map(|argument| argument.get_long().map(str::to_owned))
            .collect();
        assert!(options.len() > 15, "{options:?}");
        for option in &options {
            let is_known = KEYS.iter().any(|key| key.name == option);
            // A fleet is of one route alone, and not a key of the top.
            assert!(
                is_known || option == "fleet",
                "{option} is no key of a file"
            );
        }
        // The others are the files of a listener, which stand in its endpoint on a command line.
        let more = KEYS
            .iter()
            .filter(|key| !options.iter().any(|it| it == key.name));
        let more: Vec<&str> = more.map(|key| key.name).collect();
        assert_eq!(more, ["token-file", "cert", "key", "ca"]);
    }
}
