//! Tests of the state machine: literal bytes, its limits, and hostile peers.

use std::time::{Duration, Instant};

use breakbulk_message::vscode::{Arg, Args, Limits, RpcId, Value};

use super::*;

fn request(method: &str, args: &str) -> Request {
    Request {
        rpc_id: RpcId::new(1).unwrap(),
        method: method.into(),
        args: Args::Json(args.into()),
        cancellation: false,
    }
}

fn cancellable() -> Request {
    Request {
        cancellation: true,
        ..request("$m", "[4]")
    }
}

fn small() -> Config {
    Config::default().with(|config| {
        config.pending_calls = 4;
        config.running = 4;
        config.running_bytes = 10_000;
        config.queued_bytes = 4000;
        config.unread_bytes = 8000;
        config.sent_message = 1000;
    })
}

fn sent(rpc: &mut Rpc) -> Vec<Bytes> {
    std::iter::from_fn(|| rpc.poll_transmit())
        .map(|packet| packet.to_bytes())
        .collect()
}

fn events(rpc: &mut Rpc) -> Vec<Event> {
    std::iter::from_fn(|| rpc.poll_event()).collect()
}

fn give(rpc: &mut Rpc, bytes: &[u8]) {
    rpc.handle_message(Instant::now(), Bytes::copy_from_slice(bytes));
}

fn request_ids(events: &[Event]) -> Vec<RequestId> {
    let ids = events.iter().filter_map(|event| match event {
        Event::Request { id, .. } => Some(*id),
        _ => None,
    });
    ids.collect()
}

#[test]
fn a_call_and_its_reply_are_the_originals_bytes() {
    let now = Instant::now();
    let (mut a, mut b) = (Rpc::new(Config::default()), Rpc::new(Config::default()));
    let req = a.call(now, request("$m", "[1]")).unwrap();
    let bytes = sent(&mut a);
    assert_eq!(bytes, [&b"\x01\0\0\0\x01\x01\x02$m\0\0\0\x03[1]"[..]]);
    give(&mut b, &bytes[0]);
    let ids = request_ids(&events(&mut b));
    b.acknowledge(ids[0]);
    b.acknowledge(ids[0]);
    b.reply(ids[0], Reply::OkJson("5".into())).unwrap();
    let refused = b.reply(ids[0], Reply::OkEmpty);
    assert_eq!(refused, Err(Refused::NotRunning));
    let bytes = sent(&mut b);
    assert_eq!(
        bytes,
        [&b"\x05\0\0\0\x01"[..], b"\x09\0\0\0\x01\0\0\0\x015"]
    );
    assert_eq!(a.unacknowledged(), 1);
    for message in bytes {
        give(&mut a, &message);
    }
    let outcome = Ok(Reply::OkJson("5".into()));
    assert_eq!(events(&mut a), [Event::Reply { req, outcome }]);
    assert_eq!((a.unacknowledged(), a.pending_calls()), (0, 0));
}

#[test]
fn numbers_wrap_past_zero_and_those_in_use() {
    let now = Instant::now();
    let mut rpc = Rpc::new(Config::default());
    let call = |rpc: &mut Rpc| rpc.call(now, request("$m", "[]")).unwrap();
    assert_eq!(call(&mut rpc), 1);
    rpc.set_last_id(u32::MAX - 1);
    assert_eq!(call(&mut rpc), u32::MAX);
    assert_eq!(call(&mut rpc), 2);
}

#[test]
fn a_call_that_cannot_be_written_consumes_no_number_and_comes_back() {
    let now = Instant::now();
    let mut rpc = Rpc::new(small());
    let long = "m".repeat(256);
    let table = [
        (request(&long, "[]"), "method name is 256 bytes"),
        (
            request("$m", &format!("[{}]", "1,".repeat(600))),
            "over the limit of 1000",
        ),
        (
            Request {
                args: Args::Mixed(vec![Arg::Undefined; 256]),
                ..request("$m", "")
            },
            "256 arguments",
        ),
    ];
    for (request, words) in table {
        let refused = rpc.call(now, request.clone()).unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
        assert_eq!(*refused.request, request);
    }
    assert_eq!(rpc.call(now, request("$m", "[1]")), Ok(1));
}

