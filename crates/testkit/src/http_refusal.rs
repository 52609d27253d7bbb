//! A path of HTTP requests that caps the bodies of requests and responses, and refuses larger ones in a way
//! of the test's choice.
//!
//! One request for each connection, with a `Content-Length`: what a probe sends.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The longest head.
const HEAD_MAX: usize = 64 << 10;

/// What happens to a body over its cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpRefusal {
    /// The request is answered with this status; its body is read first, or not.
    Status(u16),
    /// The same, in the middle of the body, which is not read to its end.
    EarlyStatus(u16),
    /// The connection ends without an answer.
    End,
    /// A reset.
    Reset,
    /// Nothing is said any more.
    Silence,
    /// What is over the cap is cut off, and the length corrected.
    Truncate,
}

/// The caps of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpCaps {
    /// The largest body of a request.
    pub request: usize,
    /// The largest body of a response.
    pub response: usize,
    /// What happens to a larger one.
    pub refusal: HttpRefusal,
}

/// A running proxy; dropping it ends it.
#[derive(Debug)]
pub struct HttpPath {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl HttpPath {
    /// Starts a proxy to `target`, on a free port of 127.0.0.1.
    pub async fn start(target: SocketAddr, caps: HttpCaps) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut running = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while running.try_join_next().is_some() {}
                running.spawn(async move { drop(serve(client, target, caps).await) });
            }
        });
        Ok(Self { address, task })
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpPath {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut client: TcpStream, target: SocketAddr, caps: HttpCaps) -> io::Result<()> {
    let (head, length, begun) = head(&mut client).await?;
    let Some((head, length)) = judge(head, length, caps.request, caps.refusal) else {
        let seen = begun.len();
        return refuse(client, length - seen.min(length), caps.refusal).await;
    };
    let mut server = TcpStream::connect(target).await?;
    server.write_all(head.as_bytes()).await?;
    pass(&mut client, &mut server, &begun, length).await?;
    let (head, length, begun) = self::head(&mut server).await?;
    let Some((head, length)) = judge(head, length, caps.response, caps.refusal) else {
        return refuse(client, 0, caps.refusal).await;
    };
    client.write_all(head.as_bytes()).await?;
    pass(&mut server, &mut client, &begun, length).await?;
    client.shutdown().await?;
    drain(&mut client, usize::MAX).await
}

/// A head, the length of the body that it announces, and the beginning of the body.
async fn head(stream: &mut TcpStream) -> io::Result<(String, usize, Vec<u8>)> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            let head = String::from_utf8(bytes).map_err(|_| wrong())?;
            let lines = head.lines().map(str::to_ascii_lowercase);
            let lengths = lines.filter_map(|line| {
                let value = line.strip_prefix("content-length:")?;
                value.trim().parse().ok()
            });
            let length = { lengths }.next().unwrap_or(0);
            return Ok((head, length, body));
        }
        if bytes.len() > HEAD_MAX || stream.read_buf(&mut bytes).await? == 0 {
            return Err(wrong());
        }
    }
}

/// The head to forward and the length of the body; `None` if the body is refused.
fn judge(head: String, length: usize, cap: usize, refusal: HttpRefusal) -> Option<(String, usize)> {
    match refusal {
        _ if length <= cap => Some((head, length)),
        HttpRefusal::Truncate => {
            let head = head.replace(
                &format!("Content-Length: {length}\r\n"),
                &format!("Content-Length: {cap}\r\n"),
            );
            Some((head, cap))
        }
        _ => None,
    }
}

/// Forwards `length` bytes of a body, of which some have come.
async fn pass(
    from: &mut TcpStream,
    to: &mut TcpStream,
    begun: &[u8],
    length: usize,
) -> io::Result<()> {
    let begun = &begun[..begun.len().min(length)];
    to.write_all(begun).await?;
    let mut rest = from.take((length - begun.len()) as u64);
    tokio::io::copy(&mut rest, to).await?;
    Ok(())
}

/// Refuses the client's request; `left` bytes of its body have not come yet.
async fn refuse(mut client: TcpStream, left: usize, refusal: HttpRefusal) -> io::Result<()> {
    match refusal {
        HttpRefusal::Status(code) | HttpRefusal::EarlyStatus(code) => {
            if matches!(refusal, HttpRefusal::Status(_)) {
                drain(&mut client, left).await?;
            }
            let answer =
                format!("HTTP/1.1 {code} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            client.write_all(answer.as_bytes()).await?;
        }
        HttpRefusal::Reset => {
            client.set_zero_linger()?;
            return Ok(());
        }
        HttpRefusal::Silence => std::future::pending().await,
        HttpRefusal::End | HttpRefusal::Truncate => drain(&mut client, left).await?,
    }
    client.shutdown().await?;
    drain(&mut client, usize::MAX).await
}

/// Reads and forgets at most so many bytes.
async fn drain(stream: &mut TcpStream, most: usize) -> io::Result<()> {
    let mut rest = stream.take(most as u64);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Ok(())
}
