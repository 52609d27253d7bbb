//! Any message under any cap, on any wire: either an error that says what to change, or frames within the
//! cap that give the message back.

use std::sync::Arc;
use std::time::Instant;

use breakbulk_link::{
    Budget, Cap, Carries, Config, Count, Event, Frame, FrameKind, Inbound, Key, Link, Outgoing,
    PeerLimits, PeerSupport, Received, Rules, SendError, Transmit, Wire,
};
use breakbulk_wire::{Ahp, Cep22, Layout, Loro, Stream, Style, Tywrap, nostr_cap};

use crate::Input;
use crate::links::json_rpc;

/// Long enough for many pieces under any of the caps.
const LONGEST: usize = 4000;

/// One way to send a message.
struct Case {
    wire: Arc<dyn Wire>,
    rules: Rules,
    cap: Cap,
    peer: PeerSupport,
    key: Option<Key>,
    message: Vec<u8>,
}

/// Chooses a wire, a cap and a message.
pub fn check(mut input: Input<'_>) {
    let case = choose(&mut input);
    if let Err(SendError::CapTooSmall { cap, needed }) = send(&case, case.cap) {
        assert!(needed > cap);
        // The advice must work: a person who follows it does not get the same error again.
        if case.cap.cut_above.is_none() {
            let advised = Cap {
                max: needed,
                ..case.cap
            };
            let again = send(&case, advised);
            assert!(
                !matches!(again, Err(SendError::CapTooSmall { .. })),
                "{:?}: {needed} bytes instead of {cap} gave {again:?}",
                case.wire,
            );
        }
    }
}

fn choose(input: &mut Input<'_>) -> Case {
    let format = input.below(4);
    let max = usize::from(input.short()) % 2048;
    let (count, lines) = (input.below(4), input.flag());
    let mut cap = match count {
        0 => Cap::piece(max),
        1 => nostr_cap(max + 1500, max + 1200, false),
        2 => nostr_cap(max + 2500, max + 2500, true),
        _ => Cap::frame(max),
    };
    if count == 2 {
        cap.cut_above = None;
    }
    if lines {
        cap = cap.lines();
    }
    let style = input.byte();
    let layout = input.pick(&[Layout::ByPeer, Layout::Unasked]);
    let key = input.slice();
    let named = (!key.is_empty()).then(|| Key::new(key));
    let (wire, rules, key): (Arc<dyn Wire>, _, _) = match format {
        0 => (Arc::new(Ahp), Ahp::rules(), named),
        1 => {
            let wire = Tywrap {
                style: [Style::Compact, Style::Ascii][usize::from(style & 1)],
                always: style & 2 != 0,
                ..Tywrap::default()
            };
            let key = Stream::Request.key(i64::from(style) - 128);
            (Arc::new(wire), Tywrap::rules(), Some(key))
        }
        2 => (
            Arc::new(Cep22 {
                layout,
                ..Cep22::default()
            }),
            Cep22::server_rules(),
            named,
        ),
        _ => (Arc::new(Loro), Loro::rules(), named),
    };
    // A relay that wraps frames carries text; binary frames have no escapes to count.
    if wire.carries() == Carries::Binary && cap.escapes() {
        cap = Cap::frame(max);
    }
    // A CEP-22 sender that knows nothing of its peer waits for `accept` first.
    let peer = if format == 2 && style & 1 == 1 {
        PeerSupport::Unknown
    } else {
        PeerSupport::Yes(PeerLimits::NONE)
    };
    let repeat = input.below(64) + 1;
    let text = input.rest();
    let len = (text.len() * repeat).min(LONGEST);
    let text: Vec<u8> = text.iter().copied().cycle().take(len).collect();
    let message = if format == 3 {
        text
    } else {
        json_rpc(&String::from_utf8_lossy(&text))
    };
    Case {
        wire,
        rules,
        cap,
        peer,
        key,
        message,
    }
}

/// Sends the message from one link to another.
fn send(case: &Case, cap: Cap) -> Result<(), SendError> {
    let link = || {
        let config = Config::new(case.rules.clone());
        let budget = Budget::unlimited();
        Link::new(
            case.wire.clone(),
            case.wire.clone(),
            config,
            budget,
            [7; 32],
        )
    };
    let (mut near, mut far, now) = (link(), link(), Instant::now());
    near.set_cap(cap);
    near.set_peer(case.peer.clone());
    let mut outgoing = Outgoing::new(case.message.clone());
    outgoing.key = case.key.clone();
    near.send(now, outgoing).expect("an empty queue");

    let (mut out, mut frames) = (Vec::new(), 0);
    while let Some(transmit) = near.poll_transmit(now, &mut out) {
        let frame = frame(&transmit, std::mem::take(&mut out));
        check_size(case, &cap, &transmit, &frame);
        frames += 1;
        let received = far.handle_frame(now, frame);
        assert!(
            matches!(received, Received::Pending | Received::Done(_)),
            "{:?}: frame {frames} gave {received:?}",
            case.wire
        );
        // The only frame that comes back is an `accept`.
        while let Some(transmit) = far.poll_transmit(now, &mut out) {
            assert_eq!(transmit.kind, FrameKind::Accept);
            near.handle_frame(now, self::frame(&transmit, std::mem::take(&mut out)));
        }
    }
    loop {
        match near.poll_event().expect("an outcome") {
            Event::Sent { .. } => break,
            Event::SendFailed { error, bytes, .. } => {
                assert_eq!(bytes, case.message, "the message comes back");
                assert_eq!(frames, 0, "nothing of it went out");
                drop(error.to_string());
                return Err(error);
            }
            _ => {}
        }
    }
    let mut messages = std::iter::from_fn(|| far.poll_event()).filter_map(|event| match event {
        Event::Message(message) => Some(message.bytes),
        _ => None,
    });
    assert_eq!(messages.next().as_deref(), Some(&case.message[..]));
    assert!(messages.next().is_none());
    Ok(())
}

/// A frame as a transport makes it.
pub(crate) fn frame(transmit: &Transmit, bytes: Vec<u8>) -> Frame {
    match transmit.carries {
        Carries::Text => Frame::Text(bytes.into()),
        Carries::Binary => Frame::Binary(bytes.into()),
    }
}

/// Counts a frame as the transport would, by code of its own.
fn check_size(case: &Case, cap: &Cap, transmit: &Transmit, frame: &Frame) {
    let bytes = frame.bytes();
    let size = match cap.count {
        Count::Frame => bytes.len(),
        Count::Wrapped(_) => {
            let text = std::str::from_utf8(bytes).expect("text");
            let escaped = serde_json::to_string(text).expect("text").len() - 2;
            cap.counted(escaped)
        }
        // The envelope does not count. Formats without such a cap count all of it.
        Count::Piece => match case.wire.read(frame) {
            Ok(Inbound::Piece(piece)) if case.wire.name() != "ahp" => {
                let mut data = Vec::new();
                case.wire.decode(&piece, &mut data).expect("our own piece");
                data.len()
            }
            _ if case.wire.name() == "ahp" => bytes.len(),
            _ => 0,
        },
    };
    assert!(
        size <= cap.max,
        "{:?}: {:?} of {size} bytes under {cap:?}",
        case.wire,
        transmit.kind
    );
    if cap.lines && transmit.carries == Carries::Text {
        assert!(!bytes.contains(&b'\n') && !bytes.contains(&b'\r'));
    }
}