#[test]
fn calls_are_bounded_by_count_and_bytes() {
    let now = Instant::now();
    let mut rpc = Rpc::new(small());
    for _ in 0..4 {
        rpc.call(now, request("$m", "[1]")).unwrap();
    }
    let refused = rpc.call(now, request("$m", "[1]")).unwrap_err().refused;
    assert_eq!(refused, Refused::TooManyCalls { limit: 4 });
    let mut rpc = Rpc::new(small().with(|config| config.pending_calls = 100));
    let large = request("$m", &format!("[{}1]", "1,".repeat(400)));
    while rpc.has_room() {
        rpc.call(now, large.clone()).unwrap();
    }
    let refused = rpc.call(now, large.clone()).unwrap_err().refused;
    assert!(matches!(refused, Refused::QueueFull { limit: 4000, .. }));
    assert!(rpc.queued_bytes() < 5000);
    rpc.poll_transmit();
    assert!(rpc.call(now, large).is_ok());
}

#[test]
fn cancel_is_sent_once_and_only_where_somebody_listens() {
    let now = Instant::now();
    let mut rpc = Rpc::new(Config::default());
    let plain = rpc.call(now, request("$m", "[]")).unwrap();
    let req = rpc.call(now, cancellable()).unwrap();
    sent(&mut rpc);
    assert!(!rpc.cancel(plain));
    assert!(rpc.cancel(req));
    assert!(!rpc.cancel(req));
    assert!(!rpc.cancel(99));
    assert_eq!(sent(&mut rpc), [&b"\x06\0\0\0\x02"[..]]);
    // The callee still replies, and the caller gets the reply unless it has forgotten the call.
    give(&mut rpc, b"\x07\0\0\0\x02");
    let outcome = Ok(Reply::OkEmpty);
    assert_eq!(events(&mut rpc), [Event::Reply { req, outcome }]);
    rpc.forget(plain);
    give(&mut rpc, b"\x07\0\0\0\x01");
    assert_eq!(events(&mut rpc), []);
    assert_eq!(rpc.pending_calls(), 0);
}

#[test]
fn a_cancel_reaches_its_request_and_the_reply_still_goes_out() {
    let mut rpc = Rpc::new(Config::default());
    let bytes = b"\x02\0\0\0\x07\x01\x02$m\0\0\0\x03[4]";
    give(&mut rpc, bytes);
    let id = request_ids(&events(&mut rpc))[0];
    give(&mut rpc, b"\x06\0\0\0\x07");
    give(&mut rpc, b"\x06\0\0\0\x07");
    assert_eq!(events(&mut rpc), [Event::Cancelled { id }]);
    rpc.reply(id, Reply::OkJson("7".into())).unwrap();
    assert_eq!(sent(&mut rpc).len(), 2);
    give(&mut rpc, b"\x06\0\0\0\x07");
    assert_eq!(events(&mut rpc), []);
    assert_eq!(rpc.ignored().cancels, 2);
}

#[test]
fn one_number_twice_is_run_twice_and_answered_twice() {
    let mut rpc = Rpc::new(Config::default());
    for args in [b'1', b'2'] {
        give(
            &mut rpc,
            &[&b"\x01\0\0\0\x09\x01\x02$m\0\0\0\x03["[..], &[args, b']']].concat(),
        );
    }
    let ids = request_ids(&events(&mut rpc));
    assert_ne!(ids[0], ids[1]);
    for id in &ids {
        rpc.acknowledge(*id);
    }
    for id in ids {
        rpc.reply(id, Reply::OkEmpty).unwrap();
    }
    let types: Vec<_> = sent(&mut rpc)
        .iter()
        .map(|bytes| (bytes[0], bytes[4]))
        .collect();
    assert_eq!(types, [(5, 9), (5, 9), (7, 9), (7, 9)]);
    assert_eq!(rpc.running_requests(), 0);
}

