//! Asks the questions of a probe by HTTP POSTs: how large the body of a request and of a response may be.
//!
//! Each request has a connection of its own and is written without an HTTP library, in HTTP/1.1: what a path
//! does to a body that is too large (a status in the middle of it, a reset, the end) must be told apart
//! exactly.

use std::io;
use std::time::Duration;

use breakbulk_link::Frame;
use breakbulk_net::ws::{self, ByteStream, ConnectOptions, Ending};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep, sleep_until};

use super::course::{Content, Direction, Question};
use super::http_words::{PROBE_HEADER, head_end, read_response};
use super::outcome::{Outcome, Refusal};
use super::words::{self, Word};
use super::{Answer, Ask, ProbeError};

/// How long the first answer may take.
const HELLO: Duration = Duration::from_secs(10);

/// How often the other end is asked again when it is busy, and the first wait, which doubles.
const ATTEMPTS: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// How long to wait for the answer once the request cannot be sent to its end.
const REASON: Duration = Duration::from_secs(2);

/// The longest head of an answer.
const HEAD_MAX: usize = 64 << 10;

/// A path of HTTP requests.
pub(super) struct Posts {
    /// As `ws::dial` takes it.
    url: String,
    host: String,
    path: String,
    options: ConnectOptions,
    most: usize,
    /// Until then the other end answers nothing.
    pause: Instant,
    connections: u32,
}

/// What came back.
enum Came {
    /// A response with this status, and as much of its body as came.
    Response(u16, Vec<u8>, Option<Refusal>),
    /// No response.
    Nothing(Refusal),
}

impl Posts {
    pub(super) fn new(
        secure: bool,
        host: String,
        path: String,
        options: ConnectOptions,
        most: usize,
    ) -> Self {
        let scheme = if secure { "wss" } else { "ws" };
        Self {
            url: format!("{scheme}://{host}{path}"),
            host,
            path,
            options,
            most,
            pause: Instant::now(),
            connections: 0,
        }
    }

    /// Sends a body; returns what came back by the deadline.
    async fn post(
        &mut self,
        body: Frame,
        patience: Duration,
    ) -> Result<(Came, Duration), ProbeError> {
        sleep_until(self.pause).await;
        self.connections += 1;
        let stream = ws::dial(&self.url, &self.options).await?;
        let start = Instant::now();
        let (Frame::Text(body) | Frame::Binary(body)) = body;
        let bearer = match &self.options.bearer {
            Some(bearer) => format!("Authorization: {}\r\n", bearer.header()),
            None => String::new(),
        };
        let (path, host, length) = (&self.path, &self.host, body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\n{bearer}{PROBE_HEADER}: 1\r\n\
             Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let (reads, writes) = tokio::io::split(stream);
        let came = exchange(reads, writes, head, &body, start + patience, self.most).await;
        Ok((came, start.elapsed()))
    }

    /// Sends a small message; returns the answer to it, and how long that took.
    async fn word(&mut self, word: &Word) -> Result<(Word, Duration), ProbeError> {
        let mut wait = FIRST_WAIT;
        let mut attempt = 1;
        loop {
            let (came, took) = self.post(words::write(word), HELLO).await?;
            match came {
                Came::Response(200, body, None) => {
                    let word = words::read(&Frame::Text(body.into()));
                    return word.map(|word| (word, took)).ok_or(ProbeError::NoEcho);
                }
                Came::Response(429, ..) if attempt < ATTEMPTS => {}
                Came::Response(401, ..) => return Err(ProbeError::Unauthorized),
                Came::Response(..) => return Err(ProbeError::NoEcho),
                Came::Nothing(Refusal::Silence) => return Err(ProbeError::Silent(HELLO)),
                Came::Nothing(refusal) => return Err(ProbeError::Broken(refusal)),
            }
            sleep(wait).await;
            (wait, attempt) = (wait * 2, attempt + 1);
        }
    }
}

impl Ask for Posts {
    async fn open(&mut self) -> Result<usize, ProbeError> {
        match self.word(&Word::Mark(0)).await? {
            (Word::Hello { most, wait }, _) => {
                self.pause = Instant::now() + words::pause(wait);
                Ok(most)
            }
            _ => Err(ProbeError::NoEcho),
        }
    }

    async fn round_trip(&mut self, _patience: Duration) -> Result<Duration, ProbeError> {
        let (_, took) = self.word(&Word::Mark(1)).await?;
        Ok(took)
    }

    async fn ask(&mut self, question: &Question, patience: Duration) -> Result<Answer, ProbeError> {
        let mut attempt = 1;
        let mut wait = FIRST_WAIT;
        loop {
            let body = match question.direction {
                Direction::Up => words::measured(Content::Text, question.size),
                Direction::Down => words::write(&Word::Send {
                    size: question.size,
                    content: Content::Text,
                    fragment: None,
                }),
            };
            let (came, took) = self.post(body, patience).await?;
            if matches!(came, Came::Response(429, ..)) && attempt < ATTEMPTS {
                sleep(wait).await;
                (wait, attempt) = (wait * 2, attempt + 1);
                continue;
            }
            let (outcome, pause) = judged(came, question);
            self.pause = Instant::now() + pause;
            return Ok(Answer { outcome, took });
        }
    }

