//! A gateway of the soak: the program with a file of routes, started, reloaded, restarted and looked at.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Nothing of a gateway takes longer, on however loaded a machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A gateway process, and after a restart the next one.
pub(crate) struct Member {
    pub(crate) name: &'static str,
    config: PathBuf,
    log: PathBuf,
    admin: SocketAddr,
    child: Mutex<Option<Child>>,
}

/// What a process takes, and what it says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) resident: u64,
    pub(crate) descriptors: u64,
    pub(crate) children: u64,
    pub(crate) sessions: u64,
    /// To and from clients since the start of its routes.
    pub(crate) messages: u64,
    pub(crate) resumes: u64,
}

impl Member {
    /// A member whose log is kept in `logs`.
    pub(crate) fn new(name: &'static str, folder: &Path, logs: &Path, admin: SocketAddr) -> Self {
        Self {
            name,
            config: folder.join(format!("{name}.toml")),
            log: logs.join(format!("{name}.log")),
            admin,
            child: Mutex::new(None),
        }
    }

    /// Writes its file: these routes, and what all members have in common.
    pub(crate) fn configure(&self, routes: &str) {
        let admin = self.admin;
        let common = "memory = '512MiB'\ngrace = 5\nmax-message = '16MiB'\nmax-sessions = 128\nmax-per-address = 400\nrate-per-address = 1000\nstate = 'none'\n";
        let text = format!("{common}[admin]\naddress = '{admin}'\n{routes}");
        std::fs::write(&self.config, text).unwrap();
    }

    pub(crate) fn start(&self) {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.unwrap();
        let before = self.log_length();
        // Another build of the program can be tested as well, for example an earlier one.
        let other = std::env::var_os("BREAKBULK_PROGRAM");
        let child = Command::new(other.unwrap_or(env!("CARGO_BIN_EXE_breakbulk").into()))
            .args(["gateway", "--config"])
            .arg(&self.config)
            .env_remove("BREAKBULK_TOKEN")
            .env("NO_COLOR", "1")
            .env("HOME", "")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        *self.child.lock().unwrap() = Some(child.unwrap());
        self.wait_until("ready", || match self.get("/readyz") {
            Some((200, _)) => true,
            _ => {
                let ended = self.child.lock().unwrap().as_mut().unwrap().try_wait();
                assert!(
                    ended.unwrap().is_none(),
                    "{}: {}",
                    self.name,
                    self.told(before)
                );
                false
            }
        });
    }

    /// SIGTERM, and waits for the end. What it had started must have ended, too.
    pub(crate) fn stop(&self) {
        let before = self.log_length();
        let mut child = self.child.lock().unwrap().take().unwrap();
        signal(&child, "-TERM");
        let since = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if since.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{} does not end", self.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(
            status.code(),
            Some(0),
            "{}: {}",
            self.name,
            self.told(before)
        );
    }

    /// SIGHUP, and waits for the line that says what came of it.
    pub(crate) fn reload(&self, outcome: &str) {
        let before = self.log_length();
        if let Some(child) = &*self.child.lock().unwrap() {
            signal(child, "-HUP");
        }
        self.wait_until(outcome, || self.told(before).contains(outcome));
    }

    fn log_length(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(0, |file| file.len())
    }

    /// Its log from this byte on.
    fn told(&self, from: u64) -> String {
        let mut file = File::open(&self.log).unwrap();
        file.seek(SeekFrom::Start(from)).unwrap();
        let mut told = Vec::new();
        file.read_to_end(&mut told).unwrap();
        String::from_utf8_lossy(&told).into_owned()
    }

    /// What it takes now; `None` while it is not there.
    pub(crate) fn read(&self) -> Option<Reading> {
        let id = self.child.lock().unwrap().as_ref()?.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let resident: u64 = resident.trim().strip_suffix(" kB")?.parse().ok()?;
        let descriptors = std::fs::read_dir(format!("/proc/{id}/fd")).ok()?.count();
        let (_, metrics) = self.get("/metrics")?;
        let sum = |name: &str, with: &str| {
            let lines = metrics.lines().filter(|line| line.starts_with(name));
            let lines = lines.filter(|line| line.contains(with));
            let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
            values.sum::<f64>() as u64
        };
        Some(Reading {
            resident: resident * 1024,
            descriptors: descriptors as u64,
            children: children(id),
            sessions: sum("breakbulk_sessions{", ""),
            messages: sum("breakbulk_messages_total{", "side=\"listen\""),
            resumes: sum("breakbulk_resumes_total{", ""),
        })
    }

    /// An answer of the admin port.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.admin).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let host = self.admin;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let since = Instant::now();
        while !is_so() {
            let (name, log) = (self.name, self.log.display());
            assert!(
                since.elapsed() < PATIENCE,
                "{name}: not {what:?}, see {log}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status();
    assert!(sent.unwrap().success());
}

/// How many processes have this parent.
fn children(id: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .map(|list| list.split_whitespace().count() as u64)
        .sum()
}

/// The processes whose command line has these words.
pub(crate) fn processes_with(words: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let id = entry.file_name().to_string_lossy().into_owned();
        line.contains(words).then(|| format!("{id}: {line}"))
    });
    lines.collect()
}

/// A loopback address that no other process uses, so that its ports stay ours between two starts.
pub(crate) fn own_address() -> IpAddr {
    let id = std::process::id();
    let [high, middle, low] = [(id >> 14) & 63, (id >> 7) & 127, id & 127].map(|part| part as u8);
    IpAddr::from([127, 64 + high, 1 + middle, 1 + low])
}
