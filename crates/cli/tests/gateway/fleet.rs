//! Several gateways behind one load balancer, which share a NATS: clients come back to any of them.

mod balancer;
mod callers;
mod cluster;
mod exchange;
mod lines;
mod outages;

pub(crate) use balancer::Balancer;

use std::path::PathBuf;
use std::process::Command;

use crate::common::{Listening, gateway};
use crate::nats_server::NatsServer;

pub(crate) const SECRET: &str = "a secret that all members know";

/// Three gateways that share a NATS, and the balancer before them.
pub(crate) struct Members {
    pub(crate) members: Vec<Listening>,
    pub(crate) balancer: Balancer,
    folder: tempfile::TempDir,
}

/// The listener of a member, at any free port.
pub(crate) const WS: &str = "ws://127.0.0.1:0";

impl Members {
    /// `to` makes the target of a member from the name of the file in which its commands note that they
    /// began.
    pub(crate) fn start(
        listen: &str,
        fleet: &str,
        to: impl Fn(&str) -> String,
        more: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let members: Vec<_> = (0..3)
            .map(|number| {
                let diary = folder.path().join(format!("member-{number}"));
                std::fs::write(&diary, "").unwrap();
                let to = to(&diary.display().to_string());
                let mut arguments = vec!["--listen", listen, "--to", &to, "--fleet", fleet];
                arguments.extend(more);
                Listening::start(member(&arguments))
            })
            .collect();
        let balancer = Balancer::start(members.iter().map(|it| it.address.clone()));
        Self {
            members,
            balancer,
            folder,
        }
    }

    fn diary(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("member-{number}"))
    }

    /// How many commands each member has started.
    pub(crate) fn started(&self) -> Vec<usize> {
        let begun = |number| {
            let text = std::fs::read_to_string(self.diary(number)).unwrap();
            text.lines().filter(|line| *line == "began").count()
        };
        (0..self.members.len()).map(begun).collect()
    }

    /// Whether a silent command has read something.
    pub(crate) fn has_read(&self) -> bool {
        let read = |number| {
            let file = self.folder.path().join(format!("member-{number}.read"));
            std::fs::metadata(file).is_ok_and(|file| file.len() > 0)
        };
        (0..self.members.len()).any(read)
    }

    /// The only member that has started a command.
    pub(crate) fn owner(&self) -> usize {
        let started = self.started();
        assert_eq!(started.iter().sum::<usize>(), 1, "{started:?}");
        started.iter().position(|count| *count == 1).unwrap()
    }

    /// Ends a member as a crash would.
    pub(crate) fn kill(&mut self, number: usize) {
        let child = &mut self.members[number].child;
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// A gateway that knows the secret.
pub(crate) fn member(arguments: &[&str]) -> Command {
    let mut command = gateway(arguments);
    command.env("BREAKBULK_FLEET_SECRET", SECRET);
    command
}

/// A command that notes that it began, and sends back every line.
pub(crate) fn noted_echo(diary: &str) -> String {
    format!("exec:sh -c 'echo began >> {diary}; exec cat'")
}

/// The same, but it never answers.
pub(crate) fn noted_silence(diary: &str) -> String {
    format!("exec:sh -c 'echo began >> {diary}; exec cat > {diary}.read'")
}

pub(crate) fn fleet_at(server: &NatsServer) -> String {
    server.server()
}
