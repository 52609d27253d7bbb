//! `breakbulk call`: calls a function in another process.

mod arguments;
mod failure;
mod readable;
mod tywrap;
mod vscode;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use breakbulk::net::process::{self, Program};
use breakbulk::tywrap::Host;
use clap::Args;

use crate::failure::Failure;
use crate::size::Size;
use crate::{number, output};

/// The forms of a target, for error texts.
const FORMS: &str = "a target is python: (or python:INTERPRETER, python:VIRTUALENV), tywrap+exec:COMMAND or vscode+tcp:HOST:PORT";

#[derive(Args)]
pub(crate) struct Call {
    /// python: for the built-in Python bridge, python:.venv for it in a virtual environment,
    /// tywrap+exec:COMMAND for any bridge that speaks tywrap/1, vscode+tcp:HOST:PORT for an extension
    /// host's RPC (?protocol=persistent for the protocol that survives reconnects)
    target: Target,
    /// The module to import; for vscode the number of the actor
    object: String,
    /// The function in it, or the actor's method
    function: String,
    /// Its arguments, each as JSON, or as a string if it is not JSON; after -- they may begin with a dash
    #[arg(allow_negative_numbers = true)]
    arguments: Vec<String>,
    /// An argument by name; may be given more than once
    #[arg(long = "kwarg", value_name = "NAME=VALUE")]
    named: Vec<String>,
    /// Take the arguments from this file instead, a JSON array; "-" is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "arguments")]
    args_from: Option<PathBuf>,
    /// Write the result to this file instead of standard output; it appears once it is complete
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a string without its quotes and bytes as they are
    #[arg(long)]
    raw: bool,
    /// How long the call may take, starting the bridge included, in seconds; 0 is for ever. When it is
    /// over, the exit code is 124
    #[arg(long, value_name = "SECONDS", value_parser = number::seconds, default_value_t = 30.0)]
    timeout: f64,
    /// The largest request and the largest result
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    max_message: Size,
    /// A larger message is sent in frames with at most this much data each
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    max_frame: Size,
}

/// The process to call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// The built-in Python bridge, with an interpreter or a virtual environment.
    Python(Option<PathBuf>),
    /// The command of a tywrap bridge.
    Bridge(Vec<String>),
    /// An endpoint of VSCode's RPC.
    Vscode {
        /// Host and port.
        address: String,
        /// Whether to use the persistent protocol.
        persistent: bool,
    },
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once(':')
            .ok_or_else(|| format!("there is no colon; {FORMS}"))?;
        match scheme {
            "python" if rest.is_empty() => Ok(Self::Python(None)),
            "python" => Ok(Self::Python(Some(rest.into()))),
            "tywrap+exec" => match process::split(rest) {
                Ok(words) if !words.is_empty() => Ok(Self::Bridge(words)),
                Ok(_) => Err("there is no command; write tywrap+exec:COMMAND ARGUMENTS".to_owned()),
                Err(error) => Err(format!("{error}; write tywrap+exec:COMMAND ARGUMENTS")),
            },
            "vscode+tcp" => {
                let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
                let persistent = match query {
                    "" | "protocol=plain" => false,
                    "protocol=persistent" => true,
                    _ => {
                        return Err(format!(
                            "{query:?} is no option; ?protocol is plain or persistent"
                        ));
                    }
                };
                if address
                    .rsplit_once(':')
                    .is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err())
                {
                    return Err(format!("{address:?} is no HOST:PORT"));
                }
                Ok(Self::Vscode {
                    address: address.to_owned(),
                    persistent,
                })
            }
            _ => Err(format!("{scheme:?} is no kind of target; {FORMS}")),
        }
    }
}

impl Call {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // Checked before the call is made: otherwise its result could be lost.
        output::check(self.output.as_deref(), false)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Failure::Io("cannot start threads".to_owned(), error))?;
        let outcome = runtime.block_on(async {
            match &self.target {
                Target::Python(path) => {
                    let python = tywrap::interpreter(path.as_deref());
                    tywrap::call(&self, |config| Host::python(&python, config)).await
                }
                Target::Bridge(words) => {
                    tywrap::call(&self, |config| Host::new(Program::new(words), config)).await
                }
                Target::Vscode {
                    address,
                    persistent,
                } => vscode::call(&self, address, *persistent).await,
            }
        });
        runtime.shutdown_background();
        outcome
    }

    fn timeout(&self) -> Option<Duration> {
        number::time_limit(self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        for (text, target) in [
            ("python:", Target::Python(None)),
            ("python:.venv", Target::Python(Some(".venv".into()))),
            (
                "tywrap+exec:python3 'my bridge.py'",
                Target::Bridge(vec!["python3".into(), "my bridge.py".into()]),
            ),
            (
                "vscode+tcp:127.0.0.1:5007",
                Target::Vscode {
                    address: "127.0.0.1:5007".to_owned(),
                    persistent: false,
                },
            ),
            (
                "vscode+tcp:[::1]:5007?protocol=persistent",
                Target::Vscode {
                    address: "[::1]:5007".to_owned(),
                    persistent: true,
                },
            ),
        ] {
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
        for (wrong, why) in [
            ("python", "no colon"),
            ("ruby:", "no kind of target"),
            ("tywrap+exec:", "no command"),
            ("vscode+tcp:5007", "no HOST:PORT"),
            ("vscode+tcp:localhost:5007?protocol=x", "no option"),
            ("tywrap+exec:a 'b", "not closed"),
        ] {
            let error = wrong.parse::<Target>().unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
