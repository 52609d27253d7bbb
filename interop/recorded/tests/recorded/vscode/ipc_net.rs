//! Recorded `ipc.net` sessions against our machines.

use std::time::{Duration, Instant};

use breakbulk_message::vscode::Out;
use breakbulk_message::vscode::ipc::{Frame, FrameType, IpcReader};
use breakbulk_vscode::machine::Chunks;
use breakbulk_vscode::machine::ipc::{
    PersistentConfig, PersistentProtocol, Protocol, Received, WEBSOCKET_CUT,
};
use bytes::Bytes;
use serde_json::Value as Json;

use super::values::bytes_of;
use super::{NO_DEFLATE, Verdict};

/// How many milliseconds a recorded timer may have been late.
const LATE: u64 = 100;

/// The sessions of a file; the second one continues the first.
#[derive(Default)]
pub(super) struct Sessions {
    basic: Option<Pair>,
}

struct Pair {
    start: Instant,
    a: PersistentProtocol,
    b: PersistentProtocol,
}

impl Pair {
    fn new() -> Self {
        let start = Instant::now();
        let config = PersistentConfig::default();
        Self {
            start,
            a: PersistentProtocol::new(start, config),
            b: PersistentProtocol::new(start, config),
        }
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }
}

impl Sessions {
    /// `None` if no session has that name.
    pub(super) fn check(&mut self, name: &str, entry: &Json) -> Option<Verdict> {
        Some(match name {
            "protocol" => protocol(entry),
            "persistent_basic" => self.basic(entry),
            "persistent_pause" => self.pause(entry),
            "persistent_reconnect" => reconnect(entry),
            "persistent_gap" => gap(entry),
            "persistent_keepalive" => keep_alive(entry),
            "websocket_600k_plain" => websocket(&entry["frames"], 600_000),
            "websocket_600k_deflate" => Ok(Some(&NO_DEFLATE)),
            "websocket_125_126_65535_65536" => {
                let mut sizes = entry.as_object()?.iter();
                let check = |(size, frames): (&String, &Json)| {
                    let size = size.parse().map_err(|_| "not a size")?;
                    websocket(frames, size)
                };
                sizes.try_fold(None, |_, size| check(size))
            }
            _ => return None,
        })
    }

    /// Sends the messages at the recorded times; the machines must acknowledge them at the recorded times.
    fn basic(&mut self, entry: &Json) -> Verdict {
        let mut pair = Pair::new();
        let recorded = [timed(&entry["a"])?, timed(&entry["b"])?];
        let mut ours = [Vec::new(), Vec::new()];
        let mut got = Vec::new();
        for millis in 0..3000 {
            let now = pair.at(millis);
            let ends = [&mut pair.a, &mut pair.b];
            for (side, recorded) in recorded.iter().enumerate() {
                for (_, frame) in recorded.iter().filter(|(at, _)| *at == millis) {
                    match frame.frame_type {
                        FrameType::Regular => {
                            let sent = ends[side].send(now, &frame.payload);
                            sent.map_err(|error| error.to_string())?;
                        }
                        FrameType::Control => {
                            let sent = ends[side].send_control(&frame.payload);
                            sent.map_err(|error| error.to_string())?;
                        }
                        _ => {}
                    }
                }
            }
            for side in [0, 1] {
                ends[side].handle_timeout(now);
                for frame in written(ends[side], now)? {
                    ours[side].push((millis, frame.clone()));
                    let name = ["A", "B"][1 - side];
                    match ends[1 - side].handle_frame(now, frame) {
                        Received::Message(message) => {
                            got.push(format!("{name} got {}", text(&message)))
                        }
                        Received::Control(message) => {
                            got.push(format!("{name} ctl {}", text(&message)))
                        }
                        Received::Disconnect | Received::Nothing => {}
                    }
                }
            }
        }
        for (ours, recorded) in ours.iter().zip(&recorded) {
            let same = ours.len() == recorded.len()
                && ours
                    .iter()
                    .zip(recorded)
                    .all(|((at, frame), (then, other))| {
                        frame == other && at.abs_diff(*then) <= LATE
                    });
            if !same {
                return Err(format!("our machine writes {ours:?}"));
            }
        }
        let wanted: Vec<_> = strings(&entry["got"]);
        let unacknowledged = (pair.a.unacknowledged(), pair.b.unacknowledged());
        self.basic = Some(pair);
        // The last line was recorded with the session that continues this one.
        match wanted.starts_with(&got) && got.len() + 1 == wanted.len() && unacknowledged == (0, 0)
        {
            true => Ok(None),
            false => Err(format!(
                "our machines got {got:?}, {unacknowledged:?} unacknowledged"
            )),
        }
    }

