//! `breakbulk tap`: follows a running gateway in the terminal, by its admin port.

use std::path::PathBuf;

use breakbulk::gateway::admin::{FollowError, Followed, follow};
use breakbulk::gateway::record::{Live, Note, Way, clock};
use clap::Args;

use crate::failure::Failure;
use crate::gateway::admin_token;
use crate::inspect::printable;
use crate::output::Output;
use crate::terminal;

/// The width of a line where there is no terminal.
const WIDTH: usize = 80;

/// Colours of a terminal: red for what ended badly, grey for frames of the tunnel itself.
const RED: &str = "\x1b[31m";
const GREY: &str = "\x1b[90m";
const PLAIN: &str = "\x1b[0m";

#[derive(Args, Debug)]
pub(crate) struct Tap {
    /// The admin port of the gateway (gateway --admin): PORT, HOST:PORT or a URL
    #[arg(long, value_name = "ADDRESS|URL")]
    admin: String,
    /// The file with the token of the admin port [default: the value of BREAKBULK_ADMIN_TOKEN]
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Show only this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show only sessions of this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
}

impl Tap {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Io("cannot start threads".to_owned(), error))?;
        runtime.block_on(self.follow())
    }

    async fn follow(self) -> Result<(), Failure> {
        let token = admin_token(self.admin_token_file.as_deref())?;
        let mut lines = follow(&self.admin, token.as_ref()).await.map_err(failed)?;
        let colours = terminal::output_has_colours();
        let width = terminal::width().unwrap_or(WIDTH);
        loop {
            match lines.next().await.map_err(failed)? {
                Followed::Record(live) if self.wants(&live) => {
                    let mut out = Output::open(None)?;
                    out.line(&line(&live, width, colours))?;
                    out.finish()?;
                }
                Followed::Record(_) => {}
                Followed::Ended => return Ok(()),
            }
        }
    }

    fn wants(&self, live: &Live) -> bool {
        // What was missed may have been of any session.
        let is_about_all = live.session.is_empty();
        let wanted =
            |asked: &Option<String>, found: &str| asked.as_ref().is_none_or(|asked| asked == found);
        is_about_all || wanted(&self.session, &live.session) && wanted(&self.route, &live.route)
    }
}

fn failed(error: FollowError) -> Failure {
    match error.is_setup() {
        true => Failure::Usage(format!("--admin: {error}")),
        false => Failure::Session(format!("--admin: {error}")),
    }
}

/// A record in one line.
fn line(live: &Live, width: usize, colours: bool) -> String {
    let way = match live.way {
        Some(Way::In) => "<",
        Some(Way::Out) => ">",
        None => "-",
    };
    let side = live.side.map_or("", |side| side.word());
    let text = format!(
        "{} {:<12} {side:<6} {way} {}",
        clock(live.at.saturating_mul(1000)),
        live.session,
        live.note.summary()
    );
    let text = printable(&text, width - 1);
    let colour = match &live.note {
        Note::Closed { code, .. } if !matches!(code, 1000 | 1001 | 1005) => RED,
        Note::Ended(end) if !end.clean => RED,
        Note::Missed { .. } | Note::Refused | Note::NotCarried(_) => RED,
        Note::Frame { head, .. } if head.tunnel.is_some() => GREY,
        _ => return text,
    };
    match colours {
        true => format!("{colour}{text}{PLAIN}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_line_of_a_terminal() {
        let text = r#"{"at":1795000000123,"session":"7kq3vd-1","route":"gateway","side":"to","line":1,"way":"out","note":{"is":"frame","n":13,"bytes":900000,"kind":"piece","wire":"ahp","key":"k","seq":11,"count":28,"method":"tools/call","id":"7"}}"#;
        let mut live: Live = serde_json::from_str(text).unwrap();
        let expected = "11:06:40.123 7kq3vd-1     to     > 13 piece 12/28 tools/call id 7 900000 B";
        assert_eq!(line(&live, WIDTH, true), expected);
        live.note = Note::Closed {
            by: breakbulk::gateway::record::By::Peer,
            code: 1009,
            reason: format!("xx\u{1b}[2J{}", "y".repeat(100)),
        };
        live.way = None;
        let plain = line(&live, WIDTH, false);
        assert!(plain.chars().count() <= WIDTH, "{plain}");
        assert!(plain.contains("1009 xx\\u{1b}[2Jyyy"), "{plain}");
        assert!(line(&live, WIDTH, true).starts_with("\x1b[31m11:06"));
    }
}
