//! Peers that try to take the server's memory, time, documents or disk.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use breakbulk::loro::crdt::{ExportMode, LoroDoc};
use breakbulk::message::loro::{ChannelMsg, Transmission, VersionVector};

use super::common::{Server, noise, program, run, succeed};
use super::raw::{Raw, sync_request};

/// What a server may take beyond `--memory`.
const BEYOND: usize = 64 << 20;

/// A number that the environment may raise.
fn number(variable: &str, least: usize) -> usize {
    let asked = std::env::var(variable).ok();
    asked.map_or(least, |asked| asked.parse().expect("it is a number"))
}

fn push(server: &Server, folder: &Path, doc: &str, text: &str) {
    let file = folder.join("in.json").display().to_string();
    std::fs::write(&file, format!("{{\"text\":\"{text}\"}}")).unwrap();
    succeed(&["loro", "push", &server.ways()[0], doc, &file]);
}

fn pull(server: &Server, doc: &str) -> String {
    succeed(&["loro", "pull", &server.ways()[0], doc])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_never_read_cost_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::with(Some(folder.path()), |command| {
        command.args(["--memory", "256MiB"]);
    });
    // Fifty of it would be a gigabyte; `peers_that_read_nothing_make_room_for_those_who_do` has several.
    let large = noise(20 << 20);
    push(&server, folder.path(), "large", &large);
    push(&server, folder.path(), "small", "hello");
    let before = server.peak_memory();
    let url = server.ways()[0].clone();
    let mut peers = Vec::new();
    for _ in 0..number("BREAKBULK_PEERS", 50) {
        let mut peer = Raw::connect(&url).await;
        peer.say(&sync_request("large")).await;
        peers.push(peer);
    }
    for _ in 0..5 {
        assert_eq!(pull(&server, "small"), "{\"text\":\"hello\"}\n");
    }
    assert!(pull(&server, "large").contains(&large));
    let peak = server.peak_memory();
    println!(
        "{before} bytes resident before {} peers that never read, {peak} with them",
        peers.len()
    );
    assert!(peak < (256 << 20) + BEYOND, "{peak} bytes resident");
    drop(peers);
}

// LORO-34
#[test]
fn large_documents_that_follow_each_other_do_not_stay_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::with(Some(folder.path()), |command| {
        command.args(["--memory", "256MiB"]);
    });
    for document in 0..9 {
        let text = noise((8 << 20) + document);
        push(&server, folder.path(), &format!("large {document}"), &text);
        println!("{} bytes resident at most", server.peak_memory());
    }
    assert!(pull(&server, "large 3").len() > 8 << 20);
    let peak = server.peak_memory();
    println!("{peak} bytes resident at most");
    assert!(peak < (256 << 20) + BEYOND, "{peak} bytes resident");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_of_many_requests_is_answered_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(Some(folder.path()));
    push(&server, folder.path(), "large", &noise(20 << 20));
    let mut peer = Raw::connect(&server.ways()[0]).await;
    let messages = vec![sync_request("large"); 500];
    peer.say(&ChannelMsg::Batch { messages }).await;
    let messages = vec![ChannelMsg::DirectoryRequest { doc_ids: None }; 4095];
    peer.say(&ChannelMsg::Batch { messages }).await;
    // The marker comes last: its document has a lane of its own, but is asked for last.
    let (mut answers, mut listings) = (0, 0);
    peer.say(&sync_request("marker")).await;
    loop {
        match peer.hear().await.unwrap() {
            ChannelMsg::SyncResponse { doc_id, .. } if doc_id == "marker" => break,
            ChannelMsg::SyncResponse { .. } => answers += 1,
            ChannelMsg::DirectoryResponse { .. } => listings += 1,
            _ => {}
        }
    }
    peer.say(&sync_request("large")).await;
    while answers == 0 || listings == 0 {
        match peer.hear().await.unwrap() {
            ChannelMsg::SyncResponse { .. } => answers += 1,
            ChannelMsg::DirectoryResponse { .. } => listings += 1,
            _ => {}
        }
    }
    println!("{answers} answers and {listings} listings for 500 and 4095 requests");
    assert!(answers <= 2 && listings <= 2, "{answers}, {listings}");
}

/// A document's first change.
fn change() -> Transmission {
    let doc = LoroDoc::new();
    doc.get_text("text").insert(0, "x").unwrap();
    doc.commit();
    Transmission::Update {
        data: doc.export(ExportMode::all_updates()).unwrap().into(),
        version: VersionVector::new(),
    }
}

