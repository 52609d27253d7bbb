//! Runs a table of attacks against every wire. The outcome of each attack is one line of `hostile.snap`;
//! `BREAKBULK_BLESS=1` writes that file again.

#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "hostile/attacks.rs"]
mod attacks;
mod common;

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use breakbulk_link::{
    Budget, Config, Event, Fault, FaultKind, Frame, FrameKind, Key, Link, Outgoing, PeerLimits,
    PeerSupport, Received,
};
use breakbulk_testkit::links::Clock;
use common::Kit;

/// An honest message, as small as JSON-RPC can be.
const MESSAGE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;

const MEMORY: usize = 1 << 20;
const MESSAGE_LIMIT: usize = 512 << 10;
const PIECES_LIMIT: u64 = 1000;

/// One step of an attack: what the attacker, this side's application or the clock does.
enum Step {
    Frame(Frame),
    /// Time passes.
    Wait(Duration),
    /// The application discards this transfer.
    Discard(Key),
    /// This side sends a message of its own with this key.
    Send(Key),
    /// The application takes no events from now on.
    Deaf,
    /// This side has not announced that it accepts pieces.
    NotNegotiated,
    /// The memory limit of all links of the process together, in bytes.
    Process(usize),
}

/// What became of an attack, in words.
#[derive(Default)]
struct Outcome {
    received: Runs,
    events: Runs,
    answers: Runs,
}

/// A list of words; equal words in a row are counted.
#[derive(Default)]
struct Runs(Vec<(String, usize)>);

impl Runs {
    fn add(&mut self, word: String) {
        match self.0.last_mut() {
            Some((last, times)) if *last == word => *times += 1,
            _ => self.0.push((word, 1)),
        }
    }
}

impl std::fmt::Display for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.0.iter().take(6).map(|(word, times)| match times {
            1 => word.clone(),
            _ => format!("{word} x{times}"),
        });
        f.write_str(&shown.collect::<Vec<_>>().join(", "))?;
        match self.0.len() {
            0 => f.write_str("-"),
            1..=6 => Ok(()),
            more => write!(f, ", and {} more", more - 6),
        }
    }
}

fn fault(fault: &Fault) -> String {
    match &fault.kind {
        FaultKind::Malformed { field, .. }
        | FaultKind::BadOpening { field, .. }
        | FaultKind::Inconsistent { field } => {
            format!("{}({field})", fault.kind.name())
        }
        FaultKind::TimedOut { timer, .. } => format!("timed-out({timer})"),
        kind => kind.name().to_owned(),
    }
}

fn run(kit: Kit, steps: Vec<Step>) -> String {
    let process = steps.iter().find_map(|step| {
        if let Step::Process(limit) = step {
            Some(*limit)
        } else {
            None
        }
    });
    let mut config = Config::new(kit.rules());
    config.limits.frame = MESSAGE_LIMIT;
    config.limits.message = MESSAGE_LIMIT;
    config.limits.pieces = PIECES_LIMIT;
    config.limits.transfers = 4;
    config.limits.memory = MEMORY;
    config.limits.pending_bytes = if kit == Kit::Loro {
        700 << 10
    } else {
        usize::MAX
    };
    config.progress = 0;
    let budget = process.map_or_else(Budget::unlimited, Budget::new);
    let mut link = Link::new(kit.wire(), kit.wire(), config, budget.clone(), [7; 32]);
    link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    if kit == Kit::Cep22 {
        link.set_peer(PeerSupport::Unknown);
    }
    link.set_cap(breakbulk_link::Cap::frame(700));

    let mut clock = Clock::new();
    let mut outcome = Outcome::default();
    let mut deaf = false;
    let mut kept = Vec::new();
    for step in steps {
        let was_closed = link.closed().is_some();
        match step {
            Step::Frame(frame) => {
                let received = link.handle_frame(clock.now(), frame);
                assert!(
                    !was_closed || received == Received::Ignored,
                    "a closed link took a frame"
                );
                outcome.received.add(match &received {
                    Received::Done(_) => "done".into(),
                    Received::Pending => "pending".into(),
                    Received::Ignored | Received::Unmatched(_) => "ignored".into(),
                    Received::Fault(found) => fault(found),
                });
            }
            Step::Wait(time) => {
                let until = clock.now() + time;
                while let Some((due, _)) = link.poll_timeout().filter(|(due, _)| *due <= until) {
                    clock.advance_to(due);
                    link.handle_timeout(clock.now());
                }
                clock.advance_to(until);
            }
            Step::Discard(key) => link.discard(key),
            Step::Send(key) => {
                let message = [b"[\"", vec![b'x'; 2000].as_slice(), b"\"]"].concat();
                let message = [
                    br#"{"jsonrpc":"2.0","id":1,"method":"m","params":"#,
                    message.as_slice(),
                    b"}",
                ]
                .concat();
                link.send(clock.now(), Outgoing::new(message).with_key(key))
                    .unwrap();
                let _ = link.poll_transmit(clock.now(), &mut Vec::new());
            }
            Step::Deaf => deaf = true,
            Step::NotNegotiated => link.set_receives_pieces(false),
            Step::Process(_) => {}
        }
        assert!(
            link.memory() <= MEMORY,
            "{} bytes are over the limit",
            link.memory()
        );
        assert!(
            process.is_none_or(|limit| budget.used() <= limit),
            "the process holds too much"
        );
        if !deaf {
            take(&mut link, &mut clock, &mut outcome, was_closed);
        } else {
            // Messages that the application does not take are charged as well: notes when the link
            // stops reading.
            kept.push(link.wants_frame());
        }
    }
    take(&mut link, &mut clock, &mut outcome, false);
    let (open, memory, pending) = (link.open_transfers(), link.memory(), link.pending_bytes());
    assert!(
        pending <= memory,
        "{pending} bytes are held and only {memory} are charged"
    );
    let mut line = format!(
        "{} | {} | {}",
        outcome.received, outcome.events, outcome.answers
    );
    write!(line, " | open {open}, memory {memory}").unwrap();
    if let Some(paused) = kept.iter().position(|wants| !wants) {
        write!(line, ", stops reading at step {paused}").unwrap();
    }
    if link.unreported() > 0 {
        write!(line, ", unreported {}", link.unreported()).unwrap();
    }
    match link.closed() {
        Some(closed) => write!(line, " | closed {}: {}", closed.code, closed.reason).unwrap(),
        None => write!(line, " | then {}", honest(kit, &mut link, &clock)).unwrap(),
    }
    line
}

