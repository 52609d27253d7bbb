//! The client's POSTs, on the server: each body is passed on once and in its order, however often and in
//! whatever order its requests come.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::REQUESTS;
use super::body::Records;

/// How far the number of a body may be ahead: a client has at most this many on their way.
const AHEAD: u64 = REQUESTS as u64;

/// A body for the source.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) records: Records,
    /// Notified when the source has taken it.
    pub(crate) taken: oneshot::Sender<()>,
}

/// The bodies of one session.
#[derive(Debug)]
pub(crate) struct Uploads {
    /// The number of the next body.
    next: watch::Sender<u64>,
    out: mpsc::Sender<Upload>,
}

/// Why a body is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// Its number is too far ahead, or 0.
    Number {
        /// The number of the next body.
        next: u64,
    },
    /// It is not a body of this protocol: why.
    Bad(String),
    /// The session is over.
    Gone,
}

impl Uploads {
    /// The bodies of a session, and the channel that they are passed on to, in which at most one waits.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Upload>) {
        let (out, uploads) = mpsc::channel(1);
        let next = watch::Sender::new(1);
        (Self { next, out }, uploads)
    }

    /// The number of the next body.
    pub(crate) fn next(&self) -> u64 {
        *self.next.borrow()
    }

    /// Whether a body of this number can be one of the next ones, or is known already.
    pub(crate) fn expects(&self, number: u64) -> Result<(), NotTaken> {
        let next = self.next();
        match number >= 1 && number < next.saturating_add(AHEAD) {
            true => Ok(()),
            false => Err(NotTaken::Number { next }),
        }
    }

    /// Waits for the bodies before this one, passes it on unless that has been done, and waits until it
    /// is taken. Cancel-safe: it is passed on as a whole or not at all.
    pub(crate) async fn deliver(&self, number: u64, body: Bytes) -> Result<(), NotTaken> {
        self.expects(number)?;
        let mut next = self.next.subscribe();
        let turn = next.wait_for(|next| *next >= number).await;
        if turn.map_or(0, |next| *next) > number {
            return Ok(());
        }
        let records = Records::read(body).map_err(|error| NotTaken::Bad(error.to_string()))?;
        let permit = self.out.reserve().await.map_err(|_| NotTaken::Gone)?;
        let (taken, until_taken) = oneshot::channel();
        let upload = Upload { records, taken };
        // The same body may have come twice, and both wait here: the first one counts.
        self.next.send_if_modified(|next| {
            let first = *next == number;
            if first {
                *next += 1;
                permit.send(upload);
            }
            first
        });
        // An error means that the session has ended, or that the other copy was passed on.
        let _ = until_taken.await;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use breakbulk_link::Frame;
    use futures_util::poll;

    use super::super::body::Record;
    use super::*;

    fn body(number: u64) -> Bytes {
        let mut body = bytes::BytesMut::new();
        Record::Frame(Frame::Binary(Bytes::from(number.to_string()))).write(&mut body);
        body.freeze()
    }

    async fn next(uploads: &mut mpsc::Receiver<Upload>) -> String {
        let upload = uploads.recv().await.unwrap();
        let _ = upload.taken.send(());
        let records = upload.records.map(|record| match record {
            Record::Frame(frame) => String::from_utf8(frame.bytes().to_vec()).unwrap(),
            Record::Close(closed) => closed.reason,
        });
        records.collect::<Vec<_>>().join(",")
    }

    #[tokio::test]
    async fn each_body_is_passed_on_once_and_in_order() {
        let (uploads, mut out) = Uploads::new();
        // Bodies 3 and 2 come before body 1, and body 2 comes twice.
        let mut waiting: Vec<_> = [3, 2, 2, 1]
            .into_iter()
            .map(|number| Box::pin(uploads.deliver(number, body(number))))
            .collect();
        for deliver in &mut waiting {
            assert!(poll!(deliver).is_pending());
        }
        let read = async {
            let mut read = Vec::new();
            for _ in 0..3 {
                read.push(next(&mut out).await);
            }
            read
        };
        let (read, delivered) = tokio::join!(read, futures_util::future::join_all(waiting));
        assert_eq!(read, ["1", "2", "3"]);
        assert_eq!(delivered, [Ok(()), Ok(()), Ok(()), Ok(())]);
        // A body that was passed on already is answered at once, and not passed on again.
        assert_eq!(uploads.deliver(2, body(2)).await, Ok(()));
        assert!(out.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_passes_nothing_on_or_all_of_it() {
        let (uploads, mut out) = Uploads::new();
        {
            let first = uploads.deliver(1, body(1));
            tokio::pin!(first);
            assert!(
                poll!(&mut first).is_pending(),
                "it is passed on, and not taken yet"
            );
            let second = uploads.deliver(2, body(2));
            tokio::pin!(second);
            assert!(poll!(&mut second).is_pending(), "there is no room for it");
        }
        assert_eq!(uploads.next(), 2);
        assert_eq!(next(&mut out).await, "1");
        assert!(out.try_recv().is_err());
        let (again, read) = tokio::join!(uploads.deliver(2, body(2)), next(&mut out));
        assert_eq!((again, &*read), (Ok(()), "2"));
    }

    #[tokio::test]
    async fn numbers_that_cannot_be_are_refused() {
        let (uploads, _out) = Uploads::new();
        for number in [0, 1 + AHEAD, u64::MAX] {
            let refused = uploads.deliver(number, body(0)).await;
            assert_eq!(refused, Err(NotTaken::Number { next: 1 }), "{number}");
        }
        let bad = uploads.deliver(1, Bytes::from_static(b"?")).await;
        assert!(matches!(bad, Err(NotTaken::Bad(_))));
    }
}
