//! Runs the program: as a server, and with any other command line.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    command.env_remove("BREAKBULK_TOKEN");
    command
}

/// A server that is killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    address: String,
    stderr: Option<JoinHandle<String>>,
}

impl Server {
    pub(crate) fn start(data: Option<&Path>) -> Self {
        Self::with(data, |_| ())
    }

    /// The same, with more on its command line.
    pub(crate) fn with(data: Option<&Path>, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = program();
        command.args(["loro", "serve", "--listen", "127.0.0.1:0"]);
        if let Some(data) = data {
            command.arg("--data").arg(data);
        }
        change(&mut command);
        Self::spawn(command)
    }

    /// A server at an address that another one had.
    pub(crate) fn at(address: &str, data: &Path) -> Self {
        let mut command = program();
        command.args(["loro", "serve", "--listen", address, "--data"]);
        command.arg(data);
        Self::spawn(command)
    }

    /// A server that shares documents with others.
    pub(crate) fn sharing(address: &str, store: &str) -> Self {
        let mut command = program();
        command.args(["loro", "serve", "--listen", address, "--store", store]);
        if std::env::var_os("BREAKBULK_FLEET_LOGS").is_some() {
            command.args(["--log", "warn,breakbulk=debug"]);
        }
        Self::spawn(command)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The same, started by a shell that does this first.
    #[cfg(target_os = "linux")]
    pub(crate) fn in_shell(data: &Path, first: &str) -> Self {
        let mut command = Command::new("sh");
        let script = format!("{first} exec \"$0\" loro serve --listen 127.0.0.1:0 --data \"$1\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_breakbulk")]);
        command.arg(data).env_remove("BREAKBULK_TOKEN");
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended: {said}");
            let found = line
                .split("ws://")
                .nth(1)
                .or_else(|| line.split("wss://").nth(1))
                .and_then(|rest| rest.split("/ws").next());
            if let Some(address) = found {
                break address.to_owned();
            }
            said.push_str(&line);
        };
        // Read on: otherwise the pipe would fill up and block the server.
        let log = std::env::var_os("BREAKBULK_FLEET_LOGS").map(|logs| {
            let port = address.rsplit(':').next().unwrap_or_default();
            let name = format!("member-{port}-{}.log", child.id());
            Path::new(&logs).join(name)
        });
        let stderr = std::thread::spawn(move || {
            let mut rest = String::new();
            match log {
                // As it comes, so that it can be read while a test hangs.
                Some(log) => drop(std::io::copy(
                    &mut stderr,
                    &mut std::fs::File::create(log).unwrap(),
                )),
                None => drop(stderr.read_to_string(&mut rest)),
            }
            rest
        });
        Self {
            child,
            address,
            stderr: Some(stderr),
        }
    }

    /// The address of each way.
    pub(crate) fn ways(&self) -> [String; 4] {
        let address = &self.address;
        [
            format!("ws://{address}/ws"),
            format!("http://{address}?transport=sse"),
            format!("http://{address}?transport=poll"),
            format!("http://{address}?transport=webrtc"),
        ]
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most resident memory it had, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn peak_memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kilobytes.parse::<usize>().unwrap() * 1024
    }

    /// Kills it: nothing that is not on disk survives.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end; whether it did so cleanly, and what it had said.
    pub(crate) fn stop(mut self) -> (bool, String) {
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(asked.unwrap().success());
        let status = self.child.wait().unwrap();
        (
            status.success(),
            self.stderr.take().unwrap().join().unwrap(),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    program()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The same, which must succeed; its standard output.
pub(crate) fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Letters without a pattern, so that nothing can be compressed.
pub(crate) fn noise(bytes: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let letters = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + (state % 90) as u8)
    });
    letters
        .filter(|c| *c != '"' && *c != '\\')
        .take(bytes)
        .collect()
}
