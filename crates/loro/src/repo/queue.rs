//! The tasks that wait for one worker thread, and which of them comes next.
//!
//! Documents take turns. In each turn of a document the application's edits go first, all of them with one
//! flush; then its oldest other request, or the oldest changes of peers, several at a time. So an edit waits
//! for at most one import, and a steady stream of edits delays each import by only one flush.

use std::collections::{HashMap, VecDeque};

use super::{Job, Request};
use crate::machine::{DocId, Work};

/// How many changes of peers are imported in one turn, and of how many bytes.
pub(super) const TOGETHER: usize = 64;
pub(super) const TOGETHER_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Queue {
    waiting: HashMap<DocId, Waiting>,
    /// The documents for which something waits, the next one first.
    turns: VecDeque<DocId>,
    /// The number of the last request.
    last: u64,
}

/// What waits for a document, each with its number.
#[derive(Default)]
struct Waiting {
    edits: Vec<(u64, Job)>,
    others: VecDeque<(u64, Request)>,
    /// Whether the edits of this turn are done.
    edits_done: bool,
    /// This many of the next imports are done one by one, each in a turn of its own.
    alone: usize,
}

/// What a worker does next.
pub(super) enum Next {
    /// Stores the application's edits of a document: one flush does all these tasks.
    Edits(Vec<Job>),
    /// Imports changes of peers into a document.
    Imports(Vec<Job>),
    /// Anything else.
    Other(Request),
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(super) fn push(&mut self, request: Request) {
        self.last += 1;
        let doc = request.doc();
        let waiting = match self.waiting.get_mut(doc) {
            Some(waiting) => waiting,
            None => {
                self.turns.push_back(doc.clone());
                self.waiting.entry(doc.clone()).or_default()
            }
        };
        match request {
            Request::Task(job) if job.work == Work::Local => waiting.edits.push((self.last, job)),
            request => waiting.others.push_back((self.last, request)),
        }
    }

    /// Puts imports of this turn back; the first `alone` of them must be done one by one.
    pub(super) fn put_back(&mut self, jobs: Vec<Job>, alone: usize) {
        let Some(doc) = jobs.first().map(|job| job.doc.clone()) else {
            return;
        };
        if !self.waiting.contains_key(&doc) {
            self.turns.push_back(doc.clone());
        }
        let waiting = self.waiting.entry(doc).or_default();
        waiting.alone = alone;
        for job in jobs.into_iter().rev() {
            waiting.others.push_front((0, Request::Task(job)));
        }
    }

    pub(super) fn next(&mut self) -> Option<Next> {
        let doc = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&doc)?;
        let next = match waiting.takes_edits() {
            true => {
                waiting.edits_done = true;
                let edits = std::mem::take(&mut waiting.edits);
                Some(Next::Edits(edits.into_iter().map(|(_, job)| job).collect()))
            }
            false => {
                waiting.edits_done = false;
                waiting.take_other()
            }
        };
        if waiting.edits.is_empty() && waiting.others.is_empty() {
            self.waiting.remove(&doc);
        } else if waiting.edits_done {
            self.turns.push_front(doc);
        } else {
            self.turns.push_back(doc);
        }
        next
    }
}

impl Waiting {
    fn takes_edits(&self) -> bool {
        let Some((edited, _)) = self.edits.first() else {
            return false;
        };
        match self.others.front() {
            // The last edits before a document is closed must be stored before it can be unloaded.
            Some((closed, Request::Close(_))) if edited < closed => true,
            Some(_) => !self.edits_done,
            None => true,
        }
    }

    fn take_other(&mut self) -> Option<Next> {
        let (_, first) = self.others.pop_front()?;
        let Request::Task(job) = first else {
            return Some(Next::Other(first));
        };
        let Some(mut bytes) = import_bytes(&job) else {
            return Some(Next::Other(Request::Task(job)));
        };
        let mut jobs = vec![job];
        let most = if self.alone > 0 { 1 } else { TOGETHER };
        self.alone = self.alone.saturating_sub(1);
        while jobs.len() < most
            && let Some((number, request)) = self.others.pop_front()
        {
            match request {
                Request::Task(job)
                    if import_bytes(&job).is_some_and(|more| bytes + more <= TOGETHER_BYTES) =>
                {
                    bytes += import_bytes(&job).unwrap_or(0);
                    jobs.push(job);
                }
                request => {
                    self.others.push_front((number, request));
                    break;
                }
            }
        }
        Some(Next::Imports(jobs))
    }
}

