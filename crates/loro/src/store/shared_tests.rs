//! Tests of what nodes that share documents keep, and how they adapt their writes.
//!
//! `BREAKBULK_SEED=n` replays one run of the model test.

use breakbulk_message::loro::VersionVector;
use bytes::Bytes;

use super::shared::*;
use super::{Others, Write};
use crate::machine::{DocId, Head};

fn version(text: &str) -> VersionVector {
    let entry = |word: &str| {
        let (peer, counter) = word.split_at(1);
        (u64::from(peer.as_bytes()[0]), counter.parse().unwrap())
    };
    text.split(',')
        .filter(|w| !w.is_empty())
        .map(entry)
        .collect()
}

/// Parses `+a1,b2=data` (an update), `!a1=data` (a snapshot) or `-` (a deletion).
fn change(text: &str) -> Change {
    let (kind, rest) = text.split_at(1);
    let (of, data) = rest.split_once('=').unwrap_or(("", ""));
    Change {
        kind: match kind {
            "+" => Kind::Append,
            "!" => Kind::Replace,
            _ => Kind::Delete,
        },
        version: version(of),
        data: Bytes::copy_from_slice(data.as_bytes()),
    }
}

fn changes(text: &str) -> Vec<Change> {
    text.split_whitespace().map(change).collect()
}

fn writes(text: &str) -> Vec<Write> {
    let write = |change: Change| {
        let doc: DocId = "d".into();
        let Change {
            kind,
            version,
            data,
        } = change;
        let head = Head { version, size: 0 };
        match kind {
            Kind::Append => Write::Append { doc, data, head },
            Kind::Replace => Write::Replace { doc, data, head },
            Kind::Delete => Write::Delete { doc },
        }
    };
    changes(text).into_iter().map(write).collect()
}