    fn pause(&mut self, entry: &Json) -> Verdict {
        let mut pair = self.basic.take().ok_or("no session to go on with")?;
        let now = pair.at(3000);
        let (mut by_a, mut by_b) = (Vec::new(), Vec::new());
        pair.a.send_pause();
        carry(&mut pair.a, &mut pair.b, now, &mut by_a)?;
        let queued = Bytes::from_static(b"queued while paused");
        pair.b
            .send(now, &queued)
            .map_err(|error| error.to_string())?;
        carry(&mut pair.b, &mut pair.a, now, &mut by_b)?;
        if entry["writesByBWhilePaused"] != by_b.len() {
            return Err(format!("our machine writes {by_b:?} while it is paused"));
        }
        pair.a.send_resume();
        carry(&mut pair.a, &mut pair.b, now, &mut by_a)?;
        carry(&mut pair.b, &mut pair.a, now, &mut by_b)?;
        pair.b.send_disconnect();
        carry(&mut pair.b, &mut pair.a, now, &mut by_b)?;
        match pair.a.is_over() {
            true => same(&by_a, &entry["a"]).and_then(|_| same(&by_b, &entry["b"])),
            false => Err("the disconnect did not end it".into()),
        }
    }
}

/// Everything sent in one tick goes out in one write.
fn protocol(entry: &Json) -> Verdict {
    let mut protocol = Protocol::new(1 << 20);
    let mut wire = Vec::new();
    for message in strings(&entry["got"]) {
        let sent = protocol.send(&Bytes::from(message));
        sent.map_err(|error| error.to_string())?;
    }
    while let Some(bytes) = protocol.outgoing().pop(usize::MAX) {
        wire.push(bytes);
    }
    let [one] = &wire[..] else {
        return Err(format!("{} writes", wire.len()));
    };
    let mut recorded = Vec::new();
    for frame in frames(&entry["writes"])? {
        frame
            .write(&mut recorded)
            .map_err(|error| error.to_string())?;
    }
    match *recorded == **one {
        true => Ok(None),
        false => Err(format!("our machine writes {one:?}")),
    }
}

/// m2 and m3 are lost with their stream; m4 is sent while there is none.
fn reconnect(entry: &Json) -> Verdict {
    let mut pair = Pair::new();
    let now = pair.start;
    let mut got = Vec::new();
    for (index, message) in strings(&entry["got"]).into_iter().enumerate() {
        if index == 3 {
            pair.a.stream_lost();
            pair.b.stream_lost();
        }
        let sent = pair.a.send(now, &Bytes::from(message));
        sent.map_err(|error| error.to_string())?;
        if index == 0 {
            got.extend(carry(&mut pair.a, &mut pair.b, now, &mut Vec::new())?);
        }
    }
    pair.a.resume(now);
    pair.b.resume(now);
    let (mut by_a, mut by_b) = (Vec::new(), Vec::new());
    got.extend(carry(&mut pair.a, &mut pair.b, now, &mut by_a)?);
    carry(&mut pair.b, &mut pair.a, now, &mut by_b)?;
    same(&by_a, &entry["a2"])?;
    same(&by_b, &entry["b2"])?;
    match got == strings(&entry["got"]) {
        true => Ok(None),
        false => Err(format!("our machine got {got:?}")),
    }
}

