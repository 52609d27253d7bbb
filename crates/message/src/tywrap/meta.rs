//! The result of `meta`: a bridge's description of itself.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::error::{DecodeErrorKind, given, missing, text, wrong};
use super::response::begin;
use super::style::{Style, Writer};
use super::{FRAME_PROTOCOL, PROTOCOL};
use crate::jsonrpc::{string, unsigned};

/// The version that goes with [`PROTOCOL`].
const VERSION: u64 = 1;

/// The result of `meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The kind of bridge.
    pub bridge: BridgeKind,
    /// The version of its language.
    pub python_version: Cow<'a, str>,
    /// Its process id, if it is a process of its own.
    pub pid: Option<u64>,
    /// What it does with values that its codec does not support: `none` or `json`.
    pub codec_fallback: Cow<'a, str>,
    /// Whether Arrow is available.
    pub arrow: bool,
    /// Whether SciPy is available.
    pub scipy: bool,
    /// Whether Torch is available.
    pub torch: bool,
    /// Whether scikit-learn is available.
    pub sklearn: bool,
    /// The largest frame that it accepts, if it negotiates frames, as version 0.8 does. Later
    /// versions do not negotiate and always use frames.
    pub max_frame_bytes: Option<u64>,
}

/// The kinds of bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeKind {
    /// A process of its own.
    PythonSubprocess,
    /// Python in WebAssembly.
    Pyodide,
    /// Over HTTP.
    Http,
}

