//! For every wire: no frame over the cap, and what a naive reassembler and a link make of the frames
//! is the message. Over a bad network: what arrives is what was sent, and what does not is accounted for.
//!
//! `BREAKBULK_SEED=n` replays one run, `BREAKBULK_SEEDS=n` sets how many there are.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use breakbulk_link::testing::{Pair, Weather};
use breakbulk_link::{
    Budget, Cap, Config, Count, Event, Frame, Key, Lane, Link, Outgoing, PeerLimits, PeerSupport,
    Plan, PlanOptions, Random, Rules, SendError, Wire,
};
use breakbulk_wire::{Ahp, Cep22, Layout, Loro, Stream, Style, Tywrap, Whole, nostr_cap};
use bytes::Bytes;
use serde_json::Value;

/// A wire with the way its cap counts, and how to put its frames together naively.
struct Setup {
    name: &'static str,
    wire: Arc<dyn Wire>,
    rules: Rules,
    peer: PeerSupport,
    cap: fn(usize) -> Cap,
    key: fn(u64) -> Option<Key>,
    /// What a frame counts against the cap, by somebody who does not know how the wire plans.
    weigh: fn(&[u8]) -> usize,
    /// The message that these frames carry.
    join: fn(&[Vec<u8>]) -> Vec<u8>,
    binary: bool,
    pieces: bool,
}

fn setups() -> Vec<Setup> {
    let yes = || {
        PeerSupport::Yes(PeerLimits {
            transfers: 4,
            ..PeerLimits::NONE
        })
    };
    let request = |number: u64| Some(Stream::Request.key(number as i64));
    let token = |number: u64| Some(Key::new(format!("tok\"en-{number}").as_bytes()));
    let none = |_: u64| None;
    let tywrap = |name, style, cap, weigh| Setup {
        name,
        wire: Arc::new(Tywrap {
            style,
            ..Tywrap::default()
        }),
        rules: Tywrap::rules(),
        peer: yes(),
        cap,
        key: request,
        weigh,
        join: join_tywrap,
        binary: false,
        pieces: true,
    };
    let cep22 = |name, layout, rules, peer, cap, weigh| Setup {
        name,
        wire: Arc::new(Cep22 { layout }),
        rules,
        peer,
        cap,
        key: token,
        weigh,
        join: join_cep22,
        binary: false,
        pieces: true,
    };
    let loro = |name, cap, weigh| Setup {
        name,
        wire: Arc::new(Loro),
        rules: Loro::rules(),
        peer: PeerSupport::Unknown,
        cap,
        key: none,
        weigh,
        join: join_loro,
        binary: true,
        pieces: true,
    };
    let ahp = |name, cap, weigh, join| Setup {
        name,
        wire: Arc::new(Ahp),
        rules: Ahp::rules(),
        peer: yes(),
        cap,
        key: none,
        weigh,
        join,
        binary: false,
        pieces: true,
    };
    let whole = |name, wire: Whole, binary| Setup {
        name,
        wire: Arc::new(wire),
        rules: Whole::rules(),
        peer: PeerSupport::Unknown,
        cap: Cap::frame,
        key: none,
        weigh: <[u8]>::len,
        join: |frames| frames.concat(),
        binary,
        pieces: false,
    };
    let nostr = |max| nostr_cap(max, max, false);
    let gift_wrap = |max| nostr_cap(max, max, true);
    vec![
        ahp("ahp", Cap::frame, <[u8]>::len, join_ahp),
        ahp(
            "ahp, lines",
            |max| Cap::frame(max).lines(),
            line_len,
            join_ahp,
        ),
        ahp("ahp, wrapped", nostr, event_len, join_ahp),
        tywrap(
            "tywrap, compact, native",
            Style::Compact,
            Cap::piece,
            tywrap_data,
        ),
        tywrap(
            "tywrap, ascii, native",
            Style::Ascii,
            Cap::piece,
            tywrap_data,
        ),
        tywrap(
            "tywrap, compact, strict",
            Style::Compact,
            |max| Cap::frame(max).lines(),
            line_len,
        ),
        tywrap(
            "tywrap, ascii, strict",
            Style::Ascii,
            |max| Cap::frame(max).lines(),
            ascii_line_len,
        ),
        tywrap("tywrap, compact, wrapped", Style::Compact, nostr, event_len),
        tywrap("tywrap, ascii, wrapped", Style::Ascii, nostr, event_len),
        cep22(
            "cep22, direct",
            Layout::ByPeer,
            Cep22::server_rules(),
            yes(),
            Cap::frame,
            <[u8]>::len,
        ),
        cep22(
            "cep22, accepted",
            Layout::ByPeer,
            Cep22::server_rules(),
            PeerSupport::Unknown,
            Cap::frame,
            <[u8]>::len,
        ),
        cep22(
            "cep22, unasked",
            Layout::Unasked,
            Cep22::rules(),
            PeerSupport::Unknown,
            Cap::frame,
            <[u8]>::len,
        ),
        cep22(
            "cep22, by piece",
            Layout::ByPeer,
            Cep22::server_rules(),
            yes(),
            Cap::piece,
            cep22_data,
        ),
        cep22(
            "cep22, nostr",
            Layout::ByPeer,
            Cep22::server_rules(),
            yes(),
            nostr,
            event_len,
        ),
        cep22(
            "cep22, gift wrap",
            Layout::ByPeer,
            Cep22::server_rules(),
            yes(),
            gift_wrap,
            gift_wrap_len,
        ),
        loro("loro, native", Cap::piece, loro_data),
        loro("loro, cap-aware", Cap::frame, <[u8]>::len),
        whole("whole, text", Whole::TEXT, false),
        whole("whole, binary", Whole::BINARY, true),
    ]
}

