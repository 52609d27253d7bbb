use super::*;

fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text).unwrap()
}

fn missing<T>(member: &'static str) -> Result<T, ReadError> {
    Err(ReadError::Missing { member })
}

fn wrong<T>(member: &'static str, expected: &'static str) -> Result<T, ReadError> {
    Err(ReadError::Wrong { member, expected })
}

#[test]
fn initialize_params() {
    let params = raw(
        r#"{"channel":"ahp-root://","clientId":"\u0063","initialSubscriptions":["ahp-root://"],"protocolVersions":["1.0.0","0.9.0"],"capabilities":{"chunking":{"maxIncomingFrameBytes":1,"maxIncomingMessageBytes":2}}}"#,
    );
    let read = InitializeParams::read(params).unwrap();
    assert_eq!((&*read.channel, &*read.client_id), ("ahp-root://", "c"));
    assert_eq!(
        read.protocol_versions.collect::<Vec<_>>(),
        ["1.0.0", "0.9.0"]
    );
    assert_eq!(
        read.initial_subscriptions.collect::<Vec<_>>(),
        ["ahp-root://"]
    );
    assert_eq!(read.chunking().unwrap().max_frame_bytes, 1);

    let bare = raw(r#"{"channel":"x","clientId":"c","protocolVersions":[],"capabilities":null}"#);
    let read = InitializeParams::read(bare).unwrap();
    assert_eq!(read.initial_subscriptions.count(), 0);
    assert!(read.capabilities.is_none() && read.chunking().is_none());

    for (text, error) in [
        ("[]", Err(ReadError::NotObject)),
        ("null", Err(ReadError::NotObject)),
        ("{}", missing("channel")),
        (r#"{"channel":1}"#, wrong("channel", "a string")),
        (r#"{"channel":"\ud800"}"#, wrong("channel", "a string")),
        (r#"{"channel":"c"}"#, missing("clientId")),
        (
            r#"{"channel":"c","clientId":"c"}"#,
            missing("protocolVersions"),
        ),
        (
            r#"{"channel":"c","clientId":"c","protocolVersions":["1.0.0",{}]}"#,
            wrong("protocolVersions", "an array of strings"),
        ),
        (
            r#"{"channel":"c","clientId":"c","protocolVersions":[],"initialSubscriptions":"x"}"#,
            wrong("initialSubscriptions", "an array of strings"),
        ),
    ] {
        assert_eq!(InitializeParams::read(raw(text)).map(drop), error, "{text}");
    }
}

#[test]
fn initialize_result() {
    let result = raw(
        r#"{"protocolVersion":"1.0.0","serverSeq":421,"snapshots":[{"resource":"ahp-root://","state":{"a": 1},"fromSeq":420}],"serverInfo":{},"capabilities":{"chunking":{}}}"#,
    );
    let read = InitializeResult::read(result).unwrap();
    assert_eq!((&*read.protocol_version, read.server_seq), ("1.0.0", 421));
    assert!(read.capabilities.is_some() && read.chunking().is_none());
    let snapshots: Vec<_> = read
        .snapshots
        .map(|raw| Snapshot::read(raw).unwrap())
        .collect();
    assert_eq!(snapshots.len(), 1);
    assert_eq!(
        (
            &*snapshots[0].resource,
            snapshots[0].state.get(),
            snapshots[0].from_seq
        ),
        ("ahp-root://", r#"{"a": 1}"#, 420)
    );

    for (text, error) in [
        ("null", Err(ReadError::NotObject)),
        ("{}", missing("protocolVersion")),
        (r#"{"protocolVersion":"1"}"#, missing("serverSeq")),
        (
            r#"{"protocolVersion":"1","serverSeq":1.5}"#,
            wrong("serverSeq", "an integer of 64 bits"),
        ),
        (
            r#"{"protocolVersion":"1","serverSeq":9223372036854775808}"#,
            wrong("serverSeq", "an integer of 64 bits"),
        ),
        (
            r#"{"protocolVersion":"1","serverSeq":0}"#,
            missing("snapshots"),
        ),
        (
            r#"{"protocolVersion":"1","serverSeq":0,"snapshots":{}}"#,
            wrong("snapshots", "an array"),
        ),
    ] {
        assert_eq!(InitializeResult::read(raw(text)).map(drop), error, "{text}");
    }
}

#[test]
fn reconnect_params() {
    let params = raw(
        r#"{"channel":"ahp-root://","clientId":"c","lastSeenServerSeq":7,"lastSeenServerSeq":421,"subscriptions":["ahp-root://","ahp-session:/abc-123"]}"#,
    );
    let read = ReconnectParams::read(params).unwrap();
    assert_eq!((&*read.client_id, read.last_seen_server_seq), ("c", 421));
    assert_eq!(
        read.subscriptions.collect::<Vec<_>>(),
        ["ahp-root://", "ahp-session:/abc-123"]
    );
    assert!(read.chunking().is_none());

    for (text, error) in [
        ("3", Err(ReadError::NotObject)),
        (
            r#"{"channel":"c","clientId":"c"}"#,
            missing("lastSeenServerSeq"),
        ),
        (
            r#"{"channel":"c","clientId":"c","lastSeenServerSeq":"1"}"#,
            wrong("lastSeenServerSeq", "an integer of 64 bits"),
        ),
        (
            r#"{"channel":"c","clientId":"c","lastSeenServerSeq":-1}"#,
            missing("subscriptions"),
        ),
        (
            r#"{"channel":"c","clientId":"c","lastSeenServerSeq":1,"subscriptions":null}"#,
            wrong("subscriptions", "an array of strings"),
        ),
    ] {
        assert_eq!(ReconnectParams::read(raw(text)).map(drop), error, "{text}");
    }
}

#[test]
fn reconnect_result() {
    let replay = r#"{"type":"replay","actions":[{"channel":"a","action":{},"serverSeq":1},7],"missing":["ahp-chat:/x"]}"#;
    let ReconnectResult::Replay {
        actions,
        missing: gone,
    } = ReconnectResult::read(raw(replay)).unwrap()
    else {
        panic!("a replay");
    };
    let actions: Vec<_> = actions
        .map(|raw| Action::read(raw).map(|action| action.server_seq))
        .collect();
    assert_eq!(actions, [Ok(1), Err(ReadError::NotObject)]);
    assert_eq!(gone.collect::<Vec<_>>(), ["ahp-chat:/x"]);

    let snapshot = r#"{"snapshots":[{},{}],"type":"snapshot"}"#;
    let ReconnectResult::Snapshot { snapshots } = ReconnectResult::read(raw(snapshot)).unwrap()
    else {
        panic!("a snapshot");
    };
    assert_eq!(snapshots.count(), 2);

    for (text, error) in [
        ("[]", Err(ReadError::NotObject)),
        ("{}", missing("type")),
        (
            r#"{"type":"other"}"#,
            wrong("type", r#""replay" or "snapshot""#),
        ),
        (r#"{"type":null}"#, wrong("type", "a string")),
        (r#"{"type":"replay"}"#, missing("actions")),
        (
            r#"{"type":"replay","actions":{}}"#,
            wrong("actions", "an array"),
        ),
        (
            r#"{"type":"replay","actions":[],"missing":[1]}"#,
            wrong("missing", "an array of strings"),
        ),
        (r#"{"type":"snapshot","actions":[]}"#, missing("snapshots")),
    ] {
        assert_eq!(ReconnectResult::read(raw(text)).map(drop), error, "{text}");
    }
}

#[test]
fn actions() {
    let origin = Origin {
        client_id: "c".into(),
        client_seq: 3,
    };
    for (text, origin, reason) in [
        (r#"{"channel":"a","action":[ 1],"serverSeq":5}"#, None, None),
        (
            r#"{"channel":"a","action":[ 1],"serverSeq":5,"origin":null,"rejectionReason":null}"#,
            None,
            None,
        ),
        (
            r#"{"channel":"a","action":[ 1],"serverSeq":5,"origin":{"clientId":"c","clientSeq":3},"rejectionReason":"no"}"#,
            Some(origin),
            Some("no"),
        ),
    ] {
        let read = Action::read(raw(text)).unwrap();
        assert_eq!(
            (&*read.channel, read.action.get(), read.server_seq),
            ("a", "[ 1]", 5)
        );
        assert_eq!(
            (read.origin, read.rejection_reason.as_deref()),
            (origin, reason),
            "{text}"
        );
    }
    for (text, error) in [
        ("null", Err(ReadError::NotObject)),
        (r#"{"channel":"a"}"#, missing("action")),
        (r#"{"channel":"a","action":null}"#, missing("serverSeq")),
        (
            r#"{"channel":"a","action":0,"serverSeq":null}"#,
            wrong("serverSeq", "an integer of 64 bits"),
        ),
        (
            r#"{"channel":"a","action":0,"serverSeq":1,"origin":[]}"#,
            wrong("origin", "an object or null"),
        ),
        (
            r#"{"channel":"a","action":0,"serverSeq":1,"origin":{}}"#,
            missing("origin.clientId"),
        ),
        (
            r#"{"channel":"a","action":0,"serverSeq":1,"origin":{"clientId":"c","clientSeq":{}}}"#,
            wrong("origin.clientSeq", "an integer of 64 bits"),
        ),
        (
            r#"{"channel":"a","action":0,"serverSeq":1,"rejectionReason":1}"#,
            wrong("rejectionReason", "a string"),
        ),
    ] {
        assert_eq!(Action::read(raw(text)).map(drop), error, "{text}");
    }
}

#[test]
fn deep_states_cost_no_stack() {
    let deep = format!(
        r#"{{"resource":"r","state":{}{},"fromSeq":1}}"#,
        "[".repeat(1 << 20),
        "]".repeat(1 << 20)
    );
    assert_eq!(Snapshot::read(raw(&deep)).unwrap().from_seq, 1);
}
