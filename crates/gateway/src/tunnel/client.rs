//! The end of a tunnel that opens its lines.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_ahp::host::close::PROTOCOL;
use breakbulk_link::{Budget, Frame};
use breakbulk_message::tunnel::{Control, ControlError, Gone, Hello, Received, SessionId};
use breakbulk_net::{Incoming, Verdict};
use tokio::time::timeout;

use super::lines::{Dial, Line, LineSink, LineSource};
use super::session::{Fresh, Lines};
use super::{HELLO_TIME, NoTunnel, TunnelConfig, Tunnelled};
use crate::watch::SideWatch;

/// How long the answer of the other gateway may take when a session is resumed.
const RESUME_TIME: Duration = Duration::from_secs(10);

/// How long it may take to open a line.
const DIAL_TIME: Duration = Duration::from_secs(15);

/// Begins a session on a line that is open; further ones are opened by `dial`.
///
/// # Errors
/// If the other end is no breakbulk gateway; the line is then closed with that reason.
pub async fn connect(
    line: Line,
    dial: Arc<dyn Dial>,
    config: &TunnelConfig,
) -> Result<Tunnelled, NoTunnel> {
    if !line.carries(config.carries) {
        return Err(NoTunnel::Carries);
    }
    let path = dial.path();
    line.tap().bind(&config.watched);
    let (cap, pings) = (line.cap, line.pings);
    let (mut source, mut sink) = line.split(config.largest_frame(), &config.budget);
    let greeting = async {
        let mut hello = config.hello(None);
        if let Some(cap) = config.caps.of_incoming(&path) {
            hello.frame = hello.frame.min(cap as u64);
        }
        let hello = Control::Hello(hello).to_json();
        // If this fails, the source gives the reason when it is read.
        let _ = sink.send(Frame::Text(hello.into())).await;
        match first_control(&mut source).await? {
            Control::Hello(hello) => Ok(hello),
            _ => Err(ControlError::Other.into()),
        }
    };
    let hello = match timeout(HELLO_TIME, greeting).await {
        Ok(hello) => hello,
        Err(_) => Err(NoTunnel::Silent(HELLO_TIME)),
    };
    let checked = hello.and_then(|hello| Ok((hello, check(&hello, config)?)));
    let (hello, session) = match checked {
        Ok(checked) => checked,
        Err(error) => {
            let reason = error.to_string();
            let _ = timeout(RESUME_TIME, sink.close(PROTOCOL, &reason)).await;
            return Err(error);
        }
    };
    let dialer = Dialer {
        dial,
        session,
        largest: config.largest_frame(),
        budget: config.budget.clone(),
        watched: config.watched.clone(),
    };
    let lines = Lines::Dialed(dialer);
    config.begin(&hello, (source, sink, cap, pings), lines, Some(path))
}

/// Checks that the other gateway's hello fits what it was offered; returns the name of the session.
fn check(hello: &Hello, config: &TunnelConfig) -> Result<SessionId, NoTunnel> {
    if hello.binary != config.is_binary() {
        return Err(NoTunnel::Carries);
    }
    hello
        .session
        .ok_or(ControlError::Member("hello", "session").into())
}

/// The first frame of the other end, which must be a control frame.
pub(super) async fn first_control(source: &mut Box<dyn LineSource>) -> Result<Control, NoTunnel> {
    loop {
        let frame = match source.next().await {
            Incoming::Frame(frame) => frame,
            Incoming::Posted(frame, receipt) => {
                receipt.answer(Verdict::Settled(Ok(())));
                frame
            }
            Incoming::Alive => continue,
            Incoming::Closed(closed) | Incoming::Broken(closed) => {
                return Err(NoTunnel::Closed(closed));
            }
        };
        return match frame {
            Frame::Text(text) => Ok(Control::read(&text)?),
            Frame::Binary(_) => Err(ControlError::Other.into()),
        };
    }
}

/// Opens further lines of a session.
#[derive(Clone)]
pub(super) struct Dialer {
    dial: Arc<dyn Dial>,
    session: SessionId,
    largest: usize,
    budget: Budget,
    watched: SideWatch,
}

/// Why there is no further line.
#[derive(Debug)]
pub(super) enum NoLine {
    /// The other end does not go on with the session.
    Gone(Gone),
    /// Another attempt may do better.
    Failed(String),
}

impl Dialer {
    /// Opens a line on which the session goes on; `received` says how much arrived here.
    pub(super) async fn resume(self, received: Received) -> Result<Fresh, NoLine> {
        let failed = |why: String| NoLine::Failed(why);
        let line = match timeout(DIAL_TIME, self.dial.dial()).await {
            Ok(line) => line.map_err(|error| failed(error.to_string()))?,
            Err(_) => {
                let seconds = DIAL_TIME.as_secs();
                return Err(failed(format!(
                    "no connection to the other gateway within {seconds} s"
                )));
            }
        };
        line.tap().bind(&self.watched);
        let (cap, pings) = (line.cap, line.pings);
        let (mut source, mut sink) = line.split(self.largest, &self.budget);
        let session = self.session;
        let asking = async {
            let resume = Control::Resume { session, received }.to_json();
            let _ = sink.send(Frame::Text(resume.into())).await;
            first_control(&mut source).await
        };
        let answer = match timeout(RESUME_TIME, asking).await {
            Ok(answer) => answer.map_err(|error| failed(error.to_string()))?,
            Err(_) => {
                let seconds = RESUME_TIME.as_secs();
                return Err(failed(format!(
                    "no answer of the other gateway within {seconds} s"
                )));
            }
        };
        match answer {
            Control::Resumed {
                received,
                cap: told,
            } => Ok(Fresh {
                source,
                sink,
                cap,
                pings,
                received,
                told: usize::try_from(told).ok().filter(|told| *told > 0),
            }),
            Control::Gone(gone) => {
                let _ = timeout(Duration::from_secs(1), sink.close(1000, "")).await;
                Err(NoLine::Gone(gone))
            }
            _ => Err(failed(ControlError::Other.to_string())),
        }
    }
}

/// The halves of a line, its cap and whether it has pings.
pub(super) type Halves = (Box<dyn LineSource>, Box<dyn LineSink>, Option<usize>, bool);
