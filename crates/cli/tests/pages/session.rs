//! A folder and a home of their own, and the commands that run in them.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::ports::Ports;

/// How long a fence may take, and how long something may take until it listens.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What servers say when they listen.
const LISTENS: [&str; 2] = ["listening on ", "Server is ready"];

/// A folder and a home for commands. Dropping it ends everything that they left running.
pub(crate) struct Session {
    place: TempDir,
    ports: Ports,
    running: Vec<Child>,
}

impl Session {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for folder in ["folder", "home", "bin"] {
            std::fs::create_dir(place.path().join(folder)).unwrap();
        }
        let program = env!("CARGO_BIN_EXE_breakbulk");
        std::os::unix::fs::symlink(program, place.path().join("bin/breakbulk")).unwrap();
        Self {
            place,
            ports: Ports::default(),
            running: Vec::new(),
        }
    }

    fn bash(&mut self, commands: &str, options: &[&str]) -> Command {
        let commands = self.ports.replace(commands);
        let path = std::env::var("PATH").unwrap();
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc", "-e"])
            .args(options)
            .args(["-c", &commands])
            .current_dir(self.place.path().join("folder"))
            .env("HOME", self.place.path().join("home"))
            .env(
                "PATH",
                format!("{}/bin:{path}", self.place.path().display()),
            )
            .stdin(Stdio::null())
            .process_group(0);
        for (name, _) in std::env::vars_os() {
            let is_ours = |it: &str| it.starts_with("BREAKBULK_") || it.starts_with("XDG_");
            if name.to_str().is_some_and(is_ours) {
                bash.env_remove(name);
            }
        }
        bash
    }

    /// Runs commands to their end; each must succeed.
    pub(crate) fn run(&mut self, place: &str, commands: &str) {
        let start = Instant::now();
        let output = within_time(place, self.bash(commands, &[]));
        println!("{place}: ran in {:.1} s", start.elapsed().as_secs_f64());
        let (said, printed) = (
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout),
        );
        let printed: String = printed.chars().take(2000).collect();
        assert!(
            output.status.success(),
            "{place}: {}\n{commands}\n{said}\n{printed}",
            output.status
        );
    }

    /// Starts a command that goes on, and waits until it listens.
    pub(crate) fn leave_running(&mut self, place: &str, commands: &str) {
        let mut bash = self.bash(commands, &[]);
        let mut child = bash
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        self.running.push(child);
        let (tell, listens) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                println!("    {line}");
                if LISTENS.iter().any(|words| line.contains(words)) {
                    let _ = tell.send(());
                }
            }
        });
        let waited = listens.recv_timeout(TIMEOUT);
        waited.unwrap_or_else(|error| panic!("{place}: it does not listen: {error}\n{commands}"));
        println!("{place}: listens");
    }

    /// Starts each server of an `mcpServers` block, and asks it for 20 MB.
    pub(crate) fn ask_servers(&mut self, place: &str, block: &str) {
        let block: Value = serde_json::from_str(&self.ports.replace(block)).unwrap();
        let servers = block["mcpServers"].as_object().unwrap();
        assert!(!servers.is_empty(), "{place}: no server");
        for (name, server) in servers {
            let words = server["args"].as_array().unwrap().iter();
            let words = std::iter::once(&server["command"]).chain(words);
            let mut asking = self.bash(r#"breakbulk echo --ask 20MB "$@""#, &[]);
            asking
                .arg("bash")
                .args(words.map(|word| word.as_str().unwrap()));
            let output = within_time(place, asking);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{place}: {name}: {said}");
            println!(
                "{place}: {name}: {}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
    }

    /// Whether the shell can read it.
    pub(crate) fn check_spelling(&mut self, place: &str, line: &str) {
        let output = within_time(place, self.bash(line, &["-n"]));
        assert!(output.status.success(), "{place}: {line}");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for child in &mut self.running {
            end(child);
        }
    }
}

/// Ends a process and all of its group.
fn end(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-TERM", "--", &group]).status();
    let start = Instant::now();
    while let Ok(None) = child.try_wait() {
        if start.elapsed() > Duration::from_secs(20) {
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.wait();
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs to the end; what takes too long is a failure.
fn within_time(place: &str, mut command: Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let group = format!("-{}", child.id());
    let (ended, watch) = mpsc::channel();
    let watchdog = std::thread::spawn(move || {
        let too_long = watch.recv_timeout(TIMEOUT).is_err();
        if too_long {
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        }
        too_long
    });
    let output = child.wait_with_output().unwrap();
    // This fails if the watchdog has ended already.
    let _ = ended.send(());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !watchdog.join().unwrap(),
        "{place}: it does not end: {said}"
    );
    output
}
