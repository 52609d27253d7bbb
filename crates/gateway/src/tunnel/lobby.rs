//! The sessions of the end that accepts lines: begins new sessions, and hands further lines to existing ones.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use breakbulk_ahp::host::close::PROTOCOL;
use breakbulk_link::{Budget, lock};
use breakbulk_message::tunnel::{Control, ControlError, Gone, Hello, SESSION_BYTES, SessionId};
use breakbulk_net::AddressKey;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::client::{Halves, first_control};
use super::lines::{Caller, Line};
use super::session::{Fresh, Lines, refuse};
use super::{HELLO_TIME, NoTunnel, TunnelConfig, Tunnelled};
use crate::watch::{SessionTap, SideWatch};

/// How many bytes at the beginning of a session's name are the same for all sessions of this process.
const INSTANCE: usize = 8;

/// The close reason of a line while another one of the same session is being taken.
const COMING: &str = "another connection of this session is being taken up: try again later";

/// The sessions of a listener, by their names. Clones share them.
#[derive(Clone)]
pub struct Lobby(Arc<Shared>);

struct Shared {
    instance: [u8; INSTANCE],
    /// How many sessions may exist.
    most: usize,
    /// How many sessions one address may have.
    most_of_address: usize,
    sessions: Mutex<HashMap<SessionId, Waiting>>,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    taken: usize,
    of_address: HashMap<AddressKey, usize>,
}

/// Why a client gets no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoSeat {
    /// All seats are taken; this is their number.
    #[error("all {0} sessions are in use (--max-sessions): try again later")]
    All(usize),
    /// The client's address has as many seats as one address may have.
    #[error("this address has {0} sessions, the most for one (--max-per-address): try again later")]
    Address(usize),
}

/// How a session gets its next line.
struct Waiting {
    holder: Option<String>,
    lines: mpsc::Sender<Fresh>,
    budget: Budget,
    watched: SideWatch,
}

impl Lobby {
    /// A lobby for at most `most` sessions in all, and `most_of_address` of one address. Sessions that wait
    /// for their client to come back count too; clients on this machine are not counted by address.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(most: usize, most_of_address: usize) -> std::io::Result<Self> {
        let mut instance = [0; INSTANCE];
        random(&mut instance)?;
        Ok(Self(Arc::new(Shared {
            instance,
            most,
            most_of_address,
            sessions: Mutex::default(),
            seats: Mutex::default(),
        })))
    }

    /// A seat for a session, of whatever kind.
    ///
    /// # Errors
    /// If there are too many.
    pub(crate) fn seat(&self, address: Option<IpAddr>) -> Result<Seat, NoSeat> {
        let address = address.and_then(AddressKey::of);
        let mut seats = lock(&self.0.seats);
        let of_address = address.map_or(0, |address| {
            seats.of_address.get(&address).copied().unwrap_or_default()
        });
        if seats.taken >= self.0.most {
            return Err(NoSeat::All(self.0.most));
        }
        if of_address >= self.0.most_of_address {
            return Err(NoSeat::Address(self.0.most_of_address));
        }
        seats.taken += 1;
        if let Some(address) = address {
            *seats.of_address.entry(address).or_default() += 1;
        }
        Ok(Seat {
            lobby: self.clone(),
            address,
        })
    }

    /// The name of this process in the names of its sessions.
    #[cfg(feature = "nats")]
    pub(crate) fn member(&self) -> crate::fleet::Member {
        crate::fleet::Member(self.0.instance)
    }

    /// Reads the first frame of a line that was accepted. If the frame asks to resume a session, the line is
    /// handed to that session.
    ///
    /// # Errors
    /// If the other end is no breakbulk gateway; the line is then closed with that reason.
    pub async fn greet(
        &self,
        line: Line,
        caller: &Caller,
        config: &TunnelConfig,
    ) -> Result<Greeted, NoTunnel> {
        if !line.carries(config.carries) {
            return Err(NoTunnel::Carries);
        }
        let (cap, pings, tap) = (line.cap, line.pings, line.tap());
        let (mut source, mut sink) = line.split(config.largest_frame(), &config.budget);
        let first = match timeout(HELLO_TIME, first_control(&mut source)).await {
            Ok(first) => first,
            Err(_) => Err(NoTunnel::Silent(HELLO_TIME)),
        };
        let error = match first {
            Ok(Control::Hello(hello)) if hello.binary != config.is_binary() => NoTunnel::Carries,
            Ok(Control::Hello(hello)) => {
                tap.bind(&config.watched);
                return Ok(Greeted::Newcomer(Newcomer {
                    lobby: self.clone(),
                    caller: caller.clone(),
                    hello,
                    halves: (source, sink, cap, pings),
                }));
            }
            Ok(Control::Resume { session, received }) => {
                let fresh = Fresh {
                    source,
                    sink,
                    cap,
                    pings,
                    received,
                    told: None,
                };
                if session.0[..INSTANCE] != self.0.instance {
                    return Ok(Greeted::Elsewhere(Stray {
                        session,
                        fresh,
                        largest: config.largest_frame(),
                        budget: config.budget.clone(),
                    }));
                }
                self.resume(session, fresh, caller, &tap).await;
                return Ok(Greeted::Resumed);
            }
            Ok(_) => ControlError::Other.into(),
            Err(error) => error,
        };
        let _ = timeout(HELLO_TIME, sink.close(PROTOCOL, &error.to_string())).await;
        Err(error)
    }

    /// Hands a line to its session, or says that there is none.
    async fn resume(
        &self,
        session: SessionId,
        mut fresh: Fresh,
        caller: &Caller,
        tap: &SessionTap,
    ) {
        let found = {
            let sessions = lock(&self.0.sessions);
            let found = sessions.get(&session);
            // A client with another token does not even learn that the session exists.
            let found = found.filter(|waiting| waiting.holder == caller.holder);
            found.map(|waiting| {
                let Waiting {
                    lines,
                    budget,
                    watched,
                    ..
                } = waiting;
                (lines.clone(), budget.clone(), watched.clone())
            })
        };
        let Some((lines, budget, watched)) = found else {
            return refuse(fresh.sink, Gone::Expired).await;
        };
        tap.bind(&watched);
        fresh.source.charge_to(&budget);
        match lines.try_send(fresh) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Closed(fresh)) => {
                refuse(fresh.sink, Gone::Expired).await;
            }
            // Another line for the same session has not been taken yet.
            Err(mpsc::error::TrySendError::Full(mut fresh)) => {
                fresh.sink.close(1013, COMING).await;
            }
        }
    }
}

