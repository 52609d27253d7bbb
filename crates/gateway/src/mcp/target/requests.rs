//! The requests of a connection that have no answer yet, and the POSTs that they are in. Does no IO.
//!
//! An id may be used again once its request was cancelled, so that two POSTs may have had requests of one id.

use std::collections::BTreeMap;

use tokio::task::{AbortHandle, Id};

/// The open requests by their ids.
#[derive(Default)]
pub(super) struct OpenRequests(BTreeMap<String, Open>);

struct Open {
    post: AbortHandle,
    is_stateless: bool,
    is_cancelled: bool,
}

impl OpenRequests {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A POST has these requests.
    pub(super) fn begin(&mut self, keys: Vec<String>, post: &AbortHandle, is_stateless: bool) {
        for key in keys {
            let open = Open {
                post: post.clone(),
                is_stateless,
                is_cancelled: false,
            };
            let before = self.0.insert(key, open);
            if let Some(before) = before.filter(|before| before.is_cancelled) {
                // Its late answer would be taken for that to the new request.
                self.abort(&before.post);
            }
        }
    }

    /// Cancels a request of the stateless era by the end of its connection; false if it is of the other era, where
    /// a notification is posted.
    pub(super) fn cut(&mut self, key: &str) -> bool {
        match self.0.get(key) {
            Some(open) if open.is_stateless => {
                open.post.abort();
                self.0.remove(key);
                true
            }
            _ => false,
        }
    }

    /// A request is cancelled by a notification. Returns its POST, which is to be given up later.
    pub(super) fn cancel(&mut self, key: &str) -> Option<AbortHandle> {
        let open = self.0.get_mut(key)?;
        open.is_cancelled = true;
        Some(open.post.clone())
    }

    /// Gives up the POST of a request that was cancelled.
    pub(super) fn give_up(&mut self, key: &str, post: &AbortHandle) {
        self.end(key, post.id());
        self.abort(post);
    }

    /// The request of this POST has its answer, or gets none.
    pub(super) fn end(&mut self, key: &str, post: Id) {
        if self.0.get(key).is_some_and(|open| open.post.id() == post) {
            self.0.remove(key);
        }
    }

    /// Ends a POST, unless others in its batch wait for their answers.
    fn abort(&self, post: &AbortHandle) {
        let waits = |open: &Open| open.post.id() == post.id() && !open.is_cancelled;
        if !self.0.values().any(waits) {
            post.abort();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    /// POSTs that have no answer.
    struct Scene {
        open: OpenRequests,
        posts: JoinSet<()>,
    }

    impl Scene {
        fn new() -> Self {
            let (open, posts) = (OpenRequests::default(), JoinSet::new());
            Self { open, posts }
        }

        fn post(&mut self, keys: &[&str]) -> AbortHandle {
            let post = self.posts.spawn(std::future::pending());
            let keys = keys.iter().map(|&key| key.to_owned()).collect();
            self.open.begin(keys, &post, false);
            post
        }

        /// The next POST that ends.
        async fn ended(&mut self) -> Id {
            let ended = timeout(Duration::from_secs(10), self.posts.join_next());
            let ended = ended.await.unwrap().unwrap();
            ended.unwrap_err().id()
        }

        fn keys(&self) -> Vec<&str> {
            self.open.0.keys().map(String::as_str).collect()
        }
    }

    /// It was never given up, and its late answer was taken for that to the later request.
    // MCPH-8
    #[tokio::test]
    async fn a_cancelled_request_ends_although_its_id_is_used_again() {
        let mut scene = Scene::new();
        let first = scene.post(&["1"]);
        assert_eq!(scene.open.cancel("1").unwrap().id(), first.id());
        let second = scene.post(&["1"]);
        assert_eq!(scene.ended().await, first.id());
        // What is still to come of the first one changes nothing.
        scene.open.give_up("1", &first);
        scene.open.end("1", first.id());
        assert_eq!(scene.keys(), ["1"]);
        assert!(!second.is_finished());
        scene.open.end("1", second.id());
        assert_eq!(scene.open.len(), 0);
        // One that was not cancelled keeps its POST, whoever uses its id.
        let third = scene.post(&["1"]);
        scene.post(&["1"]);
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
    }

    /// It was cut off, and they got no answer.
    // MCPH-8
    #[tokio::test]
    async fn a_cancelled_request_of_a_batch_takes_no_others_with_it() {
        let mut scene = Scene::new();
        let batch = scene.post(&["1", "2", "3"]);
        let cancelled = scene.open.cancel("1").unwrap();
        scene.open.give_up("1", &cancelled);
        tokio::task::yield_now().await;
        assert!(!batch.is_finished());
        assert_eq!(scene.keys(), ["2", "3"]);
        // One has its answer, and nobody waits for the other.
        scene.open.end("3", batch.id());
        let cancelled = scene.open.cancel("2").unwrap();
        scene.open.give_up("2", &cancelled);
        assert_eq!(scene.ended().await, batch.id());
        assert_eq!(scene.open.len(), 0);
    }
}
