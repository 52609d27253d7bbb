//! The head of an HTTP request or answer, read up to a bound.

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;

/// No head is longer. A token and a few cookies fit.
pub(crate) const HEAD_MAX: usize = 16 << 10;

/// Why there is no head.
#[derive(Debug)]
pub(crate) enum NoHead {
    /// The stream failed, or ended before the head did.
    Io(std::io::Error),
    /// It goes on for more than [`HEAD_MAX`] bytes, or has too many fields.
    TooLong,
    /// It is not HTTP, or not what was asked for.
    Malformed(String),
}

/// Reads a head, and gives it with the bytes that came after it.
pub(crate) async fn read_head<H: TryParse>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(H, Vec<u8>), NoHead> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        let before = bytes.len();
        let room = (HEAD_MAX + 1 - before) as u64;
        let read = (&mut *stream).take(room).read_buf(&mut bytes).await;
        if read.map_err(NoHead::Io)? == 0 {
            return Err(NoHead::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        // TLS, say: it may wait for an answer and never send an empty line.
        if !bytes[0].is_ascii_uppercase() {
            return Err(NoHead::Malformed("this is not HTTP".to_owned()));
        }
        // Parsed once it is whole, and not with every byte of it.
        let from = before.saturating_sub(3);
        let end = memchr::memmem::find(&bytes[from..], b"\r\n\r\n").map(|at| from + at + 4);
        if let Some(end) = end {
            return match H::try_parse(&bytes[..end]) {
                Ok(Some((_, head))) => Ok((head, bytes.split_off(end))),
                Ok(None) => Err(NoHead::Malformed("no HTTP head".to_owned())),
                Err(Error::Capacity(_)) => Err(NoHead::TooLong),
                Err(error) => Err(NoHead::Malformed(error.to_string())),
            };
        }
        if bytes.len() > HEAD_MAX {
            return Err(NoHead::TooLong);
        }
    }
}
