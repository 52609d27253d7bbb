//! The forms of an event: plain, or encrypted in one of two kinds of gift wrap.

/// The kind of a ContextVM event: an ephemeral one, which relays forward and do not store.
pub(crate) const MESSAGE_KIND: u16 = 25910;

/// A gift wrap that relays store.
const WRAP_KIND: u16 = 1059;

/// A gift wrap that relays forward and do not store.
const EPHEMERAL_WRAP_KIND: u16 = 21059;

/// The form of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seal {
    /// Not encrypted.
    #[default]
    Plain,
    /// In a gift wrap that relays store.
    Persistent,
    /// In a gift wrap that relays do not store.
    Ephemeral,
}

impl Seal {
    /// The kind of the event that relays see.
    pub fn kind(self) -> u16 {
        match self {
            Self::Plain => MESSAGE_KIND,
            Self::Persistent => WRAP_KIND,
            Self::Ephemeral => EPHEMERAL_WRAP_KIND,
        }
    }

    /// The form with this kind; `None` for a kind that ContextVM does not use.
    pub fn of_kind(kind: u16) -> Option<Self> {
        [Self::Plain, Self::Persistent, Self::Ephemeral]
            .into_iter()
            .find(|seal| seal.kind() == kind)
    }
}