impl BridgeKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::PythonSubprocess => "python-subprocess",
            Self::Pyodide => "pyodide",
            Self::Http => "http",
        }
    }

    fn of(name: &str) -> Option<Self> {
        [Self::PythonSubprocess, Self::Pyodide, Self::Http]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

impl<'a> Meta<'a> {
    /// The response to a `meta` request.
    pub fn response(&self, id: i64, style: Style) -> String {
        let mut out = begin(id, style);
        out.name("result");
        self.write(&mut out);
        out.close();
        out.finish()
    }

    /// Reads the result of `meta`. A `transport` object that does not offer frames of this protocol
    /// is ignored.
    pub fn read(result: &'a RawValue) -> Result<Self, DecodeErrorKind> {
        let members: Members<'a> =
            serde_json::from_str(result.get()).map_err(|_| wrong("result", "an object"))?;
        if text("protocol", members.protocol)? != PROTOCOL {
            return Err(wrong("protocol", r#""tywrap/1""#));
        }
        if unsigned(members.version.ok_or(missing("protocolVersion"))?) != Some(VERSION) {
            return Err(wrong("protocolVersion", "1"));
        }
        let bridge = BridgeKind::of(&text("bridge", members.bridge)?).ok_or(wrong(
            "bridge",
            r#""python-subprocess", "pyodide" or "http""#,
        ))?;
        let python_version = text("pythonVersion", members.python)?;
        let pid = match given(Some(members.pid.ok_or(missing("pid"))?)).map(unsigned) {
            None => None,
            Some(Some(pid)) if pid > 0 => Some(pid),
            Some(_) => return Err(wrong("pid", "a positive integer or null")),
        };
        let meta = Self {
            bridge,
            python_version,
            pid,
            codec_fallback: text("codecFallback", members.fallback)?,
            arrow: flag("arrowAvailable", members.arrow)?,
            scipy: flag("scipyAvailable", members.scipy)?,
            torch: flag("torchAvailable", members.torch)?,
            sklearn: flag("sklearnAvailable", members.sklearn)?,
            max_frame_bytes: members.transport.and_then(frames),
        };
        match members.instances.map(unsigned) {
            Some(Some(0)) => Ok(meta),
            Some(_) => Err(wrong("instances", "0")),
            None => Err(missing("instances")),
        }
    }

    fn write(&self, out: &mut Writer) {
        out.open()
            .name("protocol")
            .string(PROTOCOL)
            .name("protocolVersion")
            .plain(VERSION);
        out.name("bridge").string(self.bridge.name());
        out.name("pythonVersion")
            .string(&self.python_version)
            .name("pid");
        match self.pid {
            Some(pid) => out.plain(pid),
            None => out.plain("null"),
        };
        out.name("codecFallback").string(&self.codec_fallback);
        out.name("arrowAvailable")
            .plain(self.arrow)
            .name("scipyAvailable")
            .plain(self.scipy);
        out.name("torchAvailable")
            .plain(self.torch)
            .name("sklearnAvailable")
            .plain(self.sklearn);
        out.name("instances").plain(0);
        if let Some(max) = self.max_frame_bytes {
            out.name("transport")
                .open()
                .name("frameProtocol")
                .string(FRAME_PROTOCOL);
            out.name("supportsChunking")
                .plain(true)
                .name("maxFrameBytes")
                .plain(max)
                .close();
        }
        out.close();
    }
}

crate::raw_members! {
    struct Members {
        protocol: "protocol",
        version: "protocolVersion",
        bridge: "bridge",
        python: "pythonVersion",
        pid: "pid",
        fallback: "codecFallback",
        arrow: "arrowAvailable",
        scipy: "scipyAvailable",
        torch: "torchAvailable",
        sklearn: "sklearnAvailable",
        instances: "instances",
        transport: "transport",
    }
}

crate::raw_members! {
    struct Transport {
        protocol: "frameProtocol",
        chunking: "supportsChunking",
        max: "maxFrameBytes",
    }
}

/// The largest frame that a `transport` object offers.
fn frames(transport: &RawValue) -> Option<u64> {
    let members: Transport<'_> = serde_json::from_str(transport.get()).ok()?;
    let offered = members.chunking?.get() == "true" && string(members.protocol?)? == FRAME_PROTOCOL;
    unsigned(members.max?).filter(|max| offered && *max > 0)
}

/// Reads a flag; false if it is missing, since old bridges omit flags that they do not know.
fn flag(member: &'static str, raw: Option<&RawValue>) -> Result<bool, DecodeErrorKind> {
    match raw.map(RawValue::get) {
        Some("true") => Ok(true),
        Some("false") | None => Ok(false),
        Some(_) => Err(wrong(member, "true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Response;
    use super::*;

    const META: Meta<'_> = Meta {
        bridge: BridgeKind::PythonSubprocess,
        python_version: Cow::Borrowed("3.11.7"),
        pid: Some(19454),
        codec_fallback: Cow::Borrowed("none"),
        arrow: false,
        scipy: false,
        torch: false,
        sklearn: true,
        max_frame_bytes: None,
    };

    #[test]
    fn written_and_read() {
        for (meta, style, text) in [
            (
                META,
                Style::Python,
                r#"{"id": -1, "protocol": "tywrap/1", "result": {"protocol": "tywrap/1", "protocolVersion": 1, "bridge": "python-subprocess", "pythonVersion": "3.11.7", "pid": 19454, "codecFallback": "none", "arrowAvailable": false, "scipyAvailable": false, "torchAvailable": false, "sklearnAvailable": true, "instances": 0}}"#,
            ),
            (
                Meta {
                    bridge: BridgeKind::Pyodide,
                    pid: None,
                    max_frame_bytes: Some(104_857_600),
                    ..META
                },
                Style::Ascii,
                r#"{"id":-1,"protocol":"tywrap/1","result":{"protocol":"tywrap/1","protocolVersion":1,"bridge":"pyodide","pythonVersion":"3.11.7","pid":null,"codecFallback":"none","arrowAvailable":false,"scipyAvailable":false,"torchAvailable":false,"sklearnAvailable":true,"instances":0,"transport":{"frameProtocol":"tywrap-frame/1","supportsChunking":true,"maxFrameBytes":104857600}}}"#,
            ),
        ] {
            assert_eq!(meta.response(-1, style), text);
            let response = Response::read(text).unwrap();
            assert_eq!(Meta::read(response.outcome.unwrap()), Ok(meta));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let good = r#"{"protocol":"tywrap/1","protocolVersion":1,"bridge":"http","pythonVersion":"3","pid":null,"codecFallback":"json","instances":0"#;
        let read = |text: &str| Meta::read(serde_json::from_str(text).unwrap()).map(drop);
        assert_eq!(read(&format!("{good}}}")), Ok(()));
        // If a name occurs twice, the last member counts.
        for (member, expected) in [
            (
                r#""protocol":"tywrap/2""#,
                wrong("protocol", r#""tywrap/1""#),
            ),
            (r#""protocolVersion":2"#, wrong("protocolVersion", "1")),
            (r#""protocolVersion":"1""#, wrong("protocolVersion", "1")),
            (
                r#""bridge":"node""#,
                wrong("bridge", r#""python-subprocess", "pyodide" or "http""#),
            ),
            (r#""bridge":0"#, wrong("bridge", "a string")),
            (
                r#""pythonVersion":3.11"#,
                wrong("pythonVersion", "a string"),
            ),
            (r#""pid":0"#, wrong("pid", "a positive integer or null")),
            (r#""pid":"1""#, wrong("pid", "a positive integer or null")),
            (
                r#""codecFallback":null"#,
                wrong("codecFallback", "a string"),
            ),
            (
                r#""arrowAvailable":1"#,
                wrong("arrowAvailable", "true or false"),
            ),
            (r#""instances":1"#, wrong("instances", "0")),
            (r#""instances":0.0"#, wrong("instances", "0")),
        ] {
            assert_eq!(
                read(&format!("{good},{member}}}")),
                Err(expected),
                "{member}"
            );
        }
        assert_eq!(read("[]"), Err(wrong("result", "an object")));
        assert_eq!(read("{}"), Err(missing("protocol")));
    }

    #[test]
    fn only_a_full_offer_of_frames_counts() {
        for (block, expected) in [
            (
                r#"{"frameProtocol":"tywrap-frame/1","supportsChunking":true,"maxFrameBytes":4}"#,
                Some(4),
            ),
            (
                r#"{"frameProtocol":"tywrap-frame/2","supportsChunking":true,"maxFrameBytes":4}"#,
                None,
            ),
            (
                r#"{"frameProtocol":"tywrap-frame/1","supportsChunking":1,"maxFrameBytes":4}"#,
                None,
            ),
            (
                r#"{"frameProtocol":"tywrap-frame/1","supportsChunking":false,"maxFrameBytes":4}"#,
                None,
            ),
            (
                r#"{"frameProtocol":"tywrap-frame/1","supportsChunking":true,"maxFrameBytes":0}"#,
                None,
            ),
            (
                r#"{"frameProtocol":"tywrap-frame/1","supportsChunking":true,"maxFrameBytes":4.5}"#,
                None,
            ),
            (
                r#"{"frameProtocol":"tywrap-frame/1","supportsChunking":true}"#,
                None,
            ),
            ("{}", None),
            ("[]", None),
            ("null", None),
        ] {
            assert_eq!(
                frames(serde_json::from_str(block).unwrap()),
                expected,
                "{block}"
            );
        }
    }
}
