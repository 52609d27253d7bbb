//! Where records come from: taps on the connections of each session. They go to the recorder, and to
//! whoever follows the gateway at the moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use breakbulk_link::{Closed, Frame, lock};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::entry::{By, Entry, Note, Point, SideName, Way};
use super::head::{FrameKind, Namer};
use super::time;
use super::writer::Recorder;

/// How many records a follower may be behind before it misses some.
const BEHIND: usize = 1024;

/// Makes records, and hands them on. Clones are the same feed.
#[derive(Clone, Debug)]
pub struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recorder: Option<Recorder>,
    followers: broadcast::Sender<Arc<Live>>,
    /// The number of the last point.
    points: AtomicU64,
}

/// A record as a follower gets it: without the bytes of the frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// The session; empty if the record is about none.
    pub session: String,
    /// The route of the session.
    #[serde(default)]
    pub route: String,
    /// The side of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<SideName>,
    /// The number of the connection on that side.
    #[serde(default)]
    pub line: u64,
    /// Which way the frame went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<Way>,
    /// What is said.
    pub note: Note,
}

impl Live {
    /// That a follower missed so many records.
    pub fn missed(records: u64) -> Self {
        Self {
            at: time::micros(SystemTime::now()) / 1000,
            session: String::new(),
            route: String::new(),
            side: None,
            line: 0,
            way: None,
            note: Note::Missed { records },
        }
    }

    fn new(point: &Point, entry: &Entry) -> Self {
        Self {
            at: entry.micros / 1000,
            session: point.session.clone(),
            route: point.route.clone(),
            side: point.side,
            line: point.line,
            way: entry.way,
            note: entry.note.clone(),
        }
    }
}

impl Feed {
    /// A feed for this recorder, and for followers.
    pub fn new(recorder: Option<Recorder>) -> Self {
        Self(Arc::new(Inner {
            recorder,
            followers: broadcast::Sender::new(BEHIND),
            points: AtomicU64::new(0),
        }))
    }

    /// The records from now on. A follower that is too slow learns how many it missed.
    pub fn follow(&self) -> broadcast::Receiver<Arc<Live>> {
        self.0.followers.subscribe()
    }

    /// Sees the frames of one connection.
    pub fn tap(&self, point: Point) -> FrameTap {
        FrameTap {
            number: self.0.points.fetch_add(1, Ordering::Relaxed) + 1,
            feed: self.clone(),
            point: Arc::new(point),
            ways: Default::default(),
        }
    }

    /// Whether anybody wants records.
    fn is_wanted(&self) -> bool {
        let recorder = self.0.recorder.as_ref();
        recorder.is_some_and(Recorder::is_recording) || self.0.followers.receiver_count() > 0
    }
}

/// Sees the frames of one connection, both ways, or what is told about a session.
#[derive(Debug)]
pub struct FrameTap {
    feed: Feed,
    /// The point's own number in this process.
    number: u64,
    point: Arc<Point>,
    ways: [OneWay; 2],
}

#[derive(Debug, Default)]
struct OneWay {
    frames: AtomicU64,
    namer: Mutex<Namer>,
}

impl FrameTap {
    /// A frame passed.
    pub fn frame(&self, way: Way, frame: &Frame) {
        let one = &self.ways[usize::from(way == Way::Out)];
        let n = one.frames.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.feed.is_wanted() {
            return;
        }
        let head = lock(&one.namer).head(frame);
        let recorder = self.feed.0.recorder.as_ref();
        let body = match (recorder, head.kind) {
            // They contain the name by which anybody could go on with the session.
            (_, FrameKind::Tunnel) | (None, _) => Bytes::new(),
            (Some(recorder), _) => recorder.body(frame.bytes()),
        };
        let bytes = frame.bytes().len() as u64;
        self.put(Some(way), Note::Frame { n, bytes, head }, body);
    }

    /// The connection was closed.
    pub fn closed(&self, by: By, closed: &Closed) {
        self.tell(Note::closed(by, closed));
    }

    /// Something else is to be recorded.
    pub fn tell(&self, note: Note) {
        if self.feed.is_wanted() {
            self.put(None, note, Bytes::new());
        }
    }

    fn put(&self, way: Option<Way>, note: Note, body: Bytes) {
        let entry = Entry {
            micros: time::micros(SystemTime::now()),
            way,
            note,
            body: Bytes::new(),
        };
        let Inner {
            recorder,
            followers,
            ..
        } = &*self.feed.0;
        if followers.receiver_count() > 0 {
            // It fails if the last follower has just left.
            let _ = followers.send(Arc::new(Live::new(&self.point, &entry)));
        }
        if let Some(recorder) = recorder {
            recorder.put(self.number, &self.point, Entry { body, ..entry });
        }
    }
}
