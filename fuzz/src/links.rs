//! Two links and anything that may happen to them: their own frames and invented ones, lost and repeated
//! ones, time, cancelling, changed limits. After every step each link must be within its limits.
//!
//! The model beside each link is deliberately naive: it keeps everything that came in, and only demands that
//! a delivered message can be explained by it.

mod model;
mod pieces;

use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk_link::{
    Announce, Budget, Cap, Config, Frame, Key, Lane, Limits, Link, Outgoing, Part, PeerLimits,
    PeerSupport, Pieces, Rules, Sent, Wire,
};
use breakbulk_wire::{Ahp, Cep22, Layout, Loro, Stream, Tywrap};

use crate::Input;
use crate::roundtrip::frame;
use model::Side;

/// The format of the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Ahp,
    Tywrap,
    Cep22,
    Loro,
}

/// The most steps of one run; more find nothing new.
const STEPS: usize = 400;

/// The largest frames; invented ones are far smaller.
const CAPS: [usize; 5] = [180, 256, 420, 700, 1400];

/// A JSON-RPC message with this text.
pub fn json_rpc(text: &str) -> Vec<u8> {
    let text = serde_json::to_string(text).expect("text");
    // A raw line break is legal between members, and lines cannot carry it.
    let space = if text.len() % 8 == 7 { "\n" } else { "" };
    format!(r#"{{"jsonrpc":"2.0",{space}"method":"m","params":[{text}]}}"#).into_bytes()
}

/// Runs the steps of the input.
pub fn run(format: Format, mut input: Input<'_>) {
    let mut world = World::new(format, &mut input);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
        world.check();
    }
    world.settle();
}

struct World {
    format: Format,
    wire: Arc<dyn Wire>,
    keys: [Key; 4],
    sides: [Side; 2],
    budget: Budget,
    now: Instant,
}

