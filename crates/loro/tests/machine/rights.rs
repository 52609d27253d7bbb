//! Tests of rights: which peers may see, change and delete which documents.

use breakbulk_loro::machine::Outcome;
use breakbulk_loro::{Limits, Peer, Permissions, Quota};
use breakbulk_message::loro::{ChannelMsg, DeleteStatus, Transmission};

use super::bench::{Bench, response, sync_request, update};

pub(crate) struct Guarded;

impl Permissions for Guarded {
    fn see(&self, peer: &Peer, doc: &str) -> bool {
        doc != "secret" || peer.identity.peer_id == "1"
    }

    fn change(&self, peer: &Peer, _doc: &str) -> bool {
        peer.identity.peer_id == "1"
    }

    fn create(&self, peer: &Peer, _doc: &str) -> bool {
        peer.identity.peer_id == "1"
    }

    fn delete(&self, peer: &Peer, _doc: &str) -> bool {
        peer.identity.peer_id == "1"
    }

    fn quota(&self, _peer: &Peer) -> Quota {
        Quota {
            documents: 1,
            bytes: 10,
        }
    }
}

// LORO-6
#[test]
fn who_may_not_see_or_change_learns_and_changes_nothing() {
    let mut bench = Bench::new(Guarded, Limits::default(), &[("open", 3), ("secret", 3)]);
    let (owner, guest) = (bench.peer("1"), bench.peer("2"));
    bench.say(owner, sync_request("secret", 3, false));
    bench.sent.clear();
    bench.settled.clear();
    let unavailable = |doc| response(doc, Transmission::Unavailable);
    let ignored = |doc: &str| ChannelMsg::DeleteResponse {
        doc_id: doc.into(),
        status: DeleteStatus::Ignored,
    };
    let delete = |doc: &str| ChannelMsg::DeleteRequest { doc_id: doc.into() };
    let cases = [
        (
            sync_request("secret", 0, true),
            vec![unavailable("secret")],
            Ok(()),
        ),
        // A document that does not exist gets the same answer as a hidden one.
        (
            sync_request("none", 0, true),
            vec![unavailable("none")],
            Ok(()),
        ),
        (
            ChannelMsg::DirectoryRequest { doc_ids: None },
            vec![ChannelMsg::DirectoryResponse {
                doc_ids: vec!["open".into()],
            }],
            Ok(()),
        ),
        (delete("open"), vec![ignored("open")], Ok(())),
        (delete("secret"), vec![ignored("secret")], Ok(())),
        (
            ChannelMsg::Update {
                doc_id: "open".into(),
                transmission: update(4),
            },
            vec![],
            Err(403),
        ),
        (
            ChannelMsg::Update {
                doc_id: "none".into(),
                transmission: update(4),
            },
            vec![],
            Err(403),
        ),
    ];
    for (message, answers, outcome) in cases {
        bench.say(guest, message.clone());
        assert_eq!(bench.heard(guest), answers, "{message:?}");
        assert_eq!(bench.settled.pop(), Some(outcome), "{message:?}");
        assert!(bench.tasks.is_empty(), "{message:?}");
    }
    // A peer whose changes are refused is not asked for them.
    bench.say(guest, sync_request("open", 3, true));
    assert!(matches!(
        bench.heard(guest)[..],
        [ChannelMsg::SyncResponse { .. }]
    ));
    // The owner's quota: one document, ten bytes.
    bench.say(owner, sync_request("mine", 0, false));
    bench.say(owner, sync_request("too many", 0, false));
    assert_eq!(bench.heard(owner).last(), Some(&unavailable("too many")));
    let push = ChannelMsg::Update {
        doc_id: "mine".into(),
        transmission: update(1),
    };
    bench.settled.clear();
    bench.say(owner, push.clone());
    bench.say(owner, push);
    assert_eq!(
        bench.settled,
        [Err(413)],
        "seven bytes and seven are more than ten"
    );
}

// LORO-6
#[test]
fn a_deleted_document_is_gone_for_those_who_followed_it() {
    let mut bench = Bench::new(Guarded, Limits::default(), &[("open", 3)]);
    let (owner, guest) = (bench.peer("1"), bench.peer("2"));
    for channel in [owner, guest] {
        bench.say(channel, sync_request("open", 3, false));
    }
    bench.sent.clear();
    bench.say(
        owner,
        ChannelMsg::DeleteRequest {
            doc_id: "open".into(),
        },
    );
    assert!(bench.sent.is_empty(), "told before it is gone");
    bench.done(0, Ok(Outcome::Deleted(true)));
    let status = DeleteStatus::Deleted;
    let told = ChannelMsg::DeleteResponse {
        doc_id: "open".into(),
        status,
    };
    assert_eq!(bench.heard(owner), [told]);
    assert_eq!(
        bench.heard(guest),
        [response("open", Transmission::Unavailable)]
    );
    assert_eq!(bench.hub.documents().count(), 0);
}
