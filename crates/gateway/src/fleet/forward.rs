//! Forwards a line that arrived at one member to the member that has its session. Frames pass unchanged;
//! those that are lost with either connection are sent again, since the session counts and acknowledges
//! frames.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use breakbulk_link::{Budget, Closed, Frame};
use breakbulk_message::tunnel::{Control, Gone};
use breakbulk_net::{Incoming, Transport, Verdict};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::directory::Doubt;
use super::head::{Head, LineHead};
use super::line::{MemberLine, MemberSink, MemberSource};
use super::member::Member;
use super::{Fleet, Unreached};
use crate::tunnel::{Caller, LineSink, LineSource, Stray};

/// How often the client is pinged.
const PING: Duration = Duration::from_secs(10);

/// A client that was not heard for this long is gone. It pings or acknowledges every 10 seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// How long sending a close may take.
const LAST_WORD: Duration = Duration::from_secs(2);

/// How long to wait, when the client's line cannot be written, for the close in which it may say why.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Fleet {
    /// Brings a line to the member that has its session, and carries it until it ends.
    pub(crate) async fn forward(self: &Arc<Self>, stray: Stray, caller: &Caller) {
        let member = Member::of(&stray.session);
        let room = self.lines.clone().try_acquire_owned();
        let reached = match (room, self.room()) {
            (Ok(permit), Some(held)) => match self.reach(member).await {
                Ok(line) => Ok((line, permit, held)),
                Err(unreached) => Err(unreached),
            },
            _ => Err(Unreached::Later(Doubt::Busy)),
        };
        match reached {
            Ok((line, _permit, _held)) => {
                tracing::debug!(%member, "forwards a connection to the member of the fleet that has its session");
                let dead = self.watch(member);
                carry(stray, line, caller, dead).await;
            }
            Err(Unreached::Dead) => {
                tracing::warn!(
                    %member,
                    "a client asks for a session of a member of the fleet that is not there any more"
                );
                stray.refuse(Gone::Member).await;
            }
            Err(unreached) => {
                let doubt = match unreached {
                    Unreached::Later(doubt) => doubt,
                    _ => Doubt::Silent,
                };
                tracing::warn!(%member, "a client that came back is told to try again later, since the member that has its session cannot be reached: {doubt}");
                stray.close(1013, &doubt.to_string()).await;
            }
        }
    }
}

/// Carries a line both ways until one of its ends closes, or the member is dead.
async fn carry(stray: Stray, line: MemberLine, caller: &Caller, mut dead: watch::Receiver<bool>) {
    let Stray {
        session,
        fresh,
        largest,
        budget,
    } = stray;
    let mut line = line;
    line.charge_to(&budget);
    line.limit_frames(largest);
    let (source, mut sink) = line.split();
    let head = Head::Line(LineHead {
        caller: caller.clone(),
        cap: fresh.cap,
        pings: fresh.pings,
    });
    let resume = Control::Resume {
        session,
        received: fresh.received,
    };
    for first in [head.to_json(), resume.to_json()] {
        // If this fails, the member's side of the line gives the reason when it is read.
        let _ = sink.send(Frame::Text(first.into())).await;
    }
    let (from_client, to_client) = (fresh.source, fresh.sink);
    let up = async {
        up(from_client, sink, &budget).await;
        // `down` still reads what the member says, and ends both directions.
        pending::<()>().await;
    };
    tokio::select! {
        () = down(source, to_client, &budget) => {}
        () = up => {}
        _ = dead.wait_for(|dead| *dead) => {}
    }
}

/// Forwards what the client sends to the member. When the client's line ends, the member is told; then the
/// member's close ends both directions.
async fn up(mut client: Box<dyn LineSource>, mut member: MemberSink, budget: &Budget) {
    let closed = loop {
        let Ok(incoming) = timeout(SILENCE, client.next()).await else {
            break Closed {
                code: 1006,
                reason: format!("nothing received for {} s", SILENCE.as_secs()),
            };
        };
        let frame = match incoming {
            Incoming::Frame(frame) => frame,
            Incoming::Posted(frame, receipt) => {
                receipt.answer(Verdict::Settled(Ok(())));
                frame
            }
            Incoming::Alive => continue,
            Incoming::Closed(closed) | Incoming::Broken(closed) => break closed,
        };
        let _held = budget.charge_allocated(frame.bytes().len());
        if member.send(frame).await.is_err() {
            // The member's side of the line gives the reason when it is read.
            return;
        }
    };
    let _ = timeout(LAST_WORD, member.close(closed.code, &closed.reason)).await;
}

/// Forwards what the member sends to the client, and pings the client.
async fn down(mut member: MemberSource, mut client: Box<dyn LineSink>, budget: &Budget) {
    let mut ping_at = Instant::now() + PING;
    let closed = loop {
        let incoming = tokio::select! {
            incoming = member.next() => incoming,
            () = sleep_until(ping_at) => {
                ping_at = Instant::now() + PING;
                if client.ping().await.is_err() {
                    return sleep(LAST_WORDS).await;
                }
                continue;
            }
        };
        match incoming {
            Incoming::Frame(frame) => {
                let _held = budget.charge_allocated(frame.bytes().len());
                if client.send(frame).await.is_err() {
                    // The client's own last word may still come up, with the reason in it.
                    return sleep(LAST_WORDS).await;
                }
            }
            Incoming::Posted(..) | Incoming::Alive => {}
            Incoming::Closed(closed) | Incoming::Broken(closed) => break closed,
        }
    };
    // 1006 must not be sent: it says that a connection ended without a close frame.
    let (code, reason) = match closed.code {
        1006 => (
            1001,
            "the connection to the member of the fleet that has the session was lost",
        ),
        code => (code, &*closed.reason),
    };
    let _ = timeout(LAST_WORD, client.close(code, reason)).await;
}
