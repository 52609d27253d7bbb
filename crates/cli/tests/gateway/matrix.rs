//! Every pair of endpoints: it carries one small message and one larger than the path's cap both ways, or
//! it is refused with a sentence that names ends which work.
//!
//! A new kind of endpoint is a row of [`KINDS`].

mod clients;
mod targets;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use tempfile::TempDir;

use crate::common::{gateway, run, said};
use crate::nats_server::NatsServer;
use clients::Client;
use targets::Target;

/// The cap of every path between two gateways here.
pub(crate) const CAP: &str = "100KB";

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A JSON-RPC request, which the target answers.
    Text,
    /// A frame of `ipc.net`, which the target sends back.
    Bytes,
    /// A document that `loro push` and `loro pull` sync with `loro serve`.
    Loro,
}

use Message::{Bytes, Loro, Text};

/// One kind of endpoint.
pub(crate) struct Kind {
    /// How the endpoint's text begins.
    name: &'static str,
    /// What it carries, the usual kind first.
    carries: &'static [Message],
    /// How a listener is written, and the program that connects to it.
    listen: Option<(&'static str, Client)>,
    /// The program behind a target.
    to: Option<Target>,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "stdio:",
        carries: &[Text],
        listen: Some(("stdio:", Client::Pipes)),
        to: None,
    },
    Kind {
        name: "exec:",
        carries: &[Text],
        listen: None,
        to: Some(Target::Exec),
    },
    Kind {
        name: "tcp:",
        carries: &[Text],
        listen: Some(("tcp://0", Client::Socket)),
        to: Some(Target::Tcp),
    },
    Kind {
        name: "unix:",
        carries: &[Text],
        listen: Some(("unix:FOLDER/listen", Client::Socket)),
        to: Some(Target::Unix),
    },
    Kind {
        name: "stdio: with framing=ipc",
        carries: &[Bytes],
        listen: Some(("stdio:?framing=ipc", Client::Pipes)),
        to: None,
    },
    Kind {
        name: "exec: with framing=ipc",
        carries: &[Bytes],
        listen: None,
        to: Some(Target::Exec),
    },
    Kind {
        name: "tcp: with framing=ipc",
        carries: &[Bytes],
        listen: Some(("tcp://0?framing=ipc", Client::Socket)),
        to: Some(Target::Tcp),
    },
    Kind {
        name: "unix: with framing=ipc",
        carries: &[Bytes],
        listen: Some(("unix:FOLDER/listen?framing=ipc", Client::Socket)),
        to: Some(Target::Unix),
    },
    Kind {
        name: "ws:",
        carries: &[Text, Bytes],
        listen: Some(("ws://0", Client::Gateway(""))),
        to: Some(Target::Gateway("")),
    },
    Kind {
        name: "whole+ws:",
        carries: &[Text, Bytes],
        listen: Some(("whole+ws://0", Client::Gateway("whole+"))),
        to: Some(Target::Gateway("whole+")),
    },
    Kind {
        name: "loro+ws:",
        carries: &[Loro, Bytes],
        listen: Some(("loro+ws://0", Client::Gateway("loro+"))),
        to: Some(Target::Gateway("loro+")),
    },
    Kind {
        name: "loro+http:",
        carries: &[Loro],
        listen: Some((
            "loro+http://0",
            Client::Loro(&["", "sse", "poll", "webrtc"]),
        )),
        to: Some(Target::Loro(&["sse", "poll", "webrtc"])),
    },
    Kind {
        name: "http:",
        carries: &[Text],
        listen: Some(("http://127.0.0.1:0/mcp", Client::Posts)),
        to: Some(Target::Listening("http://127.0.0.1:0/mcp")),
    },
    Kind {
        name: "ahp+http:",
        carries: &[Text, Bytes],
        listen: Some(("ahp+http://0/tunnel", Client::Gateway(""))),
        to: Some(Target::Listening("ahp+http://0/tunnel")),
    },
    Kind {
        name: "nats:",
        carries: &[Text, Bytes],
        listen: Some(("nats://NATS/listen.FRESH", Client::Gateway(""))),
        to: Some(Target::Listening("nats://NATS/target.FRESH")),
    },
    Kind {
        name: "cep22+nostr:",
        carries: &[Text],
        listen: Some(("cep22+nostr:RELAY?key=FOLDER/key", Client::Gateway(""))),
        to: Some(Target::Relays),
    },
];

/// What all pairs share.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) relay: String,
    pub(crate) nats: String,
}

impl Scene {
    /// The text of an endpoint, with the places that are known only now. All rows share one NATS server,
    /// so each listener there has a subject of its own.
    pub(crate) fn endpoint(&self, form: &str) -> String {
        static SUBJECTS: AtomicUsize = AtomicUsize::new(0);
        let folder = self.folder.path().display().to_string();
        form.replace("FOLDER", &folder)
            .replace("RELAY", &self.relay)
            .replace("NATS", &self.nats)
            .replace("FRESH", &SUBJECTS.fetch_add(1, Relaxed).to_string())
    }
}

