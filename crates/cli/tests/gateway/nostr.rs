//! MCP programs that know nothing of relays, behind two gateways with a relay between them.

mod carry;
mod ends;
mod keys;
mod lies;
mod mend;

use std::path::PathBuf;

use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{Listening, Near, gateway};

/// A relay, and a gateway that puts the server on it.
struct Scene {
    relay: BadRelay,
    far: Listening,
    /// Keys.
    folder: TempDir,
}

impl Scene {
    /// With more options of the listener and of its gateway.
    async fn start(options: &str, more: &[&str]) -> Self {
        // Before it a shim, whose connections can be cut.
        let weather = Weather {
            shim: true,
            ..Weather::default()
        };
        let relay = BadRelay::start(weather).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let key = keygen(&folder, "server");
        let listen = format!("cep22+nostr:{}?key={}{options}", relay.url(), key.display());
        let mut command = gateway(&["--listen", &listen, "--to", &server()]);
        command.args(more);
        let far = Listening::start(command);
        Self { relay, far, folder }
    }

    /// What a client gives as its target.
    fn to(&self, options: &str) -> String {
        format!("{}{options}", self.far.address)
    }

    fn client(&self, options: &str) -> Program {
        Program(Near::new(&[
            "--listen",
            "stdio:",
            "--to",
            &self.to(options),
        ]))
    }
}

/// The server's command.
fn server() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/nostr/server.py");
    format!("exec:python3 '{script}'")
}

/// A new key.
fn keygen(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    let made = command.arg("keygen").arg(&path).output().unwrap();
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    path
}

/// An MCP client that says just what it is told to.
struct Program(Near);

impl Program {
    fn say(&mut self, message: &Value) {
        self.0.write(format!("{message}\n").as_bytes());
    }

    fn hear(&mut self) -> Value {
        let line = self.0.read_line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    fn initialize(&mut self, name: &str) {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}});
        self.say(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        let answer = self.hear();
        assert_eq!(answer["result"]["serverInfo"]["name"], "plain", "{answer}");
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    fn ask(&mut self, id: u64, name: &str, arguments: Value) {
        let params = json!({"name": name, "arguments": arguments});
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    /// Asks and hears; the answer is the next thing it hears.
    fn call(&mut self, id: u64, name: &str, arguments: Value) -> Value {
        self.ask(id, name, arguments);
        let answer = self.hear();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Who the server thinks it is, the server's process, and the key that it sees.
    fn about(&mut self, id: u64) -> (String, String, String) {
        let answer = self.call(id, "about", json!({}));
        let text = answer["result"]["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{answer}"));
        let mut words = text.splitn(3, ' ').map(ToOwned::to_owned);
        let mut next = || words.next().unwrap();
        (next(), next(), next())
    }
}

/// The text that the server makes for this kind and size.
fn text(kind: &str, size: usize) -> String {
    let unit = match kind {
        "ascii" => "abcdefghijklmnopqrstuvwxyz0123456789",
        _ => "运输大消息🚢",
    };
    unit.repeat(size.div_ceil(unit.len()))
}
