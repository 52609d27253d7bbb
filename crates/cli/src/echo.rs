//! `breakbulk echo`: an MCP server and its client, to try out a path with.

mod ask;
mod serve;

use clap::Args;

use crate::failure::Failure;
use crate::number;
use crate::size::Size;

const RULES: &str = "\
Without options it is an MCP server on its standard streams, for which nothing
has to be installed. Its tools: bytes, whose result is a text of `size` bytes,
and echo, which returns `text`.

With --ask it is a client of such a server: it starts COMMAND, initializes,
calls the tool bytes, compares each byte with what was asked for, and says how
long it took. COMMAND is not run by a shell.

Examples:
  breakbulk echo --ask 20MB \\
      breakbulk gateway --listen stdio: --to ws://127.0.0.1:8080
  breakbulk echo --ask 20MB breakbulk echo";

#[derive(Args, Debug)]
#[command(after_long_help = RULES, after_help = "See --help for its tools, and examples.")]
pub(crate) struct Echo {
    /// Run as the client instead: start COMMAND and ask it for a result of this size, at most 1GiB
    #[arg(long, value_name = "SIZE", requires = "command")]
    ask: Option<Size>,
    /// With --ask: how long it may take, in seconds; 0 is for ever. When it is over, the exit code is 124
    #[arg(long, value_name = "SECONDS", value_parser = number::seconds, default_value_t = 60.0, requires = "ask")]
    timeout: f64,
    /// With --ask: the command that is the server, or leads to it
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        requires = "ask"
    )]
    command: Vec<String>,
}

impl Echo {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.ask {
            Some(size) => ask::run(size.0, self.timeout, &self.command),
            None => serve::run(),
        }
    }
}

/// The largest result. A message is in memory as a whole.
const MOST: usize = 1 << 30;

/// A text of so many bytes, in which every 8 bytes tell their place: what is missing, doubled or in another
/// place shows.
fn text(size: usize) -> String {
    let mut text = String::with_capacity(size + 8);
    for place in 0..size.div_ceil(8) {
        // 7 hex digits are enough for the places of a text of 2 GiB.
        text.push_str(&format!("{place:07x} "));
    }
    text.truncate(size);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_size_that_was_asked_for() {
        for (size, expected) in [
            (0, ""),
            (1, "0"),
            (8, "0000000 "),
            (19, "0000000 0000001 000"),
        ] {
            assert_eq!(text(size), expected);
        }
        assert!(text(1_000_003).ends_with("001e846 001e847 001"));
    }
}