#[test]
fn what_cannot_be_read_is_answered_where_somebody_waits() {
    let table: [(&[u8], bool); 9] = [
        (b"\x01\0\0\0\x01\x02\x02$m\0\0\0\x03[1,", true),
        (b"\x01\0\0\0\x01\x02\x02$m\0\0\0\x015", true),
        (b"\x01\0\0\0\x01\0\x02$m\0\0\0\x02[]", true),
        (b"\x03\0\0\0\x01\x02\x02$m\x01\x09", true),
        (b"\x04\0\0\0\x01\x02\x02$m\xff", true),
        (b"\x01\0\0\0\x01\x02\xff$m", true),
        (b"\x01\0\0", false),
        (b"\x0d\0\0\0\x01", false),
        (b"", false),
    ];
    for (bytes, answered) in table {
        let mut rpc = Rpc::new(Config::default());
        give(&mut rpc, bytes);
        assert_eq!(events(&mut rpc), [], "{bytes:?}");
        let types: Vec<_> = sent(&mut rpc).iter().map(|bytes| bytes[0]).collect();
        let expected: &[u8] = if answered { &[5, 11] } else { &[] };
        assert_eq!(types, expected, "{bytes:?}");
        assert_eq!(rpc.ignored().messages, u64::from(!answered));
    }
}

#[test]
fn a_reply_that_cannot_be_read_ends_its_call() {
    let mut rpc = Rpc::new(Config::default());
    let req = rpc.call(Instant::now(), request("$m", "[]")).unwrap();
    give(&mut rpc, b"\x09\0\0\0\x01\0\0\0\x09[");
    let [
        Event::Reply {
            req: ended,
            outcome,
        },
    ] = &events(&mut rpc)[..]
    else {
        panic!()
    };
    assert_eq!(*ended, req);
    assert!(matches!(outcome, Err(CallFailed::Undecodable(_))));
}

#[test]
fn a_result_that_cannot_be_sent_is_answered_by_an_error() {
    let mut rpc = Rpc::new(small());
    give(&mut rpc, b"\x01\0\0\0\x01\x01\x02$m\0\0\0\x02[]");
    let id = request_ids(&events(&mut rpc))[0];
    let too_large = Reply::OkBuffer(vec![0; 2000].into());
    let refused = rpc.reply(id, too_large);
    let expected = Refused::TooLarge {
        len: 2009,
        limit: 1000,
    };
    assert_eq!(refused, Err(expected));
    let bytes = sent(&mut rpc);
    assert_eq!(bytes.len(), 2);
    let text = String::from_utf8_lossy(&bytes[1]).into_owned();
    assert!(
        text.contains("2009 bytes is over the limit of 1000"),
        "{text}"
    );
}

// VSCODE-1
#[test]
fn requests_are_bounded_and_reading_stops_where_no_reply_is_needed() {
    let mut rpc = Rpc::new(small().with(|config| config.unread_bytes = 1 << 20));
    let bytes = b"\x01\0\0\0\x01\x01\x02$m\0\0\0\x02[]";
    for _ in 0..4 {
        assert!(rpc.wants_message());
        give(&mut rpc, bytes);
    }
    assert!(!rpc.wants_message());
    // This side's call needs a reply, so reading goes on, and a further request is refused as busy.
    rpc.call(Instant::now(), request("$back", "[]")).unwrap();
    assert!(rpc.wants_message());
    sent(&mut rpc);
    give(&mut rpc, bytes);
    let answers = sent(&mut rpc);
    let text = String::from_utf8_lossy(&answers[1]).into_owned();
    assert!(
        text.contains("busy: over the limit of 4 requests"),
        "{text}"
    );
    let ids = request_ids(&events(&mut rpc));
    assert_eq!(ids.len(), 4);
    rpc.reply(ids[2], Reply::OkEmpty).unwrap();
    give(&mut rpc, bytes);
    assert_eq!(request_ids(&events(&mut rpc)).len(), 1);
}

