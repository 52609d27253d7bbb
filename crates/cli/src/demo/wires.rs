//! `breakbulk demo wires`: each format cuts and joins a message in this process, with its rate and memory.

use std::sync::Arc;
use std::time::Instant;

use breakbulk::link::{
    Budget, Cap, Carries, Config, Count, Event, Frame, FrameKind, Inbound, Key, Limits, Link,
    Outgoing, PeerLimits, PeerSupport, Rules, Wire,
};
use breakbulk::message::vscode as rpc;
use breakbulk::net::memory::carry;
use breakbulk::wire::json_text::Growth;
use breakbulk::wire::{Ahp, Cep22, Loro, Stream, Tywrap, nostr_cap};
use bytes::Bytes;

use super::story::Story;
use crate::columns::{Column, Table};
use crate::failure::Failure;
use crate::memory;
use crate::size;

/// Larger than every cap below, and than the limits of most paths.
const MESSAGE: usize = 24_000_000;

/// Runs per format, of which the fastest is shown: the first one allocates fresh memory.
const RUNS: usize = 5;

const COLUMNS: [Column; 8] = [
    Column::text("format"),
    Column::number("cap"),
    Column::number("largest"),
    Column::number("frames"),
    Column::number("overhead"),
    Column::number("GB/s"),
    Column::number("memory"),
    Column::text("path"),
];

/// One format on a typical path.
struct Example {
    format: &'static str,
    path: &'static str,
    wire: Arc<dyn Wire>,
    rules: Rules,
    cap: Cap,
    key: Option<Key>,
    message: Bytes,
}

/// The figures of carrying one message.
struct Carried {
    frames: u64,
    bytes: usize,
    seconds: f64,
    peak: Option<usize>,
    message: Bytes,
}

pub(super) fn show(story: &mut Story<'_>) -> Result<(), Failure> {
    let size = size::show(MESSAGE);
    story.title(&format!(
        "One message of {size}, cut and joined in this process"
    ))?;
    let mut rows = Vec::new();
    for example in examples()? {
        let mut best: Option<Carried> = None;
        let mut peak = None;
        for _ in 0..RUNS {
            let carried = run(&example)?;
            if carried.message != example.message {
                return Err(Failure::Input(format!(
                    "{}: the message came back changed",
                    example.format
                )));
            }
            peak = peak.max(carried.peak);
            if best
                .as_ref()
                .is_none_or(|best| carried.seconds < best.seconds)
            {
                best = Some(carried);
            }
        }
        let Some(best) = best else { continue };
        let largest = check_frames(&example)?;
        if example.format == "vscode" {
            check_rpc(&best.message)?;
        }
        rows.push(row(&example, &best, largest, peak));
    }
    let mut table = Table::new(&COLUMNS, Some(story.width()));
    rows.iter().for_each(|row| table.measure(row));
    table.settle();
    story.line(&table.header())?;
    for row in rows {
        story.line(&table.row(row))?;
    }
    story.line("")?;
    story.note("Every message came back byte for byte, and no frame was over its cap.")?;
    story.note("largest: the largest frame, as its path counts it (tywrap: the data alone; cep22: with the event around it; loro: the fragment).")?;
    story.note(
        "memory: the most memory in use while the message was carried, besides the message itself.",
    )
}

fn examples() -> Result<Vec<Example>, Failure> {
    let text = Bytes::from(json_message());
    Ok(vec![
        Example {
            format: "ahp",
            path: "managed WebSocket relay (1 MB)",
            wire: Arc::new(Ahp),
            rules: Ahp::rules(),
            cap: Cap::frame(900_000),
            key: None,
            message: text.clone(),
        },
        Example {
            format: "tywrap",
            path: "a bridge's pipe, 1 MiB of data a line",
            wire: Arc::new(Tywrap::default()),
            rules: Tywrap::rules(),
            cap: Cap::piece(1 << 20).lines(),
            key: Some(Stream::Response.key(42)),
            message: text.clone(),
        },
        Example {
            format: "cep22",
            path: "Nostr relay (64 KiB), cut above 48 KB",
            wire: Arc::new(Cep22::default()),
            rules: Cep22::rules(),
            cap: nostr_cap(65_536, 48_000, false),
            key: Some(Key::new(b"d0c5a7f3b1e94c62")),
            message: text.clone(),
        },
        Example {
            format: "loro",
            path: "WebSocket gateway, 100 KiB fragments",
            wire: Arc::new(Loro),
            rules: Loro::rules(),
            cap: Cap::piece(102_400),
            key: None,
            message: text,
        },
        Example {
            format: "vscode",
            path: "WebSocket path of 1 MB, loro wire",
            wire: Arc::new(Loro),
            rules: Loro::rules(),
            cap: Cap::frame(1_000_000),
            key: None,
            message: rpc_message()?,
        },
    ])
}

