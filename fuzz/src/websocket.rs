//! Checks the WebSocket frame reader: frames of any kind, in reads of any lengths.

use breakbulk_link::{Closed, Frame};
use breakbulk_net::ws::fuzzing::{ReadEvent, Reading, read};
use bytes::Bytes;

use crate::Input;
use crate::streams::Cuts;

/// Bytes of a message.
const LIMIT: usize = 20_000;

/// What the reader holds in addition to a message: bytes read ahead, and a control frame.
const BESIDE: usize = 20 << 10;

/// The first bits are the mode, the next bytes give the lengths of reads, repeated over and over.
pub fn check(mut input: Input<'_>) {
    let mode = input.byte();
    let (server, made) = (mode & 1 == 1, mode & 2 == 2);
    let cuts = Cuts::new(&mut input);
    let ahead = usize::from(input.byte());
    let (stream, model) = if made {
        let (stream, model) = Model::write(server, &mut input);
        (stream, Some(model))
    } else {
        (input.rest().to_vec(), None)
    };
    let whole = read(server, LIMIT, &[], &[&stream]);
    let (rest, tail) = stream.split_at(ahead.min(stream.len()));
    let reads = cuts.of(tail);
    let in_parts = read(server, LIMIT, rest, &reads);
    assert_eq!(in_parts.events, whole.events);
    assert_eq!(in_parts.broken, whole.broken);
    for reading in [&whole, &in_parts] {
        check_reading(reading);
    }
    if let Some(model) = model {
        assert_eq!(whole.events, model.events);
        assert_eq!(whole.broken.map(|closed| closed.code), model.broken);
    }
}

fn check_reading(reading: &Reading) {
    assert!(
        reading.held <= LIMIT + BESIDE,
        "{} bytes are held",
        reading.held
    );
    for event in &reading.events {
        match event {
            ReadEvent::Message(frame) => {
                assert!(frame.bytes().len() <= LIMIT);
                if let Frame::Text(text) = frame {
                    assert!(std::str::from_utf8(text).is_ok());
                }
            }
            ReadEvent::Ping(payload) => assert!(payload.len() <= 125),
            ReadEvent::Pong => {}
            ReadEvent::Close(closed) => assert!(closed.reason.len() <= 123),
        }
    }
    if let Some(closed) = &reading.broken {
        assert!(matches!(closed.code, 1002 | 1007 | 1009));
        assert!(!closed.reason.is_empty());
    }
}

/// What a reader must make of a stream of frames, according to RFC 6455.
#[derive(Default)]
struct Model {
    events: Vec<ReadEvent>,
    broken: Option<u16>,
    /// The message under way: whether it is text, and its content so far.
    message: Option<(bool, Vec<u8>)>,
}

impl Model {
    /// Writes mostly valid frames, and what a reader must make of them.
    fn write(server: bool, input: &mut Input<'_>) -> (Vec<u8>, Self) {
        let (mut stream, mut model) = (Vec::new(), Self::default());
        while !input.is_empty() {
            let first = match input.byte() {
                odd @ 224.. => odd << 3 | input.byte() & 7,
                usual => {
                    [0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8a, 0x88][usize::from(usual) % 9]
                }
            };
            let shape = input.byte();
            let mut payload = input.slice().to_vec();
            if shape & 0x30 == 0x30 {
                // A long payload.
                payload = payload.repeat(1 + usize::from(shape & 0x0f) * 8);
            }
            let masked = server != (shape & 0xc0 == 0xc0);
            let key = [shape, first, !shape, 7];
            put(&mut stream, first, masked.then_some(key), &payload);
            model.hear(server, first, masked, payload);
            if model.is_over() {
                break;
            }
        }
        (stream, model)
    }

    fn is_over(&self) -> bool {
        self.broken.is_some() || matches!(self.events.last(), Some(ReadEvent::Close(_)))
    }

    fn hear(&mut self, server: bool, first: u8, masked: bool, payload: Vec<u8>) {
        let (last, kind) = (first & 0x80 != 0, first & 0x0f);
        if first & 0x70 != 0 || masked != server {
            self.broken = Some(1002);
            return;
        }
        let outcome = match kind {
            0..=2 => self.data(kind, last, &payload),
            8..=10 if !last || payload.len() > 125 => Err(1002),
            8 => close(&payload).map(Some),
            9 => Ok(Some(ReadEvent::Ping(payload.into()))),
            10 => Ok(Some(ReadEvent::Pong)),
            _ => Err(1002),
        };
        match outcome {
            Ok(events) => self.events.extend(events),
            Err(code) => self.broken = Some(code),
        }
    }

    fn data(&mut self, kind: u8, last: bool, payload: &[u8]) -> Result<Option<ReadEvent>, u16> {
        if (kind == 0) != self.message.is_some() {
            return Err(1002);
        }
        let (text, mut bytes) = self.message.take().unwrap_or((kind == 1, Vec::new()));
        bytes.extend_from_slice(payload);
        if bytes.len() > LIMIT {
            return Err(1009);
        }
        if !last {
            self.message = Some((text, bytes));
            return Ok(None);
        }
        if text && std::str::from_utf8(&bytes).is_err() {
            return Err(1007);
        }
        let bytes = Bytes::from(bytes);
        let frame = if text {
            Frame::Text(bytes)
        } else {
            Frame::Binary(bytes)
        };
        Ok(Some(ReadEvent::Message(frame)))
    }
}

fn close(payload: &[u8]) -> Result<ReadEvent, u16> {
    let (code, reason) = match payload {
        [] => (1005, &[][..]),
        [_] => return Err(1002),
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
    };
    let sendable = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
    if !payload.is_empty() && !sendable {
        return Err(1002);
    }
    let reason = std::str::from_utf8(reason).map_err(|_| 1007_u16)?;
    Ok(ReadEvent::Close(Closed {
        code,
        reason: reason.to_owned(),
    }))
}

/// Writes one frame.
fn put(stream: &mut Vec<u8>, first: u8, key: Option<[u8; 4]>, payload: &[u8]) {
    let mask_bit = if key.is_some() { 0x80 } else { 0 };
    stream.push(first);
    match payload.len() {
        short @ 0..126 => stream.push(mask_bit | short as u8),
        long @ 126..65_536 => {
            stream.push(mask_bit | 126);
            stream.extend((long as u16).to_be_bytes());
        }
        longest => {
            stream.push(mask_bit | 127);
            stream.extend((longest as u64).to_be_bytes());
        }
    }
    let key = key.inspect(|key| stream.extend(key)).unwrap_or_default();
    let masked = payload.iter().zip(key.iter().cycle());
    stream.extend(masked.map(|(byte, key)| byte ^ key));
}