#[test]
fn requests_wait_while_what_goes_out_is_full_and_their_cancels_behind_them() {
    let mut rpc = Rpc::new(Config::default().with(|config| {
        config.queued_bytes = 300;
        config.unread_bytes = 1 << 20;
    }));
    let request = b"\x02\0\0\0\x01\x01\x02$m\0\0\0\x02[]";
    give(&mut rpc, request);
    let id = request_ids(&events(&mut rpc))[0];
    rpc.reply(id, Reply::OkBuffer(vec![0; 500].into())).unwrap();
    give(&mut rpc, request);
    give(&mut rpc, b"\x06\0\0\0\x01");
    assert_eq!(rpc.poll_event(), None);
    sent(&mut rpc);
    let told = events(&mut rpc);
    assert!(matches!(
        told[..],
        [Event::Request { .. }, Event::Cancelled { .. }]
    ));
}

// VSCODE-2
#[test]
fn a_peer_that_asks_and_never_reads_ends_the_session() {
    assert_eq!(Config::default().unread_bytes, 512 << 20);
    let bad = b"\x01\0\0\0\x01\x02\x02$m\0\0\0\x03[1,";
    // Of the two answers to a bad request the first one is too much, or the second one.
    for limit in (8000..8400).step_by(20) {
        let mut rpc = Rpc::new(small().with(|config| config.unread_bytes = limit));
        let mut given = 0;
        while !rpc.is_disposed() {
            give(&mut rpc, bad);
            given += 1;
            assert!(given < 1000 && rpc.queued_bytes() < limit + 1000);
        }
        let told = events(&mut rpc);
        let [Event::Failed(error)] = &told[..] else {
            panic!("{told:?}")
        };
        let over = format!("over the limit of {limit}");
        assert!(error.to_string().contains(&over), "{error}");
        assert_eq!(sent(&mut rpc), [&b""[..]; 0], "limit {limit}");
        give(&mut rpc, bad);
        assert_eq!(rpc.queued_bytes(), 0, "limit {limit}");
    }
}

#[test]
fn after_dispose_calls_are_cancelled_and_nothing_is_sent() {
    let now = Instant::now();
    let mut rpc = Rpc::new(Config::default());
    give(&mut rpc, b"\x01\0\0\0\x01\x01\x02$m\0\0\0\x02[]");
    let id = request_ids(&events(&mut rpc))[0];
    give(&mut rpc, b"\x01\0\0\0\x02\x01\x02$m\0\0\0\x02[]");
    let kept = rpc.call(now, request("$m", "[1]")).unwrap();
    let forgotten = rpc.call(now, request("$m", "[2]")).unwrap();
    rpc.forget(forgotten);
    rpc.dispose();
    let outcome = Err(CallFailed::Canceled);
    assert_eq!(events(&mut rpc), [Event::Reply { req: kept, outcome }]);
    rpc.acknowledge(id);
    assert_eq!(rpc.reply(id, Reply::OkEmpty), Err(Refused::Disposed));
    let refused = rpc.call(now, request("$m", "[]")).unwrap_err().refused;
    assert_eq!(refused, Refused::Disposed);
    assert_eq!(refused.to_string(), "Canceled");
    assert!(!rpc.cancel(kept));
    assert_eq!(sent(&mut rpc), [&b""[..]; 0]);
    assert_eq!(rpc.poll_timeout(), None);
}

#[test]
fn a_call_that_was_not_carried_leaves_nothing_behind() {
    let mut rpc = Rpc::new(Config::default());
    let req = rpc.call(Instant::now(), request("$m", "[]")).unwrap();
    rpc.lost(req);
    rpc.lost(req);
    assert_eq!((rpc.pending_calls(), rpc.unacknowledged()), (0, 0));
    assert_eq!(rpc.poll_timeout(), None);
}

