//! Why a conversation failed: which connection ended first, at which frame, under which cap, and what would
//! help.

use breakbulk::gateway::record::{By, SideName, Way};
use breakbulk::gateway::{Cutting, RefusedFrame};
use breakbulk::link;

use super::book::{Closed, FrameLog, Line, OneWay, Session};
use super::chain::Chain;

/// The close code of a message that is too large.
const TOO_LARGE: u16 = 1009;

/// Why a conversation failed.
pub(super) struct Explanation {
    /// The connection that ended first.
    pub(super) hop: Hop,
    pub(super) closed: Closed,
    /// Who closed it, in words.
    pub(super) who: String,
    /// The frame at which it ended.
    pub(super) frame: Option<BadFrame>,
    /// The largest frame that the path lets through, as far as the reason of the close tells it.
    pub(super) cap: Option<u64>,
    /// The largest frame that the sender may send.
    pub(super) max_frame: Option<u64>,
    /// Open requests: method and id.
    pub(super) open: Vec<(String, String)>,
    /// What would help.
    pub(super) option: Option<String>,
}

/// The two ends of a connection, by their names.
pub(super) struct Hop {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) line: u64,
}

/// The frame at which a connection ended.
pub(super) struct BadFrame {
    /// Who sent it, and to whom.
    pub(super) from: String,
    pub(super) to: String,
    pub(super) frame: FrameLog,
    /// How many frames were sent and did not arrive, if the other end was recorded too.
    pub(super) missing: Option<u64>,
}

/// The two ends of a connection, as far as they were recorded.
struct Ends<'a> {
    near: Option<(&'a Session, &'a Line)>,
    far: Option<(&'a Session, &'a Line)>,
    hop: Hop,
}

/// Why it failed; `None` if no connection ended badly.
pub(super) fn explain(chain: &Chain<'_>) -> Option<Explanation> {
    let mut hops = hops(chain);
    hops.retain(|ends| first_close(ends).is_some_and(|closed| !closed.is_normal()));
    let ends = hops
        .into_iter()
        .min_by_key(|ends| first_close(ends).map(|closed| closed.micros))?;
    let closed = first_close(&ends)?.clone();
    let cap = (closed.code == TOO_LARGE).then(|| limit(&closed)).flatten();
    let frame = bad_frame(&ends, closed.code == TOO_LARGE, cap);
    let open = chain.first().map_or(Vec::new(), |session| {
        let open = session.open_requests();
        open.map(|(method, id)| (method.to_owned(), id.to_owned()))
            .collect()
    });
    let max_frame = max_frame(&ends);
    Some(Explanation {
        who: who(&ends),
        option: option(&ends, &closed, cap, frame.as_ref()),
        hop: ends.hop,
        closed,
        frame,
        cap,
        max_frame,
        open,
    })
}

/// All connections of a conversation, from the program to the target.
fn hops<'a>(chain: &Chain<'a>) -> Vec<Ends<'a>> {
    let mut hops = Vec::new();
    let Some(first) = chain.first() else {
        return hops;
    };
    let lines = |session: &'a Session, side| {
        let lines = session.lines.iter();
        lines
            .filter(move |line| line.side == side)
            .map(move |line| (session, line))
    };
    for (session, line) in lines(first, SideName::Listen) {
        hops.push(Ends {
            near: None,
            far: Some((session, line)),
            hop: Hop {
                from: "its client".to_owned(),
                to: session.point.session.clone(),
                line: line.number,
            },
        });
    }
    for (index, session) in chain.iter().enumerate() {
        let next = chain.get(index + 1);
        let mut theirs: Vec<_> = next
            .into_iter()
            .flat_map(|next| lines(next, SideName::Listen))
            .collect();
        theirs.reverse();
        for (_, line) in lines(session, SideName::To) {
            let far = theirs.pop();
            hops.push(Ends {
                near: Some((session, line)),
                far,
                hop: Hop {
                    from: session.point.session.clone(),
                    to: next.map_or("its target".to_owned(), |it| it.point.session.clone()),
                    line: line.number,
                },
            });
        }
    }
    hops
}

/// How the connection ended, as the end that saw it first tells.
fn first_close<'a>(ends: &Ends<'a>) -> Option<&'a Closed> {
    let both = [ends.near, ends.far].into_iter().flatten();
    let closes = both.filter_map(|(_, line)| line.closed.as_ref());
    // A close with a reason tells more than one without, as of a connection that broke.
    closes.min_by_key(|closed| (closed.reason.is_empty(), closed.micros))
}

fn limit(closed: &Closed) -> Option<u64> {
    let closed = link::Closed {
        code: closed.code,
        reason: closed.reason.clone(),
    };
    RefusedFrame::new(usize::MAX, Cutting::BothGateways, &closed)
        .limit
        .map(|limit| limit as u64)
}

fn who(ends: &Ends<'_>) -> String {
    let by =
        |end: Option<(&Session, &Line)>| end.and_then(|(_, line)| Some(line.closed.as_ref()?.by));
    let Hop { from, to, .. } = &ends.hop;
    match (by(ends.near), by(ends.far)) {
        (Some(By::Us), _) => format!("{from} closed it"),
        (_, Some(By::Us)) => format!("{to} closed it"),
        (Some(_), Some(_)) => {
            format!("the path between them: neither {from} nor {to} closed it")
        }
        (Some(By::Peer), None) => format!("{to}, or the path to it"),
        (None, Some(By::Peer)) => format!("{from}, or the path from it"),
        _ => "neither end: the connection broke without a close".to_owned(),
    }
}