    fn connections(&self) -> u32 {
        self.connections
    }
}

/// What an exchange says about the question, and how long the other end then answers nothing.
fn judged(came: Came, question: &Question) -> (Outcome, Duration) {
    let refused = |refusal| (Outcome::Refused(refusal), Duration::ZERO);
    let (body, rest) = match came {
        Came::Nothing(refusal) => return refused(refusal),
        Came::Response(200, body, rest) => (body, rest),
        Came::Response(code, ..) => return refused(Refusal::Status { code }),
    };
    let length = body.len();
    let judged = |arrived: usize, whole: bool| match whole && arrived == question.size {
        true => Outcome::Passed,
        false => Outcome::Refused(Refusal::Truncated { arrived }),
    };
    match (
        words::read(&Frame::Text(body.into())),
        question.direction,
        rest,
    ) {
        (
            Some(Word::Got {
                arrived,
                whole,
                wait,
            }),
            Direction::Up,
            _,
        ) => (judged(arrived, whole), words::pause(wait)),
        (Some(Word::Bytes(measured)), Direction::Down, None | Some(Refusal::Ended)) => {
            (judged(measured.arrived, measured.whole), Duration::ZERO)
        }
        (_, _, Some(Refusal::Ended)) => refused(Refusal::Truncated { arrived: length }),
        (_, _, Some(refusal)) => refused(refusal),
        _ => refused(Refusal::Broken("not an answer to a probe".to_owned())),
    }
}

/// Sends a request, and reads the response while it is sent: a path may answer in the middle of it.
async fn exchange(
    mut reads: ReadHalf<ByteStream>,
    mut writes: WriteHalf<ByteStream>,
    head: String,
    body: &[u8],
    deadline: Instant,
    most: usize,
) -> Came {
    let mut broken = None;
    let sending = async {
        writes.write_all(head.as_bytes()).await?;
        writes.write_all(body).await?;
        writes.flush().await
    };
    let reading = response(&mut reads, most);
    let (mut sending, mut reading) = (std::pin::pin!(sending), std::pin::pin!(reading));
    let (mut is_sending, mut deadline) = (true, deadline);
    let came = loop {
        tokio::select! {
            biased;
            came = &mut reading => break came,
            sent = &mut sending, if is_sending => {
                is_sending = false;
                if let Err(error) = sent {
                    broken = Some(of_error(&error));
                    // The answer may have been sent before.
                    deadline = deadline.min(Instant::now() + REASON);
                }
            }
            () = sleep_until(deadline) => break Came::Nothing(Refusal::Silence),
        }
    };
    match (came, broken) {
        // A system tells of a reset once: if it was told to the writer, the reader only finds the end.
        (Came::Nothing(Refusal::Ended | Refusal::Silence), Some(broken)) => Came::Nothing(broken),
        (came, _) => came,
    }
}

/// Reads a response whose body has at most `most` bytes, and a little more for what a path adds.
async fn response(reads: &mut ReadHalf<ByteStream>, most: usize) -> Came {
    let broken = |what: &str| Came::Nothing(Refusal::Broken(what.to_owned()));
    let mut bytes = Vec::with_capacity(64 << 10);
    let (status, mut decoder) = loop {
        if let Some(end) = head_end(&bytes) {
            let head = read_response(&bytes[..end]);
            bytes.drain(..end);
            match head {
                // Skip an interim response (1xx): the final one follows.
                Some((100..200, _)) => continue,
                Some(head) => break head,
                None => return broken("not an answer of HTTP"),
            }
        }
        if bytes.len() > HEAD_MAX {
            return broken("the head of an answer is too long");
        }
        match reads.read_buf(&mut bytes).await {
            Ok(0) => return Came::Nothing(Refusal::Ended),
            Ok(_) => {}
            Err(error) => return Came::Nothing(of_error(&error)),
        }
    };
    if status != 200 {
        return Came::Response(status, Vec::new(), None);
    }
    let mut body = Vec::new();
    loop {
        match decoder.push(&bytes, |part| body.extend_from_slice(part)) {
            Ok(true) => return Came::Response(200, body, None),
            Ok(false) if body.len() > most.saturating_add(HEAD_MAX) => {
                return broken("the answer is longer than asked for");
            }
            Ok(false) => {}
            Err(_) => return broken("the body of the answer is malformed"),
        }
        bytes.clear();
        let failed = match reads.read_buf(&mut bytes).await {
            // Without a length the end of the connection is the end of the body.
            Ok(0) if decoder.ends_with_connection() => return Came::Response(200, body, None),
            Ok(0) => Refusal::Ended,
            Ok(_) => continue,
            Err(error) => of_error(&error),
        };
        return Came::Response(200, body, Some(failed));
    }
}

fn of_error(error: &io::Error) -> Refusal {
    match Ending::of(error) {
        Ending::End => Refusal::Ended,
        Ending::Reset => Refusal::Reset,
        Ending::TlsAlert(alert) => Refusal::TlsAlert(alert),
        Ending::Failed(reason) => Refusal::Broken(reason),
        _ => Refusal::Broken(error.to_string()),
    }
}
