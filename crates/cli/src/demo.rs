//! `breakbulk demo`: each format carries a message that its path would refuse.

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

/// Past every cap below, and past the limits of most paths.
const MESSAGE: usize = 24_000_000;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The best of so many runs is shown: the first one pays for fresh memory.
const RUNS: usize = 5;

#[derive(Args)]
pub(crate) struct Demo {
    /// One protocol over real sockets; all formats within this process if absent
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

/// One format on its usual path.
struct Show {
    format: &'static str,
    path: &'static str,
    wire: Arc<dyn Wire>,
    rules: Rules,
    cap: Cap,
    key: Option<Key>,
    message: Bytes,
}

/// What carrying one message took.
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
        for show in shows()? {
            let mut best: Option<Carried> = None;
            let mut peak = None;
            for _ in 0..RUNS {
                let carried = run(&show)?;
                if carried.message != show.message {
                    return Err(Failure::Input(format!(
                        "{}: the message came back changed",
                        show.format
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
            let largest = check_frames(&show)?;
            if show.format == "vscode" {
                check_rpc(&best.message)?;
            }
            out.line(&row(&show, &best, largest, peak))?;
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

/// Shows something over real sockets or pipes.
fn live(show: impl AsyncFnOnce(&mut Output) -> Result<(), Failure>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::Io("the runtime".to_owned(), error))?;
    let mut out = Output::open(None)?;
    let shown = runtime.block_on(async { timeout(PATIENCE, show(&mut out)).await });
    runtime.shutdown_background();
    shown.unwrap_or_else(|_| {
        let seconds = PATIENCE.as_secs();
        let why = format!("the demo failed: nothing more happened for {seconds} s");
        Err(Failure::Session(why))
    })?;
    out.finish()
}

fn shows() -> Result<Vec<Show>, Failure> {
    let text = Bytes::from(json_message());
    Ok(vec![
        Show {
            format: "ahp",
            path: "managed WebSocket relay (1 MB)",
            wire: Arc::new(Ahp),
            rules: Ahp::rules(),
            cap: Cap::frame(900_000),
            key: None,
            message: text.clone(),
        },
        Show {
            format: "tywrap",
            path: "a bridge's pipe, 1 MiB of data a line",
            wire: Arc::new(Tywrap::default()),
            rules: Tywrap::rules(),
            cap: Cap::piece(1 << 20).lines(),
            key: Some(Stream::Response.key(42)),
            message: text.clone(),
        },
        Show {
            format: "cep22",
            path: "Nostr relay (64 KiB), cut above 48 KB",
            wire: Arc::new(Cep22::default()),
            rules: Cep22::rules(),
            cap: nostr_cap(65_536, 48_000, false),
            key: Some(Key::new(b"d0c5a7f3b1e94c62")),
            message: text.clone(),
        },
        Show {
            format: "loro",
            path: "WebSocket gateway, 100 KiB fragments",
            wire: Arc::new(Loro),
            rules: Loro::rules(),
            cap: Cap::piece(102_400),
            key: None,
            message: text,
        },
        Show {
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

/// A JSON-RPC response with a long text, as a tool's output looks.
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

/// Two links under the show's cap.
fn pair(show: &Show) -> (Link, Link) {
    let mut config = Config::new(show.rules.clone());
    config.limits = Limits {
        frame: usize::MAX,
        message: 2 * MESSAGE,
        memory: 4 * MESSAGE,
        ..Limits::default()
    };
    let new = || {
        let (send, receive) = (show.wire.clone(), show.wire.clone());
        Link::new(send, receive, config.clone(), Budget::unlimited(), [1; 32])
    };
    let (mut sender, receiver) = (new(), new());
    sender.set_cap(show.cap);
    sender.set_peer(PeerSupport::Yes(PeerLimits::NONE));
    (sender, receiver)
}

fn send(show: &Show, sender: &mut Link, now: Instant) -> Result<(), Failure> {
    let mut outgoing = Outgoing::new(show.message.clone());
    outgoing.key = show.key.clone();
    let sent = sender.send(now, outgoing);
    sent.map(drop)
        .map_err(|rejected| Failure::Input(rejected.to_string()))
}

fn run(show: &Show) -> Result<Carried, Failure> {
    let (mut sender, mut receiver) = pair(show);
    let (mut frames, mut bytes) = (0, 0);
    let before = memory::reset_peak().then(memory::now).flatten();
    let start = Instant::now();
    send(show, &mut sender, start)?;
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
        show.format
    )))
}

/// Once more and not timed: every frame against the cap, as the path counts. Gives the largest.
fn check_frames(show: &Show) -> Result<usize, Failure> {
    let (mut sender, _) = pair(show);
    let now = Instant::now();
    send(show, &mut sender, now)?;
    let (mut frame, mut largest) = (Vec::new(), 0);
    while let Some(transmit) = sender.poll_transmit(now, &mut frame) {
        let counted = match show.cap.count {
            Count::Frame => frame.len(),
            Count::Wrapped(_) => show.cap.counted(Growth::Once.len(&frame)),
            Count::Piece if transmit.kind == FrameKind::Piece => data_bytes(show, &frame)?,
            Count::Piece => 0,
        };
        if counted > show.cap.max {
            return Err(Failure::Input(format!(
                "{}: a frame counts {counted} bytes under a cap of {}",
                show.format, show.cap.max
            )));
        }
        largest = largest.max(counted);
        frame.clear();
    }
    Ok(largest)
}

/// The bytes of a piece before it was coded.
fn data_bytes(show: &Show, frame: &[u8]) -> Result<usize, Failure> {
    let frame = match show.wire.carries() {
        Carries::Text => Frame::Text(frame.to_vec().into()),
        Carries::Binary => Frame::Binary(frame.to_vec().into()),
    };
    match show.wire.read(&frame) {
        Ok(Inbound::Piece(piece)) => {
            let mut data = Vec::new();
            let decoded = show.wire.decode(&piece, &mut data);
            decoded
                .map(|()| data.len())
                .map_err(|fault| Failure::Input(fault.to_string()))
        }
        _ => Ok(0),
    }
}

fn row(show: &Show, carried: &Carried, largest: usize, peak: Option<usize>) -> String {
    let overhead = (carried.bytes as f64 / show.message.len() as f64 - 1.0) * 100.0;
    let rate = show.message.len() as f64 / carried.seconds / 1e9;
    format!(
        "{:<8} {:<38} {:>10} {:>10} {:>7} {overhead:>8.2}% {rate:>7.2} {:>10}",
        show.format,
        show.path,
        size::show(show.cap.max),
        size::show(largest),
        carried.frames,
        peak.map_or("-".to_owned(), size::show),
    )
}
