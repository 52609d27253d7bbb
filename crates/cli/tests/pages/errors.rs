//! Every close code, JSON-RPC error and HTTP status of the code has its row in docs/ERRORS.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::root;

/// Numbers of the code that look like close codes of an application and are none, and what they are.
const NO_CLOSE_CODES: [(u32, &str); 4] = [
    (4000, "characters of a text"),
    (4096, "4 KiB, or a count"),
    (4222, "NATS' port"),
    (4318, "the port of OpenTelemetry collectors"),
];

/// Statuses that are no errors.
const FINE: [&str; 4] = ["OK", "ACCEPTED", "NO_CONTENT", "SWITCHING_PROTOCOLS"];

/// The statuses that the code has by name.
const STATUSES: [(&str, u32); 14] = [
    ("BAD_REQUEST", 400),
    ("UNAUTHORIZED", 401),
    ("FORBIDDEN", 403),
    ("NOT_FOUND", 404),
    ("METHOD_NOT_ALLOWED", 405),
    ("NOT_ACCEPTABLE", 406),
    ("REQUEST_TIMEOUT", 408),
    ("CONFLICT", 409),
    ("PAYLOAD_TOO_LARGE", 413),
    ("UNSUPPORTED_MEDIA_TYPE", 415),
    ("TOO_MANY_REQUESTS", 429),
    ("INTERNAL_SERVER_ERROR", 500),
    ("BAD_GATEWAY", 502),
    ("SERVICE_UNAVAILABLE", 503),
];

/// The anchors that the lines of a source ask for.
fn wanted(source: &str) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    // Tests stand at the end of a file.
    let source = source.split("\n#[cfg(test)]\n").next().unwrap_or_default();
    for line in source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
    {
        let bytes = line.as_bytes();
        let is_word = |at: usize| {
            let byte = bytes.get(at);
            byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
        };
        for (at, _) in line.match_indices(|c: char| c.is_ascii_digit()) {
            if at > 0 && is_word(at - 1) {
                continue;
            }
            let digits = line[at..].bytes().take_while(u8::is_ascii_digit).count();
            if is_word(at + digits) {
                continue;
            }
            let Ok(number) = line[at..at + digits].parse::<u32>() else {
                continue;
            };
            let is_negative = at > 0 && bytes[at - 1] == b'-';
            let is_named = NO_CLOSE_CODES.iter().any(|(named, _)| *named == number);
            match number {
                32000..=32799 if is_negative => drop(wanted.insert(format!("error-{number}"))),
                // 1004, 1005 and 1010 are never sent, 1015 is TLS' own.
                1000..=1003 | 1006..=1009 | 1011..=1014 => {
                    wanted.insert(format!("close-{number}"));
                }
                4000..=4499 if !is_named => drop(wanted.insert(format!("close-{number}"))),
                _ => {}
            }
        }
        for rest in line.split("StatusCode::").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            if name.is_empty() || FINE.contains(&name) {
                continue;
            }
            let status = STATUSES.iter().find(|(named, _)| *named == name);
            let (_, status) =
                status.unwrap_or_else(|| panic!("StatusCode::{name} is in no table here"));
            wanted.insert(format!("http-{status}"));
        }
        // `Refusal::new(413, …)`, and a status as it stands in the answer: `"426 Upgrade Required"`.
        let numbers = ["Refused::new(", "Refusal::new("].map(|before| (before, ','));
        for (before, after) in numbers.into_iter().chain([("\"", ' ')]) {
            for rest in line.split(before).skip(1) {
                let status = rest.get(..3).filter(|it| it.starts_with(['4', '5']));
                let status = status.filter(|it| it.parse::<u32>().is_ok());
                let phrase = rest.get(3..).unwrap_or_default();
                let is_phrase = phrase.starts_with(after)
                    && (after == ',' || phrase[1..].starts_with(|c: char| c.is_ascii_uppercase()));
                if let Some(status) = status.filter(|_| is_phrase) {
                    wanted.insert(format!("http-{status}"));
                }
            }
        }
    }
    wanted
}

/// The sources of all crates that a user runs, without their tests.
fn sources(folder: &Path, found: &mut BTreeMap<String, BTreeSet<String>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            // The rows of the caps name the codes of others.
            if !["tests", "preset", "testkit", "examples", "benches"].contains(&name.as_str()) {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && !name.contains("tests") && name != "build.rs" {
            let text = std::fs::read_to_string(&path).unwrap();
            for anchor in wanted(&text) {
                found
                    .entry(anchor)
                    .or_default()
                    .insert(path.display().to_string());
            }
        }
    }
}

#[test]
fn every_code_of_the_program_has_its_row() {
    let page = std::fs::read_to_string(root().join("docs/ERRORS.md")).unwrap();
    let mut found = BTreeMap::new();
    sources(&root().join("crates"), &mut found);
    assert!(found.len() > 20, "only {found:?}");
    for (anchor, files) in &found {
        let row = format!("| <a id=\"{anchor}\"></a>");
        assert!(
            page.contains(&row),
            "docs/ERRORS.md has no row {anchor}: {files:?}"
        );
    }
    // And no row is for a code that is gone; 1003 is a path's own, exit codes are asked for below.
    let rows = page
        .split("<a id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    for row in rows.filter(|row| row.starts_with("close-") || row.starts_with("error-")) {
        assert!(
            found.contains_key(row),
            "docs/ERRORS.md has a row {row} for nothing"
        );
    }
    for code in ["exit-0", "exit-1", "exit-2", "exit-124", "exit-130"] {
        assert!(page.contains(&format!("| <a id=\"{code}\"></a>")), "{code}");
    }
}

#[test]
fn codes_are_found_where_they_are() {
    for (line, expected) in [
        ("const TOO_LARGE: u16 = 1009;", &["close-1009"][..]),
        ("pub const VERSION: u16 = 4406;", &["close-4406"]),
        ("    // closed with 1009", &[]),
        ("let room = [0; 4096];", &[]),
        ("const A: i32 = -32011;", &["error-32011"]),
        ("let x = 32011;", &[]),
        ("let bytes = 1_000;", &[]),
        ("closed(1001, \"gone\")", &["close-1001"]),
        ("StatusCode::PAYLOAD_TOO_LARGE => 1", &["http-413"]),
        ("StatusCode::OK", &[]),
        ("Refused::new(404, X, words)", &["http-404"]),
        ("Refusal::new(413, words)", &["http-413"]),
        (
            "..Refusal::new(\"426 Upgrade Required\", text)",
            &["http-426"],
        ),
        (
            "    \"431 Request Header Fields Too Large\",",
            &["http-431"],
        ),
        ("\"500 bytes\", \"409, or\", \"400KB\"", &[]),
        (
            "let a = 1;\n#[cfg(test)]\nmod tests {\n    a(4711, 4321, 1014);\n}",
            &[],
        ),
    ] {
        let found: Vec<_> = wanted(line).into_iter().collect();
        assert_eq!(found, expected, "{line}");
    }
}