/// The purpose of a line that was accepted.
pub enum Greeted {
    /// A new session.
    Newcomer(Newcomer),
    /// A session to be resumed: the line was handed to it, or refused.
    Resumed,
    /// A session of another process.
    Elsewhere(Stray),
}

/// A line on which a session of another process is to go on.
#[cfg_attr(
    not(feature = "nats"),
    expect(dead_code, reason = "only a fleet brings it to its session")
)]
pub struct Stray {
    pub(crate) session: SessionId,
    pub(crate) fresh: Fresh,
    /// The largest frame that is taken.
    pub(crate) largest: usize,
    /// What the frames of the line are charged to.
    pub(crate) budget: Budget,
}

impl Stray {
    /// Tells the client that its session does not go on.
    pub async fn refuse(self, gone: Gone) {
        refuse(self.fresh.sink, gone).await;
    }

    /// Closes the line: the client may try again.
    pub async fn close(mut self, code: u16, reason: &str) {
        let _ = timeout(HELLO_TIME, self.fresh.sink.close(code, reason)).await;
    }
}

/// A client that wants a session, and has got no answer yet.
pub struct Newcomer {
    lobby: Lobby,
    caller: Caller,
    hello: Hello,
    halves: Halves,
}

impl Newcomer {
    /// Answers the client's hello, and begins the session.
    ///
    /// # Errors
    /// If the line is lost, or the system has no random numbers.
    pub async fn accept(self, config: &TunnelConfig) -> Result<Tunnelled, NoTunnel> {
        let Self {
            lobby,
            caller,
            hello,
            halves: (source, mut sink, cap, pings),
        } = self;
        let mut name = [0; SESSION_BYTES];
        name[..INSTANCE].copy_from_slice(&lobby.0.instance);
        random(&mut name[INSTANCE..]).map_err(|error| NoTunnel::Random(error.to_string()))?;
        let session = SessionId(name);
        let answer = Control::Hello(config.hello(Some(session))).to_json();
        let frame = breakbulk_link::Frame::Text(answer.into());
        let sent = timeout(HELLO_TIME, sink.send(frame)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return Err(NoTunnel::Silent(HELLO_TIME));
        }
        let (lines, next) = mpsc::channel(1);
        let waiting = Waiting {
            holder: caller.holder,
            lines,
            budget: config.budget.clone(),
            watched: config.watched.clone(),
        };
        lock(&lobby.0.sessions).insert(session, waiting);
        let lines = Lines::Accepted {
            lines: next,
            _registration: Registration { lobby, session },
        };
        config.begin(&hello, (source, sink, cap, pings), lines, None)
    }

    /// Turns the client away.
    pub async fn refuse(mut self, code: u16, reason: &str) {
        let _ = timeout(HELLO_TIME, self.halves.1.close(code, reason)).await;
    }
}

/// A session's entry in the lobby, removed on drop.
pub(super) struct Registration {
    lobby: Lobby,
    session: SessionId,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.lobby.0.sessions).remove(&self.session);
    }
}

/// One of the limited number of places for sessions; dropping it frees the place.
pub(crate) struct Seat {
    lobby: Lobby,
    address: Option<AddressKey>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = lock(&self.lobby.0.seats);
        seats.taken -= 1;
        let Some(address) = self.address else { return };
        if let Some(count) = seats.of_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                seats.of_address.remove(&address);
            }
        }
    }
}

fn random(bytes: &mut [u8]) -> std::io::Result<()> {
    getrandom::fill(bytes).map_err(std::io::Error::other)
}
