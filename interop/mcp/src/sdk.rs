//! MCP clients and servers on the SDKs of npm and PyPI.

use std::path::{Path, PathBuf};

use anyhow::Result;
use interop_ahp::program::HostProgram;

/// The SDK of a client or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// `@modelcontextprotocol/sdk` 1.x.
    Npm2025,
    /// `@modelcontextprotocol/client` and `@modelcontextprotocol/server` 2.x.
    Npm2026,
    /// `mcp` 1.x.
    Pypi2025,
    /// `mcp` 2.x.
    Pypi2026,
}

/// All SDKs.
pub const SDKS: [Sdk; 4] = [Sdk::Npm2025, Sdk::Npm2026, Sdk::Pypi2025, Sdk::Pypi2026];

/// The largest message of a server that has a limit of its own.
pub const MAX_MESSAGE: usize = 64 << 20;

impl Sdk {
    /// The version on which a client and a server agree: the newest that both know.
    pub fn version(client: Self, server: Self) -> &'static str {
        if client.is_modern() && server.is_modern() {
            "2026-07-28"
        } else {
            "2025-11-25"
        }
    }

    /// Whether the SDK is npm's.
    pub fn is_npm(self) -> bool {
        matches!(self, Self::Npm2025 | Self::Npm2026)
    }

    fn is_modern(self) -> bool {
        matches!(self, Self::Npm2026 | Self::Pypi2026)
    }

    /// The interpreter and the script.
    pub fn command(self) -> [String; 2] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (program, script) = match self {
            Self::Npm2025 => (PathBuf::from("node"), "npm_2025.mjs"),
            Self::Npm2026 => (PathBuf::from("node"), "npm_2026.mjs"),
            Self::Pypi2025 => (folder.join("venv-2025/bin/python"), "pypi.py"),
            Self::Pypi2026 => (folder.join("venv-2026/bin/python"), "pypi.py"),
        };
        let script = folder.join("peers").join(script);
        [program, script].map(|path| path.display().to_string())
    }

    /// The endpoint with which a gateway starts the server on standard input and output.
    pub fn exec(self) -> String {
        let [program, script] = self.command();
        format!("exec:'{program}' '{script}' server?max-message={MAX_MESSAGE}")
    }

    /// Starts the server on a free port, with a limit for the body of a POST; `None` keeps the SDK's default.
    pub async fn serve(self, max_body: Option<usize>) -> Result<HostProgram> {
        let [program, script] = self.command();
        let mut arguments = vec![script, "http".to_owned()];
        arguments.extend(max_body.map(|bytes| bytes.to_string()));
        HostProgram::start(&program, &arguments).await
    }
}