/// Notes the link's events, and the frames with which it answers.
fn take(link: &mut Link, clock: &mut Clock, outcome: &mut Outcome, was_closed: bool) {
    while let Some(event) = link.poll_event() {
        assert!(!was_closed, "a closed link told {event:?}");
        outcome.events.add(match &event {
            Event::Message(message) => format!("message of {}", message.bytes.len()),
            Event::Control(text) => format!("control {:?}", String::from_utf8_lossy(text)),
            Event::Sent { .. } => "sent".into(),
            Event::SendFailed { error, .. } => format!("send failed: {:.60}", error.to_string()),
            Event::Progress { .. } => "progress".into(),
            Event::Writable => "writable".into(),
            Event::Fault(found) => format!("fault {}", fault(found)),
            Event::TransferFailed(found) => format!("failed {}", fault(found)),
            Event::Closed(_) => "closed".into(),
            Event::Accepted { .. } => "accepted".into(),
            other => format!("{other:?}"),
        });
    }
    let mut frame = Vec::new();
    while let Some(transmit) = link.poll_transmit(clock.now(), &mut frame) {
        assert!(!was_closed, "a closed link sent a frame");
        assert!(frame.len() <= 700, "an answer over the cap");
        outcome.answers.add(match transmit.kind {
            FrameKind::Accept => "accept".into(),
            FrameKind::Abort => "abort".into(),
            kind => format!("{kind:?}").to_lowercase(),
        });
        frame.clear();
    }
}

/// Whether an honest transfer still goes through.
fn honest(kit: Kit, link: &mut Link, clock: &Clock) -> &'static str {
    link.set_receives_pieces(true);
    let frames = match kit {
        Kit::Whole => vec![kit.whole(MESSAGE)],
        _ => kit.transfer(77_777, MESSAGE, 10),
    };
    let mut last = Received::Ignored;
    for frame in frames {
        last = link.handle_frame(clock.now(), frame);
    }
    match last {
        Received::Done(_) => "ok",
        Received::Pending | Received::Ignored | Received::Unmatched(_) => "lost",
        Received::Fault(_) => "refused",
    }
}

#[test]
fn every_attack_on_every_wire_ends_as_recorded() {
    let mut lines = String::from(
        "# attack\n#   wire: what became of each frame | what the link told | what it answered | what it holds | the end\n",
    );
    let attacks = attacks::all();
    assert!(attacks.len() >= 60);
    for (name, script) in &attacks {
        writeln!(lines, "{name}").unwrap();
        for kit in Kit::ALL {
            let outcome = match script(kit) {
                Ok(steps) => run(kit, steps),
                Err(reason) => format!("n/a: {reason}"),
            };
            writeln!(lines, "  {}: {outcome}", kit.name()).unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile.snap");
    if std::env::var_os("BREAKBULK_BLESS").is_some() {
        std::fs::write(&path, &lines).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap();
    let changed: Vec<String> = known
        .lines()
        .zip(lines.lines())
        .filter(|(old, new)| old != new)
        .map(|(old, new)| format!("- {old}\n+ {new}"))
        .collect();
    let same_length = known.lines().count() == lines.lines().count();
    assert!(
        changed.is_empty() && same_length,
        "see BREAKBULK_BLESS\n{}",
        changed.join("\n")
    );
}

#[test]
fn attacks_have_different_names() {
    let names: std::collections::BTreeSet<String> =
        attacks::all().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), attacks::all().len());
}