/// The frame at which the connection ended.
fn bad_frame(ends: &Ends<'_>, too_large: bool, cap: Option<u64>) -> Option<BadFrame> {
    let Hop { from, to, .. } = &ends.hop;
    let near = ends.near.map(|(_, line)| &line.ways);
    let far = ends.far.map(|(_, line)| &line.ways);
    let (out, into) = (Way::Out as usize, Way::In as usize);
    let there = (near, far, from, to);
    let back = (far, near, to, from);
    let found = [there, back]
        .into_iter()
        .filter_map(|(sender, receiver, from, to)| {
            let sent = Sent {
                out: &sender?[out],
                back: &sender?[into],
                // A later line of a tunnel begins with frames that were sent before.
                is_first: ends.hop.line == 1,
            };
            let arrived = receiver.map(|ways| &ways[into]);
            let (frame, missing) = suspect(&sent, arrived, too_large, cap)?;
            Some(BadFrame {
                from: from.clone(),
                to: to.clone(),
                frame,
                missing,
            })
        });
    found.max_by_key(|bad| (bad.missing.is_some(), bad.frame.bytes))
}

/// What one end recorded of a connection on which it sent.
struct Sent<'a> {
    out: &'a OneWay,
    back: &'a OneWay,
    is_first: bool,
}

/// The first frame that did not arrive. If only the sender was recorded: the first one over the cap that
/// was not acknowledged, or the last one.
fn suspect(
    sent: &Sent<'_>,
    arrived: Option<&OneWay>,
    too_large: bool,
    cap: Option<u64>,
) -> Option<(FrameLog, Option<u64>)> {
    let frames = &sent.out.last;
    if let Some(arrived) = arrived {
        let missing = sent.out.frames.checked_sub(arrived.frames)?;
        let next = arrived.frames.checked_add(1)?;
        let first = frames.iter().find(|frame| frame.n == next)?;
        return Some((first.clone(), Some(missing)));
    }
    if !too_large {
        return Some((frames.back()?.clone(), None));
    }
    let acknowledged = if sent.is_first {
        sent.back.acknowledged
    } else {
        0
    };
    let largest = frames.iter().map(|frame| frame.bytes).max()?;
    let is_over = |frame: &&FrameLog| match cap {
        Some(cap) => frame.bytes > cap,
        None => frame.bytes == largest,
    };
    let mut over = frames.iter().filter(is_over);
    let first = over.find(|frame| frame.carried > acknowledged)?;
    Some((first.clone(), None))
}

/// The largest frame that both gateways of a tunnel agreed on.
fn max_frame(ends: &Ends<'_>) -> Option<u64> {
    let ways = [ends.near, ends.far].into_iter().flatten();
    let hellos = ways.flat_map(|(_, line)| line.ways.iter().filter_map(|way| way.hello.as_ref()));
    hellos.map(|hello| hello.frame).min()
}

fn option(
    ends: &Ends<'_>,
    closed: &Closed,
    cap: Option<u64>,
    frame: Option<&BadFrame>,
) -> Option<String> {
    let ways = [ends.near, ends.far].into_iter().flatten();
    let mut hellos =
        ways.flat_map(|(_, line)| line.ways.iter().filter_map(|way| way.hello.as_ref()));
    let is_tunnel = hellos.clone().next().is_some();
    let no_resume = hellos.any(|hello| hello.resume_ms == 0);
    let resume = match no_resume {
        true => {
            " With --resume-for above 0 at both, the tunnel finds the cap by itself and goes on."
        }
        false => "",
    };
    match closed.code {
        TOO_LARGE if !is_tunnel => Some(
            "messages are not cut on this connection (whole+, or no gateway at its other end): put a gateway at each end of the path, both without whole+, so that frames fit"
                .to_owned(),
        ),
        TOO_LARGE => {
            let max_frame = match cap {
                Some(cap) => format!("--max-frame {cap}"),
                None => smaller_than(frame?.frame.bytes),
            };
            Some(format!(
                "start both gateways with {max_frame}, or with the --preset of that path.{resume}"
            ))
        }
        1013 => Some("raise --max-sessions or --memory at the gateway that closed it".to_owned()),
        4413 => Some("raise --max-message at the gateway that closed it".to_owned()),
        1006 if is_tunnel && no_resume => Some(
            "with --resume-for above 0 at both, the tunnel goes on with another connection"
                .to_owned(),
        ),
        1006 | 1011 if is_tunnel => {
            Some("raise --resume-for at both gateways, if the path comes back later".to_owned())
        }
        _ => None,
    }
}

/// `--max-frame` with a value below this size, in the largest unit that it has one of.
fn smaller_than(bytes: u64) -> String {
    let half = bytes / 2;
    let units = [(1_000_000, "MB"), (1000, "KB")];
    let unit = units.into_iter().find(|(unit, _)| half >= *unit);
    let (unit, name) = unit.unwrap_or((1, ""));
    format!(
        "a --max-frame smaller than {bytes}, for example --max-frame {}{name}",
        half / unit
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;

    #[test]
    fn the_example_is_an_option_value_below_the_size() {
        for (bytes, example) in [
            (8_388_608, "4MB"),
            (900_000, "450KB"),
            (1000, "500"),
            (2000, "1KB"),
        ] {
            let text = smaller_than(bytes);
            assert_eq!(text.rsplit(' ').next(), Some(example), "{text}");
            assert!(example.parse::<Size>().unwrap().0 < bytes as usize);
        }
    }
}
