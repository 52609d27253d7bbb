//! The formats of captures.

use std::sync::Arc;

use breakbulk::link::{Rules, Wire};
use breakbulk::wire::{Ahp, Cep22, Loro, Tywrap, Whole};

/// The format of a capture: a wire, and the framing in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Format {
    /// Lines: AHP segments and messages.
    Ahp,
    /// Lines: tywrap frames and messages.
    Tywrap,
    /// Lines: CEP-22 frames and MCP messages.
    Cep22,
    /// Lines: JSON-RPC of no particular wire.
    JsonRpc,
    /// Lines: loro channel messages in their JSON form.
    LoroJson,
    /// Length-prefixed: loro transport payloads.
    Loro,
    /// Length-prefixed: loro frames without the transport's byte in front.
    LoroFrames,
    /// Length-prefixed: VSCode RPC messages.
    Vscode,
    /// A raw ipc.net stream of VSCode RPC messages.
    Ipc,
}

/// How frames are delimited in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Framing {
    /// One per line.
    Lines,
    /// Each after a u32 big-endian length.
    Prefixed,
    /// Each after ipc.net's header of 13 bytes.
    Ipc,
}

impl Format {
    /// The name for `--wire`; plain JSON-RPC has no `--wire` name.
    pub(crate) fn wire_name(self) -> &'static str {
        match self {
            Self::Ahp => "ahp",
            Self::Tywrap => "tywrap",
            Self::Cep22 => "cep22",
            Self::JsonRpc => "jsonrpc",
            Self::LoroJson | Self::Loro | Self::LoroFrames => "loro",
            Self::Vscode | Self::Ipc => "vscode",
        }
    }

    /// A description of the framing, for people.
    pub(crate) fn form(self) -> &'static str {
        match self {
            Self::Ahp | Self::Tywrap | Self::Cep22 | Self::JsonRpc => "one frame per line",
            Self::LoroJson => "JSON form, one message per line",
            Self::Loro => "length-prefixed transport payloads",
            Self::LoroFrames => "length-prefixed bare frames",
            Self::Vscode => "length-prefixed RPC messages",
            Self::Ipc => "raw ipc.net stream",
        }
    }

    pub(crate) fn framing(self) -> Framing {
        match self {
            Self::Ahp | Self::Tywrap | Self::Cep22 | Self::JsonRpc | Self::LoroJson => {
                Framing::Lines
            }
            Self::Loro | Self::LoroFrames | Self::Vscode => Framing::Prefixed,
            Self::Ipc => Framing::Ipc,
        }
    }

    pub(crate) fn wire(self) -> Arc<dyn Wire> {
        match self {
            Self::Ahp => Arc::new(Ahp),
            Self::Tywrap => Arc::new(Tywrap::default()),
            Self::Cep22 => Arc::new(Cep22::default()),
            Self::Loro => Arc::new(Loro),
            Self::JsonRpc | Self::LoroJson => Arc::new(Whole::TEXT),
            Self::LoroFrames | Self::Vscode | Self::Ipc => Arc::new(Whole::BINARY),
        }
    }

    /// The wire's rules without replies, since an inspection sends nothing.
    pub(crate) fn rules(self) -> Rules {
        let rules = match self {
            Self::Ahp => Ahp::rules(),
            Self::Tywrap => Tywrap::rules(),
            Self::Cep22 => Cep22::rules(),
            Self::Loro => Loro::rules(),
            _ => Whole::rules(),
        };
        Rules {
            accept: false,
            abort: false,
            ..rules
        }
    }
}
