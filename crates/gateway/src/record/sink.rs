//! Makes a feed the recorder of a watch, which tells it of sessions and connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use breakbulk_link::{Closed, Frame, lock};
use breakbulk_net::{ClosedBy, Direction, Tap};

use super::entry::{By, NotCarried, Note, Point, Way};
use super::feed::{Feed, Follower, FrameTap};
use super::head::short;
use crate::error::SessionEnd;
use crate::pump::Side;
use crate::watch::{RecordSink, RecorderView, SessionId, SessionView};

/// The sessions that the watch told of and that have not ended, by their names.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Arc<Told>>>);

/// What the watch told of a session.
#[derive(Debug)]
pub(super) struct Told {
    point: Point,
    peer: String,
    /// Takes the notes about the session itself.
    tap: FrameTap,
    /// Whether its beginning was recorded: it is recorded with the session's first connection.
    has_begun: AtomicBool,
}

impl Sessions {
    fn add(&self, id: &str, told: Told) {
        lock(&self.0).insert(id.to_owned(), Arc::new(told));
    }

    fn get(&self, id: &str) -> Option<Arc<Told>> {
        lock(&self.0).get(id).cloned()
    }

    fn remove(&self, id: &str) -> Option<Arc<Told>> {
        lock(&self.0).remove(id)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

impl RecordSink for Feed {
    fn session(&self, id: &SessionId, route: &str, peer: &str, listen: &str, to: &str) {
        let point = Point {
            session: id.to_string(),
            route: short(route),
            listen: short(listen),
            to: short(to),
            side: None,
            line: 0,
        };
        let told = Told {
            tap: self.tap(point.clone()),
            point,
            peer: short(peer),
            has_begun: AtomicBool::new(false),
        };
        self.sessions().add(id.as_str(), told);
    }

    fn tap(&self, id: &SessionId, side: Side, line: u64) -> Arc<dyn Tap> {
        let told = self.sessions().get(id.as_str());
        let mut point = Point {
            session: id.to_string(),
            ..Point::default()
        };
        if let Some(told) = told {
            point = told.point.clone();
            if !told.has_begun.swap(true, Ordering::Relaxed) {
                let peer = told.peer.clone();
                told.tap.tell(Note::Began { peer });
            }
        }
        let side = Some(side.into());
        Arc::new(Self::tap(
            self,
            Point {
                side,
                line,
                ..point
            },
        ))
    }

    fn ended(&self, id: &SessionId, end: Option<&SessionEnd>, _counts: &SessionView) {
        let Some(told) = self.sessions().remove(id.as_str()) else {
            return;
        };
        match end {
            Some(end) => told.tap.tell(Note::Ended((&end.ended).into())),
            None => told.tap.tell(Note::Refused),
        }
    }

    fn forget(&self, id: &SessionId) {
        self.sessions().remove(id.as_str());
    }

    fn health(&self) -> Option<RecorderView> {
        self.recorder()
            .map(|it| RecorderView::new(it.is_recording(), it.missed()))
    }

    fn not_carried(&self, id: &SessionId, what: NotCarried) {
        if let Some(told) = self.sessions().get(id.as_str()) {
            told.tap.tell(Note::NotCarried(what));
        }
    }

    fn follow(&self) -> Option<Follower> {
        Some(Self::follow(self))
    }
}

impl Tap for FrameTap {
    fn frame(&self, direction: Direction, frame: &Frame) {
        let way = match direction {
            Direction::Received => Way::In,
            Direction::Sent => Way::Out,
        };
        Self::frame(self, way, frame);
    }

    fn closed(&self, by: ClosedBy, closed: &Closed) {
        let by = match by {
            ClosedBy::Peer => By::Peer,
            ClosedBy::Us => By::Us,
            ClosedBy::Lost => By::Lost,
        };
        Self::closed(self, by, closed);
    }
}