/// One pair: works, or is refused by name.
fn check(scene: &Scene, listen: &Kind, to: &Kind) {
    let (Some((form, client)), Some(target)) = (&listen.listen, &to.to) else {
        return refused_as_such(listen, to);
    };
    let both = listen.carries.iter().find(|kind| to.carries.contains(kind));
    let Some(message) = both else {
        return refused(scene, (listen, form), to);
    };
    let name = format!("{} to {} ({message:?})", listen.name, to.name);
    println!("{name}");
    for target in target.start(scene, *message) {
        let endpoint = scene.endpoint(form);
        client.check(&name, &endpoint, &target, *message);
    }
}

/// A command cannot listen, and there is one standard output.
fn refused_as_such(listen: &Kind, to: &Kind) {
    let of = |kind: &Kind| match kind.name.split_once(" with ") {
        Some((name, option)) => format!("{}?{option}", example(name)),
        None => example(kind.name).to_owned(),
    };
    let output = run(
        gateway(&["--listen", &of(listen), "--to", &of(to)]),
        Vec::new(),
    );
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let words = match (&listen.listen, &to.to) {
        (None, _) => {
            "exec: cannot listen: clients cannot connect to a command; use it as the target"
        }
        _ if listen.name.starts_with("stdio:") => {
            "both ends are stdio:, and a process has only one; use another target"
        }
        _ => "use stdio: as the listener",
    };
    assert!(said.contains(words), "{} {}: {said}", listen.name, to.name);
}

/// An endpoint of a kind, for errors that come before anything is opened.
fn example(name: &str) -> &'static str {
    match name {
        "exec:" => "exec:cat",
        "tcp:" => "tcp://127.0.0.1:1",
        "unix:" => "unix:/nowhere/s",
        "ws:" => "ws://127.0.0.1:1",
        "whole+ws:" => "whole+ws://127.0.0.1:1",
        "loro+ws:" => "loro+ws://127.0.0.1:1",
        "loro+http:" => "loro+http://127.0.0.1:1",
        "http:" => "http://127.0.0.1:1",
        "ahp+http:" => "ahp+http://127.0.0.1:1",
        "nats:" => "nats://127.0.0.1:1/subject",
        "cep22+nostr:" => "cep22+nostr:ws://127.0.0.1:1",
        _ => "stdio:",
    }
}

/// There is nothing that both carry: the sentence names what each does, and an end that fits it.
fn refused(scene: &Scene, (listen, form): (&Kind, &str), to: &Kind) {
    let of_to = match to.name.split_once(" with ") {
        Some((name, option)) => format!("{}?{option}", example(name)),
        None => example(to.name).to_owned(),
    };
    let output = run(
        gateway(&["--listen", &scene.endpoint(form), "--to", &of_to]),
        Vec::new(),
    );
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let each = |kind: &Kind| {
        let words = kind.carries.iter().map(|message| match message {
            Text => "text (JSON-RPC)",
            Bytes => "bytes",
            Loro => "loro's messages",
        });
        words.collect::<Vec<_>>().join(" or ")
    };
    let fits = |kind: &Kind| match kind.carries[0] {
        Text => "ws://HOST:PORT",
        Bytes => "ws://HOST:PORT of a gateway",
        Loro => "loro+ws://HOST:PORT",
    };
    let expected = format!(
        "breakbulk: {} carries {}, and {} carries {}; use {} with {}, or {} with {}\n",
        listen.name,
        each(listen),
        to.name,
        each(to),
        fits(listen),
        listen.name,
        fits(to),
        to.name
    );
    assert_eq!(said, expected);
}

/// A row of the matrix: one listener with every target.
fn row(relay: &str, nats: &str, listen: &Kind) {
    let scene = Scene {
        folder: tempfile::tempdir().unwrap(),
        relay: relay.to_owned(),
        nats: nats.to_owned(),
    };
    targets::keygen(&scene.folder.path().join("key"));
    for to in KINDS {
        check(&scene, listen, to);
    }
}

// PROG-22, LORO-35
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pair_of_endpoints_works_or_is_refused_by_name() {
    let relay = BadRelay::start(Weather::default()).await.unwrap();
    let url = relay.url().to_string();
    tokio::task::spawn_blocking(move || {
        let server = NatsServer::start("");
        let nats = format!("127.0.0.1:{}", server.port);
        // Most of the time of a pair is waiting: for processes, polls and relays.
        std::thread::scope(|scope| {
            for listen in KINDS {
                scope.spawn(|| row(&url, &nats, listen));
            }
        });
    })
    .await
    .unwrap();
}
