//! Which row of docs/ERRORS.md explains the code that a message names, and the command that prints it.

/// Close codes, JSON-RPC errors and HTTP statuses that have a row, with what stands before them in a message.
const CODES: [(&str, &str, &[u32]); 5] = [
    ("closed with ", "close-", CLOSES),
    ("(", "close-", &[1009]),
    (
        "error -",
        "error-",
        &[
            32000, 32001, 32005, 32008, 32011, 32020, 32600, 32601, 32602, 32603, 32700,
        ],
    ),
    ("HTTP ", "http-", STATUSES),
    ("status ", "http-", STATUSES),
];

const CLOSES: &[u32] = &[
    1001, 1002, 1003, 1006, 1007, 1008, 1009, 1011, 1013, 1014, 4400, 4406, 4408, 4409, 4413,
];

const STATUSES: &[u32] = &[
    400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 426, 429, 431, 500, 502, 503,
];

/// The close code of a normal end, which needs no explanation.
const GOING_AWAY: &str = "close-1001";

/// The anchor of the first code that the text names.
pub(crate) fn anchor(text: &str) -> Option<String> {
    let found = CODES.iter().flat_map(|(before, kind, codes)| {
        text.match_indices(before).filter_map(move |(at, _)| {
            let rest = &text[at + before.len()..];
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let code = rest[..digits].parse().ok()?;
            codes.contains(&code).then(|| (at, format!("{kind}{code}")))
        })
    });
    found.min_by_key(|(at, _)| *at).map(|(_, anchor)| anchor)
}

/// The command that explains the first code that the text names.
pub(super) fn command(text: &str) -> Option<String> {
    anchor(text).map(|anchor| command_for(&anchor))
}

/// The command that explains a log line about a connection or session that did not end as it should.
pub(super) fn command_for_end(line: &str) -> Option<String> {
    let anchor = anchor(line).filter(|anchor| anchor.starts_with("close-"))?;
    (anchor != GOING_AWAY).then(|| command_for(&anchor))
}

fn command_for(anchor: &str) -> String {
    let code = anchor.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let code = match anchor.starts_with("error-") {
        true => code,
        false => code.trim_start_matches('-'),
    };
    format!("breakbulk explain {code}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_code_with_a_row_counts() {
        for (text, expected) in [
            (
                "the target closed with 1009: too large (HTTP 413)",
                Some("close-1009"),
            ),
            (
                "session ended: the command exited with status 1 (closed with 1011)",
                Some("close-1011"),
            ),
            ("HTTP 413: nginx", Some("http-413")),
            (
                "the answer is error -32011: message too large",
                Some("error-32011"),
            ),
            ("not answered: message too big (1009)", Some("close-1009")),
            ("the command closed with 1000: done", None),
            ("closed with 4999", None),
            ("closed with 100", None),
            ("nothing", None),
        ] {
            assert_eq!(anchor(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_code_has_a_command_and_a_normal_end_none() {
        for (text, everywhere, at_an_end) in [
            (
                "closed with 1009",
                Some("breakbulk explain 1009"),
                Some("breakbulk explain 1009"),
            ),
            ("error -32011", Some("breakbulk explain -32011"), None),
            ("HTTP 413", Some("breakbulk explain 413"), None),
            ("closed with 1001", Some("breakbulk explain 1001"), None),
            ("closed with 1000", None, None),
        ] {
            assert_eq!(command(text).as_deref(), everywhere, "{text}");
            assert_eq!(command_for_end(text).as_deref(), at_an_end, "{text}");
        }
    }

    #[test]
    fn every_anchor_is_in_the_page() {
        let page = include_str!("../../ERRORS.md");
        for (_, kind, codes) in CODES {
            for code in codes {
                let row = format!("<a id=\"{kind}{code}\"></a>");
                assert!(page.contains(&row), "docs/ERRORS.md has no {row}");
            }
        }
    }
}
