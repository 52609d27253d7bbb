//! The rows of [`Preset::ALL`] by name: paths for `preset=NAME`, receivers for `client=NAME`.

use breakbulk_link::{Carrier, Preset, PresetKind};

use crate::nearest::nearest;

/// Why a name selects no row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// No row has this name.
    #[error("nothing is known of {name:?}{}; breakbulk caps lists all names", meant(.nearest))]
    Unknown {
        /// What was given.
        name: String,
        /// The name that may be meant.
        nearest: Option<&'static str>,
    },
    /// A receiver was given as a path.
    #[error(
        "{0} is a receiver, not a path; write client={0} at the endpoint whose messages it takes"
    )]
    Receiver(&'static str),
    /// A path was given as a receiver.
    #[error("{0} is a path, not a receiver; write preset={0}")]
    Path(&'static str),
    /// A path without a known size.
    #[error("{name} has no limit that is known beforehand{}; give max-frame=SIZE", in_brackets(.note))]
    NoLimit {
        /// The path.
        name: &'static str,
        /// What is known of it.
        note: &'static str,
    },
}

fn meant(nearest: &Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}

fn in_brackets(note: &str) -> String {
    match note {
        "" => String::new(),
        note => format!(" ({note})"),
    }
}

/// A receiver at an endpoint by which it gets no messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("client={name} receives over {over}, and this endpoint sends over {here}")]
pub struct ClientMismatch {
    /// The receiver.
    pub name: &'static str,
    /// How it gets its messages.
    pub over: Carrier,
    /// How this endpoint hands them over.
    pub here: Carrier,
}

/// The row of that name.
///
/// # Errors
/// If there is none; the error names the nearest one.
pub fn row(name: &str) -> Result<Preset, NameError> {
    Preset::by_name(name).ok_or_else(|| unknown(name, |_| true))
}

/// What a path is known to let through, by the path's name.
///
/// # Errors
/// If the name is not that of a path, or nothing is known of the path's limits.
pub fn preset(name: &str) -> Result<Preset, NameError> {
    let preset = Preset::by_name(name).ok_or_else(|| unknown(name, Preset::is_path))?;
    if !preset.is_path() {
        return Err(NameError::Receiver(preset.name));
    }
    let is_known = preset.message.or(preset.fragment).is_some();
    match is_known || preset == Preset::NONE {
        true => Ok(preset),
        false => Err(NameError::NoLimit {
            name: preset.name,
            note: preset.note,
        }),
    }
}

/// What a receiver is known to take, by the receiver's name.
///
/// # Errors
/// If the name is not that of a receiver.
pub fn client(name: &str) -> Result<Preset, NameError> {
    match Preset::by_name(name) {
        Some(preset) if preset.is_path() => Err(NameError::Path(preset.name)),
        Some(preset) => Ok(preset),
        None => Err(unknown(name, |preset| !preset.is_path())),
    }
}

/// Whether a receiver gets messages by one of these carriers.
pub(crate) fn check_client(client: &Preset, here: &[Carrier]) -> Result<(), ClientMismatch> {
    match (client.kind, here) {
        (PresetKind::Receiver(over), [first, ..]) if !over.iter().any(|it| here.contains(it)) => {
            Err(ClientMismatch {
                name: client.name,
                over: over[0],
                here: *first,
            })
        }
        _ => Ok(()),
    }
}

fn unknown(name: &str, fits: impl Fn(&Preset) -> bool) -> NameError {
    let names = |fits: &dyn Fn(&Preset) -> bool| {
        let names = Preset::ALL.iter().filter(|preset| fits(preset));
        names.map(|preset| preset.name).collect::<Vec<_>>()
    };
    let near = |fits: &dyn Fn(&Preset) -> bool| nearest(name, &names(fits));
    NameError::Unknown {
        nearest: near(&fits).or_else(|| near(&|_| true)),
        name: name.chars().take(64).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_told_with_the_nearest_right_one() {
        let said = |found: Result<Preset, NameError>| match found {
            Ok(preset) => preset.name.to_owned(),
            Err(error) => error.to_string(),
        };
        for (found, expected) in [
            (preset("kong"), "kong"),
            (preset("none"), "none"),
            (
                preset("azure-web-pubsup"),
                "nothing is known of \"azure-web-pubsup\" (did you mean azure-web-pubsub?); breakbulk caps lists all names",
            ),
            (
                preset("nginx"),
                "nothing is known of \"nginx\"; breakbulk caps lists all names",
            ),
            (
                preset("mcp-typescript"),
                "mcp-typescript is a receiver, not a path; write client=mcp-typescript at the endpoint whose messages it takes",
            ),
            (
                preset("nostr"),
                "nostr has no limit that is known beforehand (a relay tells its limit by NIP-11: limitation.max_message_length); give max-frame=SIZE",
            ),
            (client("mcp-typescript"), "mcp-typescript"),
            (
                client("kong"),
                "kong is a path, not a receiver; write preset=kong",
            ),
            (
                client("mcp-typscript"),
                "nothing is known of \"mcp-typscript\" (did you mean mcp-typescript?); breakbulk caps lists all names",
            ),
            (row("tornado"), "tornado"),
        ] {
            assert_eq!(said(found), expected);
        }
    }
}
