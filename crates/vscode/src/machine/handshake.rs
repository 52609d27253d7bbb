//! The handshake before the first RPC message.
//!
//! The extension host sends Ready, the renderer answers with its initialization data, and the host sends
//! Initialized. Each is one message: a single byte, or the raw JSON.

use bytes::Bytes;

/// The host is ready for the initialization data.
pub const READY: Bytes = Bytes::from_static(&[2]);
/// The host has received the data; RPC follows.
pub const INITIALIZED: Bytes = Bytes::from_static(&[1]);
/// The renderer asks the host to exit.
pub const TERMINATE: Bytes = Bytes::from_static(&[3]);

/// Which side of the handshake this is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Role {
    /// No handshake: RPC begins at once.
    #[default]
    None,
    /// The extension host.
    Host,
    /// The renderer, with the initialization data for the host.
    Renderer(Bytes),
}

/// The handshake as a state machine: pass it messages until it is [done](Self::is_done).
///
/// ```
/// use breakbulk_vscode::machine::handshake::{Handshake, Role, Step};
/// use bytes::Bytes;
///
/// let data = Bytes::from_static(b"{\"version\":\"1\"}");
/// let (mut host, ready) = Handshake::new(Role::Host);
/// let (mut renderer, _) = Handshake::new(Role::Renderer(data.clone()));
/// let Step::Send(init) = renderer.handle(&ready.unwrap()) else { panic!() };
/// let Step::Initialized { data: got, send } = host.handle(&init) else { panic!() };
/// assert_eq!(got, data);
/// assert_eq!(renderer.handle(&send), Step::Nothing);
/// assert!(host.is_done() && renderer.is_done());
/// ```
#[derive(Debug)]
pub struct Handshake {
    state: State,
}

#[derive(Debug)]
enum State {
    HostWaitsForData,
    RendererWaitsForReady(Bytes),
    RendererWaitsForInitialized,
    Done,
}

/// What to do after a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send this.
    Send(Bytes),
    /// The renderer's data came; send the answer.
    Initialized {
        /// The raw JSON.
        data: Bytes,
        /// The answer.
        send: Bytes,
    },
    /// Nothing to do.
    Nothing,
    /// The message is not the expected one.
    Unexpected {
        /// What was expected.
        expected: &'static str,
        /// The size of the message.
        len: usize,
    },
}

impl Handshake {
    /// The machine, and the message to send first, if any.
    pub fn new(role: Role) -> (Self, Option<Bytes>) {
        let (state, first) = match role {
            Role::None => (State::Done, None),
            Role::Host => (State::HostWaitsForData, Some(READY)),
            Role::Renderer(data) => (State::RendererWaitsForReady(data), None),
        };
        (Self { state }, first)
    }

    /// Whether RPC may begin.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Handles a message.
    pub fn handle(&mut self, message: &Bytes) -> Step {
        match std::mem::replace(&mut self.state, State::Done) {
            State::HostWaitsForData if message.len() > 1 => Step::Initialized {
                data: message.clone(),
                send: INITIALIZED,
            },
            State::RendererWaitsForReady(data) if *message == READY => {
                self.state = State::RendererWaitsForInitialized;
                Step::Send(data)
            }
            State::RendererWaitsForInitialized if *message == INITIALIZED => Step::Nothing,
            State::Done => Step::Nothing,
            state => {
                let expected = match state {
                    State::HostWaitsForData => "the renderer's initialization data",
                    State::RendererWaitsForReady(_) => "the host's Ready (02)",
                    _ => "the host's Initialized (01)",
                };
                let len = message.len();
                self.state = state;
                Step::Unexpected { expected, len }
            }
        }
    }
}

/// Whether a message is the request to exit. No RPC message is that short.
pub fn is_terminate(message: &[u8]) -> bool {
    message == &TERMINATE[..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_else_is_told_and_changes_nothing() {
        let (mut host, first) = Handshake::new(Role::Host);
        assert_eq!(first, Some(Bytes::from_static(b"\x02")));
        for junk in [&b""[..], b"\x01", b"\x03"] {
            let step = host.handle(&Bytes::from_static(junk));
            assert!(matches!(step, Step::Unexpected { .. }), "{junk:?}");
            assert!(!host.is_done());
        }
        let (mut renderer, first) = Handshake::new(Role::Renderer("{}".into()));
        assert_eq!(first, None);
        for junk in [&b"\x01"[..], b"\x02\x02", b"{}"] {
            let step = renderer.handle(&Bytes::from_static(junk));
            assert!(matches!(step, Step::Unexpected { .. }), "{junk:?}");
        }
        assert_eq!(renderer.handle(&READY), Step::Send("{}".into()));
        let again = renderer.handle(&READY);
        assert!(matches!(again, Step::Unexpected { .. }));
        assert_eq!(renderer.handle(&INITIALIZED), Step::Nothing);
        assert!(renderer.is_done());
    }
}
