//! WebSocket frames by hand.

use std::io::Read;
use std::net::TcpStream;

/// A masked text frame, with a mask of zeros.
pub(crate) fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend((text.len() as u64).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

/// A request of about this many bytes.
pub(crate) fn request(id: usize, size: usize) -> String {
    let fill = "x".repeat(size);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":"{fill}"}}"#)
}

/// The payload of the next frame.
pub(crate) fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
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
    match head[0] & 0x0f {
        1 => payload,
        _ => panic!(
            "not a message: {:02x} {}",
            head[0],
            String::from_utf8_lossy(&payload)
        ),
    }
}

/// Reads the rest of the answer to a handshake.
pub(crate) fn skip_head(stream: &mut TcpStream) {
    let mut last = [0; 4];
    while &last != b"\r\n\r\n" {
        last.rotate_left(1);
        stream.read_exact(&mut last[3..]).unwrap();
    }
}
