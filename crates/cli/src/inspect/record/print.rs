//! Prints a report about records for a terminal of 80 columns.

use std::io::{self, Write};

use breakbulk::gateway::record::{FrameKind, clock, date};

use super::explain::{BadFrame, Explanation};
use super::report::{Conversation, Report, State};
use crate::inspect::printable;
use crate::inspect::rows::counted;

/// The width of a terminal.
const WIDTH: usize = 80;

/// Where the text beside a label begins.
const INDENT: usize = 10;

/// Conversations that are listed, and failures that are explained, without `--all`: the last ones.
const LISTED: usize = 12;
const EXPLAINED: usize = 1;

/// The longest text of a peer that is shown.
const TEXT: usize = 120;

/// The longest text of this program that contains words of a peer.
const LONG_TEXT: usize = 600;

/// Messages of a conversation that were too large which are explained, without `--all`.
const UNCARRIED: usize = 2;

/// Open requests that are named.
const OPEN: usize = 3;

pub(super) fn print(report: &Report<'_>, all: bool, out: &mut dyn Write) -> io::Result<()> {
    summary(report, out)?;
    let conversations = &report.conversations;
    let listed = if all { usize::MAX } else { LISTED };
    let from = conversations.len().saturating_sub(listed);
    if from > 0 {
        let before = counted(from as u64, "conversation");
        writeln!(out, "({before} before these; --all lists them)")?;
    }
    for it in &conversations[from..] {
        writeln!(out)?;
        conversation(it, &report.records, out)?;
    }
    for it in conversations[from..]
        .iter()
        .filter(|it| !it.not_carried.is_empty())
    {
        not_carried(it, all, out)?;
    }
    let explained: Vec<&Conversation<'_>> = conversations
        .iter()
        .filter(|it| matches!(it.state, State::Failed | State::Resumed) && it.why.is_some())
        .collect();
    let shown = if all { usize::MAX } else { EXPLAINED };
    let from = explained.len().saturating_sub(shown);
    for it in &explained[from..] {
        if let Some(why) = &it.why {
            writeln!(out)?;
            if explained.len() > 1 {
                writeln!(out, "{}:", names(it))?;
            }
            explanation(why, out)?;
        }
    }
    if from > 0 {
        let id = explained.first().map_or(String::new(), |it| names(it));
        writeln!(out)?;
        wrapped(
            out,
            "",
            0,
            &format!(
                "{} more; --session {id} explains that one, --all every one",
                counted(from as u64, "failure")
            ),
        )?;
    }
    Ok(())
}

/// Messages that were too large, although the conversation went on.
fn not_carried(it: &Conversation<'_>, all: bool, out: &mut dyn Write) -> io::Result<()> {
    let shown = if all { usize::MAX } else { UNCARRIED };
    for message in it.not_carried.iter().take(shown) {
        writeln!(out)?;
        let mut row =
            |label: &str, text: &str| wrapped(out, label, INDENT, &printable(text, LONG_TEXT));
        row("too large", &message.what)?;
        if let Some(cap) = &message.cap {
            row("cap", cap)?;
        }
        row("remedy", &message.option)?;
    }
    let more = it.not_carried.len().saturating_sub(shown) as u64;
    let unkept: u64 = it.sessions.iter().map(|it| it.more_not_carried).sum();
    match more + unkept {
        0 => Ok(()),
        more => {
            let words = format!("{} more that were too large", counted(more, "message"));
            wrapped(out, "", INDENT, &words)
        }
    }
}

fn summary(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let conversations = &report.conversations;
    let first = conversations.iter().map(|it| it.first).min();
    let last = conversations.iter().map(|it| it.last).max();
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    let until = match date(first) == date(last) {
        true => clock(last),
        false => format!("{} {}", date(last), clock(last)),
    };
    writeln!(
        out,
        "{}, {}, {} {} to {until} UTC",
        counted(report.records.len() as u64, "record"),
        counted(conversations.len() as u64, "conversation"),
        date(first),
        clock(first),
    )?;
    if report.missed > 0 {
        let words = format!(
            "{} missing: the disk was slower than the traffic",
            counted(report.missed, "entry").replace("entrys", "entries")
        );
        wrapped(out, "", 0, &words)?;
    }
    if report.left_out > 0 {
        let words = format!(
            "{} left out: too many for one report",
            counted(report.left_out, "session")
        );
        wrapped(out, "", 0, &words)?;
    }
    for damage in &report.damaged {
        wrapped(out, "", 0, &printable(damage, 200))?;
    }
    Ok(())
}

fn names(it: &Conversation<'_>) -> String {
    let first = it.sessions.first();
    first.map_or(String::new(), |it| printable(&it.point.session, 24))
}

fn conversation(it: &Conversation<'_>, records: &[String], out: &mut dyn Write) -> io::Result<()> {
    for session in &it.sessions {
        let point = &session.point;
        let record = records.get(session.place).map_or("", String::as_str);
        let record = record
            .rsplit('/')
            .find(|it| !it.is_empty())
            .unwrap_or(record);
        let line = format!(
            "{} in {}: {} to {}",
            printable(&point.session, 24),
            printable(record, 16),
            printable(&point.listen, 40),
            printable(&point.to, 40)
        );
        writeln!(out, "{}", printable(&line, WIDTH - 1))?;
    }
    let [there, back] = it
        .sessions
        .first()
        .map_or_else(Default::default, |it| it.sums());
    let took = it.last.saturating_sub(it.first);
    writeln!(
        out,
        "  {}, {}.{:03} s; in {} {} B, out {} {} B; {}",
        clock(it.first),
        took / 1_000_000,
        took / 1000 % 1000,
        counted(there.0, "frame"),
        grouped(there.1),
        counted(back.0, "frame"),
        grouped(back.1),
        it.state.word(),
    )
}

