//! WebSocket frames by hand.

use std::io::Read;
use std::net::TcpStream;

/// The opcode of a ping. A server sends them where a test on a busy machine leaves it alone for long.
pub(crate) const PING: u8 = 9;

/// A masked text frame, with a mask of zeros.
pub(crate) fn frame(text: &str) -> Vec<u8> {
    with_opcode(1, text.as_bytes())
}

/// A masked frame of this kind, with a mask of zeros.
pub(crate) fn with_opcode(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode, 0x80 | 127];
    frame.extend((payload.len() as u64).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// A request of about this many bytes.
pub(crate) fn request(id: usize, size: usize) -> String {
    let fill = "x".repeat(size);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":"{fill}"}}"#)
}

/// The payload of the next frame but pings, a text.
pub(crate) fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    match read_frame_of(stream) {
        (1, payload) => payload,
        (PING, _) => read_frame(stream),
        (opcode, payload) => panic!(
            "not a message: {opcode:02x} {}",
            String::from_utf8_lossy(&payload)
        ),
    }
}

/// The kind of the next frame, and its payload.
pub(crate) fn read_frame_of(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    stream.read_exact(&mut head).unwrap();
    let length = match head[1] {
        126 => {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            u64::from(u16::from_be_bytes(length))
        }
        127 => {
            let mut length = [0; 8];
            stream.read_exact(&mut length).unwrap();
            u64::from_be_bytes(length)
        }
        short => u64::from(short),
    };
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).unwrap();
    (head[0] & 0x0f, payload)
}

/// Reads the rest of the answer to a handshake.
pub(crate) fn skip_head(stream: &mut TcpStream) {
    let mut last = [0; 4];
    while &last != b"\r\n\r\n" {
        last.rotate_left(1);
        stream.read_exact(&mut last[3..]).unwrap();
    }
}
