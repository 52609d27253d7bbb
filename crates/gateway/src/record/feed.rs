//! Makes records from taps on the connections of each session, for the recorder and for whoever follows the
//! gateway at the moment.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use breakbulk_link::{Closed, Frame, lock};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::entry::{By, Entry, Note, Point, SideName, Way};
use super::head::{FrameKind, Namer};
use super::sink::Sessions;
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
    /// How many followers there are: the channel knows too, but only behind a lock that all sessions would
    /// take.
    following: AtomicUsize,
    /// The number of the last point.
    points: AtomicU64,
    sessions: Sessions,
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
    /// A record that says how many records a follower missed.
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
            following: AtomicUsize::new(0),
            points: AtomicU64::new(0),
            sessions: Sessions::default(),
        }))
    }

    /// Follows the records from now on.
    pub fn follow(&self) -> Follower {
        self.0.following.fetch_add(1, Ordering::Relaxed);
        Follower {
            records: self.0.followers.subscribe(),
            feed: self.clone(),
        }
    }

    /// A tap that makes a record of each frame of one connection.
    pub fn tap(&self, point: Point) -> FrameTap {
        FrameTap {
            number: self.0.points.fetch_add(1, Ordering::Relaxed) + 1,
            feed: self.clone(),
            point: Arc::new(point),
            ways: Default::default(),
        }
    }

    /// The recorder, if records are written to files.
    pub(super) fn recorder(&self) -> Option<&Recorder> {
        self.0.recorder.as_ref()
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// Whether anybody wants records.
    fn is_wanted(&self) -> bool {
        let recorder = self.0.recorder.as_ref();
        recorder.is_some_and(Recorder::is_recording) || self.is_followed()
    }

    fn is_followed(&self) -> bool {
        self.0.following.load(Ordering::Relaxed) > 0
    }
}

/// Gets the records of a feed as they are made. One that is too slow misses the oldest, and is told how many
/// ([`Note::Missed`]).
#[derive(Debug)]
pub struct Follower {
    records: broadcast::Receiver<Arc<Live>>,
    feed: Feed,
}

impl Follower {
    /// Waits for the next record. Cancel-safe.
    pub async fn next(&mut self) -> Arc<Live> {
        match self.records.recv().await {
            Ok(live) => live,
            Err(RecvError::Lagged(missed)) => Arc::new(Live::missed(missed)),
            // The feed is kept by this follower, so it does not end.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// The next record, if there is one already.
    pub fn try_next(&mut self) -> Option<Arc<Live>> {
        match self.records.try_recv() {
            Ok(live) => Some(live),
            Err(TryRecvError::Lagged(missed)) => Some(Arc::new(Live::missed(missed))),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.feed.0.following.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes records of the frames of one connection, in both directions, or of what is told about a session.
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
            // Frames of a tunnel may contain the session's name, with which anybody could resume the session.
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
        if self.feed.is_followed() {
            // It fails if the last follower has just left.
            let _ = followers.send(Arc::new(Live::new(&self.point, &entry)));
        }
        if let Some(recorder) = recorder {
            recorder.put(self.number, &self.point, Entry { body, ..entry });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // REC-10
    #[test]
    fn a_follower_gets_what_happens_and_learns_how_much_it_missed() {
        let feed = Feed::new(None);
        let point = Point {
            session: "s-1".to_owned(),
            ..Point::default()
        };
        let tap = feed.tap(point);
        let frame = Frame::Text(Bytes::from_static(
            br#"{"id":1,"method":"m","params":"secret"}"#,
        ));
        tap.frame(Way::In, &frame);
        let mut follower = feed.follow();
        assert_eq!(follower.try_next(), None);
        tap.frame(Way::In, &frame);
        let live = follower.try_next().unwrap();
        let Live { at, .. } = *live;
        let expected = format!(
            r#"{{"at":{at},"session":"s-1","route":"","line":0,"way":"in","note":{{"is":"frame","n":2,"bytes":39,"kind":"whole","method":"m","id":"1"}}}}"#
        );
        assert_eq!(serde_json::to_string(&*live).unwrap(), expected);
        for _ in 0..BEHIND + 7 {
            tap.frame(Way::Out, &frame);
        }
        let missed = follower.try_next().unwrap();
        assert_eq!(missed.note, Note::Missed { records: 7 });
        let next = follower.try_next().unwrap();
        assert!(matches!(next.note, Note::Frame { n: 8, .. }), "{next:?}");
        assert!(feed.is_wanted());
        drop(follower);
        assert!(!feed.is_wanted());
    }
}