/// The bytes of a peer's changes.
fn import_bytes(job: &Job) -> Option<usize> {
    match &job.work {
        Work::Import { data, .. } => Some(data.len()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::TaskId;
    use bytes::Bytes;

    fn task(doc: &str, number: u64, work: Work) -> Request {
        Request::Task(Job {
            id: TaskId(number),
            doc: doc.into(),
            work,
            cancelled: Default::default(),
            charge: None,
        })
    }

    fn import(doc: &str, number: u64, bytes: usize) -> Request {
        let data = Bytes::from(vec![0; bytes]);
        let snapshot = false;
        task(doc, number, Work::Import { data, snapshot })
    }

    fn queue(requests: impl IntoIterator<Item = Request>) -> Queue {
        let mut queue = Queue::default();
        for request in requests {
            queue.push(request);
        }
        queue
    }

    /// The kind and the numbers of the tasks that come next.
    fn next(queue: &mut Queue) -> (&'static str, Vec<u64>) {
        let numbers = |jobs: Vec<Job>| jobs.iter().map(|job| job.id.0).collect();
        match queue.next() {
            Some(Next::Edits(jobs)) => ("edits", numbers(jobs)),
            Some(Next::Imports(jobs)) => ("imports", numbers(jobs)),
            Some(Next::Other(Request::Task(job))) => ("task", vec![job.id.0]),
            Some(Next::Other(Request::Open(..))) => ("open", vec![]),
            Some(Next::Other(Request::Close(_))) => ("close", vec![]),
            None => ("nothing", vec![]),
        }
    }

    // LORO-37
    #[test]
    fn edits_go_first_and_imports_follow_each_flush() {
        let mut queue = queue((1..=100).map(|number| import("a", number, 10)));
        queue.push(task("a", 200, Work::Local));
        queue.push(task("a", 201, Work::Local));
        assert_eq!(next(&mut queue), ("edits", vec![200, 201]));
        // A steady stream of edits does not keep the imports waiting.
        queue.push(task("a", 202, Work::Local));
        assert_eq!(next(&mut queue), ("imports", (1..=64).collect()));
        queue.push(task("a", 203, Work::Local));
        assert_eq!(next(&mut queue), ("edits", vec![202, 203]));
        queue.push(task("a", 204, Work::Local));
        assert_eq!(next(&mut queue), ("imports", (65..=100).collect()));
        assert_eq!(next(&mut queue), ("edits", vec![204]));
        assert_eq!(next(&mut queue), ("nothing", vec![]));
        assert!(queue.is_empty());
    }

    // LORO-37
    #[test]
    fn imports_are_together_as_far_as_bytes_and_other_tasks_allow() {
        let since = Default::default();
        let mut queue = queue([
            import("a", 1, TOGETHER_BYTES - 1),
            import("a", 2, 1),
            import("a", 3, 1),
            task("a", 4, Work::Answer { since }),
            import("a", 5, 2 * TOGETHER_BYTES),
            import("a", 6, 1),
        ]);
        assert_eq!(next(&mut queue), ("imports", vec![1, 2]));
        assert_eq!(next(&mut queue), ("imports", vec![3]));
        assert_eq!(next(&mut queue), ("task", vec![4]));
        assert_eq!(next(&mut queue), ("imports", vec![5]), "as large as it is");
        assert_eq!(next(&mut queue), ("imports", vec![6]));
    }

    // LORO-37
    #[test]
    fn edits_go_between_imports_that_are_done_one_by_one() {
        let mut queue = queue((1..=5).map(|number| import("a", number, 10)));
        let Some(Next::Imports(mut jobs)) = queue.next() else {
            panic!("no imports");
        };
        jobs.remove(0);
        queue.put_back(jobs, 2);
        assert_eq!(next(&mut queue), ("imports", vec![2]));
        queue.push(task("a", 6, Work::Local));
        assert_eq!(next(&mut queue), ("edits", vec![6]));
        assert_eq!(next(&mut queue), ("imports", vec![3]));
        assert_eq!(next(&mut queue), ("imports", vec![4, 5]));
        assert!(queue.is_empty());
    }

    // LORO-37
    #[test]
    fn documents_take_turns() {
        let mut queue = queue([
            import("a", 1, 1),
            task("a", 2, Work::Delete),
            import("a", 3, 1),
            import("b", 4, 1),
            task("b", 5, Work::Delete),
        ]);
        let order: Vec<_> = (0..5).map(|_| next(&mut queue).1[0]).collect();
        assert_eq!(order, [1, 4, 2, 5, 3]);
    }

    // LORO-37
    #[test]
    fn a_document_is_closed_once_its_edits_are_stored() {
        let mut queue = queue([task("a", 1, Work::Local)]);
        queue.push(import("a", 2, 1));
        assert_eq!(next(&mut queue), ("edits", vec![1]));
        assert_eq!(next(&mut queue), ("imports", vec![2]));
        queue.push(import("a", 3, 1));
        queue.push(task("a", 4, Work::Local));
        queue.push(Request::Close("a".into()));
        assert_eq!(next(&mut queue), ("edits", vec![4]));
        // An edit of another holder of the document.
        assert_eq!(next(&mut queue), ("imports", vec![3]));
        queue.push(task("a", 5, Work::Local));
        assert_eq!(next(&mut queue), ("edits", vec![5]));
        queue.push(task("a", 6, Work::Local));
        assert_eq!(next(&mut queue), ("close", vec![]));
        assert_eq!(next(&mut queue), ("edits", vec![6]));
    }
}
