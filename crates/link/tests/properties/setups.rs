//! Test setups: every wire with every way to count its cap, and messages, caps and links for each.

use std::sync::Arc;

use breakbulk_link::{
    Budget, Cap, Config, Key, Link, PeerLimits, PeerSupport, PlanOptions, Random, Rules, SendError,
    Wire,
};
use breakbulk_wire::{Ahp, Cep22, Layout, Loro, Stream, Style, Tywrap, Whole, nostr_cap};

use crate::oracles::{
    ascii_line_len, cep22_data, event_len, gift_wrap_len, join_ahp, join_cep22, join_loro,
    join_tywrap, line_len, loro_data, tywrap_data,
};

/// A wire with the way its cap counts, and how to put its frames together naively.
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) rules: Rules,
    pub(crate) peer: PeerSupport,
    pub(crate) cap: fn(usize) -> Cap,
    pub(crate) key: fn(u64) -> Option<Key>,
    /// How much a frame counts against the cap, computed independently of the wire's planning.
    pub(crate) weigh: fn(&[u8]) -> usize,
    /// The message that these frames carry.
    pub(crate) join: fn(&[Vec<u8>]) -> Vec<u8>,
    pub(crate) binary: bool,
    pub(crate) pieces: bool,
}

pub(crate) fn setups() -> Vec<Setup> {
    let yes = || {
        PeerSupport::Yes(PeerLimits {
            transfers: 4,
            ..PeerLimits::NONE
        })
    };
    let request = |number: u64| Some(Stream::Request.key(number as i64));
    let token = |number: u64| Some(Key::new(format!("tok\"en-{number}").as_bytes()));
    let none = |_: u64| None;
    let tywrap = |name, style, cap, weigh| Setup {
        name,
        wire: Arc::new(Tywrap {
            style,
            ..Tywrap::default()
        }),
        rules: Tywrap::rules(),
        peer: yes(),
        cap,
        key: request,
        weigh,
        join: join_tywrap,
        binary: false,
        pieces: true,
    };
    let cep22 = |name, layout, rules, peer, cap, weigh| Setup {
        name,
        wire: Arc::new(Cep22 {
            layout,
            ..Cep22::default()
        }),
        rules,
        peer,
        cap,
        key: token,
        weigh,
        join: join_cep22,
        binary: false,
        pieces: true,
    };
    let loro = |name, cap, weigh| Setup {
        name,
        wire: Arc::new(Loro),
        rules: Loro::rules(),
        peer: PeerSupport::Unknown,
        cap,
        key: none,
        weigh,
        join: join_loro,
        binary: true,
        pieces: true,
    };
    let ahp = |name, cap, weigh, join| Setup {
        name,
        wire: Arc::new(Ahp),
        rules: Ahp::rules(),
        peer: yes(),
        cap,
        key: none,
        weigh,
        join,
        binary: false,
        pieces: true,
    };
    let whole = |name, wire: Whole, binary| Setup {
        name,
        wire: Arc::new(wire),
        rules: Whole::rules(),
        peer: PeerSupport::Unknown,
        cap: Cap::frame,
        key: none,
        weigh: <[u8]>::len,
        join: |frames| frames.concat(),
        binary,
        pieces: false,
    };
    let nostr = |max| nostr_cap(max, max, false);
    let gift_wrap = |max| nostr_cap(max, max, true);
    vec![
        ahp("ahp", Cap::frame, <[u8]>::len, join_ahp),
        ahp(
            "ahp, lines",
            |max| Cap::frame(max).lines(),
            line_len,
            join_ahp,
        ),
        ahp("ahp, wrapped", nostr, event_len, join_ahp),
        tywrap(
            "tywrap, compact, native",
            Style::Compact,
            Cap::piece,
            tywrap_data,
        ),
        tywrap(
            "tywrap, ascii, native",
            Style::Ascii,
            Cap::piece,
            tywrap_data,
        ),
        tywrap(
            "tywrap, compact, strict",
            Style::Compact,
            |max| Cap::frame(max).lines(),
            line_len,
        ),
        tywrap(
            "tywrap, ascii, strict",
            Style::Ascii,
            |max| Cap::frame(max).lines(),
            ascii_line_len,
        ),
        tywrap("tywrap, compact, wrapped", Style::Compact, nostr, event_len),
        tywrap("tywrap, ascii, wrapped", Style::Ascii, nostr, event_len),
        cep22(
            "cep22, direct",
            Layout::ByPeer,
            Cep22::server_rules(),
            yes(),
            Cap::frame,
            <[u8]>::len,
        ),
        cep22(
            "cep22, accepted",
            Layout::ByPeer,
            Cep22::server_rules(),
            PeerSupport::Unknown,
            Cap::frame,
            <[u8]>::len,
        ),
        cep22(
            "cep22, unasked",
            Layout::Unasked,
            Cep22::rules(),
            PeerSupport::Unknown,
            Cap::frame,
            <[u8]>::len,
        ),
        cep22(
            "cep22, by piece",
            Layout::ByPeer,
            Cep22::server_rules(),
            yes(),
            Cap::piece,
            cep22_data,
        ),
        cep22(
            "cep22, nostr",
            Layout::ByPeer,
            Cep22::server_rules(),
            yes(),
            nostr,
            event_len,
        ),
        cep22(
            "cep22, gift wrap",
            Layout::ByPeer,
            Cep22::server_rules(),
            yes(),
            gift_wrap,
            gift_wrap_len,
        ),
        loro("loro, native", Cap::piece, loro_data),
        loro("loro, cap-aware", Cap::frame, <[u8]>::len),
        whole("whole, text", Whole::TEXT, false),
        whole("whole, binary", Whole::BINARY, true),
    ]
}

