//! `breakbulk demo`: each format carries a message that is larger than its path's cap.

mod ahp;
mod contextvm;
mod loro;
mod tywrap;
mod vscode;

use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk::link::{
    Budget, Cap, Carries, Config, Count, Event, Frame, FrameKind, Inbound, Key, Limits, Link,
    Outgoing, PeerLimits, PeerSupport, Rules, Wire,
};
use breakbulk::message::vscode as rpc;
use breakbulk::net::memory::carry;
use breakbulk::wire::json_text::Growth;
use breakbulk::wire::{Ahp, Cep22, Loro, Stream, Tywrap, nostr_cap};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::memory;
use crate::output::Output;
use crate::size;

/// Larger than every cap below, and than the limits of most paths.
const MESSAGE: usize = 24_000_000;

/// More than any demo takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs per format, of which the fastest is shown: the first one allocates fresh memory.
const RUNS: usize = 5;

#[derive(Args)]
pub(crate) struct Demo {
    /// Show one protocol over real sockets; without it all formats within this process
    #[arg(value_enum)]
    protocol: Option<Protocol>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// An agent host behind a relay that takes 1 MB
    Ahp,
    /// A Python function whose result is longer than a line may be
    Tywrap,
    /// A buffer for an actor behind a relay that takes 1 MB
    Vscode,
    /// An MCP server's result over a Nostr relay that takes 64 KiB
    Contextvm,
    /// A document for a sync server behind a gateway that takes 128 KB
    Loro,
}

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

impl Demo {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.protocol {
            Some(Protocol::Ahp) => return live(ahp::show),
            Some(Protocol::Tywrap) => return live(tywrap::show),
            Some(Protocol::Vscode) => return live(vscode::show),
            Some(Protocol::Contextvm) => return live(contextvm::show),
            Some(Protocol::Loro) => return live(loro::show),
            None => {}
        }
        let mut out = Output::open(None)?;
        let size = size::show(MESSAGE);
        out.line(&format!(
            "One message of {size} through five capped paths, cut and joined in this process:\n"
        ))?;
        out.line(&format!(
            "{:<8} {:<38} {:>10} {:>10} {:>7} {:>9} {:>7} {:>10}",
            "format", "path", "cap", "largest", "frames", "overhead", "GB/s", "memory"
        ))?;
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
            out.line(&row(&example, &best, largest, peak))?;
        }
        out.line("\nEvery message came back byte for byte, and no frame was over its cap.")?;
        out.line("largest: the largest frame as its path counts: tywrap the data alone, cep22 the event around it, loro the fragment.")?;
        out.line("memory: the most that was resident while carrying, beside the message itself.")?;
        out.line(
            "\nOver real sockets and pipes: breakbulk demo ahp, demo tywrap, demo vscode, demo contextvm, demo loro",
        )?;
        out.finish()
    }
}

/// Runs a demo over real sockets or pipes, with a time limit.
fn live(show: impl AsyncFnOnce(&mut Output) -> Result<(), Failure>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::Io("the runtime".to_owned(), error))?;
    let mut out = Output::open(None)?;
    let shown = runtime.block_on(async { timeout(TIMEOUT, show(&mut out)).await });
    runtime.shutdown_background();
    shown.unwrap_or_else(|_| {
        let seconds = TIMEOUT.as_secs();
        let why = format!("the demo failed: it did not end within {seconds} s");
        Err(Failure::Session(why))
    })?;
    out.finish()
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
    let why = sender.poll_event();
    Err(Failure::Input(format!(
        "{}: nothing arrived: {why:?}",
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
                "{}: a frame counts {counted} bytes under a cap of {}",
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

fn row(example: &Example, carried: &Carried, largest: usize, peak: Option<usize>) -> String {
    let overhead = (carried.bytes as f64 / example.message.len() as f64 - 1.0) * 100.0;
    let rate = example.message.len() as f64 / carried.seconds / 1e9;
    format!(
        "{:<8} {:<38} {:>10} {:>10} {:>7} {overhead:>8.2}% {rate:>7.2} {:>10}",
        example.format,
        example.path,
        size::show(example.cap.max),
        size::show(largest),
        carried.frames,
        peak.map_or("-".to_owned(), size::show),
    )
}