fn documents() -> usize {
    number("BREAKBULK_DOCUMENTS", 6_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_documents_lock_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(Some(folder.path()));
    let url = &server.ways()[0];
    // The server forgets the names of documents that do not exist together with the connection that named
    // them.
    for connection in 0..10 {
        let mut peer = Raw::connect(url).await;
        let doc_ids = (0..1000).map(|number| format!("none {connection} {number}"));
        let doc_ids = doc_ids.collect();
        peer.say(&ChannelMsg::NewDoc { doc_ids }).await;
        while !matches!(
            peer.hear().await,
            Ok(ChannelMsg::SyncRequest { .. }) | Err(_)
        ) {}
    }
    let begun = std::time::Instant::now();
    let change = change();
    for connection in 0..documents() / 1000 {
        let mut peer = Raw::connect(url).await;
        for number in 0..1000 {
            let update = ChannelMsg::Update {
                doc_id: format!("document {connection} {number}"),
                transmission: change.clone(),
            };
            assert!(peer.say(&update).await, "cut off");
        }
        // Answered once all of them are stored.
        let last = format!("document {connection} 999");
        peer.say(&sync_request(&last)).await;
        let is_last =
            |message| matches!(message, ChannelMsg::SyncResponse { doc_id, .. } if doc_id == last);
        while !is_last(peer.hear().await.unwrap()) {}
    }
    println!("{} documents made in {:?}", documents(), begun.elapsed());
    let begun = std::time::Instant::now();
    assert_eq!(pull(&server, "document 3 7"), "{\"text\":\"x\"}\n");
    println!("one of them fetched in {:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    let mut peer = Raw::connect(url).await;
    let mut greeted = 0;
    while greeted < documents() / 1000 * 1000 {
        if let ChannelMsg::SyncRequest { .. } = peer.hear().await.unwrap() {
            greeted += 1;
        }
    }
    println!("greeted with {greeted} in {:?}", begun.elapsed());
    println!("{} bytes resident at most", server.peak_memory());
    let (clean, said) = server.stop();
    assert!(clean, "{said}");
    let begun = std::time::Instant::now();
    let server = Server::start(Some(folder.path()));
    println!("started again in {:?}", begun.elapsed());
    assert_eq!(pull(&server, "document 5 999"), "{\"text\":\"x\"}\n");
}

/// The hash that `loro` checks its bytes with.
fn xxh32(data: &[u8]) -> u32 {
    const P: [u32; 5] = [
        2_654_435_761,
        2_246_822_519,
        3_266_489_917,
        668_265_263,
        374_761_393,
    ];
    let seed = u32::from_le_bytes(*b"LORO");
    let word = |at: &[u8]| u32::from_le_bytes(at[..4].try_into().unwrap());
    let mut rest = data;
    let mut hash = if data.len() < 16 {
        seed.wrapping_add(P[4])
    } else {
        let mut lanes = [
            seed.wrapping_add(P[0]).wrapping_add(P[1]),
            seed.wrapping_add(P[1]),
            seed,
            seed.wrapping_sub(P[0]),
        ];
        while rest.len() >= 16 {
            for (lane, at) in lanes.iter_mut().zip(rest.chunks(4)) {
                let sum = lane.wrapping_add(word(at).wrapping_mul(P[1]));
                *lane = sum.rotate_left(13).wrapping_mul(P[0]);
            }
            rest = &rest[16..];
        }
        let turned = lanes.iter().zip([1, 7, 12, 18]);
        turned.fold(0_u32, |sum, (lane, by)| {
            sum.wrapping_add(lane.rotate_left(by))
        })
    };
    hash = hash.wrapping_add(data.len() as u32);
    while rest.len() >= 4 {
        hash = hash.wrapping_add(word(rest).wrapping_mul(P[2]));
        hash = hash.rotate_left(17).wrapping_mul(P[3]);
        rest = &rest[4..];
    }
    for byte in rest {
        hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(P[4]));
        hash = hash.rotate_left(11).wrapping_mul(P[0]);
    }
    hash ^= hash >> 15;
    hash = hash.wrapping_mul(P[1]);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(P[2]);
    hash ^ (hash >> 16)
}

/// A snapshot with one value of so many blocks of 4 MiB of zeros, in LZ4: 16 KB each.
fn bomb(blocks: usize) -> Vec<u8> {
    // One literal zero, then the longest match, then five literals at the end.
    const ZEROS: usize = 4 << 20;
    let mut block = vec![0x1f, 0, 1, 0];
    let mut more = ZEROS - 1 - 5 - 19;
    while more >= 255 {
        block.push(255);
        more -= 255;
    }
    block.extend([more as u8, 0x50, 0, 0, 0, 0, 0]);
    // Version 1, independent blocks of up to 4 MiB, no checksums.
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
    for _ in 0..blocks {
        frame.extend((block.len() as u32).to_le_bytes());
        frame.extend(&block);
    }
    frame.extend([0; 4]);
    let mut table = b"LORO\0".to_vec();
    let checksum = xxh32(&frame);
    table.extend(frame);
    table.extend(checksum.to_le_bytes());
    let end = (table.len() as u32).to_le_bytes();
    // One block: where it is, its key, large and compressed.
    let meta = [&5_u32.to_le_bytes()[..], &[2, 0, b'v', b'v', 0x81]].concat();
    table.extend(1_u32.to_le_bytes());
    table.extend(&meta);
    table.extend(xxh32(&meta).to_le_bytes());
    table.extend(end);
    let mut body = vec![0, 3];
    body.extend((table.len() as u32).to_le_bytes());
    body.extend(table);
    body.extend([1, 0, 0, 0, b'E', 0, 0, 0, 0]);
    let checksum = xxh32(&body).to_le_bytes();
    [b"loro", &[0; 12][..], &checksum, &body].concat()
}

/// An update of one change that says that it depends on 2^36 others.
fn small_bomb() -> Vec<u8> {
    let string = |bytes: &[u8]| [&[bytes.len() as u8], bytes].concat();
    let many = [0x80, 0x80, 0x80, 0x80, 0x80, 0x02];
    let header = [&[1][..], &[7; 8], &[1, 2], &many, &[0; 16]].concat();
    let strings = [
        &header[..],
        &[0, 0, 0, 0, 2, 0],
        &[],
        &[],
        &[],
        &[],
        &[],
        &[],
    ];
    let strings: Vec<Vec<u8>> = strings.iter().map(|bytes| string(bytes)).collect();
    let block = [&[0, 1, 0, 1, 1][..], &strings.concat()].concat();
    let body = [&[0, 4][..], &string(&block)].concat();
    let checksum = xxh32(&body).to_le_bytes();
    [b"loro", &[0; 12][..], &checksum, &body].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_of_75_bytes_does_not_end_the_server() {
    let server = Server::start(None);
    let mut peer = Raw::connect(&server.ways()[0]).await;
    let data = small_bomb();
    assert_eq!(data.len(), 75);
    let bomb = ChannelMsg::Update {
        doc_id: "doc".into(),
        transmission: Transmission::Update {
            data: data.into(),
            version: VersionVector::new(),
        },
    };
    peer.say(&bomb).await;
    // Answered only after the import.
    peer.say(&sync_request("doc")).await;
    while !matches!(peer.hear().await.unwrap(), ChannelMsg::SyncResponse { .. }) {}
    let (clean, said) = server.stop();
    assert!(clean, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_expands_is_refused_by_its_size() {
    let server = Server::with(None, |command| {
        command.args(["--memory", "256MiB", "--max-message", "64MiB", "--verbose"]);
    });
    let mut peer = Raw::connect(&server.ways()[0]).await;
    // 50 MB that become 12 GiB.
    let data = bomb(3072);
    let size = data.len();
    peer.say(&sync_request("doc")).await;
    let bomb = ChannelMsg::Update {
        doc_id: "doc".into(),
        transmission: Transmission::Snapshot {
            data: data.into(),
            version: VersionVector::new(),
        },
    };
    peer.say(&bomb).await;
    // Answered only after the import.
    peer.say(&sync_request("doc")).await;
    let mut answers = 0;
    while answers < 2 {
        if let ChannelMsg::SyncResponse { .. } = peer.hear().await.unwrap() {
            answers += 1;
        }
    }
    let peak = server.peak_memory();
    println!("{size} bytes that expand to 12 GiB: {peak} bytes resident");
    assert!(size > 50_000_000, "{size}");
    assert!(peak < (256 << 20) + BEYOND, "{peak} bytes resident");
    let (_, said) = server.stop();
    assert!(said.contains("bytes uncompressed"), "{said}");
}

/// A snapshot of a document whose list has a state that says that it has a thousand million rows.
fn state_bomb() -> (Vec<u8>, LoroDoc) {
    let doc = LoroDoc::new();
    doc.get_list("list").push(1).unwrap();
    doc.commit();
    let honest = doc.export(ExportMode::Snapshot).unwrap();
    let changes = u32::from_le_bytes(honest[22..26].try_into().unwrap()) as usize;
    let changes = &honest[22..26 + changes];
    // A list, not nested, without a parent, values and peers; a table of three columns, each one run.
    let run = [0x80, 0xa8, 0xd6, 0xb9, 0x07, 0];
    let column = [&[6][..], &run].concat();
    let state = [&[1, 1, 0, 0, 0, 1, 3][..], &column.repeat(3)].concat();
    let key = [&[0x81, 4][..], b"list"].concat();
    let mut table = b"LORO\0".to_vec();
    table.extend(&state);
    table.extend(xxh32(&state).to_le_bytes());
    let end = (table.len() as u32).to_le_bytes();
    let mut meta = 5_u32.to_le_bytes().to_vec();
    meta.extend((key.len() as u16).to_le_bytes());
    meta.extend(&key);
    // One large value, not compressed.
    meta.push(0x80);
    table.extend(1_u32.to_le_bytes());
    table.extend(&meta);
    table.extend(xxh32(&meta).to_le_bytes());
    table.extend(end);
    let mut body = vec![0, 3];
    body.extend(changes);
    body.extend((table.len() as u32).to_le_bytes());
    body.extend(table);
    body.extend([0; 4]);
    let checksum = xxh32(&body).to_le_bytes();
    let data = [b"loro", &[0; 12][..], &checksum, &body].concat();
    (data, doc)
}

// LORO-16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_of_few_bytes_does_not_end_the_server() {
    let server = Server::with(None, |command| {
        command.args(["--memory", "256MiB", "--verbose"]);
    });
    let mut peer = Raw::connect(&server.ways()[0]).await;
    let (data, doc) = state_bomb();
    let size = data.len();
    let before = doc.oplog_vv();
    doc.get_list("list").push(2).unwrap();
    doc.commit();
    let change = doc.export(ExportMode::updates(&before)).unwrap();
    let version = VersionVector::new;
    for transmission in [
        Transmission::Snapshot {
            data: data.into(),
            version: version(),
        },
        // A change of the list makes `loro` read its state.
        Transmission::Update {
            data: change.into(),
            version: version(),
        },
    ] {
        let doc_id = "doc".into();
        let update = ChannelMsg::Update {
            doc_id,
            transmission,
        };
        peer.say(&update).await;
    }
    // Answered only after the imports.
    peer.say(&sync_request("doc")).await;
    while !matches!(peer.hear().await.unwrap(), ChannelMsg::SyncResponse { .. }) {}
    let peak = server.peak_memory();
    println!("{size} bytes that stand for a thousand million rows: {peak} bytes resident");
    assert!(peak < (256 << 20) + BEYOND, "{peak} bytes resident");
    let (clean, said) = server.stop();
    assert!(clean, "{said}");
    assert!(said.contains("loro does not write such bytes"), "{said}");
}

#[test]
fn a_full_disk_leaves_documents_readable_and_is_noticed_when_it_has_room() {
    let folder = tempfile::tempdir().unwrap();
    // A limit for files stands for a full disk; the signal that comes with it is ignored.
    let server = Server::in_shell(folder.path(), "trap '' XFSZ; ulimit -S -f 8192;");
    push(&server, folder.path(), "doc", "hello");
    let file = folder.path().join("large.json").display().to_string();
    std::fs::write(&file, format!("{{\"text\":\"{}\"}}", noise(6 << 20))).unwrap();
    let [socket, events, ..] = server.ways();
    let large_by =
        |url: &str, name: &str| run(&["loro", "push", url, name, &file, "--timeout", "60"]);
    let large = |name: &str| large_by(&socket, name);
    // Until nothing fits any more.
    let refused = (0..10).find(|number| !large(&format!("large {number}")).status.success());
    assert!(refused.is_some(), "the disk is not full");
    for _ in 0..3 {
        assert_eq!(pull(&server, "doc"), "{\"text\":\"hello\"}\n");
    }
    let before = server.peak_memory();
    for number in 0..5 {
        let url = [&socket, &events][number % 2];
        let output = large_by(url, &format!("more {number}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("cannot be stored now"), "{stderr}");
    }
    assert_eq!(pull(&server, "doc"), "{\"text\":\"hello\"}\n");
    println!(
        "{} bytes after refusals, {before} before",
        server.peak_memory()
    );
    let pid = server.pid().to_string();
    let raised = Command::new("prlimit")
        .args(["--pid", &pid, "--fsize=unlimited"])
        .status();
    assert!(raised.unwrap().success());
    // The server finds out by itself.
    let recovered = (0..60).any(|_| {
        let stored = large("at last").status.success();
        if !stored {
            std::thread::sleep(Duration::from_millis(500));
        }
        stored
    });
    assert!(recovered, "{}", server.stop().1);
    let (clean, said) = server.stop();
    assert!(clean, "{said}");
    assert!(
        said.contains("changes are refused until the store"),
        "{said}"
    );
    assert!(said.contains("changes are accepted again"), "{said}");
    let server = Server::start(Some(folder.path()));
    assert_eq!(pull(&server, "doc"), "{\"text\":\"hello\"}\n");
    assert!(pull(&server, "at last").len() > 6 << 20);
}

#[test]
fn all_documents_together_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::with(Some(folder.path()), |command| {
        command.args(["--max-store", "1MiB"]);
    });
    push(&server, folder.path(), "doc", "hello");
    let file = folder.path().join("large.json").display().to_string();
    std::fs::write(&file, format!("{{\"text\":\"{}\"}}", noise(2 << 20))).unwrap();
    let url = &server.ways()[0];
    let large = run(&["loro", "push", url, "large", &file, "--timeout", "0"]);
    assert_eq!(large.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&large.stderr);
    assert!(stderr.contains("the server's log tells why"), "{stderr}");
    push(&server, folder.path(), "other", "small ones still fit");
    assert_eq!(pull(&server, "doc"), "{\"text\":\"hello\"}\n");
    let (_, said) = server.stop();
    assert!(said.contains("1048576 are allowed"), "{said}");
}

#[test]
fn rights_go_by_the_beginning_of_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(Some(folder.path()));
    push(&server, folder.path(), "notes/a", "hello");
    push(&server, folder.path(), "secret/a", "hidden");
    server.stop();
    let server = Server::with(Some(folder.path()), |command| {
        command.args(["--right", "read:notes/", "--right", "create:drafts/"]);
    });
    let url = &server.ways()[0];
    assert_eq!(pull(&server, "notes/a"), "{\"text\":\"hello\"}\n");
    push(&server, folder.path(), "drafts/a", "mine");
    assert_eq!(pull(&server, "drafts/a"), "{\"text\":\"mine\"}\n");
    let file = folder.path().join("in.json").display().to_string();
    for (command, doc) in [
        ("pull", "secret/a"),
        ("push", "secret/a"),
        ("push", "notes/a"),
        ("push", "notes/new"),
    ] {
        let mut arguments = vec!["loro", command, url, doc];
        if command == "push" {
            arguments.push(&file);
        }
        arguments.extend(["--timeout", "5"]);
        let output = run(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{command} {doc}: {stderr}");
    }
    let wrong = run(&["loro", "serve", "--right", "own:notes/"]);
    let stderr = String::from_utf8_lossy(&wrong.stderr);
    assert!(stderr.contains("read, write, create or delete"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn each_token_has_rights_of_its_own() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "alice token-of-alice\nbob token-of-bob\n").unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = folder.path().join("in.json");
    let server = Server::with(Some(folder.path()), |command| {
        command.arg("--token-file").arg(&tokens);
        command.args(["--right", "alice=create:notes/"]);
        command.args(["--right", "bob=read:notes/"]);
    });
    for (token, command, doc, may) in [
        (Some("token-of-alice"), "push", "notes/a", true),
        (Some("token-of-alice"), "push", "secret/a", false),
        (Some("token-of-bob"), "pull", "notes/a", true),
        (Some("token-of-bob"), "push", "notes/a", false),
        (Some("token-of-bob"), "push", "notes/b", false),
        (Some("token-of-eve"), "pull", "notes/a", false),
        (None, "pull", "notes/a", false),
    ] {
        let mut client = program();
        client.args(["loro", command, &server.ways()[0], doc]);
        if command == "push" {
            // A push that changes nothing needs no right.
            let text = format!("{{\"text\":\"by {}\"}}", token.unwrap_or("nobody"));
            std::fs::write(&file, text).unwrap();
            client.arg(&file);
        }
        client.args(["--timeout", "5"]);
        if let Some(token) = token {
            client.env("BREAKBULK_TOKEN", token);
        }
        let output = client.stdin(std::process::Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        let done = output.status.success();
        assert_eq!(done, may, "{token:?} {command} {doc}: {stderr}");
    }
}