pub(crate) fn link(setup: &Setup, cap: Cap, seed: u64) -> Link {
    let mut seed_bytes = [0; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let mut config = Config::new(setup.rules.clone());
    config.limits.transfers = 64;
    let mut link = Link::new(
        setup.wire.clone(),
        setup.wire.clone(),
        config,
        Budget::unlimited(),
        seed_bytes,
    );
    link.set_cap(cap);
    link.set_peer(setup.peer.clone());
    link
}

// Random messages.

fn random_json(random: &mut Random, length: u64) -> Vec<u8> {
    let kinds: [&[char]; 4] = [
        &['a', 'b', 'z', ' ', '/', '0', '{', '~'],
        &['日', '本', '語', 'é', '😀', '🏴', '\u{2028}', '\u{7f}'],
        &['"', '\\', '\n', '\u{0}', '\u{1f}', '\t', '\r', 'u'],
        &['a', '"', '日', '😀', '\\', 'b', 'c', '\u{8}'],
    ];
    let kind = kinds[random.below(4) as usize];
    let text: String = (0..length)
        .map(|_| kind[random.below(8) as usize])
        .collect();
    let text = serde_json::to_string(&text).unwrap();
    // White space that is legal in JSON, but cannot be sent in a line.
    let gap = if random.one_in(8) { "\r\n" } else { "" };
    format!(
        r#"{{"jsonrpc":"2.0",{gap}"id":{},"method":"m","params":[{text}]}}"#,
        random.below(1000)
    )
    .into_bytes()
}

pub(crate) fn random_message(setup: &Setup, random: &mut Random) -> Vec<u8> {
    let length = [
        0,
        1,
        random.below(20),
        random.below(300),
        random.below(3000),
    ][random.below(5) as usize];
    if setup.binary {
        return (0..length).map(|_| random.next() as u8).collect();
    }
    random_json(random, length)
}

/// The smallest cap that the wire says it needs for this message, or the message in one frame.
pub(crate) fn smallest_cap(setup: &Setup, message: &[u8], key: Option<&Key>) -> usize {
    let mut max = 1;
    loop {
        let options = PlanOptions {
            key,
            may_cut: true,
            known_text: false,
            peer: &setup.peer,
            cap: &(setup.cap)(max),
        };
        match setup.wire.plan(message, &options) {
            Err(SendError::CapTooSmall { needed, cap }) => {
                assert!(needed > cap, "{needed} is no more than {cap}");
                max = needed;
            }
            Err(SendError::FrameTooLarge { size, .. }) => return size,
            _ => return max,
        }
    }
}

pub(crate) fn random_cap(
    setup: &Setup,
    random: &mut Random,
    message: &[u8],
    key: Option<&Key>,
) -> Cap {
    let smallest = smallest_cap(setup, message, key);
    if !setup.pieces {
        return (setup.cap)(smallest);
    }
    let more = [
        0,
        0,
        1,
        random.below(16),
        random.below(500),
        random.below(5000),
    ][random.below(6) as usize];
    (setup.cap)(smallest + more as usize)
}
