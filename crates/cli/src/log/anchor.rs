//! Where docs/ERRORS.md tells about a code that a message names.

/// Close codes, JSON-RPC errors and HTTP statuses that have a row, with what stands before them in a message.
const CODES: [(&str, &str, &[u32]); 5] = [
    (
        "closed with ",
        "close-",
        &[
            1001, 1002, 1003, 1006, 1007, 1008, 1009, 1011, 1013, 1014, 4400, 4406, 4408, 4409,
            4413,
        ],
    ),
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

const STATUSES: &[u32] = &[
    400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 429, 500, 502, 503,
];

/// The anchor of the first code that the text names.
pub(super) fn anchor(text: &str) -> Option<String> {
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
    fn every_anchor_is_in_the_page() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ERRORS.md");
        let page = std::fs::read_to_string(page).expect(page);
        for (_, kind, codes) in CODES {
            for code in codes {
                let row = format!("<a id=\"{kind}{code}\"></a>");
                assert!(page.contains(&row), "docs/ERRORS.md has no {row}");
            }
        }
    }
}
