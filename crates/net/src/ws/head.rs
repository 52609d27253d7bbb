//! Reads the head of an HTTP request or answer, up to a size limit.

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;

/// The longest head, in bytes: enough for a token and a few cookies.
pub(crate) const HEAD_MAX: usize = 16 << 10;

/// Why a head could not be read.
#[derive(Debug)]
pub(crate) enum HeadError {
    /// The stream failed, or ended before the head did.
    Io(std::io::Error),
    /// It has more than [`HEAD_MAX`] bytes, or too many fields.
    TooLong,
    /// It is not HTTP, or not what was asked for.
    Malformed(String),
    /// A request of another method than GET: a client of plain HTTP.
    NotGet,
}

/// Reads a head, and returns it with the bytes that came after it.
pub(crate) async fn read_head<H: TryParse>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(H, Vec<u8>), HeadError> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        let before = bytes.len();
        let room = (HEAD_MAX + 1 - before) as u64;
        let read = (&mut *stream).take(room).read_buf(&mut bytes).await;
        if read.map_err(HeadError::Io)? == 0 {
            return Err(HeadError::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        // A client that speaks TLS, for example, waits for an answer and never sends an empty line.
        if !bytes[0].is_ascii_uppercase() {
            return Err(HeadError::Malformed("this is not HTTP".to_owned()));
        }
        // Parsed once it is complete, not after every read.
        let from = before.saturating_sub(3);
        let end = memchr::memmem::find(&bytes[from..], b"\r\n\r\n").map(|at| from + at + 4);
        if let Some(end) = end {
            return match H::try_parse(&bytes[..end]) {
                Ok(Some((_, head))) => Ok((head, bytes.split_off(end))),
                Ok(None) => Err(HeadError::Malformed("no HTTP head".to_owned())),
                Err(Error::Capacity(_)) => Err(HeadError::TooLong),
                Err(Error::Protocol(ProtocolError::WrongHttpMethod)) => Err(HeadError::NotGet),
                Err(error) => Err(HeadError::Malformed(error.to_string())),
            };
        }
        if bytes.len() > HEAD_MAX {
            return Err(HeadError::TooLong);
        }
    }
}
