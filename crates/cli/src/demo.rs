//! `breakbulk demo`: for each format the plain way failing at a capped path, and the same message coming
//! through in frames, over real sockets and pipes.

mod ahp;
mod contextvm;
mod loro;
mod story;
mod tywrap;
mod vscode;
mod wires;

use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::output::Output;
use story::{Form, Story};

/// More than any demo takes.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct Demo {
    /// The format to show in full, with a connection that is cut [default: a short form of all five]
    #[arg(value_enum)]
    protocol: Option<Protocol>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// An agent host behind a relay that takes 1 MB
    Ahp,
    /// A Python function whose result is longer than a line may be
    Tywrap,
    /// A buffer for an actor behind a relay that takes 1 MB
    Vscode,
    /// An MCP server's result over a Nostr relay that takes 64 KiB
    Contextvm,
    /// A document for a sync server behind a gateway that takes 128 KB
    Loro,
    /// All formats within this process, with their rates and memory
    Wires,
}

/// All that run over sockets and pipes.
const ALL: [Protocol; 5] = [
    Protocol::Ahp,
    Protocol::Contextvm,
    Protocol::Loro,
    Protocol::Tywrap,
    Protocol::Vscode,
];

impl Demo {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut out = Output::open(None)?;
        match self.protocol {
            Some(Protocol::Wires) => wires::show(&mut Story::new(&mut out, Form::Full))?,
            Some(protocol) => protocol.show(&mut Story::new(&mut out, Form::Full))?,
            None => all(&mut Story::new(&mut out, Form::Short))?,
        }
        out.finish()
    }
}

/// The short form of all, one after the other.
fn all(story: &mut Story<'_>) -> Result<(), Failure> {
    story.note("Five formats, each at a path that caps what it carries, over real sockets:")?;
    story.line("")?;
    for protocol in ALL {
        match protocol.show(story) {
            // Python may be missing, which is no fault of this program.
            Err(Failure::Usage(why)) if protocol == Protocol::Tywrap => {
                story.note(&format!("tywrap was left out: {why}"))?;
            }
            shown => shown?,
        }
    }
    story.line("")?;
    story.note("Each in full, with a connection that is cut: breakbulk demo ahp, contextvm, loro, tywrap or vscode")?;
    story.note("Your own server through a capped path: breakbulk gateway --help")
}

impl Protocol {
    /// Runs a demo over real sockets or pipes, with a time limit.
    fn show(self, story: &mut Story<'_>) -> Result<(), Failure> {
        let runtime = tokio::runtime::Runtime::new()
            .map_err(|error| Failure::Io("cannot start threads".to_owned(), error))?;
        let shown = runtime.block_on(async {
            let shown = async {
                match self {
                    Self::Ahp => ahp::show(story).await,
                    Self::Tywrap => tywrap::show(story).await,
                    Self::Vscode => vscode::show(story).await,
                    Self::Contextvm => contextvm::show(story).await,
                    Self::Loro => loro::show(story).await,
                    Self::Wires => wires::show(story),
                }
            };
            timeout(TIMEOUT, shown).await
        });
        runtime.shutdown_background();
        shown.unwrap_or_else(|_| {
            let seconds = TIMEOUT.as_secs();
            let why = format!("the demo did not end within {seconds} s");
            Err(Failure::Session(why))
        })
    }
}