fn explanation(it: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    let mut row = |label: &str, text: &str| wrapped(out, label, INDENT, text);
    let safe = |text: &str| printable(text, TEXT);
    let (hop, closed) = (&it.hop, &it.closed);
    let which = match hop.line {
        ..=1 => "the connection".to_owned(),
        number => format!("connection {number}"),
    };
    let what = format!(
        "{which} between {} and {} ended with {} at {}",
        safe(&hop.from),
        safe(&hop.to),
        closed.code,
        clock(closed.micros)
    );
    row("where", &what)?;
    if !closed.reason.is_empty() {
        row("reason", &safe(&closed.reason))?;
    }
    row("closed by", &it.who)?;
    if let Some(bad) = &it.frame {
        row("frame", &frame(bad))?;
        row("message", &message(bad))?;
    }
    let max_frame = it
        .max_frame
        .map(|max| format!("the gateways sent up to {}", grouped(max)));
    let cap = it
        .cap
        .map(|cap| format!("{} bytes, as the close reason says", grouped(cap)));
    let cap: Vec<String> = [cap, max_frame].into_iter().flatten().collect();
    if !cap.is_empty() {
        row("cap", &cap.join("; "))?;
    }
    row("requests", &open(it))?;
    if let Some(option) = &it.option {
        row("remedy", option)?;
    }
    Ok(())
}

fn frame(bad: &BadFrame) -> String {
    let (from, to) = (printable(&bad.from, 24), printable(&bad.to, 24));
    let (n, bytes) = (grouped(bad.frame.n), grouped(bad.frame.bytes));
    let missing = match bad.missing {
        Some(1) => "it did not arrive".to_owned(),
        Some(missing) => format!("it and {} after it did not arrive", grouped(missing - 1)),
        None => format!("it is the first that may not have arrived (a record of {to} would tell)"),
    };
    format!("{n} from {from} to {to}: {bytes} bytes; {missing}")
}

fn message(bad: &BadFrame) -> String {
    let name = |method: &Option<String>, id: &Option<String>| {
        let method = method.as_deref().map(|it| printable(it, 40));
        let id = id.as_deref().map(|it| format!("id {}", printable(it, 24)));
        let words: Vec<String> = [method, id].into_iter().flatten().collect();
        match words.is_empty() {
            true => "a message without method and id".to_owned(),
            false => words.join(" "),
        }
    };
    let Some(transfer) = &bad.frame.transfer else {
        return match bad.frame.kind {
            FrameKind::Tunnel => "none: a frame of the tunnel itself".to_owned(),
            _ => format!("{}, in one frame", name(&bad.frame.method, &bad.frame.id)),
        };
    };
    let of = transfer
        .count
        .map_or(String::new(), |it| format!(" of {it}"));
    let size = transfer.size().map_or(String::new(), |(size, exact)| {
        let about = if exact { "" } else { "at most " };
        format!(" of {about}{}", grouped(size))
    });
    format!(
        "{}: piece {}{of}, from byte {}{size}",
        name(&transfer.method, &transfer.id),
        transfer.seq.saturating_add(1),
        grouped(transfer.before),
    )
}

fn open(it: &Explanation) -> String {
    if it.open.is_empty() {
        return "none: every request was answered".to_owned();
    }
    let named = it.open.iter().take(OPEN);
    let named: Vec<String> = named
        .map(|(method, id)| format!("{} id {}", printable(method, 40), printable(id, 24)))
        .collect();
    let more = match it.open.len().saturating_sub(OPEN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = counted(it.open.len() as u64, "request");
    format!("{what} without an answer: {}{more}", named.join(", "))
}

/// `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A label, and beside it a text in lines of the terminal's width.
fn wrapped(out: &mut dyn Write, label: &str, indent: usize, text: &str) -> io::Result<()> {
    let room = WIDTH - 1 - indent;
    let mut line = String::new();
    let mut label = label;
    let mut end = |line: &mut String, label: &mut &str| {
        let written = writeln!(out, "{label:indent$}{line}");
        line.clear();
        *label = "";
        written
    };
    for word in text.split(' ') {
        let length = word.chars().count();
        let used = line.chars().count();
        if used > 0 && used + 1 + length > room {
            end(&mut line, &mut label)?;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        // A word that is longer than a line is cut.
        let mut rest: Vec<char> = word.chars().collect();
        while rest.len() > room {
            let more = rest.split_off(room);
            line.extend(rest);
            end(&mut line, &mut label)?;
            rest = more;
        }
        line.extend(rest);
    }
    end(&mut line, &mut label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_longer_than_a_terminal() {
        let text = "word ".repeat(40) + &"x".repeat(200);
        let mut out = Vec::new();
        wrapped(&mut out, "label", INDENT, &text).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.lines().all(|line| line.chars().count() < WIDTH),
            "{out}"
        );
        assert!(out.starts_with("label     word word"));
        let words: String = out[5..].split_whitespace().collect();
        assert_eq!(words, text.replace(' ', ""));
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
