//! Measures bare TCP: the least time that the same bytes take.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The size of the read buffer, which is used again and again.
const READ: usize = 256 << 10;

/// Both ends of a connection over loopback: first the caller's, then the callee's.
pub(crate) async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (caller, callee) = tokio::try_join!(TcpStream::connect(address), listener.accept())?;
    caller.set_nodelay(true)?;
    callee.0.set_nodelay(true)?;
    Ok((caller, callee.0))
}

/// Sends bytes of a request's size, which the callee discards, and gets bytes of an answer's size. The
/// callee's task ends with the connection.
pub(crate) struct Exchange {
    caller: TcpStream,
    there: Vec<u8>,
    back: Vec<u8>,
}

impl Exchange {
    pub(crate) async fn new(there: usize, back: usize) -> io::Result<Self> {
        let (caller, callee) = pair().await?;
        tokio::spawn(answer(callee, there, vec![0; back]));
        Ok(Self {
            caller,
            there: vec![0x5a; there],
            back: vec![0; back],
        })
    }

    /// How long this many exchanges take, one after the other.
    pub(crate) async fn round(&mut self, count: u32) -> io::Result<Duration> {
        let start = Instant::now();
        for _ in 0..count {
            self.caller.write_all(&self.there).await?;
            self.caller.read_exact(&mut self.back).await?;
        }
        Ok(start.elapsed())
    }
}

async fn answer(mut callee: TcpStream, size: usize, back: Vec<u8>) -> io::Result<()> {
    let mut read = vec![0; READ];
    loop {
        let mut missing = size;
        while missing > 0 {
            let most = missing.min(READ);
            match callee.read(&mut read[..most]).await? {
                0 => return Ok(()),
                count => missing -= count,
            }
        }
        callee.write_all(&back).await?;
    }
}
