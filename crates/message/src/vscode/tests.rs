//! Compares messages with literal bytes, and decodes hostile ones.

use bytes::Bytes;

use super::*;

/// A small seeded generator: the same seed gives the same run.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

fn message(req: u32, body: Body) -> RpcMessage {
    RpcMessage { req, body }
}

fn request(args: Args, cancellation: bool) -> Body {
    Body::Request(Request {
        rpc_id: RpcId::new(2).unwrap(),
        method: "$m".into(),
        args,
        cancellation,
    })
}

fn with_buffers(json: &str, buffers: &[&'static [u8]]) -> WithBuffers {
    WithBuffers {
        json: json.into(),
        buffers: buffers.iter().map(|b| Bytes::from_static(b)).collect(),
    }
}

fn bytes_of(message: &RpcMessage) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &mut out).unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<RpcMessage, DecodeError> {
    decode(Bytes::copy_from_slice(bytes), &Limits::default())
}

/// One message of each type, with the bytes that the original writes.
fn table() -> Vec<(RpcMessage, &'static [u8])> {
    let json = |text: &str| Args::Json(text.into());
    let mixed = vec![
        Arg::Buffer(Bytes::from_static(b"ab")),
        Arg::Json("5".into()),
        Arg::Undefined,
        Arg::ObjectWithBuffers(with_buffers(r#"{"$$ref$$":0}"#, &[b"z"])),
    ];
    vec![
        (
            message(1, request(json("[1]"), false)),
            b"\x01\0\0\0\x01\x02\x02$m\0\0\0\x03[1]",
        ),
        (
            message(u32::MAX, request(json("[]"), true)),
            b"\x02\xff\xff\xff\xff\x02\x02$m\0\0\0\x02[]",
        ),
        (
            message(2, request(Args::Mixed(mixed), false)),
            b"\x03\0\0\0\x02\x02\x02$m\x04\x02\0\0\0\x02ab\x01\0\0\0\x015\x04\
              \x03\0\0\0\x01\0\0\0\x0d{\"$$ref$$\":0}\0\0\0\x01z",
        ),
        (
            message(2, request(Args::Mixed(vec![]), true)),
            b"\x04\0\0\0\x02\x02\x02$m\0",
        ),
        (message(3, Body::Acknowledged), b"\x05\0\0\0\x03"),
        (message(3, Body::Cancel), b"\x06\0\0\0\x03"),
        (message(0, Body::Reply(Reply::OkEmpty)), b"\x07\0\0\0\0"),
        (
            message(1, Body::Reply(Reply::OkBuffer("xyz".into()))),
            b"\x08\0\0\0\x01\0\0\0\x03xyz",
        ),
        (
            message(1, Body::Reply(Reply::OkJson("\"é\"".into()))),
            b"\x09\0\0\0\x01\0\0\0\x04\"\xc3\xa9\"",
        ),
        (
            message(
                1,
                Body::Reply(Reply::OkJsonWithBuffers(with_buffers("{}", &[b"", b"1"]))),
            ),
            b"\x0a\0\0\0\x01\0\0\0\x02\0\0\0\x02{}\0\0\0\0\0\0\0\x011",
        ),
        (
            message(1, Body::Reply(Reply::ErrError("42".into()))),
            b"\x0b\0\0\0\x01\0\0\0\x0242",
        ),
        (message(1, Body::Reply(Reply::ErrEmpty)), b"\x0c\0\0\0\x01"),
    ]
}

#[test]
fn every_type_has_the_originals_bytes() {
    for (index, (message, bytes)) in table().into_iter().enumerate() {
        assert_eq!(bytes_of(&message), bytes);
        assert_eq!(encoded_len(&message), Ok(bytes.len()));
        assert_eq!(read(bytes), Ok(message.clone()));
        assert_eq!(message.header().message_type as usize, index + 1);
    }
}

#[test]
fn encode_appends_and_grows_once() {
    let (message, bytes) = table().swap_remove(2);
    let mut out = b"before".to_vec();
    encode(&message, &mut out).unwrap();
    assert_eq!(out, [b"before", bytes].concat());
    let mut exact = Vec::new();
    encode(&message, &mut exact).unwrap();
    assert_eq!(exact.capacity(), exact.len());
}

#[test]
fn decode_copies_nothing() {
    let buffer = Bytes::from(vec![7; 1 << 16]);
    let args = vec![Arg::Buffer(buffer), Arg::Json("\"text\"".into())];
    let whole = Bytes::from(bytes_of(&message(1, request(Args::Mixed(args), false))));
    let decoded = decode(whole.clone(), &Limits::default()).unwrap();
    let Body::Request(Request { args, method, .. }) = decoded.body else {
        panic!("not a request");
    };
    let Args::Mixed(args) = args else {
        panic!("not mixed");
    };
    let [Arg::Buffer(buffer), Arg::Json(json)] = &args[..] else {
        panic!("not two");
    };
    let inside = whole.as_ptr_range();
    for slice in [buffer, method.as_bytes(), json.as_bytes()] {
        assert!(inside.contains(&slice.as_ptr()));
    }
}

#[test]
fn what_does_not_fit_is_an_error_and_never_wraps() {
    for id in [0, 256, 258, usize::MAX] {
        assert_eq!(RpcId::new(id), Err(EncodeError::RpcId { id }));
    }
    let named = |len: usize| {
        let mut body = request(Args::Json("[]".into()), false);
        if let Body::Request(request) = &mut body {
            request.method = "m".repeat(len).into();
        }
        message(1, body)
    };
    assert_eq!(read(&bytes_of(&named(255))), Ok(named(255)));
    let mut out = Vec::new();
    let error = EncodeError::MethodTooLong { len: 256 };
    assert_eq!(encode(&named(256), &mut out), Err(error));
    let undefined = |count| message(1, request(Args::Mixed(vec![Arg::Undefined; count]), false));
    assert_eq!(bytes_of(&undefined(255))[9], 255);
    let error = EncodeError::TooManyArgs { count: 256 };
    assert_eq!(encode(&undefined(256), &mut out), Err(error));
    assert!(out.is_empty());
}

#[test]
fn truncated_anywhere_is_an_error_that_knows_its_header() {
    for (message, bytes) in table() {
        for len in 0..bytes.len() {
            let error = read(&bytes[..len]).unwrap_err();
            assert!(
                matches!(error.kind, DecodeErrorKind::Truncated { .. }),
                "{error}"
            );
            let header = (len >= Header::LEN).then(|| message.header());
            assert_eq!(error.header, header, "{len} of {bytes:?}");
        }
    }
}

#[test]
fn trailing_bytes_are_tolerated() {
    for (message, bytes) in table() {
        assert_eq!(read(&[bytes, b"\xde\xad"].concat()), Ok(message));
    }
}

#[test]
fn malformed() {
    use DecodeErrorKind as Kind;
    let json = |field, at| Kind::Json {
        field,
        error: JsonError::Malformed { at },
    };
    let table: [(&[u8], Kind); 11] = [
        (b"", Kind::Truncated { field: "header" }),
        (b"\0\0\0\0\x01", Kind::UnknownType(0)),
        (b"\x0d", Kind::UnknownType(13)),
        (b"\x01\0\0\0\x01\0\x02$m\0\0\0\x02[]", Kind::RpcIdZero),
        (
            b"\x01\0\0\0\x01\x02\x02\xff\xff\0\0\0\x02[]",
            Kind::NotUtf8 { field: "method" },
        ),
        (b"\x01\0\0\0\x01\x02\x00\0\0\0\x02{}", Kind::ArgsNotArray),
        (b"\x01\0\0\0\x01\x02\x00\0\0\0\x03[1,", json("arguments", 3)),
        (b"\x03\0\0\0\x01\x02\x00\x01\x09", Kind::UnknownArgType(9)),
        (
            b"\x03\0\0\0\x01\x02\x00\x01\x01\0\0\0\0",
            json("argument", 0),
        ),
        (
            b"\x09\0\0\0\x01\0\0\0\x03\"\xc3\"",
            Kind::NotUtf8 { field: "result" },
        ),
        (b"\x0b\0\0\0\x01\0\0\0\x01x", json("error", 0)),
    ];
    for (bytes, expected) in table {
        assert_eq!(read(bytes).unwrap_err().kind, expected, "{bytes:?}");
    }
}

#[test]
fn limits_come_before_memory() {
    let check = |bytes: &[u8], limits: Limits, expected: &str| {
        let error = decode(Bytes::copy_from_slice(bytes), &limits).unwrap_err();
        let what = match &error.kind {
            DecodeErrorKind::OverLimit { what, .. } => what,
            DecodeErrorKind::Truncated { field } => field,
            DecodeErrorKind::Json { field, .. } => field,
            _ => "",
        };
        assert_eq!(what, expected, "{error}");
        assert!(error.header.is_some());
    };
    let limits = Limits::default();
    let table = table();
    let request = table[2].1;
    check(request, limits.with(|it| it.message = 10), "message length");
    check(request, limits.with(|it| it.args = 3), "argument count");
    check(request, limits.with(|it| it.buffers = 0), "buffer count");
    check(
        request,
        limits.with(|it| it.text = 12),
        "object with buffers",
    );
    check(
        request,
        limits.with(|it| it.nesting = 0),
        "object with buffers",
    );
    let endless = limits.with(|it| {
        it.buffers = usize::MAX;
        it.text = usize::MAX;
    });
    check(
        b"\x0a\0\0\0\x01\xff\xff\xff\xff\0\0\0\x02{}xxxxx",
        limits,
        "buffer count",
    );
    check(
        b"\x0a\0\0\0\x01\xff\xff\xff\xff\0\0\0\x02{}xxxxx",
        endless,
        "buffers",
    );
    check(b"\x08\0\0\0\x01\xff\xff\xff\xffx", endless, "buffer");
    check(b"\x09\0\0\0\x01\xff\xff\xff\xff1", endless, "result");
}

/// Every frame recorded from the original, whatever file it is in.
fn recorded() -> Vec<Vec<u8>> {
    fn collect(value: &serde_json::Value, found: &mut Vec<Vec<u8>>) {
        match value {
            serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            serde_json::Value::Object(entries) => {
                for (key, value) in entries {
                    match value.as_str() {
                        Some(hex) if key == "hex" => found.push(from_hex(hex)),
                        _ => collect(value, found),
                    }
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    for file in ["rpc.json", "rpc-inject.json"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/vscode");
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        collect(&serde_json::from_str(&text).unwrap(), &mut found);
    }
    assert!(found.len() > 100);
    found
}

fn from_hex(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[test]
fn recorded_frames_cut_anywhere_are_errors() {
    for frame in recorded() {
        let whole = read(&frame).unwrap();
        // One recorded count has wrapped around, so that the rest of the frame is trailing bytes.
        for len in 0..bytes_of(&whole).len() {
            assert!(read(&frame[..len]).is_err(), "{len} of {frame:?}");
        }
    }
}

#[test]
fn mutated_frames_never_panic() {
    let seed = std::env::var("SEED").map_or(0x5eed_0002, |seed| seed.parse().unwrap());
    println!("seed {seed} (set SEED for another)");
    let frames = recorded();
    let mut random = Random::new(seed);
    let mut survived = 0;
    for _ in 0..50_000 {
        let mut frame = frames[random.below(frames.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut frame, &mut random);
        }
        let Ok(message) = read(&frame) else {
            continue;
        };
        survived += 1;
        // A message that decodes encodes to the same message again, and its values can be read.
        assert_eq!(read(&bytes_of(&message)), Ok(message.clone()));
        match message.body {
            Body::Request(request) => drop(request.args.read(None)),
            Body::Reply(reply) => drop(reply.read(None)),
            Body::Acknowledged | Body::Cancel => {}
        }
    }
    assert!(survived > 1000, "{survived}");
}

fn mutate(frame: &mut Vec<u8>, random: &mut Random) {
    if frame.is_empty() {
        return frame.push(random.next() as u8);
    }
    let at = random.below(frame.len());
    match random.below(5) {
        0 => frame[at] = random.next() as u8,
        1 => frame[at] ^= 1 << random.below(8),
        2 => frame.truncate(at),
        3 => frame.insert(at, random.next() as u8),
        _ => drop(frame.remove(at)),
    }
}
