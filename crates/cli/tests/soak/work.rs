//! Requests and answers, and the targets within the test that answer.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use breakbulk::link::Random;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const SMALLEST: u64 = 100;
const LARGEST: u64 = 8_000_000;

/// What a request asks for.
#[derive(Serialize, Deserialize)]
pub(crate) struct Work {
    /// No other request has this number.
    pub(crate) number: u64,
    /// How long the text of the answer should be.
    pub(crate) size: usize,
    pub(crate) text: String,
}

/// What the answer says.
#[derive(Serialize, Deserialize)]
pub(crate) struct Done {
    number: u64,
    /// The digest of the text that arrived.
    digest: String,
    text: String,
}

impl Work {
    /// A request whose text, or whose answer, is large.
    pub(crate) fn random(number: u64, random: &mut Random) -> Self {
        let (small, large) = (between(random, SMALLEST, 2_000), size(random));
        let (up, down) = match random.one_in(2) {
            true => (small, large),
            false => (large, small),
        };
        Self {
            number,
            size: down,
            text: text(number, up),
        }
    }

    /// What is wrong with an answer; nothing, if it is the right one.
    pub(crate) fn check(&self, done: &Done) -> Result<(), String> {
        let expected = text(self.number, self.size);
        if done.number != self.number {
            return Err(format!("it is the answer to {}", done.number));
        }
        if done.digest != digest(&self.text) {
            return Err("another text arrived at the target".to_owned());
        }
        if done.text != expected {
            let (got, wanted) = (done.text.len(), expected.len());
            return Err(format!(
                "another text arrived here: {got} of {wanted} bytes"
            ));
        }
        Ok(())
    }

    /// The bytes of both texts.
    pub(crate) fn bytes(&self) -> usize {
        self.size + self.text.len()
    }
}

/// A random size: mostly small, one of fifty has megabytes.
fn size(random: &mut Random) -> usize {
    let (least, most) = match random.below(50) {
        0 => (1_000_000, LARGEST),
        1..10 => (50_000, 1_000_000),
        _ => (SMALLEST, 50_000),
    };
    between(random, least, most)
}

/// Each order of magnitude is as likely as the others.
fn between(random: &mut Random, least: u64, most: u64) -> usize {
    let part = random.below(1 << 20) as f64 / f64::from(1 << 20);
    (least as f64 * (most as f64 / least as f64).powf(part)) as usize
}

/// A text in which no two blocks are alike, so that pieces in the wrong order are found.
fn text(number: u64, size: usize) -> String {
    let mut text = String::with_capacity(size + 4096);
    for block in 0..size.div_ceil(4096) {
        text.push_str(&digest(&format!("{number}:{block}")).repeat(64));
    }
    text.truncate(size);
    text
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let nibbles = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles
        .map(|nibble| char::from(b"0123456789abcdef"[usize::from(nibble)]))
        .collect()
}

/// A JSON-RPC request as a line.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    params: Work,
}

/// Where targets write down which requests they worked on.
#[derive(Clone)]
pub(crate) struct Diary(Arc<File>);

impl Diary {
    pub(crate) fn new(path: &Path) -> Self {
        let mut options = File::options();
        let file = options.create(true).truncate(false).append(true).open(path);
        Self(Arc::new(file.unwrap()))
    }

    /// In one write: other processes write to the same file.
    fn note(&self, number: u64) {
        (&*self.0)
            .write_all(format!("{number}\n").as_bytes())
            .unwrap();
    }
}

/// A target at this address that answers line by line, to any number of clients.
pub(crate) async fn target(address: SocketAddr, diary: Diary) {
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let diary = diary.clone();
            tokio::spawn(async move {
                // The gateway may end it at any time.
                let _ = serve(stream, diary).await;
            });
        }
    });
}

async fn serve(mut stream: TcpStream, diary: Diary) -> std::io::Result<()> {
    let (source, mut sink) = stream.split();
    let mut lines = BufReader::new(source).lines();
    while let Some(line) = lines.next_line().await? {
        let line: Line<'_> = serde_json::from_str(&line)?;
        diary.note(line.params.number);
        let done = Done {
            number: line.params.number,
            digest: digest(&line.params.text),
            text: text(line.params.number, line.params.size),
        };
        let done = serde_json::to_string(&done)?;
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{done}}}"#, line.id);
        sink.write_all(answer.as_bytes()).await?;
        sink.write_all(b"\n").await?;
    }
    Ok(())
}
