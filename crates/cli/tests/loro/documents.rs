//! What becomes of documents: those that do not exist, those of apps, lists and deletions.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use breakbulk::loro::crdt::{ExportMode, LoroDoc, LoroMap};
use serde_json::Value;

use super::common::{Server, program, run, succeed};

#[test]
fn what_does_not_exist_is_told_at_once_and_nothing_is_touched() {
    let server = Server::start(None);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.json").display().to_string();
    std::fs::write(&file, "mine").unwrap();
    let long = "x".repeat(513);
    let mut cases: Vec<(&str, String, &str, &str)> = Vec::new();
    for url in server.ways() {
        for command in ["pull", "watch"] {
            cases.push((command, url.clone(), "none", "has no document \"none\""));
        }
    }
    for command in ["pull", "push", "watch", "delete"] {
        for (doc, told) in [("", "0 bytes; 1 to 512"), (&long, "513 bytes; 1 to 512")] {
            cases.push((command, server.ways()[0].clone(), doc, told));
        }
    }
    for (command, url, doc, told) in &cases {
        let mut arguments = vec!["loro", command, url, doc, "--timeout", "0"];
        let input = folder.path().join("in.json").display().to_string();
        std::fs::write(&input, "{}").unwrap();
        match *command {
            "push" => arguments.push(&input),
            "delete" => {}
            _ => arguments.push(&file),
        }
        let output = run(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        // A name that no server has is refused before it is asked for.
        let code = if *doc == "none" { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(told), "{arguments:?}: {stderr}");
        assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
        assert!(output.stdout.is_empty());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }
}

#[test]
fn documents_are_listed_and_deleted_by_those_who_may() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.json").display().to_string();
    std::fs::write(&file, "{\"text\":\"x\"}").unwrap();
    let server = Server::with(None, |command| {
        command.args(["--right", "create:", "--right", "delete:notes/"]);
    });
    let names = ["notes/a", "notes/b", "other"];
    for name in names {
        succeed(&["loro", "push", &server.ways()[0], name, &file]);
    }
    for url in server.ways() {
        let listed = succeed(&["loro", "list", &url]);
        assert_eq!(listed, "notes/a\nnotes/b\nother\n", "{url}");
    }
    let [url, ..] = &server.ways();
    succeed(&["loro", "delete", url, "notes/a"]);
    assert_eq!(succeed(&["loro", "list", url]), "notes/b\nother\n");
    for name in ["notes/a", "other"] {
        let output = run(&["loro", "delete", url, name]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("--right delete:PREFIX"), "{stderr}");
    }
    assert_eq!(succeed(&["loro", "list", url]), "notes/b\nother\n");
    assert!(!run(&["loro", "pull", url, "notes/a"]).status.success());
}

#[test]
fn an_apps_document_survives_a_round_trip_as_json() {
    let doc = LoroDoc::new();
    let cards = doc.get_movable_list("cards");
    cards.push("first").unwrap();
    let card = cards.push_container(LoroMap::new()).unwrap();
    card.insert("name", "second").unwrap();
    let tree = doc.get_tree("tree");
    tree.create(None).unwrap();
    doc.get_counter("count").increment(2.0).unwrap();
    doc.commit();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("in.loro"), doc.export(ExportMode::Snapshot).unwrap()).unwrap();
    let server = Server::start(None);
    let [url, ..] = &server.ways();
    succeed(&["loro", "push", url, "app", &file("in.loro")]);
    succeed(&["loro", "pull", url, "app", &file("app.json")]);
    succeed(&["loro", "push", url, "app", &file("app.json")]);
    let fetched = || {
        succeed(&["loro", "pull", url, "app", &file("out.loro")]);
        LoroDoc::from_snapshot(&std::fs::read(file("out.loro")).unwrap()).unwrap()
    };
    assert_eq!(fetched().oplog_vv(), doc.oplog_vv(), "nothing was changed");
    let text = std::fs::read_to_string(file("app.json")).unwrap();
    let mut json: Value = serde_json::from_str(&text).unwrap();
    json["cards"][1]["name"] = "changed".into();
    json["count"] = 7.into();
    std::fs::write(file("app.json"), json.to_string()).unwrap();
    succeed(&["loro", "push", url, "app", &file("app.json")]);
    let now = fetched();
    assert_eq!(now.get_movable_list("cards").len(), 2);
    assert_eq!(now.get_counter("count").get_value(), 7.0);
    assert_eq!(now.get_tree("tree").nodes().len(), 1);
    json["tree"] = serde_json::json!([]);
    std::fs::write(file("app.json"), json.to_string()).unwrap();
    let output = run(&["loro", "push", url, "app", &file("app.json")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("root \"tree\": it is a tree"), "{stderr}");
}

#[test]
fn who_watches_sees_whole_pushes_and_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.json").display().to_string();
    let data = folder.path().join("data");
    let mut server = Server::start(Some(&data));
    let [url, ..] = server.ways();
    let push = |number: usize| {
        let members: Vec<String> = (0..50).map(|at| format!("\"m{at}\":{number}")).collect();
        let map = members.join(",");
        let json = format!("{{\"a\":\"{number}\",\"map\":{{{map}}},\"z\":\"{number}\"}}");
        std::fs::write(&file, json).unwrap();
        succeed(&["loro", "push", &url, "doc", &file]);
    };
    push(0);
    let mut watch = program()
        .args(["loro", "watch", &url, "doc"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut wait_for = |wanted: usize| loop {
        let line = lines.next().unwrap().unwrap();
        let json: Value = serde_json::from_str(&line).unwrap();
        let number: usize = json["a"].as_str().unwrap().parse().unwrap();
        assert_eq!(json["z"], json["a"], "half a push: {line}");
        let members = json["map"].as_object().unwrap();
        assert_eq!(members.len(), 50, "half a push: {line}");
        let same = members.values().all(|member| *member == number);
        assert!(same, "half a push: {line}");
        if number == wanted {
            return;
        }
    };
    wait_for(0);
    for number in 1..10 {
        push(number);
        wait_for(number);
    }
    for number in 10..12 {
        let address = server.address().to_owned();
        assert!(server.stop().0);
        server = Server::at(&address, &data);
        push(number);
        wait_for(number);
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
    let mut said = String::new();
    let mut stderr = watch.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    let lost = "the connection to the server is lost (closed with 1001: Server shutting down); connecting again";
    assert_eq!(said.matches(lost).count(), 2, "{said}");
    assert!(said.contains("breakbulk: connected again"), "{said}");
}
