#![allow(clippy::unwrap_used)]

use super::*;

fn read(text: &str) -> Message {
    Message::read(text.as_bytes()).unwrap()
}

fn request(id: u32, token: Option<u32>) -> Message {
    let token = token.map_or(String::new(), |token| {
        format!(r#","params":{{"_meta":{{"progressToken":{token}}}}}"#)
    });
    read(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"m"{token}}}"#
    ))
}

fn put(streams: &mut Streams, text: &str) -> Put {
    put_at(streams, text, Instant::now())
}

fn put_at(streams: &mut Streams, text: &str, now: Instant) -> Put {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let put = streams.put(now, Some(&read(text)), &bytes, || None);
    streams.check();
    put
}

fn open(streams: &mut Streams, message: &Message) -> Result<u64, NotOpened> {
    let budget = breakbulk_link::Budget::new(1 << 20);
    streams.open(message, |size| budget.charge(size))
}

fn taken(streams: &mut Streams, stream: u64, reader: u64) -> Vec<String> {
    let budget = breakbulk_link::Budget::new(1 << 20);
    std::iter::from_fn(
        || match streams.take(stream, reader, |size| budget.charge(size)) {
            Taken::Event(event) => Some(String::from_utf8(event.bytes.to_vec()).unwrap()),
            _ => None,
        },
    )
    .collect()
}

const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
const SAMPLING: &str = r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage"}"#;
const PROGRESS: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9}}"#;

