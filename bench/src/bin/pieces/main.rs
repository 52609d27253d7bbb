//! Measures whether a piece costs the same however many there are: the time of ten times the pieces, or
//! of ten times the open transfers, as a multiple of the time of few, for each wire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk::link::{
    Budget, Cap, Carries, Config, Frame, FrameKind, Key, Link, Outgoing, PeerLimits, PeerSupport,
    Rules, Wire,
};
use breakbulk::wire::{Ahp, Cep22, Loro, Stream, Tywrap};
use serde_json::json;

const PIECE: usize = 12;
const FEW: usize = 1000;
const MANY: usize = 10_000;

/// Steps that are timed together: in a short block a busy machine is less likely to interrupt.
const BLOCK: usize = 200;

/// Each block counts with its best time of this many rounds: other programs can only make it slower.
const ROUNDS: usize = 7;

/// Ten times the number may take this many times as long; tables are searched in logarithmic time.
const PIECES_BOUND: f64 = 12.0;
const TRANSFERS_BOUND: f64 = 20.0;

struct Setting {
    name: &'static str,
    wire: Arc<dyn Wire>,
    rules: Rules,
    cap: Cap,
    key: fn(u64) -> Option<Key>,
    /// How far ahead pieces may come; 1 if their order is strict.
    window: usize,
    /// Whether each transfer is opened by a frame without a piece.
    opens: bool,
}

fn settings() -> [Setting; 4] {
    [
        Setting {
            name: "ahp",
            wire: Arc::new(Ahp),
            rules: Ahp::rules(),
            // Room for 12 bytes of data in addition to a short groupId.
            cap: Cap::frame(109 + 2 + 16),
            key: |number| Some(Key::new(format!("g{number}").as_bytes())),
            window: 1,
            opens: false,
        },
        Setting {
            name: "tywrap",
            wire: Arc::new(Tywrap::default()),
            rules: Tywrap::rules(),
            cap: Cap::piece(PIECE),
            key: |number| {
                i64::try_from(number)
                    .ok()
                    .map(|id| Stream::Response.key(id))
            },
            window: MANY,
            opens: false,
        },
        Setting {
            name: "cep22",
            wire: Arc::new(Cep22::default()),
            rules: Cep22::rules(),
            cap: Cap::piece(PIECE),
            key: |number| Some(Key::new(format!("t{number}").as_bytes())),
            window: 20,
            opens: true,
        },
        Setting {
            name: "loro",
            wire: Arc::new(Loro),
            rules: Loro::rules(),
            cap: Cap::piece(PIECE),
            key: |_| None,
            window: MANY,
            opens: true,
        },
    ]
}

/// In which order the pieces come.
#[derive(Clone, Copy)]
enum Order {
    Forwards,
    /// As far backwards as the wire's window goes.
    Backwards,
    /// Every other piece first, and then those between them.
    Gaps,
}

impl Setting {
    fn link(&self, seed: u64) -> Link {
        let mut config = Config::new(self.rules.clone());
        (config.limits.transfers, config.limits.memory) = (usize::MAX, usize::MAX);
        let (wire, budget) = (self.wire.clone(), Budget::unlimited());
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        let mut link = Link::new(wire.clone(), wire, config, budget, bytes);
        link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
        link.set_cap(self.cap);
        link
    }

    /// The frames of message `number`, cut into this many pieces, each with its kind.
    fn frames(&self, number: u64, pieces: usize) -> Vec<(FrameKind, Frame)> {
        let (mut link, now) = (self.link(number), Instant::now());
        let mut outgoing = Outgoing::new(message(pieces));
        outgoing.key = (self.key)(number);
        drop(link.send(now, outgoing));
        let (mut all, mut frame) = (Vec::new(), Vec::new());
        while let Some(sent) = link.poll_transmit(now, &mut frame) {
            let bytes = std::mem::take(&mut frame).into();
            let frame = match sent.carries {
                Carries::Text => Frame::Text(bytes),
                Carries::Binary => Frame::Binary(bytes),
            };
            all.push((sent.kind, frame));
        }
        all
    }

    /// The frames of one message, with its pieces in another order.
    fn ordered(&self, pieces: usize, order: Order) -> Vec<Frame> {
        let mut frames = self.frames(1, pieces);
        let is_piece = |frame: &(FrameKind, Frame)| frame.0 == FrameKind::Piece;
        let first = frames.iter().position(is_piece).unwrap_or_default();
        let count = frames.iter().filter(|frame| is_piece(frame)).count();
        for part in frames[first..first + count].chunks_mut(self.window) {
            match order {
                Order::Forwards => {}
                Order::Backwards => part.reverse(),
                Order::Gaps => {
                    let odd = part.iter().skip(1).step_by(2);
                    let order: Vec<_> = odd.chain(part.iter().step_by(2)).cloned().collect();
                    part.clone_from_slice(&order);
                }
            }
        }
        frames.into_iter().map(|(_, frame)| frame).collect()
    }

