//! A journal: records that several programs append to one JetStream stream, and that all of them read back
//! in the same order.
//!
//! A **record** is bytes of any size up to [`JournalOptions::max_record`]. One that is larger than a NATS
//! message is cut into pieces; it counts once its last piece is stored, and nobody ever sees a part of one.
//! Every record is on a **topic**, and JetStream stores a piece only if the last message of its topic is the
//! one that its writer knows of (`Nats-Expected-Last-Subject-Sequence`). So two writers can never append
//! after the same record: one of them gets [`AppendError::Overtaken`], and has to read what the other
//! one wrote.
//!
//! A piece that is sent again after its answer was lost is recognised by its id (`Nats-Msg-Id`). Pieces that
//! a dead writer left behind are deleted by the next writer of the topic.
//!
//! A [`Tail`] gives every record of every topic, those of this program as well, each once and in order, from
//! the first that the stream still has. It survives the loss of servers: what it missed is read later.
//!
//! JetStream acknowledges a message when most of the stream's replicas have it: a record for which
//! [`Journal::append`] has returned exists for as long as most of these servers do.

mod append;
mod error;
mod forget;
mod options;
mod pieces;
mod read;
mod stream;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::context::{Context, ContextBuilder};
use breakbulk_link::lock;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::bus::Bus;

pub use error::{AppendError, JournalError, NotForgotten};
pub use options::{JournalOptions, WhenFull};

/// How long a request to JetStream may take before it is sent again.
const REQUEST_TIME: Duration = Duration::from_secs(3);

/// How many records may be read and wait for the application to take them.
const NEWS: usize = 4;

/// A place in a journal: the stream's sequence number of a record's last piece. Later records have larger
/// ones; 0 is before all.
pub type Place = u64;

/// Appends records to a journal. Clones share it.
#[derive(Clone, Debug)]
pub struct Journal {
    shared: Arc<Shared>,
}

/// Reads a journal. It ends when this is dropped.
#[derive(Debug)]
pub struct Tail {
    news: mpsc::Receiver<News>,
    reading: JoinHandle<()>,
}

/// What a tail gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The next record.
    Record(Record),
    /// All records that the stream had when it was opened were given. It comes once.
    CaughtUp {
        /// The sequence number of the first message that the stream still has, or that of the next one if it
        /// has none.
        first: u64,
        /// The sequence number of the last message that the stream ever had; 0 if it is new.
        last: u64,
    },
    /// The stream is not the one that was read so far: it was deleted, or lost what it had acknowledged.
    /// Nothing follows.
    Lost {
        /// What was found.
        reason: String,
    },
}

/// A record of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The topic it is on.
    pub topic: String,
    /// Where it is.
    pub place: Place,
    /// The sequence numbers of its pieces.
    pub messages: Vec<u64>,
    /// Whether this program appended it, by this very [`Journal`].
    pub own: bool,
    /// What it contains, in memory of its own.
    pub bytes: Bytes,
}

#[derive(Debug)]
struct Shared {
    bus: Bus,
    context: Context,
    options: JournalOptions,
    /// The prefix of the ids of this program's records, which no other program has.
    member: String,
    records: AtomicU64,
    topics: Mutex<BTreeMap<String, Topic>>,
    /// The sequence number up to which the stream was read.
    read: watch::Sender<u64>,
}

/// What is known about the end of a topic.
#[derive(Clone, Debug, Default)]
struct Topic {
    /// The place of the last whole record.
    record: Place,
    /// The sequence number of the last message.
    message: u64,
    /// Pieces after the last whole record.
    unfinished: Option<Unfinished>,
    /// Messages that belong to no record, to be deleted by the next writer.
    dead: Vec<u64>,
    /// The last record of this program that was read back, and its place.
    own: Option<(String, Place)>,
}

/// A record without its last pieces.
#[derive(Clone, Debug)]
struct Unfinished {
    id: String,
    messages: Vec<u64>,
    /// When its last piece was read.
    moved: Instant,
}

impl Journal {
    /// Connects to NATS, creates the stream if there is none, and begins to read it.
    pub async fn open(options: &JournalOptions) -> Result<(Self, Tail), JournalError> {
        options.check()?;
        let bus = Bus::connect(&options.nats).await?;
        let context = ContextBuilder::new()
            .timeout(REQUEST_TIME)
            .build(bus.client.clone());
        stream::open(&context, options).await?;
        let member = bus.fresh_name()?;
        let shared = Arc::new(Shared {
            bus,
            context,
            options: options.clone(),
            member,
            records: AtomicU64::new(0),
            topics: Mutex::default(),
            read: watch::Sender::new(0),
        });
        let (to, news) = mpsc::channel(NEWS);
        let reading = tokio::spawn(read::run(shared.clone(), to));
        Ok((Self { shared }, Tail { news, reading }))
    }

    /// Appends a record to a topic, if its last record is the one at `after` (0: there is none). Waits for
    /// servers that are away as long as [`JournalOptions::outage`]. Returns its place.
    ///
    /// A program may append to several topics at a time, but only one record to the same one. If the future
    /// is dropped, only the tail shows whether the record was stored.
    pub async fn append(
        &self,
        topic: &str,
        after: Place,
        record: Bytes,
    ) -> Result<Place, AppendError> {
        append::append(&self.shared, topic, after, record).await
    }

    /// Deletes messages of records ([`Record::messages`]), to be called once a later record of the same
    /// topic contains all that they said. Those that are deleted already are no error.
    pub async fn forget(&self, messages: &[u64]) -> Result<(), NotForgotten> {
        let Shared {
            context, options, ..
        } = &*self.shared;
        forget::delete(context, &options.stream, messages).await
    }

    /// Whether JetStream could store something now; what is wrong if not.
    pub async fn check(&self) -> Result<(), AppendError> {
        append::check(&self.shared).await
    }

    /// The journal's name in errors: its servers and its stream.
    pub fn name(&self) -> String {
        self.shared.options.name()
    }
}

impl Tail {
    /// The next news. Waits without a limit for servers that are away; `None` after [`News::Lost`].
    pub async fn next(&mut self) -> Option<News> {
        self.news.recv().await
    }

    /// The next news, if it has come already. A program that appends much and does not wait for news should
    /// take all of it before each record: the tail reads no further while too much waits.
    pub fn try_next(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Shared {
    fn subject(&self, topic: &str) -> String {
        format!("{}.{topic}", self.options.stream)
    }

    fn fresh_id(&self) -> String {
        let number = self.records.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.member)
    }

    fn topic(&self, topic: &str) -> Topic {
        lock(&self.topics).get(topic).cloned().unwrap_or_default()
    }

    fn change<R>(&self, topic: &str, change: impl FnOnce(&mut Topic) -> R) -> R {
        let mut topics = lock(&self.topics);
        match topics.get_mut(topic) {
            Some(found) => change(found),
            None => change(topics.entry(topic.to_owned()).or_default()),
        }
    }
}

/// The longest name of a topic: a NATS server reads commands of up to 4096 bytes.
const TOPIC: usize = 2048;

/// What is wrong with the name of a topic.
fn bad_topic(topic: &str) -> Option<&'static str> {
    let fine = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'>' | b'.');
    let length = (1..=TOPIC).contains(&topic.len());
    let named = length && topic.bytes().all(fine);
    (!named).then_some("use 1 to 2048 visible ASCII characters, and neither * nor > nor a dot")
}
