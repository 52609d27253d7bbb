//! Ends the commands that this process started if this process is killed.
//!
//! A process that is killed cannot end its children. So another process watches: it has a pipe from
//! this one, on which it is told which process groups were started and which have ended. When the pipe
//! closes, which the system does however this process ends, it ends the groups that are left.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use breakbulk_link::lock;

use super::stop::{Signal, send};

/// How long the groups have to end by SIGTERM before they are killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often to check whether they have ended.
const CHECK: Duration = Duration::from_millis(50);

static SUPERVISOR: OnceLock<Mutex<Supervisor>> = OnceLock::new();

struct Supervisor {
    command: Command,
    /// The running supervisor, once a command was started.
    running: Option<(Child, ChildStdin)>,
}

/// Sets the command that supervises the commands which this process starts from now on: it must call
/// [`supervise`] with its standard input. It is started with the first of them. Only the first call
/// has an effect.
pub fn set_supervisor(command: Command) {
    let supervisor = Supervisor {
        command,
        running: None,
    };
    let _ = SUPERVISOR.set(Mutex::new(supervisor));
}

/// Tells the supervisor, if there is one, that a process group was started.
pub(super) fn started(group: u32) {
    tell(format_args!("+{group}\n"), true);
}

/// Tells the supervisor that a process group has ended.
pub(super) fn ended(group: u32) {
    tell(format_args!("-{group}\n"), false);
}

fn tell(line: std::fmt::Arguments<'_>, start: bool) {
    let Some(supervisor) = SUPERVISOR.get() else {
        return;
    };
    let mut supervisor = lock(supervisor);
    if supervisor.running.is_none() && start {
        supervisor.start();
    }
    if let Some((_, pipe)) = &mut supervisor.running
        && let Err(error) = pipe.write_all(line.to_string().as_bytes())
    {
        tracing::warn!(%error, "the supervisor process has ended: commands go on running if this process is killed");
        supervisor.running = None;
    }
}

impl Supervisor {
    fn start(&mut self) {
        self.command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Ctrl-C in a terminal, which signals our group, must not end it before us.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut self.command, 0);
        match self.command.spawn() {
            Ok(mut child) => self.running = child.stdin.take().map(|pipe| (child, pipe)),
            Err(error) => {
                tracing::warn!(%error, "the supervisor process cannot be started: commands go on running if this process is killed");
            }
        }
    }
}

/// Reads which process groups were started and have ended, and ends those that are left when the input
/// ends. This is the whole work of a supervisor; see [`set_supervisor`].
pub fn supervise(input: impl BufRead) {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        apply(&line, &mut groups);
    }
    for group in &groups {
        send(*group, Signal::Terminate);
    }
    let mut waited = Duration::ZERO;
    while waited < PATIENCE && groups.iter().any(|group| is_alive(*group)) {
        std::thread::sleep(CHECK);
        waited += CHECK;
    }
    for group in &groups {
        send(*group, Signal::Kill);
    }
}

fn apply(line: &str, groups: &mut BTreeSet<u32>) {
    let number = |text: &str| text.parse::<u32>().ok().filter(|group| *group > 1);
    if let Some(group) = line.strip_prefix('+').and_then(number) {
        groups.insert(group);
    }
    if let Some(group) = line.strip_prefix('-').and_then(number) {
        groups.remove(&group);
    }
}

#[cfg(unix)]
fn is_alive(group: u32) -> bool {
    use rustix::process::{Pid, test_kill_process_group};
    let pid = i32::try_from(group).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process_group(pid).is_ok())
}

#[cfg(not(unix))]
fn is_alive(_group: u32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_known_from_their_start_to_their_end() {
        let mut groups = BTreeSet::new();
        for line in [
            "+7", "+8", "-7", "+9", "", "+", "+1", "-1", "+x", "7", "-99",
        ] {
            apply(line, &mut groups);
        }
        assert_eq!(groups, [8, 9].into());
    }
}
