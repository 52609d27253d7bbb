//! What the `--help` of every command ends with: examples, exit codes and environment variables.

use clap::Command;

/// What a command's `--help` adds to its options and rules.
struct Page {
    /// The command's words after `breakbulk`.
    command: &'static str,
    examples: &'static [&'static str],
    /// Codes beside 0 and 2, and what they mean here.
    codes: &'static [(&'static str, &'static str)],
    /// Variables beside those of every command.
    variables: &'static [(&'static str, &'static str)],
}

const FAILED: (&str, &str) = (
    "1",
    "the input is wrong, or reading or writing failed on the way",
);
const SESSION: (&str, &str) = ("1", "it failed after it had started");
const TIMEOUT: (&str, &str) = ("124", "the time of --timeout is over");

const TOKEN: (&str, &str) = (
    "BREAKBULK_TOKEN",
    "the bearer token, where no file with it is given",
);
const ADMIN_TOKEN: (&str, &str) = ("BREAKBULK_ADMIN_TOKEN", "the token of the admin port");
const CERTIFICATES: (&str, &str) = (
    "SSL_CERT_FILE",
    "a file of authorities to trust, instead of the system's",
);

const COULD_NOT_START: (&str, &str) = (
    "2",
    "it could not start: wrong options, a file that cannot be opened, a port\n       in use, a target that cannot be reached",
);

/// The variables that every command heeds.
const EVERYWHERE: [(&str, &str); 3] = [
    ("NO_COLOR", "no colours, if it is set and not empty"),
    ("TERM", "no colours, if it is dumb"),
    (
        "COLUMNS",
        "the width of the output, instead of the terminal's",
    ),
];

