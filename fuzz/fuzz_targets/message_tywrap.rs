#![no_main]

use breakbulk_message::tywrap::{
    Call, DecodeError, ErrorBody, Meta, Method, Request, Response, Style, call, error,
    read_request_bytes, read_response_bytes, request_bytes, response_bytes, result,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use serde_json::value::RawValue;

const STYLES: [Style; 3] = [Style::Compact, Style::Ascii, Style::Python];

fuzz_target!(|text: &str| {
    match Request::read(text) {
        Ok(Request { id, method }) => {
            if let Method::Call(call) = method {
                called(id, &call);
            }
        }
        Err(error) => refused(&error),
    }
    match Response::read(text) {
        Ok(Response { id, outcome }) => match outcome {
            Ok(value) => returned(id, value),
            Err(body) => failed(id, &body),
        },
        Err(error) => refused(&error),
    }
});

fn raw(json: &str) -> &RawValue {
    serde_json::from_str(json).expect("our own JSON")
}

/// Whether two values mean the same, as far as a general parser can tell.
fn assert_same(one: &RawValue, other: &RawValue) {
    let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get());
    if let Ok(one) = value(one) {
        assert_eq!(Some(one), value(other).ok());
    }
}

fn called(id: i64, first: &Call<'_>) {
    let args = first.args.unwrap_or(raw("[]"));
    let _ = read_request_bytes(args);
    for style in STYLES {
        let line = call(
            id,
            &first.module,
            &first.function,
            args,
            first.kwargs,
            style,
        );
        check_line(&line, style);
        let again = Request::read(&line).expect("our own request");
        let Method::Call(again_call) = again.method else {
            panic!("a call is a call");
        };
        assert_eq!(again.id, id);
        assert_eq!(again_call.module, first.module);
        assert_eq!(again_call.function, first.function);
        assert_same(args, again_call.args.expect("arguments"));
        if let Some(kwargs) = first.kwargs {
            assert_same(kwargs, again_call.kwargs.expect("arguments by name"));
        }
    }
}

fn returned(id: i64, value: &RawValue) {
    for style in STYLES {
        let line = result(id, value, style);
        check_line(&line, style);
        let again = Response::read(&line).expect("our own response");
        assert_eq!(again.id, id);
        assert_same(value, again.outcome.expect("a result"));
    }
    if let Ok(meta) = Meta::read(value) {
        let line = meta.response(id, Style::Ascii);
        let again = Response::read(&line).expect("our own response");
        assert_eq!(Meta::read(again.outcome.expect("a result")), Ok(meta));
    }
    if let Some(Ok(data)) = read_response_bytes(value) {
        for style in STYLES {
            let (asked, answered) = (request_bytes(&data, style), response_bytes(&data, style));
            assert_eq!(read_request_bytes(raw(&asked)), Some(Ok(data.clone())));
            assert_eq!(read_response_bytes(raw(&answered)), Some(Ok(data.clone())));
        }
    }
}

fn failed(id: i64, body: &ErrorBody<'_>) {
    for style in STYLES {
        let line = error(id, body, style);
        check_line(&line, style);
        let again = Response::read(&line).expect("our own response");
        assert_eq!(again.outcome.err().as_ref(), Some(body));
    }
}

/// What a bridge answers to an invalid request is itself a valid answer.
fn refused(fault: &DecodeError) {
    let line = fault.reply(Style::Ascii);
    check_line(&line, Style::Ascii);
    let reply = Response::read(&line).expect("our own response");
    assert_eq!(reply.id, fault.id);
}

/// Every message is one line; a bridge's message is ASCII.
fn check_line(line: &str, style: Style) {
    assert!(style == Style::Compact || line.is_ascii());
    assert!(style == Style::Compact || !line.contains(['\n', '\r']));
}