    fn receive(&self, frames: &[Frame]) -> Vec<Duration> {
        let (mut link, now) = (self.link(0), Instant::now());
        let mut frames = frames.iter().cloned();
        time(|| {
            while link.poll_event().is_some() {}
            let frame = frames.next();
            frame.map(|frame| link.handle_frame(now, frame)).is_some()
        })
    }

    fn send(&self, pieces: usize) -> Vec<Duration> {
        let (mut link, now) = (self.link(0), Instant::now());
        let mut outgoing = Outgoing::new(message(pieces));
        outgoing.key = (self.key)(1);
        drop(link.send(now, outgoing));
        let mut frame = Vec::new();
        time(|| {
            frame.clear();
            link.poll_transmit(now, &mut frame).is_some()
        })
    }

    /// The beginnings of this many transfers that are never finished: opening frame and first piece.
    fn beginnings(&self, transfers: u64) -> Vec<Frame> {
        let mut begun = Vec::new();
        for number in 1..=transfers {
            let frames = self.frames(number, 5).into_iter();
            let first = frames.take(1 + usize::from(self.opens));
            begun.extend(first.map(|(_, frame)| frame));
        }
        begun
    }
}

/// A message that is cut into so many pieces.
fn message(pieces: usize) -> Vec<u8> {
    let frame = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":[""]}"#;
    let (head, tail) = frame.split_at(frame.len() - 3);
    let fill = vec![b'x'; pieces * PIECE - frame.len()];
    [head, &fill, tail].concat()
}

/// The time of each block of steps.
fn time(mut step: impl FnMut() -> bool) -> Vec<Duration> {
    let mut blocks = Vec::new();
    loop {
        let start = Instant::now();
        let goes_on = (0..BLOCK).all(|_| step());
        blocks.push(start.elapsed());
        if !goes_on {
            return blocks;
        }
    }
}

/// The time of many as a multiple of the time of few, in the best of rounds that take turns.
fn ratio(few: impl Fn() -> Vec<Duration>, many: impl Fn() -> Vec<Duration>) -> f64 {
    let keep = |best: &mut Vec<Duration>, new: Vec<Duration>| {
        best.resize(new.len(), Duration::MAX);
        for (best, new) in best.iter_mut().zip(new) {
            *best = new.min(*best);
        }
    };
    let (mut best_few, mut best_many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        keep(&mut best_few, few());
        keep(&mut best_many, many());
    }
    let seconds = |best: Vec<Duration>| best.iter().sum::<Duration>().as_secs_f64();
    seconds(best_many) / seconds(best_few)
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut rows = Vec::new();
    for setting in settings() {
        let orders = [
            ("in", Order::Forwards),
            ("in, backwards", Order::Backwards),
            ("in, with gaps", Order::Gaps),
        ];
        let possible = if setting.window == 1 { 1 } else { orders.len() };
        for (name, order) in &orders[..possible] {
            let (few, many) = (setting.ordered(FEW, *order), setting.ordered(MANY, *order));
            let ratio = ratio(|| setting.receive(&few), || setting.receive(&many));
            rows.push((setting.name, *name, ratio, PIECES_BOUND));
        }
        let out = ratio(|| setting.send(FEW), || setting.send(MANY));
        rows.push((setting.name, "out", out, PIECES_BOUND));
        let (few, many) = (
            setting.beginnings(FEW as u64),
            setting.beginnings(MANY as u64),
        );
        let open = ratio(|| setting.receive(&few), || setting.receive(&many));
        rows.push((setting.name, "open transfers", open, TRANSFERS_BOUND));
    }
    if json {
        let value = |(wire, what, times, bound): &(&str, &str, f64, f64)| json!({"wire": wire, "what": what, "times": times, "bound": bound});
        println!("{}", json!(rows.iter().map(value).collect::<Vec<_>>()));
        return;
    }
    println!("{MANY} against {FEW}\n\nwire     what                times    bound");
    for (wire, what, times, bound) in rows {
        let ok = if times <= bound { "ok" } else { "over" };
        println!("{wire:<8} {what:<16} {times:>8.1} {bound:>8.0} {ok}");
    }
}
