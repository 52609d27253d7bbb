//! Documents that are brought, fetched and watched.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::common::{Server, program, run, succeed};

#[test]
fn what_is_brought_by_one_way_is_fetched_by_all() {
    let server = Server::start(None);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    // Larger than any frame or body.
    let large = "0123456789 äöü 中文 ".repeat(100_000);
    for (number, from) in server.ways().iter().enumerate() {
        let doc = format!("doc {number}");
        let json =
            serde_json::json!({"text": large, "map": {"way": number, "deep": [{"x": null}]}});
        std::fs::write(file("in.json"), json.to_string()).unwrap();
        succeed(&["loro", "push", from, &doc, &file("in.json")]);
        for to in &server.ways() {
            let fetched = succeed(&["loro", "pull", to, &doc]);
            let fetched: Value = serde_json::from_str(&fetched).unwrap();
            assert!(fetched == json, "{from} to {to}");
        }
        // A snapshot goes the same way.
        succeed(&["loro", "pull", from, &doc, &file("out.loro")]);
        let copy = format!("copy {number}");
        succeed(&["loro", "push", from, &copy, &file("out.loro")]);
        let copied = succeed(&["loro", "pull", from, &copy]);
        assert!(
            serde_json::from_str::<Value>(&copied).unwrap() == json,
            "{from}"
        );
    }
    let (clean, said) = server.stop();
    assert!(clean, "{said}");
}

#[test]
fn a_document_that_is_watched_is_told_at_every_change() {
    let server = Server::start(None);
    let [socket, events, ..] = server.ways();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.json").display().to_string();
    let push = |text: &str| {
        std::fs::write(&file, format!("{{\"text\":{text:?}}}")).unwrap();
        succeed(&["loro", "push", &events, "doc", &file]);
    };
    push("one");
    let mut watch = program()
        .args(["loro", "watch", &socket, "doc"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for text in ["one", "two", "three"] {
        if text != "one" {
            push(text);
        }
        let wanted = format!("{{\"text\":{text:?}}}");
        assert!(lines.any(|line| line.unwrap() == wanted), "{text}");
    }
    let pid = watch.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .arg(pid)
            .status()
            .unwrap()
            .success()
    );
    assert!(watch.wait().unwrap().success());
}

#[test]
fn errors_name_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let server = Server::with(None, |command| {
        command.env("BREAKBULK_TOKEN", "secret");
    });
    let [socket, events, ..] = server.ways();
    let cases: &[(&[&str], &str)] = &[
        (&["loro", "pull", &socket, "doc"], "401"),
        (&["loro", "pull", &events, "doc"], "401"),
        (&["loro", "pull", "ftp://x", "doc"], "ftp://x"),
        (
            &["loro", "push", &socket, "doc", &file("a.json", "[1]")],
            "no object",
        ),
        (
            &["loro", "push", &socket, "doc", &file("b.json", "{")],
            "no JSON",
        ),
        (
            &["loro", "push", &socket, "doc", &file("c.loro", "{}")],
            ".json",
        ),
        (
            &["loro", "push", &socket, "doc", "nowhere.json"],
            "nowhere.json",
        ),
        (
            &["loro", "serve", "--listen", "0.0.0.0:0"],
            "BREAKBULK_TOKEN",
        ),
        (&["loro", "serve", "--listen", "nonsense"], "HOST:PORT"),
    ];
    for (arguments, word) in cases {
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
    }
    // A client with the token is accepted.
    let pushed = program()
        .args([
            "loro",
            "push",
            &socket,
            "doc",
            &file("d.json", "{\"text\":\"x\"}"),
        ])
        .env("BREAKBULK_TOKEN", "secret")
        .status();
    assert!(pushed.unwrap().success());
    let (_, said) = server.stop();
    let refused = said
        .lines()
        .find(|line| line.contains("a client is refused"));
    let refused = refused.unwrap_or_else(|| panic!("{said}"));
    for words in ["WARN", "127.0.0.1", "token"] {
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn a_folder_of_documents_is_one_servers_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(Some(folder.path()));
    let data = folder.path().display().to_string();
    let second = run(&["loro", "serve", "--listen", "127.0.0.1:0", "--data", &data]);
    assert!(!second.status.success());
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert!(stderr.contains("another process"), "{stderr}");
    let (clean, _) = server.stop();
    assert!(clean);
    Server::start(Some(folder.path())).stop();
}
