//! CEP-22: recorded transfers, sent and received frame by frame, and the size of events as the cap counts it.

use std::time::Instant;

use breakbulk_link::{
    Budget, Cap, Config, Event, Frame, FrameKind, Inbound, Key, Link, PeerLimits, PeerSupport,
    Received, Wire, Wrap,
};
use breakbulk_wire::json_text::Growth;
use breakbulk_wire::{Cep22, Layout};
use serde_json::Value;

use super::drive::{expect, frames, link};
use super::{Rule, Tally, Verdict};

const ACCEPT_ALWAYS: Rule = Rule {
    name: "accept-always",
    reason: "our server accepts every admitted start, also of a client it knows: a client that waits would wait for ever",
};

pub(crate) const RULES: &[Rule] = &[ACCEPT_ALWAYS];

/// Scenarios have names of their own, so a file of this format is recognised by its members.
pub(crate) fn run(file: &str, value: &Value, tally: &mut Tally) -> Option<()> {
    let (transfers, events) = (value["transfers"].as_array()?, value["events"].as_array()?);
    for (number, transfer) in transfers.iter().enumerate() {
        tally.check(
            file,
            &format!("transfer {number} written"),
            written(transfer),
        );
        tally.check(file, &format!("transfer {number} read"), read(transfer));
    }
    for (number, event) in events.iter().enumerate() {
        tally.check(file, &format!("event {number}"), counted(event));
    }
    Some(())
}

struct Recorded<'a> {
    /// (from the sender, text)
    frames: Vec<(bool, &'a str)>,
    message: &'a str,
    token: &'a str,
    to_server: bool,
}

fn recorded(transfer: &Value) -> Option<Recorded<'_>> {
    let to_server = transfer["direction"].as_str()? == "client->server";
    let sender = if to_server { "client" } else { "server" };
    let frames = transfer["frames"]
        .as_array()?
        .iter()
        .map(|frame| Some((frame["from"] == sender, frame["frame"].as_str()?)));
    Some(Recorded {
        frames: frames.collect::<Option<_>>()?,
        message: transfer["message"].as_str()?,
        token: transfer["token"].as_str()?,
        to_server,
    })
}

/// Checks that this project's sender, with the recorded chunk size, writes the recorded frames.
fn written(transfer: &Value) -> Verdict {
    let recorded = recorded(transfer).ok_or("not a transfer")?;
    let expected: Vec<&str> = recorded
        .frames
        .iter()
        .filter(|(ours, _)| *ours)
        .map(|(_, frame)| *frame)
        .collect();
    let mut chunks = Vec::new();
    for frame in &expected {
        let frame: Value = serde_json::from_str(frame).map_err(|error| error.to_string())?;
        chunks.extend(
            frame["params"]["cvm"]["data"]
                .as_str()
                .map(|data| (data.len(), frame["params"]["progress"].as_u64())),
        );
    }
    let largest = chunks.iter().map(|(len, _)| *len).max().unwrap_or(0);
    // The recorded client reserves a number for the `accept` that it does not wait for.
    let unasked = chunks
        .first()
        .is_some_and(|(_, progress)| *progress == Some(3));
    let wire = Cep22 {
        layout: if unasked {
            Layout::Unasked
        } else {
            Layout::ByPeer
        },
        ..Cep22::default()
    };
    // The chunk size may be up to three bytes more than any chunk has, where a character did not fit.
    let mut last = Err("no chunks".to_owned());
    for size in largest..largest + 4 {
        let mut link = link(wire, wire, Config::new(Cep22::rules()), Budget::unlimited());
        let key = Key::new(recorded.token.as_bytes());
        let peer = PeerSupport::Yes(PeerLimits::NONE);
        let ours = frames(
            &mut link,
            recorded.message.as_bytes(),
            Some(key),
            peer,
            Cap::piece(size),
        )
        .map_err(|error| error.to_string())?;
        let ours: Vec<_> = ours
            .iter()
            .map(|frame| String::from_utf8_lossy(frame))
            .collect();
        last = expect(expected.len(), ours.len()).and_then(|()| {
            expected
                .iter()
                .zip(&ours)
                .try_for_each(|(theirs, ours)| expect(*theirs, ours))
        });
        if last.is_ok() {
            return Ok(None);
        }
    }
    last.map(|()| None)
}

/// Checks that this project's receiver assembles the message from the recorded frames, in the recorded order.
fn read(transfer: &Value) -> Verdict {
    let recorded = recorded(transfer).ok_or("not a transfer")?;
    let rules = if recorded.to_server {
        Cep22::server_rules()
    } else {
        Cep22::rules()
    };
    let mut link = link(
        Cep22::default(),
        Cep22::default(),
        Config::new(rules),
        Budget::unlimited(),
    );
    let now = Instant::now();
    let mut accept = None;
    let mut last = None;
    for (from_sender, frame) in &recorded.frames {
        if *from_sender {
            last = Some(link.handle_frame(now, Frame::Text((*frame).to_owned().into())));
        }
        let mut answer = Vec::new();
        if let Some(transmit) = link.poll_transmit(now, &mut answer) {
            expect(FrameKind::Accept, transmit.kind)?;
            accept = Some(String::from_utf8_lossy(&answer).into_owned());
        }
    }
    if !matches!(last, Some(Received::Done(_))) {
        return Err(format!("ended with {last:?}"));
    }
    expect(Some(recorded.message.to_owned()), message(&mut link))?;
    expect(recorded.to_server, accept.is_some())?;
    match recorded.frames.iter().find(|(from_sender, _)| !from_sender) {
        Some((_, theirs)) => expect(Some((*theirs).to_owned()), accept).map(|()| None),
        None if recorded.to_server => Ok(Some(&ACCEPT_ALWAYS)),
        None => Ok(None),
    }
}

fn message(link: &mut Link) -> Option<String> {
    loop {
        if let Event::Message(message) = link.poll_event()? {
            return Some(String::from_utf8_lossy(&message.bytes).into_owned());
        }
    }
}

/// Checks that the event around a frame is as long as the cap counts it, and that the frame's kind is known.
fn counted(event: &Value) -> Verdict {
    let content = event["content"].as_str().ok_or("no content")?;
    let frame = Frame::Text(content.to_owned().into());
    let is_transfer = content.contains("oversized-transfer");
    let inbound = Cep22::default()
        .read(&frame)
        .map_err(|fault| fault.to_string())?;
    expect(!is_transfer, matches!(inbound, Inbound::Whole(..)))?;
    let tags = event
        .get("tags")
        .or(event.get("inner_tags"))
        .ok_or("no tags")?;
    let kind = event
        .get("inner_kind")
        .or(event.get("kind"))
        .ok_or("no kind")?;
    let sealed = event
        .get("outer_tags")
        .map(|tags| envelope(&event["kind"], tags));
    let cap = Cap::wrapped(
        usize::MAX,
        Wrap {
            envelope: envelope(kind, tags),
            sealed,
        },
    );
    expect(
        event["event_bytes"].as_u64(),
        Some(cap.counted(Growth::Once.len(content.as_bytes())) as u64),
    )?;
    Ok(None)
}

/// A signed event without its content.
fn envelope(kind: &Value, tags: &Value) -> usize {
    let hex = "0".repeat(64);
    format!(r#"{{"id":"{hex}","pubkey":"{hex}","created_at":1700000000,"kind":{kind},"tags":{tags},"content":"","sig":"{hex}{hex}"}}"#).len()
}