// The oracles. They know the formats from their descriptions, and nothing of the code.

fn json(frame: &[u8]) -> Value {
    serde_json::from_slice(frame).unwrap()
}

fn join_ahp(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut pieces = BTreeMap::new();
    for frame in frames {
        let value = json(frame);
        if value["method"] != "ahp/messageSegment" {
            assert_eq!(frames.len(), 1);
            return frame.clone();
        }
        let params = &value["params"];
        assert_eq!(params["total"], frames.len());
        pieces.insert(
            params["index"].as_u64().unwrap(),
            STANDARD.decode(params["data"].as_str().unwrap()).unwrap(),
        );
    }
    assert_eq!(pieces.len(), frames.len());
    pieces.into_values().flatten().collect()
}

fn join_tywrap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut pieces = BTreeMap::new();
    let mut total = 0;
    for frame in frames {
        let value = json(frame);
        if value.get("__tywrap_frame__").is_none() {
            assert_eq!(frames.len(), 1);
            return frame.clone();
        }
        assert_eq!(value["total"], frames.len());
        total = value["totalBytes"].as_u64().unwrap();
        pieces.insert(
            value["seq"].as_u64().unwrap(),
            value["data"].as_str().unwrap().to_owned(),
        );
    }
    let message = pieces.into_values().collect::<String>().into_bytes();
    assert_eq!(message.len() as u64, total);
    message
}