/// Times in milliseconds, and what happens then.
type Timeline<'a, T> = &'a [(u64, T)];

/// The inputs (`c` a call, `a` an acknowledgement) and the events that must follow.
// VSCODE-3
#[test]
fn responsive_and_unresponsive() {
    let table: [(Timeline<'_, char>, Timeline<'_, Event>); 5] = [
        (&[(0, 'c'), (2900, 'a')], &[]),
        (
            &[(0, 'c'), (4600, 'a')],
            &[(3000, Event::Unresponsive), (4600, Event::Responsive)],
        ),
        // The second call does not move the deadline; an acknowledgement does.
        (&[(0, 'c'), (2500, 'c')], &[(3000, Event::Unresponsive)]),
        (
            &[(0, 'c'), (100, 'c'), (2500, 'a')],
            &[(6000, Event::Unresponsive)],
        ),
        // Acknowledgements without a request do not count later.
        (
            &[(0, 'a'), (0, 'a'), (10, 'c')],
            &[(3010, Event::Unresponsive)],
        ),
    ];
    for (steps, expected) in table {
        let start = Instant::now();
        let mut rpc = Rpc::new(Config::default());
        let mut told = Vec::new();
        for millis in (0..10_000).step_by(10) {
            let now = start + Duration::from_millis(millis);
            for (_, step) in steps.iter().filter(|(at, _)| *at == millis) {
                match step {
                    'c' => drop(rpc.call(now, request("$m", "[]")).unwrap()),
                    _ => rpc.handle_message(now, Bytes::from_static(b"\x05\0\0\0\x01")),
                }
            }
            if rpc.poll_timeout().is_some_and(|(at, _)| now >= at) {
                rpc.handle_timeout(now);
            }
            told.extend(events(&mut rpc).into_iter().map(|event| (millis, event)));
        }
        assert_eq!(told, expected, "{steps:?}");
    }
}

#[test]
fn small_messages_keep_few_of_the_reads_they_came_in() {
    let message = b"\x01\0\0\0\x01\x01\x02$m\0\0\0\x03[1]";
    let mixed = b"\x03\0\0\0\x01\x01\x02$m\x01\x02\0\0\0\x01z";
    let mut rpc = Rpc::new(Config::default());
    let mut kept = Vec::new();
    let mut shared = 0;
    for bytes in std::iter::repeat_n(&message[..], 200).chain([&mixed[..]]) {
        let mut block = vec![0; 1 << 16];
        block[..bytes.len()].copy_from_slice(bytes);
        let block = Bytes::from(block);
        rpc.handle_message(Instant::now(), block.slice(..bytes.len()));
        kept.extend(events(&mut rpc));
        shared += usize::from(!block.is_unique());
    }
    assert_eq!(request_ids(&kept).len(), 201);
    assert_eq!(shared, SHARING_MAX);
}