fn answer(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

// MCPH-5
#[test]
fn a_message_goes_to_the_stream_where_it_belongs_and_to_no_other() {
    let mut streams = Streams::new(1 << 20, true);
    // No request is open: the message waits for a GET.
    put(&mut streams, LOG);
    let first = open(&mut streams, &request(1, None)).unwrap();
    let one = streams.attach(first, None).unwrap();
    // The message goes to the stream of the only open request.
    put(&mut streams, SAMPLING);
    assert_eq!(taken(&mut streams, first, one), [SAMPLING]);
    let second = open(&mut streams, &request(2, Some(9))).unwrap();
    let two = streams.attach(second, None).unwrap();
    // Progress goes by its token; other messages, with two open requests and no GET, to the newest request.
    put(&mut streams, PROGRESS);
    put(&mut streams, LOG);
    assert_eq!(taken(&mut streams, second, two), [PROGRESS, LOG]);
    // With a GET they go to the client's own stream.
    let own = streams.attach(OWN, None).unwrap();
    put(&mut streams, SAMPLING);
    assert_eq!(taken(&mut streams, OWN, own), [LOG, SAMPLING]);
    put(&mut streams, &answer(1));
    assert!(streams.has_ended(first) && !streams.has_ended(second));
    assert_eq!(taken(&mut streams, first, one), [answer(1)]);
    assert!(matches!(streams.take(first, one, |_| None), Taken::Ended));
    assert_eq!(taken(&mut streams, second, two), [""; 0]);
    // An answer that nobody waits for.
    assert!(matches!(put(&mut streams, &answer(1)), Put::Nowhere));
    // An id can be used once at a time.
    assert!(open(&mut streams, &request(2, None)).is_err());
    assert!(open(&mut streams, &request(1, None)).is_ok());
    assert!(streams.cancel(Instant::now(), "2"));
    assert!(matches!(streams.take(second, two, |_| None), Taken::Ended));
}

// MCPH-6
#[test]
fn a_stream_goes_on_after_the_last_event_that_arrived() {
    let mut streams = Streams::new(1 << 20, true);
    let stream = open(&mut streams, &request(1, None)).unwrap();
    let reader = streams.attach(stream, None).unwrap();
    put(&mut streams, LOG);
    put(&mut streams, SAMPLING);
    assert_eq!(taken(&mut streams, stream, reader).len(), 2);
    streams.detach(stream, reader);
    put(&mut streams, &answer(1));
    // The client has seen one event.
    let again = streams.attach(stream, Some(1)).unwrap();
    assert!(
        matches!(streams.take(stream, reader, |_| None), Taken::Ended),
        "replaced"
    );
    assert_eq!(
        taken(&mut streams, stream, again),
        [SAMPLING.to_owned(), answer(1)]
    );
    // Once more from its begin, and from an event that never was.
    let again = streams.attach(stream, Some(0)).unwrap();
    assert_eq!(taken(&mut streams, stream, again).len(), 3);
    assert_eq!(streams.attach(stream, Some(9)), None);
    assert_eq!(streams.attach(77, Some(0)), None);
    assert_eq!(streams.waiting, 0);
    streams.detach(stream, again);
    // A minute later it is forgotten.
    put_at(&mut streams, LOG, Instant::now() + RESUMABLE);
    assert_eq!(streams.attach(stream, Some(0)), None);
}

// MCPH-7
#[test]
fn what_waits_and_what_is_kept_is_bounded() {
    let mut streams = Streams::new(1000, true);
    let stream = open(&mut streams, &request(1, None)).unwrap();
    let reader = streams.attach(stream, None).unwrap();
    let mut waiting = 0;
    while matches!(put(&mut streams, LOG), Put::Done) {
        waiting += 1;
    }
    assert_eq!(waiting, 1000 / LOG.len());
    assert_eq!(taken(&mut streams, stream, reader).len(), waiting);
    // A message that is over the limit by itself is taken when nothing else waits, and further ones have to
    // wait.
    let large = LOG.replace("message", &"x".repeat(2000));
    assert!(matches!(put(&mut streams, &large), Put::Done));
    assert!(matches!(put(&mut streams, LOG), Put::Full));
    for _ in 0..10_000 {
        taken(&mut streams, stream, reader);
        assert!(matches!(put(&mut streams, LOG), Put::Done));
    }
    assert!(streams.streams[&stream].events.len() <= KEPT + 1);
    // An answer whose client did not come back is given up to make room.
    assert!(matches!(put(&mut streams, &large), Put::Full));
    taken(&mut streams, stream, reader);
    let gone = open(&mut streams, &request(2, None)).unwrap();
    let answered = answer(2).replace("{}", &format!("\"{}\"", "x".repeat(900)));
    put(&mut streams, &answered);
    assert!(matches!(put(&mut streams, &large), Put::Done));
    assert_eq!(streams.attach(gone, Some(0)), None);
    // When too many messages wait for a GET, the oldest are removed and returned.
    let mut streams = Streams::new(1 << 20, true);
    let mut evicted = 0;
    for _ in 0..UNHEARD + 5 {
        if let Put::Evicted(gone) = put(&mut streams, LOG) {
            evicted += gone.len();
        }
    }
    assert_eq!((evicted, streams.unread()), (5, UNHEARD));
}

// MCPH-7
#[test]
fn what_there_is_no_memory_for_is_not_kept() {
    let mut streams = Streams::new(1000, true);
    let stream = open(&mut streams, &request(1, None)).unwrap();
    let reader = streams.attach(stream, None).unwrap();
    put(&mut streams, LOG);
    put(&mut streams, LOG);
    let budget = breakbulk_link::Budget::new(LOG.len());
    for _ in 0..2 {
        let taken = streams.take(stream, reader, |size| budget.charge(size));
        assert!(matches!(taken, Taken::Event(_)));
    }
    // The second event could not be kept: a client that has only the first cannot resume without a gap.
    assert_eq!(budget.used(), 0);
    assert_eq!(streams.attach(stream, Some(1)), None);
    assert!(streams.attach(stream, Some(2)).is_some());
}

#[test]
fn a_backend_of_many_clients_keeps_nothing_of_one() {
    let mut streams = Streams::new(1000, false);
    assert!(matches!(put(&mut streams, LOG), Put::Nowhere));
    let stream = open(&mut streams, &request(1, None)).unwrap();
    let reader = streams.attach(stream, None).unwrap();
    put(&mut streams, LOG);
    put(&mut streams, &answer(1));
    assert_eq!(taken(&mut streams, stream, reader).len(), 2);
    streams.detach(stream, reader);
    assert!(matches!(put(&mut streams, LOG), Put::Nowhere));
    assert!(streams.is_quiet() && streams.streams.len() == 1);
}

/// The answer to a request whose client is away waits for it, also where nothing else was ever in its stream.
// MCPH-6
#[test]
fn an_answer_waits_for_a_client_whose_connection_broke_before_anything_came() {
    let mut streams = Streams::new(1 << 20, true);
    let stream = open(&mut streams, &request(1, None)).unwrap();
    let reader = streams.attach(stream, None).unwrap();
    streams.detach(stream, reader);
    put(&mut streams, &answer(1));
    let again = streams.attach(stream, Some(0)).unwrap();
    assert_eq!(taken(&mut streams, stream, again), [answer(1)]);
    // What was said there to a request that the server never got is given back.
    let stream = open(&mut streams, &request(2, None)).unwrap();
    put(&mut streams, SAMPLING);
    assert_eq!(streams.abandon(stream), [SAMPLING.as_bytes()]);
    streams.check();
}

/// A message is charged until its last part has left, and not only until that part was made: a part that
/// waits in the queue of a socket keeps all of the message in memory.
// MCPH-7
#[test]
fn what_is_sent_is_charged_until_the_last_part_of_it_has_left() {
    let budget = breakbulk_link::Budget::new(1 << 20);
    for is_resumable in [true, false] {
        let mut streams = Streams::new(1 << 20, is_resumable);
        let stream = open(&mut streams, &request(1, None)).unwrap();
        let reader = streams.attach(stream, None).unwrap();
        let bytes = Bytes::copy_from_slice(LOG.as_bytes());
        let charge = || budget.charge(bytes.len());
        streams.put(Instant::now(), Some(&read(LOG)), &bytes, charge);
        assert_eq!(budget.used(), LOG.len());
        let Taken::Event(mut event) = streams.take(stream, reader, |_| None) else {
            panic!("no event")
        };
        let part = event.bytes.split_to(1);
        drop((event, streams));
        assert_eq!(budget.used(), LOG.len(), "a part of it is still there");
        drop(part);
        assert_eq!(budget.used(), 0);
    }
}

/// Otherwise streams that have ended stay for a minute each, and each message looks at all of them.
#[test]
fn a_stream_of_which_nothing_is_left_is_forgotten_at_once() {
    let mut streams = Streams::new(1 << 20, true);
    for id in 0..10_000 {
        let stream = open(&mut streams, &request(id, Some(id))).unwrap();
        let reader = streams.attach(stream, None).unwrap();
        put(&mut streams, &answer(id));
        assert_eq!(taken(&mut streams, stream, reader).len(), 1);
        streams.detach(stream, reader);
        // One whose client does not wait for the answer, and cancels it.
        let stream = open(&mut streams, &request(id, None)).unwrap();
        assert!(streams.cancel(Instant::now(), &id.to_string()));
        assert!(streams.attach(stream, None).is_none());
    }
    assert!(
        streams.streams.len() <= KEPT + 2,
        "{}",
        streams.streams.len()
    );
    assert!(streams.requests.is_empty() && streams.tokens.is_empty());
}