fn kept(documents: &SharedDocuments) -> String {
    let kept = documents.load("d");
    let all = kept.snapshot.iter().map(|data| (data, '!'));
    let all = all.chain(kept.updates.iter().map(|data| (data, '+')));
    all.map(|(data, kind)| format!("{kind}{}", String::from_utf8_lossy(data)))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_snapshot_and_a_deletion_make_all_messages_before_them_useless() {
    // JET-6
    let mut documents = SharedDocuments::default();
    let doc: DocId = "d".into();
    for (messages, text, useless) in [
        (&[1][..], "+a1=x", &[][..]),
        (&[2, 5], "+a2=y", &[]),
        (&[6, 8], "!a2=xy", &[1, 2, 5]),
        (&[9], "+a3=z", &[]),
        (&[11], "-", &[6, 8, 9]),
        (&[12], "- +b1=x", &[11]),
    ] {
        let found = documents.hold(&doc, messages, &changes(text));
        assert_eq!(found, useless, "{text}");
    }
    documents.hold_again(&doc, vec![9, 11]);
    assert_eq!(documents.hold(&doc, &[13], &changes("!b1=x")), [12, 9, 11]);
}

#[test]
fn records_are_written_and_read_back() {
    let changes = vec![change("+a1=x"), change("!a2,b1=yz"), change("-")];
    let bytes = write("dé", &changes);
    assert_eq!(
        bytes,
        &b"\x01\0\0\0\x03d\xc3\xa9\0\0\0\x03\
           \0\0\0\0\x03\x01\x61\x02\0\0\0\0\0\0\0\x01x\
           \x01\0\0\0\x05\x02\x61\x04\x62\x02\0\0\0\0\0\0\0\x02yz\
           \x02\0\0\0\x01\0\0\0\0\0\0\0\0\0"[..]
    );
    assert_eq!(read(&bytes), Ok(("dé".into(), changes)));
    for end in 0..bytes.len() {
        assert_eq!(read(&bytes.slice(..end)), Err("it ends too early"), "{end}");
    }
    for (at, byte, reason) in [
        (0, 2, "a newer version wrote it: update this program"),
        (6, 0xff, "a name is not UTF-8"),
        (11, 2, "it is longer than it says"),
        (12, 3, "it does something unknown: update this program"),
    ] {
        let mut wrong = bytes.to_vec();
        wrong[at] = byte;
        assert_eq!(read(&wrong.into()), Err(reason), "{at}");
    }
}

#[test]
fn each_document_has_a_topic_of_its_own() {
    for (doc, expected) in [
        ("notes/a-b_C9", "d-notes/a-b_C9"),
        ("a.b", "d-a=2Eb"),
        ("a=2Eb", "d-a=3D2Eb"),
        (" *>é", "d-=20=2A=3E=C3=A9"),
    ] {
        assert_eq!(topic(doc), expected);
    }
}

#[test]
fn writes_are_adapted_to_what_others_stored() {
    // JET-6
    for (what, stored, wanted, expected) in [
        ("the first", "", "+a1=x", "+a1=x"),
        ("behind those of others", "+b9=b", "+a1=x", "+a1=x"),
        (
            "a snapshot of everything",
            "+a1=x +b1=y",
            "!a1,b1=s",
            "!a1,b1=s",
        ),
        (
            "a compaction that lacks changes of others",
            "+a1=x +b1=y",
            "!a1=s",
            "",
        ),
        (
            "a snapshot with content that lacks others",
            "+b1=y",
            "!a1=s",
            "+a1=s",
        ),
        (
            "a snapshot of the updates with it",
            "",
            "+a1=x !a1=s",
            "!a1=s",
        ),
        ("updates after a snapshot", "", "!a1=s +a2=x", "!a1=s +a2=x"),
        ("deleted with what was before", "+a1=x", "+a2=y -", "-"),
        ("and begun anew", "+a1=x", "- +c1=z", "- +c1=z"),
        (
            "and begun anew with a snapshot",
            "+a1=x",
            "- !c1=z",
            "- !c1=z",
        ),
    ] {
        let mut documents = SharedDocuments::default();
        documents.apply(&"d".into(), 4, &changes(stored), true);
        let plan = documents.plan("d", &writes(wanted));
        assert_eq!(plan.after, 4, "{what}");
        assert_eq!(plan.changes, changes(expected), "{what}");
    }
}

#[test]
fn the_worker_is_told_once_and_takes_all_that_others_did() {
    let doc: DocId = "d".into();
    let mut documents = SharedDocuments::default();
    assert!(!documents.apply(&doc, 1, &changes("+a1=own"), true));
    assert!(documents.apply(&doc, 2, &changes("+b1=1"), false));
    assert!(!documents.apply(&doc, 3, &changes("+b2=2"), false));
    // A record that is read twice changes nothing.
    assert!(!documents.apply(&doc, 3, &changes("+b2=2"), false));
    let (others, more) = documents.take("d");
    assert_eq!((others.deleted, more), (false, false));
    assert_eq!(others.data, ["1", "2"]);
    assert_eq!(others.size, (0, 5));
    assert_eq!(kept(&documents), "+own +1 +2");
    assert!(documents.apply(&doc, 4, &changes("!a1,b3=s"), false));
    assert_eq!(documents.take("d").0.data, ["s"]);
    assert_eq!(kept(&documents), "!s");
    let head = Head {
        version: version("a1,b3"),
        size: 1,
    };
    assert_eq!(documents.heads(), [(doc.clone(), head)]);
    assert_eq!(documents.place("d"), 4);
}

#[test]
fn what_was_there_at_the_start_is_not_news() {
    let doc: DocId = "d".into();
    let mut documents = SharedDocuments::default();
    assert!(documents.read(&doc, 1, &changes("+a1=x - +b1=y"), false));
    documents.start();
    assert_eq!(
        documents.plan("d", &writes("+c1=z")).changes,
        changes("+c1=z")
    );
    assert!(
        documents.read(&doc, 2, &changes("+b2=z"), false),
        "what comes later is"
    );
    let (others, more) = documents.take("d");
    assert_eq!(
        (others.deleted, others.data, more),
        (false, vec!["z".into()], false)
    );
}

#[test]
fn what_was_changed_before_a_deletion_was_seen_is_deleted_with_it() {
    // JET-7
    let doc: DocId = "d".into();
    let mut documents = SharedDocuments::default();
    documents.apply(&doc, 1, &changes("+a1=x"), true);
    assert!(documents.apply(&doc, 2, &changes("-"), false));
    assert!(!documents.apply(&doc, 3, &changes("+b1=new"), false));
    assert_eq!(documents.plan("d", &writes("+a2=late")).changes, []);
    let (others, more) = documents.take("d");
    assert!(others.deleted && more, "what came after it is taken next");
    assert_eq!(others.data, [""; 0]);
    // A change made before the deletion was known is still on its way to the store.
    assert_eq!(documents.plan("d", &writes("+a2=late")).changes, []);
    documents.absorb("d", others.deletions);
    let (others, more) = documents.take("d");
    assert_eq!((others.deleted, more), (false, false));
    assert_eq!(others.data, ["new"]);
    assert_eq!(
        documents.plan("d", &writes("+c1=y")).changes,
        changes("+c1=y")
    );
    assert_eq!(kept(&documents), "+new");
}

#[test]
fn what_was_stored_although_it_seemed_to_fail_counts_as_of_others() {
    // JET-8
    let doc: DocId = "d".into();
    let mut documents = SharedDocuments::default();
    documents.begin(&doc, &changes("+a1=x -"));
    assert!(
        !documents.read(&doc, 1, &changes("+a1=x -"), true),
        "read before it was acknowledged"
    );
    assert!(!documents.apply(&doc, 1, &changes("+a1=x -"), true));
    assert!(!documents.end(&doc, false));
    assert_eq!(documents.take("d").0, Others::default());
    documents.begin(&doc, &changes("+a2=y"));
    assert!(documents.end(&doc, true), "the worker looks again");
    documents.take("d");
    assert!(
        documents.read(&doc, 2, &changes("+a2=y"), true),
        "read after it was given up"
    );
    assert_eq!(documents.take("d").0.data, ["y"]);
    documents.begin(&doc, &changes("+a3=z"));
    assert!(documents.end(&doc, true));
    documents.take("d");
    documents.begin(&doc, &changes("+a4=own"));
    assert!(
        documents.read(&doc, 3, &changes("+a3=z"), true),
        "read while the next one is being stored"
    );
    assert!(!documents.apply(&doc, 4, &changes("+a4=own"), true));
    assert!(!documents.end(&doc, false));
    assert_eq!(documents.take("d").0.data, ["z"]);
}

#[test]
fn a_record_behind_one_that_was_given_up_is_this_nodes_own() {
    // JET-8
    let doc: DocId = "d".into();
    let mut documents = SharedDocuments::default();
    documents.begin(&doc, &changes("+a1=x"));
    documents.end(&doc, true);
    documents.take("d");
    documents.begin(&doc, &changes("-"));
    assert!(
        !documents.read(&doc, 1, &changes("-"), true),
        "read before it was acknowledged"
    );
    documents.end(&doc, false);
    // It is no deletion by others, with which changes that are on their way would be deleted.
    let late = documents.plan("d", &writes("+b1=y"));
    assert_eq!(late.changes, changes("+b1=y"));
}

#[test]
fn nodes_that_read_the_same_records_keep_the_same() {
    let seed = std::env::var("BREAKBULK_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(0..200u64, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        let doc: DocId = "d".into();
        let mut nodes = [(); 3].map(|()| SharedDocuments::default());
        // The journal, and how much of it each node has read.
        let mut journal: Vec<(usize, Vec<Change>)> = Vec::new();
        let mut read = [0; 3];
        let mut counters = [0; 3];
        for _ in 0..60 {
            let node = below(3) as usize;
            while read[node] < journal.len() && below(3) > 0 {
                let (_, changes) = &journal[read[node]];
                read[node] += 1;
                nodes[node].apply(&doc, read[node] as u64, changes, false);
            }
            counters[node] += 1;
            let peer = char::from(b'a' + node as u8);
            let heads = nodes[node].heads();
            let known = heads.first().map(|(_, head)| head.version.clone());
            let of = format!("{peer}{}", counters[node]);
            let of = union(&known.unwrap_or_default(), &version(&of));
            let data = Bytes::from(format!("{peer}{}", counters[node]));
            let head = Head {
                version: of,
                size: 0,
            };
            let doc_id = doc.clone();
            let wanted = match below(4) {
                0 => Write::Replace {
                    doc: doc_id,
                    data,
                    head,
                },
                _ => Write::Append {
                    doc: doc_id,
                    data,
                    head,
                },
            };
            // Like the fence of the journal: only a node that has read everything may append.
            let plan = nodes[node].plan("d", &[wanted]);
            if plan.after == journal.len() as u64 && !plan.changes.is_empty() {
                journal.push((node, plan.changes.clone()));
                read[node] += 1;
                nodes[node].apply(&doc, read[node] as u64, &plan.changes, true);
            }
        }
        for (node, read) in nodes.iter_mut().zip(read) {
            for (at, (_, changes)) in journal.iter().enumerate().skip(read) {
                node.apply(&doc, at as u64 + 1, changes, false);
            }
        }
        let first = kept(&nodes[0]);
        assert!(
            nodes.iter().all(|node| kept(node) == first),
            "BREAKBULK_SEED={seed}"
        );
        // Everything appended after the last snapshot is there, in order.
        let last = journal
            .iter()
            .rposition(|(_, c)| c[0].kind == Kind::Replace);
        let tail = journal.iter().skip(last.unwrap_or(0));
        let tail: Vec<String> = tail
            .map(|(_, changes)| {
                let kind = if changes[0].kind == Kind::Replace {
                    '!'
                } else {
                    '+'
                };
                format!("{kind}{}", String::from_utf8_lossy(&changes[0].data))
            })
            .collect();
        assert_eq!(first, tail.join(" "), "BREAKBULK_SEED={seed}");
    }
}