fn join_cep22(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut pieces = BTreeMap::new();
    let mut start = Value::Null;
    for frame in frames {
        let value = json(frame);
        let cvm = &value["params"]["cvm"];
        let progress = value["params"]["progress"].as_u64();
        match cvm["frameType"].as_str() {
            None => {
                assert_eq!(frames.len(), 1);
                return frame.clone();
            }
            Some("start") => start = cvm.clone(),
            Some("chunk") => {
                pieces.insert(progress.unwrap(), cvm["data"].as_str().unwrap().to_owned());
            }
            Some("end") => assert_eq!(progress.unwrap(), pieces.last_key_value().unwrap().0 + 1),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(start["totalChunks"], pieces.len());
    let message = pieces.into_values().collect::<String>().into_bytes();
    assert_eq!(start["totalBytes"], message.len());
    use sha2::Digest;
    let hex: String = sha2::Sha256::digest(&message)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(start["digest"], format!("sha256:{hex}"));
    message
}

fn join_loro(frames: &[Vec<u8>]) -> Vec<u8> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let mut pieces = BTreeMap::new();
    let mut header = None;
    for frame in frames {
        match frame[0] {
            0 => {
                assert_eq!(frames.len(), 1);
                return frame[1..].to_vec();
            }
            1 => {
                header = Some((
                    frame[1..9].to_vec(),
                    number(&frame[9..13]),
                    number(&frame[13..17]),
                ))
            }
            2 => {
                assert_eq!(
                    header.as_ref().unwrap().0,
                    frame[1..9],
                    "the header comes first"
                );
                pieces.insert(number(&frame[9..13]), frame[13..].to_vec());
            }
            other => panic!("{other}"),
        }
    }
    let (_, count, size) = header.unwrap();
    assert_eq!(count as usize, pieces.len());
    let message: Vec<u8> = pieces.into_values().flatten().collect();
    assert_eq!(message.len(), size as usize);
    message
}

fn line_len(frame: &[u8]) -> usize {
    assert!(
        !frame.contains(&b'\n') && !frame.contains(&b'\r'),
        "a line is one line"
    );
    frame.len()
}

fn ascii_line_len(frame: &[u8]) -> usize {
    // A plain message goes out as the caller wrote it; only frames are the wire's own text.
    assert!(frame.is_ascii() || !frame.starts_with(br#"{"__tywrap_frame__"#));
    line_len(frame)
}

fn tywrap_data(frame: &[u8]) -> usize {
    json(frame)["data"]
        .as_str()
        .filter(|_| frame.starts_with(br#"{"__tywrap_frame__"#))
        .map_or(frame.len(), str::len)
}

fn cep22_data(frame: &[u8]) -> usize {
    match json(frame)["params"]["cvm"]["frameType"].as_str() {
        None => frame.len(),
        Some("chunk") => json(frame)["params"]["cvm"]["data"].as_str().unwrap().len(),
        // The envelope is free.
        Some(_) => 0,
    }
}

fn loro_data(frame: &[u8]) -> usize {
    match frame[0] {
        0 => frame.len() - 1,
        1 => 0,
        _ => frame.len() - 13,
    }
}

fn event_text(kind: u32, tags: &[&[&str]], content: &str) -> String {
    let hex = "f".repeat(64);
    let event = serde_json::json!({
        "id": hex, "pubkey": hex, "created_at": 1_700_000_000u32, "kind": kind, "tags": tags, "content": content,
        "sig": hex.repeat(2),
    });
    serde_json::to_string(&event).unwrap()
}

fn inner_event(frame: &[u8]) -> String {
    let hex = "e".repeat(64);
    let tags: [&[&str]; 5] = [
        &["p", &hex],
        &["e", &hex],
        &["support_encryption"],
        &["support_encryption_ephemeral"],
        &["support_oversized_transfer"],
    ];
    event_text(25910, &tags, std::str::from_utf8(frame).unwrap())
}

fn event_len(frame: &[u8]) -> usize {
    inner_event(frame).len()
}

/// NIP-44: padded as its specification says, with 1 + 32 + 2 + 32 bytes around it, in base64.
fn gift_wrap_len(frame: &[u8]) -> usize {
    let text = inner_event(frame).len();
    assert!(text <= 65_535, "NIP-44 takes no longer text");
    let padded = if text <= 32 {
        32
    } else {
        let next_power = 1usize << ((text - 1).ilog2() + 1);
        let chunk = if next_power <= 256 {
            32
        } else {
            next_power / 8
        };
        chunk * ((text - 1) / chunk + 1)
    };
    let sealed = STANDARD.encode(vec![0; 1 + 32 + 2 + padded + 32]);
    event_text(21059, &[&["p", &"e".repeat(64)]], &sealed).len()
}

// Messages by chance.

fn random_json(random: &mut Random, length: u64) -> Vec<u8> {
    let kinds: [&[char]; 4] = [
        &['a', 'b', 'z', ' ', '/', '0', '{', '~'],
        &['日', '本', '語', 'é', '😀', '🏴', '\u{2028}', '\u{7f}'],
        &['"', '\\', '\n', '\u{0}', '\u{1f}', '\t', '\r', 'u'],
        &['a', '"', '日', '😀', '\\', 'b', 'c', '\u{8}'],
    ];
    let kind = kinds[random.below(4) as usize];
    let text: String = (0..length)
        .map(|_| kind[random.below(8) as usize])
        .collect();
    let text = serde_json::to_string(&text).unwrap();
    // White space that is legal in JSON, and no line can carry.
    let gap = if random.one_in(8) { "\r\n" } else { "" };
    format!(
        r#"{{"jsonrpc":"2.0",{gap}"id":{},"method":"m","params":[{text}]}}"#,
        random.below(1000)
    )
    .into_bytes()
}

fn random_message(setup: &Setup, random: &mut Random) -> Vec<u8> {
    let length = [
        0,
        1,
        random.below(20),
        random.below(300),
        random.below(3000),
    ][random.below(5) as usize];
    if setup.binary {
        return (0..length).map(|_| random.next() as u8).collect();
    }
    random_json(random, length)
}

/// The smallest cap that the wire says it needs for this message, or the message in one frame.
fn smallest_cap(setup: &Setup, message: &[u8], key: Option<&Key>) -> usize {
    let mut max = 1;
    loop {
        let options = PlanOptions {
            key,
            may_cut: true,
            peer: &setup.peer,
            cap: &(setup.cap)(max),
        };
        match setup.wire.plan(message, &options) {
            Err(SendError::CapTooSmall { needed, cap }) => {
                assert!(needed > cap, "{needed} is no more than {cap}");
                max = needed;
            }
            Err(SendError::FrameTooLarge { size, .. }) => return size,
            _ => return max,
        }
    }
}

fn random_cap(setup: &Setup, random: &mut Random, message: &[u8], key: Option<&Key>) -> Cap {
    let smallest = smallest_cap(setup, message, key);
    if !setup.pieces {
        return (setup.cap)(smallest);
    }
    let more = [
        0,
        0,
        1,
        random.below(16),
        random.below(500),
        random.below(5000),
    ][random.below(6) as usize];
    (setup.cap)(smallest + more as usize)
}

fn link(setup: &Setup, cap: Cap, seed: u64) -> Link {
    let mut seed_bytes = [0; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let mut config = Config::new(setup.rules.clone());
    config.limits.transfers = 64;
    let mut link = Link::new(
        setup.wire.clone(),
        setup.wire.clone(),
        config,
        Budget::unlimited(),
        seed_bytes,
    );
    link.set_cap(cap);
    link.set_peer(setup.peer.clone());
    link
}

/// Runs a property for every wire and so many seeds; says which seed it was that failed.
fn for_seeds(usual: u64, property: impl Fn(&Setup, u64) + std::panic::RefUnwindSafe) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a number"))
    };
    let seeds = match number("BREAKBULK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BREAKBULK_SEEDS").unwrap_or(usual),
    };
    for setup in setups() {
        for seed in seeds.clone() {
            let run = std::panic::AssertUnwindSafe(|| property(&setup, seed));
            if let Err(panic) = std::panic::catch_unwind(run) {
                eprintln!(
                    "failed: wire {}, replay with BREAKBULK_SEED={seed}",
                    setup.name
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn frames_fit_the_cap_and_give_back_the_message() {
    for_seeds(150, |setup, seed| {
        let mut random = Random::from_number(seed);
        let message = random_message(setup, &mut random);
        let key = (setup.key)(seed % 1000);
        let cap = random_cap(setup, &mut random, &message, key.as_ref());
        let mut pair = Pair::new(link(setup, cap, seed), link(setup, cap, !seed));
        let mut outgoing = Outgoing::new(message.clone());
        outgoing.key = key;
        pair.left.link.send(pair.clock.now(), outgoing).unwrap();
        pair.run();

        for (_, frame) in &pair.right.sent {
            assert!(
                (setup.weigh)(frame.bytes()) <= cap.max,
                "answer {frame:?} is over {cap:?}"
            );
        }
        if let Some(Event::SendFailed { error, bytes, .. }) = pair
            .left
            .events
            .iter()
            .find(|event| matches!(event, Event::SendFailed { .. }))
        {
            let excused = match error {
                SendError::TooManyPieces { .. } => true,
                SendError::RawNewline => !setup.pieces,
                _ => false,
            };
            assert!(excused, "{error}");
            assert!(
                *bytes == message && pair.left.sent.is_empty(),
                "nothing is written, and the message is back"
            );
            return;
        }
        let frames: Vec<Vec<u8>> = pair
            .left
            .sent
            .iter()
            .map(|(_, frame)| frame.bytes().to_vec())
            .collect();
        for frame in &frames {
            let weight = (setup.weigh)(frame);
            assert!(
                weight <= cap.max,
                "{weight} of {}: {}",
                cap.max,
                String::from_utf8_lossy(frame)
            );
        }
        assert!(
            (setup.join)(&frames) == message,
            "the oracle read something else"
        );
        assert!(
            pair.right.messages() == [message.clone()],
            "the link read something else: {:?}",
            pair.right.received.last()
        );
        assert!(matches!(pair.left.events.last(), Some(Event::Sent { .. })));
        assert_eq!(
            (
                pair.right.link.open_transfers(),
                pair.right.link.pending_bytes()
            ),
            (0, 0)
        );
        pair.right.events.clear();
        assert_eq!(
            pair.right.link.memory(),
            0,
            "a dropped message is charged no more"
        );
    });
}

#[test]
fn a_cap_is_named_too_small_exactly_where_it_is() {
    for_seeds(40, |setup, seed| {
        let mut random = Random::from_number(seed);
        let message = random_message(setup, &mut random);
        let key = (setup.key)(1);
        let smallest = smallest_cap(setup, &message, key.as_ref());
        let plan = |max| {
            let cap = (setup.cap)(max);
            setup.wire.plan(
                &message,
                &PlanOptions {
                    key: key.as_ref(),
                    may_cut: true,
                    peer: &setup.peer,
                    cap: &cap,
                },
            )
        };
        assert!(matches!(
            plan(smallest),
            Ok(_) | Err(SendError::TooManyPieces { .. } | SendError::RawNewline)
        ));
        if smallest > 1 {
            let below = plan(smallest - 1);
            // A message shorter than an envelope may still fit as it is.
            let refused = matches!(
                below,
                Ok(Plan::Whole)
                    | Err(SendError::CapTooSmall { .. } | SendError::FrameTooLarge { .. })
            );
            assert!(refused, "{below:?}");
        }
    });
}

#[test]
fn over_a_bad_network_a_message_arrives_whole_or_is_accounted_for() {
    for_seeds(60, |setup, seed| {
        let mut random = Random::from_number(seed);
        let weather = Weather::random(&mut random);
        let messages: Vec<(Lane, Vec<u8>)> = (0..random.below(12) + 1)
            .map(|_| {
                (
                    Lane(random.below(3) as u32),
                    random_message(setup, &mut random),
                )
            })
            .collect();
        let longest = messages
            .iter()
            .max_by_key(|(_, message)| message.len())
            .unwrap();
        let key = (setup.key)(999_999);
        let mut cap = random_cap(setup, &mut random, &longest.1, key.as_ref());
        // Not every message needs the same.
        cap.max += 64 + random.below(600) as usize;
        cap.cut_above = None;
        let mut pair = Pair::new(link(setup, cap, seed), link(setup, cap, !seed));
        pair.weather(weather, seed);
        for (number, (lane, bytes)) in messages.iter().enumerate() {
            let mut outgoing = Outgoing::new(bytes.clone())
                .in_lane(*lane)
                .tagged(number as u64);
            outgoing.key = (setup.key)(number as u64);
            pair.left.link.send(pair.clock.now(), outgoing).unwrap();
        }
        pair.run_out();

        let arrived = pair.right.messages();
        for message in &arrived {
            assert!(
                messages.iter().any(|(_, sent)| sent == message),
                "something arrived that nobody sent"
            );
        }
        // Exactly one end for each message that was taken.
        let mut ends = BTreeMap::<u64, u32>::new();
        for event in &mut pair.left.events {
            if let Event::Sent { tag, .. } | Event::SendFailed { tag, .. } = event {
                *ends.entry(*tag).or_default() += 1;
            }
        }
        assert!(ends.values().all(|&times| times == 1), "{ends:?}");
        let failed: Vec<u64> = pair.left.events.iter().filter_map(send_failed).collect();
        let closed = pair.left.link.closed().is_some() || pair.right.link.closed().is_some();
        // What failed to be planned holds its lane until the caller decides.
        assert!(
            closed || ends.len() == messages.len() || !failed.is_empty(),
            "{ends:?} of {}",
            messages.len()
        );

        let lost = pair.left.out.lost() + pair.right.out.lost() > 0;
        let fault = |event: &Event| matches!(event, Event::Fault(_) | Event::TransferFailed(_));
        let told = pair.right.events.iter().any(fault) || pair.right.link.open_transfers() > 0;
        for (number, (_, message)) in messages.iter().enumerate() {
            let sent = ends.contains_key(&(number as u64)) && !failed.contains(&(number as u64));
            let there = arrived.contains(&Bytes::copy_from_slice(message));
            assert!(
                !sent || there || lost || closed || told,
                "message {number} is lost silently, {weather:?}"
            );
        }
        if weather.is_reliable() {
            assert!(
                !closed && !told,
                "{:?} {:?}",
                pair.right.events.iter().find(|event| fault(event)),
                pair.right.link.closed()
            );
            let ok: Vec<usize> = (0..messages.len())
                .filter(|&n| ends.contains_key(&(n as u64)) && !failed.contains(&(n as u64)))
                .collect();
            assert_eq!(arrived.len(), ok.len(), "each arrives once");
            for lane in (0..3).map(Lane) {
                let in_lane: Vec<&[u8]> = ok
                    .iter()
                    .filter(|&&n| messages[n].0 == lane)
                    .map(|&n| messages[n].1.as_slice())
                    .collect();
                assert!(
                    is_subsequence(&in_lane, &arrived),
                    "lane {lane:?} lost its order"
                );
            }
        }
        pair.right.events.clear();
        if pair.right.link.open_transfers() == 0 {
            assert_eq!(
                (pair.right.link.memory(), pair.right.link.pending_bytes()),
                (0, 0)
            );
        }
    });
}

fn send_failed(event: &Event) -> Option<u64> {
    if let Event::SendFailed { tag, .. } = event {
        Some(*tag)
    } else {
        None
    }
}

fn is_subsequence(part: &[&[u8]], of: &[Bytes]) -> bool {
    let mut rest = of.iter();
    part.iter().all(|wanted| rest.any(|found| found == wanted))
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    for_seeds(5, |setup, seed| {
        let frames = |_| -> Vec<Frame> {
            let mut random = Random::from_number(seed);
            let messages: Vec<Vec<u8>> =
                (0..4).map(|_| random_message(setup, &mut random)).collect();
            let cap = random_cap(setup, &mut random, &messages[0], (setup.key)(0).as_ref());
            let mut pair = Pair::new(link(setup, cap, seed), link(setup, cap, seed));
            for (number, message) in messages.into_iter().enumerate() {
                let mut outgoing = Outgoing::new(message).in_lane(Lane(number as u32));
                outgoing.key = (setup.key)(number as u64);
                pair.left.link.send(pair.clock.now(), outgoing).unwrap();
            }
            pair.run_out();
            pair.left.sent.into_iter().map(|(_, frame)| frame).collect()
        };
        assert_eq!(frames(1), frames(2));
    });
}

#[test]
fn what_a_wire_plans_it_also_cuts() {
    // The number of pieces is announced before the first one is made: both must agree to the end.
    for_seeds(60, |setup, seed| {
        let mut random = Random::from_number(seed);
        let message = random_message(setup, &mut random);
        let key = (setup.key)(1);
        let cap = random_cap(setup, &mut random, &message, key.as_ref());
        let options = PlanOptions {
            key: key.as_ref(),
            may_cut: true,
            peer: &setup.peer,
            cap: &cap,
        };
        let Ok(Plan::Pieces(pieces)) = setup.wire.plan(&message, &options) else {
            return;
        };
        let (mut at, mut count) = (0, 0);
        while at < message.len() {
            let end = setup.wire.cut(&pieces, &message, at);
            assert!(end > at, "a piece of nothing");
            if cap.count == Count::Piece {
                assert!(end - at <= cap.max);
            }
            (at, count) = (end, count + 1);
        }
        assert_eq!(count.max(1), pieces.count);
    });
}