const PAGES: &[Page] = &[
    Page {
        command: "split",
        examples: &[
            "breakbulk split --wire ahp --max-frame 900KB big.json > frames.txt",
            "breakbulk split --wire loro --max-frame 100KiB big.bin -o frames.bin",
        ],
        codes: &[FAILED],
        variables: &[],
    },
    Page {
        command: "join",
        examples: &[
            "breakbulk join frames.txt > big.json",
            "breakbulk join --wire loro frames.bin -o big.bin",
        ],
        codes: &[FAILED],
        variables: &[],
    },
    Page {
        command: "inspect",
        examples: &[
            "breakbulk inspect capture.txt",
            "breakbulk inspect --json capture.bin | python3 -m json.tool",
            "breakbulk inspect /var/lib/breakbulk/record",
        ],
        codes: &[(
            "1",
            "the capture has faults or unfinished transfers, or cannot be read on; in a record\n       a conversation failed, or a message was too large",
        )],
        variables: &[],
    },
    Page {
        command: "gateway",
        examples: crate::gateway::EXAMPLES,
        codes: &[(
            "1",
            "the session of stdio: lost messages, a listener failed, or a second\n       signal came",
        )],
        variables: &[
            TOKEN,
            ADMIN_TOKEN,
            ("BREAKBULK_NOSTR_KEY", "the secret key for relays"),
            ("BREAKBULK_FLEET_SECRET", "the secret of --fleet"),
            (
                "XDG_STATE_HOME",
                "the folder of breakbulk/caps.json without --state",
            ),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "headers of --otlp: NAME=VALUE,…",
            ),
            ("OTEL_SERVICE_NAME", "the name of this service for --otlp"),
            CERTIFICATES,
        ],
    },
    Page {
        command: "tap",
        examples: &[
            "breakbulk tap --admin 9100",
            "breakbulk tap --admin 9100 --session 7kq3vd-1",
        ],
        codes: &[SESSION],
        variables: &[ADMIN_TOKEN],
    },
    Page {
        command: "caps",
        examples: &["breakbulk caps", "breakbulk caps aws-api-gateway"],
        codes: &[],
        variables: &[],
    },
    Page {
        command: "probe",
        examples: &[],
        codes: &[("1", "no answer to a probe, or nothing passes")],
        variables: &[TOKEN, CERTIFICATES],
    },
    Page {
        command: "call",
        examples: &[
            "breakbulk call python: math sqrt 2",
            "breakbulk call python: operator mul '\"ab\"' 12000000 -o result.json",
            "breakbulk call vscode+tcp:127.0.0.1:5007 1 '$ping'",
        ],
        codes: &[
            ("1", "the function raised an error, or the bridge ended"),
            TIMEOUT,
            ("130", "a signal stopped it"),
        ],
        variables: &[(
            "TYWRAP_CODEC_FALLBACK",
            "how python: sends arrays: json (default), else Arrow",
        )],
    },
    Page {
        command: "loro",
        examples: &[
            "breakbulk loro serve --data documents",
            "breakbulk loro push ws://127.0.0.1:7402/ws notes notes.json",
            "breakbulk loro pull ws://127.0.0.1:7402/ws notes",
        ],
        codes: &[SESSION],
        variables: &[TOKEN, CERTIFICATES],
    },
    Page {
        command: "loro serve",
        examples: &[
            "breakbulk loro serve --data documents",
            "breakbulk loro serve --listen unix:/run/user/1000/loro --data documents",
        ],
        codes: &[SESSION],
        variables: &[TOKEN],
    },
    Page {
        command: "loro pull",
        examples: &[
            "breakbulk loro pull ws://127.0.0.1:7402/ws notes",
            "breakbulk loro pull 'http://127.0.0.1:7402?transport=poll' notes notes.json",
        ],
        codes: &[SESSION, TIMEOUT],
        variables: &[TOKEN, CERTIFICATES],
    },
    Page {
        command: "loro push",
        examples: &["breakbulk loro push ws://127.0.0.1:7402/ws notes notes.json"],
        codes: &[SESSION, TIMEOUT],
        variables: &[TOKEN, CERTIFICATES],
    },
    Page {
        command: "loro watch",
        examples: &["breakbulk loro watch ws://127.0.0.1:7402/ws notes notes.json"],
        codes: &[SESSION, TIMEOUT],
        variables: &[TOKEN, CERTIFICATES],
    },
    Page {
        command: "loro list",
        examples: &["breakbulk loro list ws://127.0.0.1:7402/ws"],
        codes: &[SESSION, TIMEOUT],
        variables: &[TOKEN, CERTIFICATES],
    },
    Page {
        command: "loro delete",
        examples: &["breakbulk loro delete ws://127.0.0.1:7402/ws notes"],
        codes: &[SESSION, TIMEOUT],
        variables: &[TOKEN, CERTIFICATES],
    },
    Page {
        command: "keygen",
        examples: &["breakbulk keygen relay.key"],
        codes: &[FAILED],
        variables: &[],
    },
    Page {
        command: "demo",
        examples: &["breakbulk demo", "breakbulk demo ahp"],
        codes: &[("1", "something did not arrive as it was sent")],
        variables: &[],
    },
    Page {
        command: "relay",
        examples: &[],
        codes: &[SESSION],
        variables: &[],
    },
    Page {
        command: "echo",
        examples: &[],
        codes: &[
            ("1", "an error, or other bytes than those asked for"),
            TIMEOUT,
        ],
        variables: &[],
    },
    Page {
        command: "explain",
        examples: &[
            "breakbulk explain",
            "breakbulk explain 1009",
            "breakbulk explain -32011",
            "breakbulk explain 'the target closed with 1009: message too big'",
        ],
        codes: &[],
        variables: &[],
    },
    Page {
        command: "completions",
        examples: &[
            "breakbulk completions zsh > ~/.zfunc/_breakbulk",
            "breakbulk completions bash \\\n      > ~/.local/share/bash-completion/completions/breakbulk",
        ],
        codes: &[],
        variables: &[],
    },
    Page {
        command: "man",
        examples: &["breakbulk man ~/.local/share/man/man1"],
        codes: &[FAILED],
        variables: &[],
    },
];

/// The whole command line, with the ends of all `--help` texts.
pub(crate) fn complete(command: Command) -> Command {
    let page = Page {
        command: "",
        examples: &[
            "breakbulk demo",
            "breakbulk gateway --listen ws://8080 \\\n      --to 'exec:npx some-mcp-server' --max-frame 100KB",
            "breakbulk gateway --listen stdio: --to ws://127.0.0.1:8080/ --max-frame 100KB",
        ],
        codes: &[
            ("1", "the input is wrong, or it failed after it had started"),
            ("124", "a time limit is over"),
            ("130", "a signal stopped it"),
        ],
        variables: &[],
    };
    let command = command.after_long_help(examples(&page) + &end(&page));
    below(command, "")
}

/// Adds the ends to all commands below this one, which is written in these words.
fn below(command: Command, words: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .filter(|it| !it.is_hide_set())
        .map(|it| it.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        let words = format!("{words} {name}").trim_start().to_owned();
        command.mut_subcommand(&name, |command| {
            let command = match PAGES.iter().find(|page| page.command == words) {
                Some(page) => with_end(command, page),
                None => command,
            };
            below(command, &words)
        })
    })
}

/// Commands with so many options and rules that nobody would find examples behind them.
const EXAMPLES_FIRST: [&str; 1] = ["gateway"];