fn gap(entry: &Json) -> Verdict {
    let mut pair = Pair::new();
    let now = pair.start;
    let wanted = strings(&entry["got"]);
    let mut got = Vec::new();
    // In order, two ahead, a duplicate, an unknown type, the missing one.
    let ids = [(1, 1), (1, 3), (1, 4), (1, 1), (4, 9), (1, 2)];
    for (kind, id) in ids {
        let frame = Frame {
            frame_type: FrameType::from_u8(kind),
            id,
            ack: 0,
            payload: wanted
                .get(id as usize - 1)
                .cloned()
                .unwrap_or_default()
                .into(),
        };
        if let Received::Message(message) = pair.b.handle_frame(now, frame) {
            got.push(text(&message));
        }
    }
    let by_b = written(&mut pair.b, now)?;
    same(&by_b, &entry["b"])?;
    match got == wanted {
        true => Ok(None),
        false => Err(format!("our machine got {got:?}")),
    }
}

fn keep_alive(entry: &Json) -> Verdict {
    let mut pair = Pair::new();
    let mut by_a = Vec::new();
    for millis in 0..=5000 {
        let now = pair.at(millis);
        pair.a.handle_timeout(now);
        let frames = written(&mut pair.a, now)?;
        if !frames.is_empty() && millis != 5000 {
            return Err(format!("our machine writes {frames:?} after {millis} ms"));
        }
        by_a.extend(frames);
    }
    same(&by_a, &entry["a"])
}

/// Checks where a stream is cut into WebSocket frames; the frames' heads are the WebSocket's own.
fn websocket(frames: &Json, size: usize) -> Verdict {
    let mut stream = Chunks::default();
    stream.put_shared(&Bytes::from(vec![b'a'; size]));
    let cuts = std::iter::from_fn(|| stream.pop(WEBSOCKET_CUT));
    let cuts: Vec<_> = cuts.map(|bytes| bytes.len()).collect();
    let recorded = frames.as_array().into_iter().flatten();
    let recorded: Vec<_> = recorded.map(|frame| &frame["payloadLen"]).collect();
    let same =
        cuts.len() == recorded.len() && cuts.iter().zip(&recorded).all(|(cut, len)| **len == *cut);
    match same {
        true => Ok(None),
        false => Err(format!("our cuts are {cuts:?}")),
    }
}

fn carry(
    from: &mut PersistentProtocol,
    to: &mut PersistentProtocol,
    now: Instant,
    log: &mut Vec<Frame>,
) -> Result<Vec<String>, String> {
    let mut got = Vec::new();
    for frame in written(from, now)? {
        log.push(frame.clone());
        if let Received::Message(message) = to.handle_frame(now, frame) {
            got.push(text(&message));
        }
    }
    Ok(got)
}

fn written(protocol: &mut PersistentProtocol, now: Instant) -> Result<Vec<Frame>, String> {
    let mut bytes = Vec::new();
    while let Some(some) = protocol.outgoing(now).and_then(|out| out.pop(usize::MAX)) {
        bytes.extend_from_slice(&some);
    }
    read(bytes.into())
}

fn read(mut bytes: Bytes) -> Result<Vec<Frame>, String> {
    let mut reader = IpcReader::new(1 << 20);
    let mut frames = Vec::new();
    while let Some(frame) = reader.read(&mut bytes).map_err(|error| error.to_string())? {
        frames.push(frame);
    }
    Ok(frames)
}

fn same(ours: &[Frame], recorded: &Json) -> Verdict {
    match ours == frames(recorded)? {
        true => Ok(None),
        false => Err(format!("our machine writes {ours:?}")),
    }
}

/// All frames of a list of writes.
fn frames(writes: &Json) -> Result<Vec<Frame>, String> {
    let mut recorded = Vec::new();
    super::collect_frames(writes, &mut recorded);
    let mut all = Vec::new();
    for frame in recorded {
        all.extend(read(bytes_of(&frame["hex"])?)?);
    }
    Ok(all)
}

fn timed(writes: &Json) -> Result<Vec<(u64, Frame)>, String> {
    let mut all = Vec::new();
    for write in writes.as_array().into_iter().flatten() {
        let at = write["t"].as_u64().ok_or("a write without a time")?;
        all.extend(frames(&write["m"])?.into_iter().map(|frame| (at, frame)));
    }
    Ok(all)
}

fn strings(list: &Json) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
