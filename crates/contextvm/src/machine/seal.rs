//! How an event travels: readable by everybody, or sealed in a gift wrap.

/// The kind of a ContextVM event: ephemeral, so that relays pass it on and keep nothing.
pub(crate) const MESSAGE_KIND: u16 = 25910;

/// A gift wrap that relays keep.
const WRAP_KIND: u16 = 1059;

/// A gift wrap that relays pass on and forget.
const EPHEMERAL_WRAP_KIND: u16 = 21059;

/// How an event travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seal {
    /// Everybody can read it.
    #[default]
    Plain,
    /// In a gift wrap that relays keep.
    Persistent,
    /// In a gift wrap that relays forget.
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

    /// How an event of this kind travels; `None` for a kind that is not ours.
    pub fn of_kind(kind: u16) -> Option<Self> {
        [Self::Plain, Self::Persistent, Self::Ephemeral]
            .into_iter()
            .find(|seal| seal.kind() == kind)
    }
}