impl World {
    fn new(format: Format, input: &mut Input<'_>) -> Self {
        let (wire, rules) = format.wire_and_rules(input.byte());
        let budget = Budget::new(input.pick(&[1 << 20, 5000, 2500]));
        let mut side = || {
            let config = config(rules.clone(), input);
            let link = Link::new(
                wire.clone(),
                wire.clone(),
                config.clone(),
                budget.clone(),
                [7; 32],
            );
            let mut side = Side::new(link, wire.clone(), config);
            side.set_cap(Cap::frame(input.pick(&CAPS)));
            side.link.set_peer(peer(input));
            side
        };
        Self {
            format,
            sides: [side(), side()],
            keys: format.keys(),
            wire,
            budget,
            now: Instant::now(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let one = usize::from(choice >> 7);
        let now = self.now;
        match choice & 0x0f {
            0..=2 => self.send(one, input),
            3..=5 => self.carry(one, input),
            6..=8 => {
                let frame = self.made_up(input);
                self.sides[one].undisturbed = false;
                self.sides[one].receive(now, frame);
            }
            9 => {
                let bytes = input.slice().to_vec().into();
                let frame = [Frame::Text, Frame::Binary][usize::from(input.flag())](bytes);
                self.sides[one].undisturbed = false;
                self.sides[one].receive(now, frame);
            }
            10 => {
                let seconds = input.pick(&[0, 1, 5, 9, 29, 31, 299, 700]);
                self.now += Duration::from_secs(seconds);
                for side in &mut self.sides {
                    side.pass(self.now);
                }
            }
            11 => {
                let key = input.pick(&[0, 1, 2, 3]);
                self.sides[one].discard(self.keys[key].clone());
            }
            12 => self.sides[one].cancel(input.below(8)),
            13 => {
                let with = input.flag().then(|| self.format.message(input));
                self.sides[one].replace(input.below(8), with);
            }
            14 => match input.below(8) {
                0 => self.sides[one].set_cap(Cap::frame(input.pick(&CAPS))),
                1 => self.sides[one].link.set_peer(peer(input)),
                2 => self.sides[one].set_receives_pieces(input.flag()),
                3 => self.sides[one].close(),
                _ => self.sides[one].plan(),
            },
            _ => self.sides[one].drop_messages(),
        }
    }

    fn send(&mut self, from: usize, input: &mut Input<'_>) {
        let message = self.format.message(input);
        let choice = input.byte();
        let mut outgoing = Outgoing::new(message)
            .in_lane(Lane(u32::from(choice & 3)))
            .tagged(u64::from(choice));
        let may_be_named = self.format != Format::Ahp || choice & 4 != 0;
        if may_be_named && choice & 8 == 0 {
            outgoing.key = Some(self.keys[usize::from(choice >> 4 & 3)].clone());
        }
        outgoing.may_cut = choice & 0xc0 != 0xc0;
        self.sides[from].send(self.now, outgoing);
    }

    /// Moves frames from one side to the other, and loses or repeats some.
    fn carry(&mut self, from: usize, input: &mut Input<'_>) {
        let choice = input.byte();
        for _ in 0..=choice & 15 {
            let mut bytes = Vec::new();
            let Some(transmit) = self.sides[from].transmit(self.now, &mut bytes) else {
                break;
            };
            let frame = frame(&transmit, bytes);
            let (copies, outcome) = match choice >> 4 {
                0..=10 => (1, Sent::Ok),
                11 => (2, Sent::Ok),
                12 => (0, Sent::Ok),
                13 => (0, Sent::Failed),
                14 => (0, Sent::TooLarge),
                // The transport never reports the outcome.
                _ => {
                    self.sides[1 - from].receive(self.now, frame);
                    continue;
                }
            };
            for _ in 0..copies {
                self.sides[1 - from].receive(self.now, frame.clone());
            }
            self.sides[1 - from].undisturbed &= copies == 1;
            self.sides[from].sent(self.now, transmit.frame, outcome);
        }
    }

    /// An invented frame, as the wire writes it, of a transfer that no side planned.
    fn made_up(&mut self, input: &mut Input<'_>) -> Frame {
        let kind = input.byte();
        let key = &self.keys[usize::from(kind & 3)];
        let data = input.slice();
        let text = String::from_utf8_lossy(data);
        let data = match self.format {
            Format::Ahp | Format::Loro => data,
            Format::Tywrap | Format::Cep22 => text.as_bytes(),
        };
        let mut pieces = Pieces::new(0, 0, 0, Cap::frame(usize::MAX));
        pieces.key = key.clone();
        pieces.count = input.number() >> 1;
        pieces.bytes = input.number() as usize;
        pieces.first = input.number() & 3;
        pieces.opening = Announce::Proceed;
        let index = input.number() >> 1;
        let part = match kind >> 2 & 7 {
            0..=3 => Part::Piece {
                pieces: &pieces,
                index,
                data,
            },
            4 => Part::Open(&pieces),
            5 => Part::Close(&pieces),
            6 if kind & 32 == 0 => Part::Accept { key, seq: index },
            6 => Part::Abort {
                key,
                seq: index,
                reason: &text,
            },
            _ => Part::Whole(data),
        };
        let mut bytes = Vec::new();
        self.wire.write(part, &mut bytes);
        if self.format == Format::Loro {
            return Frame::Binary(bytes.into());
        }
        // The same frame in a form that the wire itself does not write.
        if kind & 64 != 0 && bytes.first() == Some(&b'{') {
            bytes.insert(1, b' ');
        }
        Frame::Text(bytes.into())
    }

    fn check(&self) {
        self.sides.iter().for_each(Side::check);
        let used: usize = self.sides.iter().map(|side| side.link.memory()).sum();
        assert_eq!(self.budget.used(), used, "the process's budget");
    }

    /// Delivers what is still under way, then checks that undisturbed sides lost nothing.
    fn settle(mut self) {
        for _ in 0..2000 {
            let mut moved = false;
            for from in [0, 1] {
                self.sides[from].plan();
                self.sides[from].drop_messages();
                let mut bytes = Vec::new();
                if let Some(transmit) = self.sides[from].transmit(self.now, &mut bytes) {
                    moved = true;
                    self.sides[1 - from].receive(self.now, frame(&transmit, bytes));
                    self.sides[from].sent(self.now, transmit.frame, Sent::Ok);
                }
            }
            self.check();
            if !moved {
                break;
            }
        }
        let [one, other] = &mut self.sides;
        one.check_delivery_to(other);
        other.check_delivery_to(one);
        // In the end timers end everything that they watch, and nothing is left behind.
        for side in &mut self.sides {
            side.close();
            side.drop_messages();
        }
        self.check();
        assert_eq!(self.budget.used(), 0);
    }
}

impl Format {
    fn wire_and_rules(self, choice: u8) -> (Arc<dyn Wire>, Rules) {
        let other = choice & 1 == 1;
        match self {
            Self::Ahp => (Arc::new(Ahp), Ahp::rules()),
            Self::Tywrap if other => (Arc::new(Tywrap::default()), Tywrap::bridge_rules()),
            Self::Tywrap => (Arc::new(Tywrap::default()), Tywrap::rules()),
            Self::Cep22 => {
                let layout = if choice & 2 == 0 {
                    Layout::ByPeer
                } else {
                    Layout::Unasked
                };
                let rules = if other {
                    Cep22::rules()
                } else {
                    Cep22::server_rules()
                };
                (
                    Arc::new(Cep22 {
                        layout,
                        ..Cep22::default()
                    }),
                    rules,
                )
            }
            Self::Loro if other => (Arc::new(Loro), Loro::http_rules()),
            Self::Loro => (Arc::new(Loro), Loro::rules()),
        }
    }

    /// The keys of transfers, few enough to collide.
    fn keys(self) -> [Key; 4] {
        match self {
            Self::Ahp | Self::Cep22 => {
                let long = "k".repeat(60);
                ["1", "2", "é\"", &long].map(|key| Key::new(key.as_bytes()))
            }
            Self::Tywrap => [0, 1, -5, (1 << 53) - 1].map(|id| Stream::Request.key(id)),
            Self::Loro => [0, 1, 2, u64::MAX].map(|id| Key::new(&id.to_be_bytes())),
        }
    }

    /// A message of up to some 1,800 bytes that the format can carry.
    fn message(self, input: &mut Input<'_>) -> Vec<u8> {
        let (len, fill) = (usize::from(input.byte()) * 4, input.below(4));
        if self == Self::Loro {
            return vec![fill as u8; len];
        }
        let text = ["a", "\"\\", "日", "😀\n"][fill];
        json_rpc(&text.repeat(len / 2 / text.len()))
    }
}

fn config(rules: Rules, input: &mut Input<'_>) -> Config {
    let choice = input.byte();
    let mut config = Config::new(rules);
    config.limits = Limits::default().with(|limits| {
        limits.frame = 2048;
        limits.message = input.pick(&[2000, 600, 100]);
        limits.pieces = input.pick(&[64, 8]);
        limits.transfers = input.pick(&[3, 1, 2]);
        limits.pending_bytes = input.pick(&[usize::MAX, 700, 200]);
        limits.memory = input.pick(&[9000, 4200, 2200]);
        limits.undelivered = 4;
        limits.discarded = 2;
        limits.queued = 6;
        limits.queued_bytes = 4000;
    });
    config.confirm = [None, Some(1), Some(3)][usize::from(choice & 3).min(2)];
    config.plan_elsewhere = (choice & 4 != 0).then_some(200);
    config.progress = [0, 1, 300][usize::from(choice >> 3 & 3).min(2)];
    config
}

fn peer(input: &mut Input<'_>) -> PeerSupport {
    let choice = input.byte();
    let limits = PeerLimits {
        frame: [usize::MAX, 300][usize::from(choice >> 2 & 1)],
        message: [usize::MAX, 900][usize::from(choice >> 3 & 1)],
        transfers: [usize::MAX, 1][usize::from(choice >> 4 & 1)],
        timeout: (choice & 32 != 0).then_some(Duration::from_secs(20)),
        timeout_from_last: choice & 64 != 0,
    };
    match choice & 3 {
        0 | 1 => PeerSupport::Yes(limits),
        2 => PeerSupport::Unknown,
        _ => PeerSupport::No,
    }
}
