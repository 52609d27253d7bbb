//! Tests the program: `split | join` must return every message unchanged, within its memory limits.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use breakbulk_link::Random;

use crate::shared;

/// How much to test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Short,
    Long,
}

const WIRES: [&str; 4] = ["ahp", "tywrap", "cep22", "loro"];
const CAPS: [usize; 5] = [0, 1000, 64 << 10, 900_000, 4_000_000];

/// Larger messages are skipped with the smallest cap in the short form: they would make millions of
/// frames.
const SLOW: usize = 2_000_000;

pub(crate) fn run(form: Form) -> Result<()> {
    let tester = Tester::new()?;
    let mut sizes = vec![60, 999, 65_537, 1_000_000, 32_000_000];
    if form == Form::Long {
        sizes.push(256_000_000);
    }
    let (mut carried, mut refused, mut skipped) = (0, 0, 0);
    for content in ["ascii", "cjk", "quotes", "bytes"] {
        for &size in &sizes {
            let message = message(content, size);
            let path = tester.write(&message)?;
            for wire in WIRES
                .into_iter()
                .filter(|wire| content != "bytes" || *wire == "loro")
            {
                for cap in CAPS {
                    // 256 MB only with caps of realistic size.
                    if size > 100_000_000 && cap < 64 << 10 {
                        continue;
                    }
                    if form == Form::Short && size > SLOW && cap == 0 {
                        skipped += 1;
                        continue;
                    }
                    let outcome = tester.round_trip(wire, cap, &path, &message);
                    match outcome
                        .with_context(|| format!("{wire}, {content}, {size} bytes, cap {cap}"))?
                    {
                        Outcome::Same => carried += 1,
                        Outcome::Refused => refused += 1,
                    }
                }
            }
        }
        println!(
            "{content}: {carried} messages came back unchanged, {refused} were refused as too many pieces"
        );
    }
    if skipped > 0 {
        println!("{skipped} large messages with the smallest cap are tested only by the long form");
    }
    let size = if form == Form::Long {
        256_000_000
    } else {
        64_000_000
    };
    for wire in WIRES {
        tester.memory(wire, size)?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Same,
    /// The message needs more pieces than the format allows.
    Refused,
}

/// A JSON-RPC message of exactly this size, or bytes of any value.
fn message(content: &str, size: usize) -> Vec<u8> {
    let unit = match content {
        "ascii" => "The quick brown fox. ",
        "cjk" => "大きな知らせ😀",
        "quotes" => r#"\"a\\b\" "#,
        _ => {
            let mut random = Random::from_number(size as u64);
            return (0..size).map(|_| random.next() as u8).collect();
        }
    };
    let (head, tail) = (r#"{"jsonrpc":"2.0","method":"m","params":{"t":""#, r#""}}"#);
    let mut text = String::with_capacity(size);
    text.push_str(head);
    while text.len() + unit.len() + tail.len() <= size {
        text.push_str(unit);
    }
    text.push_str(tail);
    let mut message = text.into_bytes();
    message.resize(size, b' ');
    message
}

/// The program, and a folder for its files.
struct Tester {
    program: PathBuf,
    folder: PathBuf,
}

impl Tester {
    fn new() -> Result<Self> {
        let program = shared::program()?;
        let folder = shared::target()?.join("carry");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { program, folder })
    }

    fn write(&self, message: &[u8]) -> Result<PathBuf> {
        let path = self.folder.join("message");
        std::fs::write(&path, message)?;
        Ok(path)
    }

    /// Splits and joins one message, and checks the size of every frame in between.
    fn round_trip(&self, wire: &str, cap: usize, path: &Path, message: &[u8]) -> Result<Outcome> {
        let cap = if cap == 0 {
            self.smallest_cap(wire, path)?
        } else {
            cap
        };
        let joined = self.folder.join("joined");
        let cap_text = cap.to_string();
        let options = ["--wire", wire, "--max-frame", &cap_text];
        let mut split = self.start("split", &options, Stdio::null(), &[path.as_os_str()])?;
        let mut join = self.start(
            "join",
            &options,
            Stdio::piped(),
            &["-o".as_ref(), joined.as_os_str()],
        )?;
        let frames = split.stdout.take().context("no stdout")?;
        let passed = pass(frames, join.stdin.take().context("no stdin")?, wire, cap);
        let (split, join) = (split.wait_with_output()?, join.wait_with_output()?);
        let passed = passed?;
        if !split.status.success() {
            let why = String::from_utf8_lossy(&split.stderr);
            let named = why.contains("needs more than");
            let past = most_bytes(wire, cap).is_some_and(|most| message.len() > most);
            if split.status.code() == Some(1) && named && past && passed == 0 {
                return Ok(Outcome::Refused);
            }
            bail!("split ended with {}: {why}", split.status);
        }
        if !join.status.success() {
            bail!(
                "join ended with {}: {}",
                join.status,
                String::from_utf8_lossy(&join.stderr)
            );
        }
        if std::fs::read(&joined)? != message {
            bail!("the message came back changed");
        }
        Ok(Outcome::Same)
    }

    /// The smallest cap for this message, from the program's error.
    fn smallest_cap(&self, wire: &str, path: &Path) -> Result<usize> {
        let options = ["--wire", wire, "--max-frame", "1"];
        let refused = self
            .start("split", &options, Stdio::null(), &[path.as_os_str()])?
            .wait_with_output()?;
        let why = String::from_utf8_lossy(&refused.stderr);
        let needed = why
            .split("at least ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        needed.with_context(|| format!("{wire}: no smallest cap in {why:?}"))
    }

    fn start(
        &self,
        command: &str,
        options: &[&str],
        stdin: Stdio,
        rest: &[&std::ffi::OsStr],
    ) -> Result<Child> {
        let mut child = Command::new(&self.program);
        child
            .arg(command)
            .args(options)
            .args(rest)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        child
            .spawn()
            .with_context(|| self.program.display().to_string())
    }

    /// Checks the peak resident memory of split and join with a large message.
    fn memory(&self, wire: &str, size: usize) -> Result<()> {
        let message = self.write(&message("ascii", size))?;
        let frames = self.folder.join("frames");
        let run = |command: &str, input: &Path, output: &Path| -> Result<usize> {
            let options = ["--wire", wire, "--max-frame", "64KiB", "--stats", "-o"];
            let child = self.start(
                command,
                &options,
                Stdio::null(),
                &[output.as_os_str(), input.as_os_str()],
            )?;
            let ended = child.wait_with_output()?;
            let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
            let peak = stderr
                .split("peak ")
                .nth(1)
                .and_then(|rest| rest.split(' ').next()?.parse().ok());
            peak.filter(|_| ended.status.success())
                .with_context(|| format!("{command} --wire {wire}: {stderr}"))
        };
        let split = run("split", &message, &frames)?;
        let join = run("join", &frames, &self.folder.join("joined"))?;
        std::fs::remove_file(&frames)?;
        let of = |bytes: usize| bytes as f64 / size as f64;
        println!(
            "{wire}: {} MB: peak of split {:.2} x, of join {:.2} x the message",
            size / 1_000_000,
            of(split),
            of(join)
        );
        let spare = 32_000_000;
        if split > size + spare || join > size + size / 4 + spare {
            bail!("{wire}: over the bound: split {split}, join {join} for {size} bytes");
        }
        Ok(())
    }
}

/// The largest message that certainly fits in the number of pieces that the format allows.
fn most_bytes(wire: &str, cap: usize) -> Option<usize> {
    match wire {
        "ahp" => Some(65_535 * ((cap - 141) / 4 * 3)),
        // A chunk holds at least one character, and at most the whole cap.
        "cep22" => Some(10_000 * ((cap.saturating_sub(190)) / 2).max(1)),
        _ => None,
    }
}

/// Forwards frames, checks each against the cap, and returns their number.
fn pass(frames: ChildStdout, mut to: impl Write, wire: &str, cap: usize) -> Result<u64> {
    let mut frames = BufReader::with_capacity(1 << 20, frames);
    let mut count = 0;
    let mut frame = Vec::new();
    loop {
        frame.clear();
        if wire == "loro" {
            let mut length = [0; 4];
            if frames.read_exact(&mut length).is_err() {
                return Ok(count);
            }
            (&mut frames)
                .take(u32::from_be_bytes(length).into())
                .read_to_end(&mut frame)?;
            check(frame.len(), cap)?;
            to.write_all(&length)?;
        } else {
            if frames.read_until(b'\n', &mut frame)? == 0 {
                return Ok(count);
            }
            check(text_size(wire, &frame[..frame.len() - 1])?, cap)?;
        }
        to.write_all(&frame)?;
        count += 1;
    }
}

fn check(size: usize, cap: usize) -> Result<()> {
    if size > cap {
        bail!("a frame of {size} bytes under a cap of {cap}");
    }
    Ok(())
}

/// The size of a frame that counts against the cap: for tywrap only its data.
fn text_size(wire: &str, line: &[u8]) -> Result<usize> {
    if wire != "tywrap" || !line.starts_with(b"{\"__tywrap_frame__\"") {
        return Ok(line.len());
    }
    #[derive(serde::Deserialize)]
    struct Data<'a> {
        #[serde(borrow)]
        data: std::borrow::Cow<'a, str>,
    }
    Ok(serde_json::from_slice::<Data<'_>>(line)?.data.len())
}