fn with_end(mut command: Command, page: &Page) -> Command {
    let is_first = EXAMPLES_FIRST.contains(&page.command);
    if is_first {
        let about = command.get_about();
        let about = about.map(ToString::to_string).unwrap_or_default();
        command = command.long_about(format!("{about}\n\n{}", examples(page).trim_end()));
    }
    let rules = command.get_after_long_help().or(command.get_after_help());
    let rules = rules
        .map(|rules| format!("{rules}\n\n"))
        .unwrap_or_default();
    let has_short = command.get_after_help().is_some();
    let examples = if is_first {
        String::new()
    } else {
        examples(page)
    };
    let command = command.after_long_help(rules + &examples + &end(page));
    match has_short {
        true => command,
        false => command.after_help("See --help for examples, exit codes and variables."),
    }
}

/// The section with a command's examples; empty if the page names none.
fn examples(page: &Page) -> String {
    let mut text = String::new();
    if !page.examples.is_empty() {
        text.push_str("Examples:\n");
        for example in page.examples {
            text.push_str(&format!("  {example}\n"));
        }
        text.push('\n');
    }
    text
}

fn end(page: &Page) -> String {
    let mut text = String::new();
    let codes = [("0", "done"), COULD_NOT_START];
    let mut codes: Vec<_> = codes.iter().chain(page.codes).collect();
    codes.sort_by_key(|(code, _)| code.parse::<u8>().unwrap_or_default());
    text.push_str("Exit codes:\n");
    for (code, meaning) in codes {
        text.push_str(&format!("  {code:<4} {meaning}\n"));
    }
    text.push('\n');
    text.push_str("Environment:\n");
    for (name, meaning) in page.variables.iter().chain(&EVERYWHERE) {
        text.push_str(&match name.len() {
            ..=22 => format!("  {name:<22} {meaning}\n"),
            _ => format!("  {name}\n                         {meaning}\n"),
        });
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// All commands with their words, but for hidden ones.
    fn all(command: &Command, words: &str, out: &mut Vec<(String, Command)>) {
        out.push((words.to_owned(), command.clone()));
        let below = command.get_subcommands();
        for below in below.filter(|it| !it.is_hide_set() && it.get_name() != "help") {
            let words = format!("{words} {}", below.get_name());
            all(below, words.trim_start(), out);
        }
    }

    fn commands() -> Vec<(String, Command)> {
        let mut command = complete(crate::Cli::command().disable_help_subcommand(true));
        command.build();
        let mut out = Vec::new();
        all(&command, "", &mut out);
        out
    }

    #[test]
    fn every_help_has_examples_exit_codes_and_variables_and_fits_80_columns() {
        for (words, command) in commands() {
            let help = command.term_width(80).render_long_help().to_string();
            for part in [
                "Examples:\n  breakbulk ",
                "Exit codes:",
                "Environment:",
                "NO_COLOR",
            ] {
                assert!(help.contains(part), "breakbulk {words} --help: no {part:?}");
            }
            for line in help.lines() {
                let width = line.chars().count();
                assert!(
                    width <= 80,
                    "breakbulk {words} --help, {width} columns: {line}"
                );
            }
        }
    }

    #[test]
    fn every_example_is_a_command_line_of_its_command() {
        let command = crate::Cli::command();
        for (words, page) in commands() {
            let help = page.term_width(0).render_long_help().to_string();
            let (_, examples) = help.split_once("Examples:\n").unwrap();
            let examples = examples.replace("\\\n", "");
            for line in examples.lines().take_while(|line| line.starts_with("  ")) {
                let line = line.trim();
                assert!(line.starts_with(&format!("breakbulk {words}")), "{line}");
                // What the shell does is not for this program.
                let own = line
                    .split([' '])
                    .take_while(|word| ![">", "|"].contains(word));
                let own = own.collect::<Vec<_>>().join(" ");
                let own = breakbulk::net::process::split(&own).unwrap();
                if let Err(error) = command.clone().try_get_matches_from(own) {
                    panic!("{line}: {error}");
                }
            }
        }
    }

    /// A variable that the program reads stands in a help text.
    #[test]
    fn every_variable_is_told() {
        let told: String = commands()
            .into_iter()
            .map(|(_, command)| command.term_width(0).render_long_help().to_string())
            .collect();
        for name in [
            crate::key::VARIABLE,
            "BREAKBULK_TOKEN",
            "BREAKBULK_ADMIN_TOKEN",
            "BREAKBULK_FLEET_SECRET",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_SERVICE_NAME",
            "XDG_STATE_HOME",
            "TERM",
            "TYWRAP_CODEC_FALLBACK",
        ] {
            assert!(told.contains(&format!("  {name}")), "{name}");
        }
    }
}
