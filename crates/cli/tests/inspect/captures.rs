//! Small captures of every kind, each with a transfer (where the kind has them) and whole messages.

use breakbulk::message::loro::{ChannelMsg, Transmission, encode_frame, to_json};
use breakbulk::message::vscode::{self, ipc};

use super::{prefixed, split};

pub(super) fn ahp() -> Vec<u8> {
    let initialize = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"channel":"ahp-root://","clientId":"c","initialSubscriptions":["ahp-root://"],"protocolVersions":["1.0.0","0.9.0"],"capabilities":{"chunking":{"maxIncomingFrameBytes":900000,"maxIncomingMessageBytes":33554432,"maxIncomingGroups":8,"groupTimeoutMs":30000}}}}"#;
    let action = format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{{"channel":"ahp-session:/abc","action":{{"type":"session/titleChanged","title":"{}"}},"serverSeq":421}}}}"#,
        "x".repeat(200)
    );
    let segments = split("ahp", "300", "g1", action.as_bytes());
    [&initialize[..], b"\n", &segments].concat()
}

pub(super) fn tywrap() -> Vec<u8> {
    let call = format!(
        r#"{{"method":"call","params":{{"module":"math","functionName":"sqrt","args":["{}"]}},"id":7,"protocol":"tywrap/1"}}"#,
        "y".repeat(50)
    );
    let mut capture = split("tywrap", "100", "request:7", call.as_bytes());
    capture.extend_from_slice(
        b"{\"id\":7,\"protocol\":\"tywrap/1\",\"error\":{\"type\":\"TypeError\",\"message\":\"must be real number, not str\"}}\n",
    );
    capture
}

pub(super) fn cep22() -> Vec<u8> {
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"echo","arguments":{{"x":"{}"}},"_meta":{{"progressToken":"tok"}}}}}}"#,
        "z".repeat(300)
    );
    let mut capture = split("cep22", "400", "tok", call.as_bytes());
    capture.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"tok\",\"progress\":9,\"message\":\"half way\"}}\n");
    capture
}

pub(super) fn update() -> ChannelMsg {
    ChannelMsg::Update {
        doc_id: "notes".into(),
        transmission: Transmission::Snapshot {
            data: vec![7; 100].into(),
            version: [(1, 2)].into_iter().collect(),
        },
    }
}

pub(super) fn loro() -> Vec<u8> {
    let frame = encode_frame(&update()).unwrap();
    let mut capture = split("loro", "80", "00000000000000ff", &frame);
    let delete = ChannelMsg::DeleteRequest {
        doc_id: "old".into(),
    };
    let payload = [&[0][..], &encode_frame(&delete).unwrap()].concat();
    capture.extend_from_slice(&prefixed(&[payload]));
    capture
}

pub(super) fn loro_json() -> Vec<u8> {
    format!("ready\n{}\n", to_json(&update())).into_bytes()
}

pub(super) fn loro_frames() -> Vec<u8> {
    prefixed(&[encode_frame(&update()).unwrap().to_vec()])
}

pub(super) fn rpc_messages() -> Vec<Vec<u8>> {
    let picture = vscode::Passed::Plain(vscode::Value::Buffer(vec![1; 64].into()));
    let request = |method: &str, args| vscode::Request {
        rpc_id: vscode::RpcId::new(2).unwrap(),
        method: method.into(),
        args: vscode::Args::write(args, None).unwrap(),
        cancellation: false,
    };
    let error = r#"{"$isError":true,"name":"Error","message":"nope","noTelemetry":false}"#;
    [
        vscode::Body::Request(request(
            "$write",
            vec![picture, vscode::Value::Undefined.into()],
        )),
        vscode::Body::Request(request(
            "$log",
            vec![
                vscode::Value::from(2).into(),
                vscode::Value::from("hello").into(),
            ],
        )),
        vscode::Body::Acknowledged,
        vscode::Body::Reply(vscode::Reply::OkEmpty),
        vscode::Body::Reply(vscode::Reply::ErrError(error.into())),
    ]
    .into_iter()
    .map(|body| {
        let mut bytes = Vec::new();
        vscode::encode(&vscode::RpcMessage { req: 1, body }, &mut bytes).unwrap();
        bytes
    })
    .collect()
}

pub(super) fn rpc() -> Vec<u8> {
    prefixed(&rpc_messages())
}

pub(super) fn ipc_frame(frame_type: ipc::FrameType, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let frame = ipc::Frame {
        frame_type,
        id,
        ack: 3,
        payload: payload.to_vec().into(),
    };
    frame.write(&mut out).unwrap();
    out
}

pub(super) fn ipc_stream() -> Vec<u8> {
    let messages = rpc_messages();
    [
        ipc_frame(ipc::FrameType::Regular, 1, &[2]),
        ipc_frame(ipc::FrameType::Regular, 2, &messages[1]),
        ipc_frame(ipc::FrameType::KeepAlive, 0, &[]),
        ipc_frame(ipc::FrameType::Regular, 3, &messages[2]),
        ipc_frame(ipc::FrameType::Regular, 2, &messages[1]),
    ]
    .concat()
}

pub(super) fn plain() -> Vec<u8> {
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shutdown\"}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}\n".to_vec()
}

/// All kinds, with the wire that each is told to be.
pub(super) fn captures() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    vec![
        ("ahp", "ahp", ahp()),
        ("tywrap", "tywrap", tywrap()),
        ("cep22", "cep22", cep22()),
        ("loro", "loro", loro()),
        ("loro, JSON", "loro", loro_json()),
        ("loro, bare", "loro", loro_frames()),
        ("vscode", "vscode", rpc()),
        ("ipc.net", "vscode", ipc_stream()),
        ("json-rpc", "jsonrpc", plain()),
    ]
}
