//! What each format can carry under a cap: the last size that goes and the first that does not.

use breakbulk_link::{
    Cap, Key, PeerLimits, PeerSupport, Pieces, Plan, PlanOptions, SendError, Uncut, Wire,
};
use breakbulk_wire::{Ahp, Cep22, Loro, Tywrap, Whole, nostr_cap};

fn plan(wire: &dyn Wire, size: usize, cap: Cap, key: Option<&str>) -> Result<Plan, SendError> {
    let key = key.map(|key| Key::new(key.as_bytes()));
    let options = PlanOptions {
        key: key.as_ref(),
        may_cut: true,
        known_text: false,
        peer: &PeerSupport::Yes(PeerLimits::NONE),
        cap: &cap,
    };
    wire.plan(&vec![b'a'; size], &options)
}

fn pieces(wire: &dyn Wire, size: usize, cap: Cap, key: Option<&str>) -> Pieces {
    match plan(wire, size, cap, key) {
        Ok(Plan::Pieces(pieces)) => *pieces,
        other => panic!("{} at {size}: {other:?}", wire.name()),
    }
}

#[test]
fn ahp_segments_are_as_large_as_the_decisions_say() {
    let cap = Cap::frame(900_000);
    assert_eq!(pieces(&Ahp, 900_001, cap, None).room, 674_892);
    // The proposal's own example says 3 and is wrong.
    assert_eq!(pieces(&Ahp, 2_400_000, cap, None).count, 4);
    assert_eq!(plan(&Ahp, 900_000, cap, None), Ok(Plan::Whole));
    // The smallest piece is one group of four base64 characters.
    assert_eq!(pieces(&Ahp, 1000, Cap::frame(145), None).room, 3);
    let too_small = SendError::CapTooSmall {
        cap: 144,
        needed: 145,
    };
    assert_eq!(plan(&Ahp, 1000, Cap::frame(144), None), Err(too_small));
}

/// If a cap has both `cut_above` and `max`, the smaller one limits the frames of a message that is cut.
#[test]
fn a_cap_that_is_too_small_is_named_with_what_would_do() {
    let cut_above = |size| Cap {
        cut_above: Some(size),
        ..Cap::frame(2_000)
    };
    let table: [(&dyn Wire, Option<&str>); 4] = [
        (&Ahp, None),
        (&Tywrap::default(), Some("request:7")),
        (&Cep22::default(), Some("token")),
        (&Loro, Some("8 bytes.")),
    ];
    for (wire, key) in table {
        let Err(SendError::CapTooSmall { cap, needed }) = plan(wire, 3_000, cut_above(10), key)
        else {
            panic!("{}", wire.name());
        };
        assert_eq!(cap, 10, "{}", wire.name());
        let again = plan(wire, 3_000, cut_above(needed), key);
        assert!(
            matches!(
                again,
                Ok(Plan::Pieces(_)) | Err(SendError::TooManyPieces { .. })
            ),
            "{}: {needed} gave {again:?}",
            wire.name()
        );
    }
}

#[test]
fn the_last_piece_that_can_be_numbered_and_one_byte_more() {
    let ahp = (Cap::frame(145), 65_535 * 3, 65_535);
    let token = "0123456789abcdef";
    let room = pieces(&Cep22::default(), 5000, Cap::frame(1000), Some(token)).room;
    let cep22 = (Cap::frame(1000), 10_000 * room, 10_000);
    let cases: [(&dyn Wire, _, Option<&str>); 2] =
        [(&Ahp, ahp, None), (&Cep22::default(), cep22, Some(token))];
    for (wire, (cap, most, limit), key) in cases {
        assert_eq!(pieces(wire, most, cap, key).count, limit, "{}", wire.name());
        let over = SendError::TooManyPieces {
            size: most + 1,
            limit,
            cap: cap.max,
        };
        assert_eq!(plan(wire, most + 1, cap, key), Err(over), "{}", wire.name());
    }
}

// LORO-1
#[test]
fn the_threshold_of_loro_in_both_units() {
    // Native: the threshold counts the message, and fragments exclude their prefix.
    assert_eq!(
        plan(&Loro, 102_400, Cap::piece(102_400), None),
        Ok(Plan::Whole)
    );
    let native = pieces(&Loro, 102_401, Cap::piece(102_400), None);
    assert_eq!((native.room, native.count), (102_400, 2));
    assert_eq!(plan(&Loro, 1 << 20, Cap::piece(0), None), Ok(Plan::Whole));
    // An empty message is never cut: a piece cannot be empty.
    for cap in [Cap::piece(1), Cap::frame(1), Cap::frame(17)] {
        assert_eq!(plan(&Loro, 0, cap, None), Ok(Plan::Whole), "{cap:?}");
    }
    // Cap-aware: the whole frame counts, including its prefix.
    assert_eq!(
        plan(&Loro, 102_399, Cap::frame(102_400), None),
        Ok(Plan::Whole)
    );
    let aware = pieces(&Loro, 102_400, Cap::frame(102_400), None);
    assert_eq!((aware.room, aware.count), (102_387, 2));
}

#[test]
fn what_may_not_be_cut_says_why() {
    let cases: [(&dyn Wire, Option<&str>, Uncut); 3] = [
        (&Tywrap::default(), None, Uncut::NoKey),
        (&Cep22::default(), None, Uncut::NoKey),
        (&Whole::TEXT, None, Uncut::NoPieces),
    ];
    for (wire, key, uncut) in cases {
        let refused = SendError::FrameTooLarge {
            size: 2000,
            limit: 1000,
            uncut,
        };
        assert_eq!(
            plan(wire, 2000, Cap::frame(1000), key),
            Err(refused),
            "{}",
            wire.name()
        );
    }
}

#[test]
fn events_hold_four_times_what_a_worst_case_chunk_would() {
    // The real SDK puts 11,800 bytes of plain text into an event, and 8,000 into a gift wrap.
    let plain = pieces(
        &Cep22::default(),
        1 << 20,
        nostr_cap(65_536, 48_000, false),
        Some("t"),
    );
    assert!(plain.room > 3 * 11_800, "{}", plain.room);
    let wrapped = pieces(
        &Cep22::default(),
        1 << 20,
        nostr_cap(65_536, 48_000, true),
        Some("t"),
    );
    assert!(wrapped.room > 3 * 8_000, "{}", wrapped.room);
}

/// If the peer has announced no limit, that of the real implementations applies; a message above it is
/// refused without looking at its bytes.
// CEP22-3
#[test]
fn a_peer_that_says_more_than_100_mib_gets_more() {
    let limit = 100 << 20;
    let message = vec![b'a'; limit + 1];
    let key = Key::new(b"token");
    let plan = |peer: PeerSupport, size: usize| {
        let cap = Cap::frame(64 << 10);
        let options = PlanOptions {
            key: Some(&key),
            may_cut: true,
            known_text: true,
            peer: &peer,
            cap: &cap,
        };
        Cep22::default().plan(&message[..size], &options).map(drop)
    };
    let size = limit + 1;
    let over = Err(SendError::MessageTooLarge { size, limit });
    let more = PeerLimits {
        message: size,
        ..PeerLimits::NONE
    };
    assert_eq!(plan(PeerSupport::Unknown, size), over);
    assert_eq!(plan(PeerSupport::Unknown, limit), Ok(()));
    assert_eq!(plan(PeerSupport::Yes(more), size), Ok(()));
}
