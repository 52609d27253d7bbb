//! Writes records from a thread of its own. Whoever hands one over never waits: what does not fit in the
//! queue is counted, and the number is written in its place.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use breakbulk_link::lock;
use bytes::Bytes;

use super::entry::{Entry, Note, Point};
use super::segments::Segments;
use super::{RecordError, RecordOptions, time};

/// How many records may wait to be written.
const QUEUE: usize = 4096;

/// How many bytes of frames may wait to be written.
const QUEUED_BYTES: usize = 16 << 20;

/// How often old segments are looked for while nothing happens.
const IDLE: Duration = Duration::from_secs(60);

/// How long the last records may take to be written.
const LAST: Duration = Duration::from_secs(5);

/// The number of the point that is about no session.
const NO_SESSION: u64 = 0;

/// Writes records. Clones write to the same files.
#[derive(Clone)]
pub struct Recorder(Arc<Shared>);

struct Shared {
    queue: SyncSender<Item>,
    /// Bytes of frames in the queue.
    queued: AtomicUsize,
    /// Records that did not fit: since the last that was written, and in all.
    missed: AtomicU64,
    missed_in_all: AtomicU64,
    /// The thread has ended: the disk is full, or the record is finished.
    stopped: AtomicBool,
    /// How much is kept of a frame.
    bodies: usize,
    ended: Mutex<Option<Receiver<()>>>,
}

enum Item {
    Entry(Box<(u64, Arc<Point>, Entry)>),
    Finish,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    /// Begins to record.
    ///
    /// # Errors
    /// If the folder cannot be used, or another gateway records there.
    pub fn start(options: &RecordOptions) -> Result<Self, RecordError> {
        Self::start_with_queue(options, QUEUE)
    }

    fn start_with_queue(options: &RecordOptions, queue: usize) -> Result<Self, RecordError> {
        if options.size < RecordOptions::LEAST_SIZE {
            return Err(RecordError::Size { size: options.size });
        }
        let segments = Segments::open(options, SystemTime::now())?;
        let (queue, items) = sync_channel(queue);
        let (end, ended) = sync_channel(1);
        let shared = Arc::new(Shared {
            queue,
            queued: AtomicUsize::new(0),
            missed: AtomicU64::new(0),
            missed_in_all: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            bodies: options.bodies,
            ended: Mutex::new(Some(ended)),
        });
        let folder = options.folder.clone();
        let thread = Writer {
            shared: Arc::downgrade(&shared),
            items,
            segments,
        };
        let run = move || {
            if let Err(error) = thread.run() {
                tracing::warn!(
                    "--record {}: recording has stopped, and the gateway goes on: {error}",
                    folder.display()
                );
            }
            // This fails if nobody waits for the end.
            let _ = end.send(());
        };
        let spawned = thread::Builder::new().name("record".to_owned()).spawn(run);
        spawned.map_err(|error| RecordError::Folder {
            folder: options.folder.clone(),
            error,
        })?;
        Ok(Self(shared))
    }

    /// Whether records are still written.
    pub fn is_recording(&self) -> bool {
        !self.0.stopped.load(Ordering::Relaxed)
    }

    /// How many records did not fit.
    pub fn missed(&self) -> u64 {
        self.0.missed_in_all.load(Ordering::Relaxed)
    }

    /// What is kept of the bytes of a frame.
    pub(super) fn body(&self, bytes: &Bytes) -> Bytes {
        match self.0.bodies {
            0 => Bytes::new(),
            most if bytes.len() <= most => bytes.clone(),
            // A slice would keep the memory of the whole frame.
            most => Bytes::copy_from_slice(&bytes[..most]),
        }
    }

    /// Hands over a record of a point, whose number is its own. Never waits.
    pub(super) fn put(&self, number: u64, point: &Arc<Point>, entry: Entry) {
        let shared = &self.0;
        if !self.is_recording() {
            return;
        }
        let bytes = entry.body.len();
        let queued = shared.queued.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits = bytes == 0 || queued <= QUEUED_BYTES;
        let item = Item::Entry(Box::new((number, point.clone(), entry)));
        if !fits || shared.queue.try_send(item).is_err() {
            shared.queued.fetch_sub(bytes, Ordering::Relaxed);
            shared.missed.fetch_add(1, Ordering::Relaxed);
            shared.missed_in_all.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes what waits, and ends. Waits a few seconds at most.
    pub fn finish(&self) {
        let Some(ended) = lock(&self.0.ended).take() else {
            return;
        };
        if send_finish(&self.0.queue) {
            // A disk that hangs must not keep the process alive.
            let _ = ended.recv_timeout(LAST);
        }
    }
}

/// Asks the thread to end, once there is room in the queue; false if that takes too long, or it has ended.
fn send_finish(queue: &SyncSender<Item>) -> bool {
    const STEP: Duration = Duration::from_millis(5);
    let mut left = LAST;
    loop {
        match queue.try_send(Item::Finish) {
            Ok(()) => return true,
            Err(TrySendError::Full(_)) if !left.is_zero() => {}
            Err(_) => return false,
        }
        thread::sleep(STEP);
        left = left.saturating_sub(STEP);
    }
}

struct Writer {
    shared: Weak<Shared>,
    items: Receiver<Item>,
    segments: Segments,
}

impl Writer {
    fn run(mut self) -> std::io::Result<()> {
        let outcome = self.write_all();
        if let Some(shared) = self.shared.upgrade() {
            shared.stopped.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn write_all(&mut self) -> std::io::Result<()> {
        loop {
            let item = match self.items.try_recv() {
                Err(TryRecvError::Empty) => {
                    // Nothing waits, so write the buffer to the file: little is missing after a crash.
                    self.segments.flush()?;
                    match self.items.recv_timeout(IDLE) {
                        Err(RecvTimeoutError::Timeout) => {
                            self.segments.idle(SystemTime::now())?;
                            continue;
                        }
                        item => item.ok(),
                    }
                }
                item => item.ok(),
            };
            let now = SystemTime::now();
            self.write_missed(now)?;
            match item {
                Some(Item::Entry(item)) => {
                    let (number, point, entry) = *item;
                    let bytes = entry.body.len();
                    self.segments.write(now, (number, &point), &entry)?;
                    if let Some(shared) = self.shared.upgrade() {
                        shared.queued.fetch_sub(bytes, Ordering::Relaxed);
                    }
                }
                Some(Item::Finish) | None => return self.segments.flush(),
            }
        }
    }

    /// Writes how many records did not fit since the last one.
    fn write_missed(&mut self, now: SystemTime) -> std::io::Result<()> {
        let missed = self
            .shared
            .upgrade()
            .map(|shared| shared.missed.swap(0, Ordering::Relaxed));
        let Some(records) = missed.filter(|missed| *missed > 0) else {
            return Ok(());
        };
        let entry = Entry {
            micros: time::micros(now),
            way: None,
            note: Note::Missed { records },
            body: Bytes::new(),
        };
        self.segments
            .write(now, (NO_SESSION, &Point::default()), &entry)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
