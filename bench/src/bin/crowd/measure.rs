//! Starts hosts and clients as processes of their own, and measures what they use.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use super::Failure;
use super::host::Mode;

/// The clients of one process: descriptors are limited, and a host has a limit of its own.
const PER_PROCESS: usize = 5_000;

/// Clients before the memory is first measured, so that one-time allocations are not counted.
const WARM: usize = 100;

/// The system counts the time of processes in hundredths of a second.
const TICKS: f64 = 100.0;

/// The parameters of a measurement.
struct Settings {
    clients: usize,
    active: usize,
    seconds: u64,
    modes: Vec<Mode>,
    as_json: bool,
}

impl Settings {
    fn read(words: &[&str]) -> Result<Self, Failure> {
        let mut settings = Self {
            clients: 10_000,
            active: 100,
            seconds: 10,
            modes: Vec::new(),
            as_json: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().ok_or(format!("{word} needs a number"))?;
                Ok::<_, Failure>(value.parse::<usize>()?)
            };
            match *word {
                "--json" => settings.as_json = true,
                "--clients" => settings.clients = number()?,
                "--active" => settings.active = number()?,
                "--seconds" => settings.seconds = number()? as u64,
                mode => settings.modes.push(mode.parse()?),
            }
        }
        if settings.modes.is_empty() {
            settings.modes = Mode::ALL.iter().map(|(_, mode)| *mode).collect();
        }
        Ok(settings)
    }
}

pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    let settings = Settings::read(words)?;
    let mut all = serde_json::Map::new();
    for &mode in &settings.modes {
        let value = measure(&settings, mode)?;
        if !settings.as_json {
            println!("{}", sentence(mode, &value));
        }
        all.insert(mode.name().to_owned(), value);
    }
    if settings.as_json {
        println!("{}", Value::from(all));
    }
    Ok(())
}

fn sentence(mode: Mode, value: &Value) -> String {
    let number = |name: &str| value[name].as_f64().unwrap_or_default();
    format!(
        "{}: {} clients accepted in {:.1} s, with {:.2} s of the host's processor time; for each idle one {:.0} bytes resident and {:.0} bytes of the system's; {} of them with 10 requests of 1 KB a second each: {:.2} ms at the median, {:.2} ms at the 99th percentile, {:.2} ms at most, and {:.0} µs of the host's processor time for each",
        mode.name(),
        value["clients"],
        number("acceptSeconds"),
        number("acceptCoreSeconds"),
        number("residentBytes"),
        number("socketBytes"),
        value["active"],
        number("p50Micros") / 1e3,
        number("p99Micros") / 1e3,
        number("maxMicros") / 1e3,
        number("requestMicros"),
    )
}

fn measure(settings: &Settings, mode: Mode) -> Result<Value, Failure> {
    let count = match mode {
        Mode::One | Mode::Threads => 1,
        Mode::Processes => std::thread::available_parallelism()?.get(),
    };
    let first = Process::start(&["host", mode.name(), "127.0.0.1:0"])?;
    let mut hosts = vec![first];
    let address = hosts[0].line()?;
    for _ in 1..count {
        let mut host = Process::start(&["host", mode.name(), &address])?;
        host.line()?;
        hosts.push(host);
    }
    let url = format!("ws://{address}/");
    let mut warm = Process::crowd(&url, WARM, 0, 0)?;
    warm.expect("ready")?;
    let resident =
        || -> Result<usize, Failure> { hosts.iter().map(|host| resident(host.child.id())).sum() };
    let (before, before_sockets) = (resident()?, socket_bytes()?);
    let idle = ticks(&hosts)?;
    let begin = Instant::now();
    let mut crowds = Vec::new();
    let (mut left, mut active) = (settings.clients, settings.active);
    while left > 0 {
        let clients = left.min(PER_PROCESS);
        let of_these = active.min(clients);
        crowds.push(Process::crowd(&url, clients, of_these, settings.seconds)?);
        (left, active) = (left - clients, active - of_these);
    }
    for crowd in &mut crowds {
        crowd.expect("ready")?;
    }
    let accepted = begin.elapsed().as_secs_f64();
    let each = (resident()? - before) / settings.clients;
    // A connection has a socket at both ends, and both are on this machine.
    let sockets = socket_bytes()?.saturating_sub(before_sockets) / settings.clients / 2;
    let worked = ticks(&hosts)?;
    let accepting = worked - idle;
    let asking = Instant::now();
    for crowd in &mut crowds {
        crowd.stdin.write_all(b"go\n")?;
    }
    let mut times: Vec<u64> = Vec::new();
    for crowd in &mut crowds {
        times.extend(serde_json::from_str::<Vec<u64>>(&crowd.line()?)?);
    }
    let lasted = asking.elapsed().as_secs_f64();
    let worked = ticks(&hosts)? - worked;
    times.sort_unstable();
    let at = |share: f64| {
        times
            .get(((times.len() - 1) as f64 * share) as usize)
            .copied()
    };
    Ok(json!({
        "clients": settings.clients,
        "active": settings.active,
        "acceptSeconds": accepted,
        "acceptCoreSeconds": accepting as f64 / TICKS,
        "residentBytes": each,
        "socketBytes": sockets,
        "requests": times.len(),
        "p50Micros": at(0.5),
        "p99Micros": at(0.99),
        "maxMicros": at(1.0),
        "requestMicros": worked as f64 / TICKS / times.len().max(1) as f64 * 1e6,
        "seconds": lasted,
    }))
}

/// The processor time that all hosts have used, in ticks.
fn ticks(hosts: &[Process]) -> Result<u64, Failure> {
    hosts.iter().map(Process::ticks).sum()
}

/// A process of this program, which is killed when this is dropped.
struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(arguments: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self {
            stdin: child.stdin.take().ok_or("no input")?,
            stdout: BufReader::new(child.stdout.take().ok_or("no output")?),
            child,
        })
    }

    fn crowd(url: &str, clients: usize, active: usize, seconds: u64) -> Result<Self, Failure> {
        let [clients, active] = [clients, active].map(|number| number.to_string());
        Self::start(&["clients", url, &clients, &active, &seconds.to_string()])
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line)? {
            0 => Err("a process ended early; its error is above".into()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    fn expect(&mut self, expected: &str) -> Result<(), Failure> {
        let line = self.line()?;
        match line == expected {
            true => Ok(()),
            false => Err(line.into()),
        }
    }

    /// The processor time that it has used, in ticks.
    fn ticks(&self) -> Result<u64, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The process name, which comes before these fields, may contain spaces.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let mut fields = fields.split_whitespace().skip(11);
        let mut next = || fields.next().unwrap_or_default().parse::<u64>();
        Ok(next()? + next()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The resident memory of a process, in bytes.
fn resident(pid: u32) -> Result<usize, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes.ok_or("no VmRSS")?.parse::<usize>()? * 1024)
}

/// The system's memory for sockets and their state, in bytes. It includes other programs, so that it means
/// little while they are busy.
fn socket_bytes() -> Result<usize, Failure> {
    let info = std::fs::read_to_string("/proc/meminfo")?;
    let line = info.lines().find(|line| line.starts_with("SUnreclaim:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kilobytes.ok_or("no SUnreclaim")?.parse::<usize>()? * 1024)
}