/// A JSON-RPC response with a long text, like a tool's output.
fn json_message() -> Vec<u8> {
    let mut message =
        br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":""#.to_vec();
    let line =
        "The quick brown fox jumps over the lazy dog and says \\\"hello\\\" to 24 MB of text.\\n";
    while message.len() + line.len() + 6 < MESSAGE {
        message.extend_from_slice(line.as_bytes());
    }
    message.extend_from_slice(br#""}]}}"#);
    message.resize(MESSAGE, b' ');
    message
}

/// A call of `$write` with a buffer argument.
fn rpc_message() -> Result<Bytes, Failure> {
    let wrong = |error: rpc::EncodeError| Failure::Input(error.to_string());
    let buffer: Vec<u8> = (0..MESSAGE).map(|i| (i * 7 + 3) as u8).collect();
    let args = vec![rpc::Passed::Plain(rpc::Value::Buffer(buffer.into()))];
    let request = rpc::Request {
        rpc_id: rpc::RpcId::new(2).map_err(wrong)?,
        method: "$write".into(),
        args: rpc::Args::write(args, None).map_err(wrong)?,
        cancellation: false,
    };
    let mut message = Vec::new();
    rpc::encode(
        &rpc::RpcMessage {
            req: 1,
            body: rpc::Body::Request(request),
        },
        &mut message,
    )
    .map_err(wrong)?;
    Ok(message.into())
}

fn check_rpc(message: &Bytes) -> Result<(), Failure> {
    let decoded = rpc::decode(message.clone(), &rpc::Limits::default());
    decoded
        .map(drop)
        .map_err(|error| Failure::Input(error.to_string()))
}

/// A sending and a receiving link under the example's cap.
fn pair(example: &Example) -> (Link, Link) {
    let mut config = Config::new(example.rules.clone());
    config.limits = Limits::default().with(|limits| {
        limits.frame = usize::MAX;
        limits.message = 2 * MESSAGE;
        limits.memory = 4 * MESSAGE;
    });
    let new = || {
        let (send, receive) = (example.wire.clone(), example.wire.clone());
        Link::new(send, receive, config.clone(), Budget::unlimited(), [1; 32])
    };
    let (mut sender, receiver) = (new(), new());
    sender.set_cap(example.cap);
    sender.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    (sender, receiver)
}

fn send(example: &Example, sender: &mut Link, now: Instant) -> Result<(), Failure> {
    let mut outgoing = Outgoing::new(example.message.clone());
    outgoing.key = example.key.clone();
    let sent = sender.send(now, outgoing);
    sent.map(drop)
        .map_err(|rejected| Failure::Input(rejected.to_string()))
}

fn run(example: &Example) -> Result<Carried, Failure> {
    let (mut sender, mut receiver) = pair(example);
    let (mut frames, mut bytes) = (0, 0);
    let before = memory::reset_peak().then(memory::now).flatten();
    let start = Instant::now();
    send(example, &mut sender, start)?;
    carry(&mut sender, &mut receiver, start, |_, frame| {
        frames += 1;
        bytes += frame.len();
    });
    let seconds = start.elapsed().as_secs_f64();
    let peak = before
        .zip(memory::peak())
        .map(|(before, peak)| peak.saturating_sub(before));
    while let Some(event) = receiver.poll_event() {
        match event {
            Event::Message(message) => {
                return Ok(Carried {
                    frames,
                    bytes,
                    seconds,
                    peak,
                    message: message.bytes.clone(),
                });
            }
            Event::TransferFailed(fault) | Event::Fault(fault) => {
                return Err(Failure::Input(fault.to_string()));
            }
            _ => {}
        }
    }
    let why = match sender.poll_event() {
        Some(Event::SendFailed { error, .. }) => error.to_string(),
        _ => "the frames made up no message".to_owned(),
    };
    Err(Failure::Input(format!(
        "{}: nothing arrived: {why}",
        example.format
    )))
}

/// Checks every frame against the cap, as the path counts it; returns the size of the largest. Done in a
/// run of its own that is not timed.
fn check_frames(example: &Example) -> Result<usize, Failure> {
    let (mut sender, _) = pair(example);
    let now = Instant::now();
    send(example, &mut sender, now)?;
    let (mut frame, mut largest) = (Vec::new(), 0);
    while let Some(transmit) = sender.poll_transmit(now, &mut frame) {
        let counted = match example.cap.count {
            Count::Frame => frame.len(),
            Count::Wrapped(_) => example.cap.counted(Growth::Once.len(&frame)),
            Count::Piece if transmit.kind == FrameKind::Piece => data_bytes(example, &frame)?,
            Count::Piece => 0,
        };
        if counted > example.cap.max {
            return Err(Failure::Input(format!(
                "{}: a frame of {counted} bytes is over the cap of {}",
                example.format, example.cap.max
            )));
        }
        largest = largest.max(counted);
        frame.clear();
    }
    Ok(largest)
}

/// The size of a piece before it was encoded.
fn data_bytes(example: &Example, frame: &[u8]) -> Result<usize, Failure> {
    let frame = match example.wire.carries() {
        Carries::Text => Frame::Text(frame.to_vec().into()),
        Carries::Binary => Frame::Binary(frame.to_vec().into()),
    };
    match example.wire.read(&frame) {
        Ok(Inbound::Piece(piece)) => {
            let mut data = Vec::new();
            let decoded = example.wire.decode(&piece, &mut data);
            decoded
                .map(|()| data.len())
                .map_err(|fault| Failure::Input(fault.to_string()))
        }
        _ => Ok(0),
    }
}

fn row(example: &Example, carried: &Carried, largest: usize, peak: Option<usize>) -> [String; 8] {
    let overhead = (carried.bytes as f64 / example.message.len() as f64 - 1.0) * 100.0;
    let rate = example.message.len() as f64 / carried.seconds / 1e9;
    [
        example.format.to_owned(),
        size::show(example.cap.max),
        size::show(largest),
        carried.frames.to_string(),
        format!("{overhead:.2}%"),
        format!("{rate:.2}"),
        peak.map_or("-".to_owned(), size::show),
        example.path.to_owned(),
    ]
}