/// Every kind of message cut at every byte, and with every byte changed: no panic, and every request
/// with a complete header runs or is answered.
#[test]
fn truncations_and_changed_bytes() {
    let samples: [&[u8]; 8] = [
        b"\x01\0\0\0\x01\x01\x02$m\0\0\0\x03[1]",
        b"\x02\0\0\0\x01\x01\x02$m\0\0\0\x02[]",
        b"\x03\0\0\0\x02\x02\x02$m\x04\x02\0\0\0\x02ab\x01\0\0\0\x015\x04\
          \x03\0\0\0\x01\0\0\0\x0d{\"$$ref$$\":0}\0\0\0\x01z",
        b"\x08\0\0\0\x01\0\0\0\x02ab",
        b"\x09\0\0\0\x01\0\0\0\x04null",
        b"\x0a\0\0\0\x01\0\0\0\x01\0\0\0\x0d{\"$$ref$$\":0}\0\0\0\x01z",
        b"\x0b\0\0\0\x01\0\0\0\x0f{\"$isError\":true",
        b"\x0c\0\0\0\x01",
    ];
    let mut cases = Vec::new();
    for sample in samples {
        cases.extend((0..=sample.len()).map(|cut| sample[..cut].to_vec()));
        for at in 0..sample.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = sample.to_vec();
                changed[at] = byte;
                cases.push(changed);
            }
        }
    }
    for bytes in cases {
        let mut rpc = Rpc::new(Config::default());
        rpc.call(Instant::now(), cancellable()).unwrap();
        sent(&mut rpc);
        give(&mut rpc, &bytes);
        let told = events(&mut rpc);
        let header = Header::read(&bytes);
        let is_request = header.is_some_and(|header| header.message_type.is_request());
        let is_reply =
            header.is_some_and(|header| header.message_type.is_reply() && header.req == 1);
        let answers = sent(&mut rpc).len();
        let ran = request_ids(&told).len();
        assert_eq!(answers == 2 || ran == 1, is_request, "{bytes:?}");
        assert_eq!(rpc.pending_calls(), usize::from(!is_reply), "{bytes:?}");
    }
}

#[test]
fn deep_json_and_reference_games_are_errors_and_not_stack() {
    let deep = "[".repeat(100_000);
    let mut bytes = b"\x01\0\0\0\x01\x01\x02$m".to_vec();
    bytes.extend_from_slice(&(deep.len() as u32).to_be_bytes());
    bytes.extend_from_slice(deep.as_bytes());
    let mut rpc = Rpc::new(Config::default());
    give(&mut rpc, &bytes);
    assert_eq!(sent(&mut rpc).len(), 2);
    // References are read with the value that contains them, where invalid ones are refused.
    for (json, good) in [
        (r#"{"$$ref$$":0}"#, true),
        (r#"{"$$ref$$":-1}"#, true),
        (r#"{"$$ref$$":1}"#, false),
        (r#"{"$$ref$$":-2}"#, false),
        (r#"{"$$ref$$":1e300}"#, false),
    ] {
        let mut bytes = b"\x03\0\0\0\x01\x01\x02$m\x01\x03\0\0\0\x01".to_vec();
        bytes.extend_from_slice(&(json.len() as u32).to_be_bytes());
        bytes.extend_from_slice(json.as_bytes());
        bytes.extend_from_slice(b"\0\0\0\x01z");
        give(&mut rpc, &bytes);
        let told = events(&mut rpc);
        let [Event::Request { request, .. }] = &told[..] else {
            panic!("{json}")
        };
        let read = request.args.read(None);
        assert_eq!(read.is_ok(), good, "{json}");
        if json.contains(":0}") {
            let value = Value::Buffer(Bytes::from_static(b"z"));
            assert_eq!(*read.unwrap()[0].value(), value);
        }
    }
}

#[test]
fn limits_hold_before_memory_is_taken() {
    let limits = Limits::default().with(|limits| {
        limits.message = 100;
        limits.args = 2;
        limits.buffers = 1;
    });
    let mut rpc = Rpc::new(Config::default().with(|config| config.received = limits));
    let table: [&[u8]; 3] = [
        &[&b"\x01\0\0\0\x01\x01\x02$m\0\0\0\x65"[..], &[b'1'; 101]].concat(),
        b"\x03\0\0\0\x01\x01\x02$m\x03\x04\x04\x04",
        b"\x03\0\0\0\x01\x01\x02$m\x01\x03\xff\xff\xff\xff\0\0\0\x02{}",
    ];
    for bytes in table {
        give(&mut rpc, bytes);
        let answers = sent(&mut rpc);
        let text = String::from_utf8_lossy(&answers[1]).into_owned();
        assert!(text.contains("over the receiver's limit"), "{text}");
    }
}
