//! Tests of `breakbulk caps`, the table of known paths and receivers.

use std::process::{Command, Output};

use breakbulk::link::Preset;
use serde_json::Value;

fn caps(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
    command.arg("caps").args(arguments).output().unwrap()
}

#[test]
fn the_table_has_every_row_and_fits_a_terminal() {
    let output = caps(&[]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for row in Preset::ALL {
        let named = |line: &&str| line.split_whitespace().next() == Some(row.name);
        let line = text.lines().find(named);
        let line = line.unwrap_or_else(|| panic!("{} is missing", row.name));
        assert!(line.contains(row.above.unwrap_or("-")), "{line}");
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
    let aws = "  aws-api-gateway          128 KB    32 KB  no      close 1009";
    assert!(text.lines().any(|line| line == aws), "{text}");
}

#[test]
fn one_row_has_its_source_and_how_to_use_it() {
    for (name, lines) in [
        (
            "aws-api-gateway",
            &[
                "message   128000 bytes",
                "frame     32000 bytes",
                "binary    no",
                "above it  close 1009",
                "source    AWS: quotas of API Gateway (documentation, 2026-11-15)",
                "use       --preset aws-api-gateway at both gateways",
            ][..],
        ),
        (
            "mcp-typescript",
            &[
                "message   10485760 bytes",
                "frame     not verified",
                "above it  throws",
                "source    npm: @modelcontextprotocol/sdk (released package, 2026-11-15)",
                "use       ?client=mcp-typescript at its endpoint (standard streams)",
            ],
        ),
    ] {
        let output = caps(&[name]);
        let text = String::from_utf8(output.stdout).unwrap();
        for expected in lines {
            assert!(text.lines().any(|line| line == *expected), "{text}");
        }
    }
}

#[test]
fn json_has_all_that_is_known() {
    let output = caps(&["--json"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), Preset::ALL.len());
    let output = caps(&["vertx", "--json"]);
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        row,
        serde_json::json!({
            "name": "vertx",
            "title": "Vert.x",
            "kind": "receiver",
            "over": ["WebSockets"],
            "messageBytes": 262_144,
            "frameBytes": 65_536,
            "binary": null,
            "above": null,
            "note": null,
            "source": "Vert.x's documentation",
            "evidence": "documentation",
            "readOn": "2026-11-15",
        })
    );
    assert!(rows.contains(&row));
}

#[test]
fn a_wrong_name_is_a_mistake_of_the_command_line() {
    let output = caps(&["cloudfare"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "breakbulk: nothing is known of \"cloudfare\" (did you mean cloudflare?); breakbulk caps lists all names\n"
    );
}
