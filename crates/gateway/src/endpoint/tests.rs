#![allow(clippy::unwrap_used)]

use std::time::Duration;

use breakbulk_contextvm::{Encryption, Wraps, public_key};
use breakbulk_link::Preset;
#[cfg(feature = "nats")]
use breakbulk_net::nats::Credentials;
use breakbulk_net::process::Framing;

use super::*;

fn ws(secure: bool, authority: &str, path: &str, query: Option<&str>) -> At {
    At::Ws(WsAddress {
        http: false,
        ahp: false,
        secure,
        authority: authority.to_owned(),
        path: path.to_owned(),
        query: query.map(ToOwned::to_owned),
        socket: None,
    })
}

fn socket(path: &str) -> At {
    let At::Ws(mut address) = ws(false, "localhost", "/", None) else {
        unreachable!()
    };
    address.socket = Some(path.into());
    At::Ws(address)
}

/// A tunnel over HTTP.
#[cfg(feature = "http")]
fn http(secure: bool, authority: &str, path: &str) -> At {
    let At::Ws(address) = ws(secure, authority, path, None) else {
        unreachable!()
    };
    At::Exchange(WsAddress {
        http: true,
        ahp: true,
        ..address
    })
}

/// A tunnel over NATS.
#[cfg(feature = "nats")]
fn nats(secure: bool, server: &str, credentials: Option<Credentials>, subject: &str) -> At {
    At::Nats(NatsAddress {
        secure,
        server: server.to_owned(),
        credentials,
        subject: subject.to_owned(),
    })
}

#[cfg(all(feature = "http", feature = "nats"))]
#[test]
fn tunnels_over_http_and_nats_as_they_are_written() {
    let user = Credentials::User("anna".to_owned(), "p@:ss".to_owned());
    for (text, at) in [
        ("ahp+http://8080", http(false, "8080", "/")),
        ("ahp+http://host:80/a/b", http(false, "host:80", "/a/b")),
        ("ahp+https://host/t?ca=x", http(true, "host", "/t")),
        ("nats://host/tools", nats(false, "host:4222", None, "tools")),
        ("tls://host:1/a.b", nats(true, "host:1", None, "a.b")),
        ("nats://[::1]/a", nats(false, "[::1]:4222", None, "a")),
        ("ahp+nats://[::1]:1/a", nats(false, "[::1]:1", None, "a")),
        (
            "nats://anna:p%40:ss@host/a?queue=q&inbox=_X&creds=f",
            nats(false, "host:4222", Some(user), "a"),
        ),
        (
            "nats://t0ken@host/a",
            nats(
                false,
                "host:4222",
                Some(Credentials::Token("t0ken".to_owned())),
                "a",
            ),
        ),
    ] {
        let endpoint: Endpoint = text.parse().unwrap();
        assert_eq!((endpoint.wire, endpoint.at), (WireKind::Ahp, at), "{text}");
    }
    for (text, expected) in [
        ("ahp+http:host", "write ahp+http:// with its slashes"),
        ("ahp+https://", "there is no host; write ahp+https://"),
        (
            "ahp+http://host?cert=a",
            "cert is for wss://, https:// and tls://",
        ),
        (
            "ahp+http://host?tunnel=auto",
            "tunnel is for ws:// and wss://",
        ),
        (
            "ahp+http://host?fragment=1KB",
            "fragment is for ws:// and wss://",
        ),
        ("nats:host/a", "write nats:// with its slashes"),
        ("nats://host", "there is no subject; write nats://"),
        ("nats://host/a/b", "there is no subject"),
        ("tls:///a", "there is no NATS server; write tls://"),
        ("nats://host:port/a", "there is no NATS server"),
        (
            "nats://@host/a",
            "before the @ stand USER:PASSWORD or a token",
        ),
        (
            "nats://a%@host/a",
            "before the @ stand USER:PASSWORD or a token",
        ),
        (
            "nats://host/a?ca=x",
            "ca is for wss://, https:// and tls://",
        ),
        (
            "nats://host/a?tunnel=auto",
            "\"tunnel\" is no option; use token-file, creds",
        ),
        (
            "whole+nats://host/a",
            "NATS carries tunnels between two gateways alone",
        ),
    ] {
        let error = text.parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

fn exec(words: &[&str]) -> At {
    At::Exec(words.iter().map(|word| (*word).to_owned()).collect())
}

#[test]
fn endpoints_as_they_are_written() {
    for (text, wire, at) in [
        ("stdio:", WireKind::Whole, At::Stdio),
        ("whole+stdio:", WireKind::Whole, At::Stdio),
        ("exec:cat", WireKind::Whole, exec(&["cat"])),
        (
            "exec:sh -c 'echo \"a b\"; cat'",
            WireKind::Whole,
            exec(&["sh", "-c", "echo \"a b\"; cat"]),
        ),
        (
            "exec:curl http://x/?a=b",
            WireKind::Whole,
            exec(&["curl", "http://x/?a=b"]),
        ),
        (
            "exec:what 'is?framing=lines'",
            WireKind::Whole,
            exec(&["what", "is?framing=lines"]),
        ),
        (
            "tcp://8080",
            WireKind::Whole,
            At::Socket(SocketAddress::Tcp("8080".to_owned())),
        ),
        (
            "tcp://[::1]:1/?framing=ipc",
            WireKind::Whole,
            At::Socket(SocketAddress::Tcp("[::1]:1".to_owned())),
        ),
        (
            "unix:/run/s?max-message=1KB",
            WireKind::Whole,
            At::Socket(SocketAddress::Unix("/run/s".into())),
        ),
        ("ws://8080", WireKind::Ahp, ws(false, "8080", "/", None)),
        ("ws+unix:/run/s", WireKind::Ahp, socket("/run/s")),
        (
            "whole+ws+unix:s?max-frame=1KB",
            WireKind::Whole,
            socket("s"),
        ),
        ("ws://:0", WireKind::Ahp, ws(false, ":0", "/", None)),
        (
            "ws://[::1]:80/a/b",
            WireKind::Ahp,
            ws(false, "[::1]:80", "/a/b", None),
        ),
        (
            "loro+wss://host/sync?access_token=x%20y&max-frame=1KB&v=2",
            WireKind::Loro,
            ws(true, "host", "/sync", Some("access_token=x%20y&v=2")),
        ),
        (
            "whole+ws://host:1?preset=none",
            WireKind::Whole,
            ws(false, "host:1", "/", None),
        ),
    ] {
        let endpoint: Endpoint = text.parse().unwrap();
        assert_eq!((endpoint.wire, endpoint.at), (wire, at), "{text}");
    }
}

#[test]
fn options_are_read() {
    let stdio: Endpoint = "stdio:?framing=content-length&max-message=2MB"
        .parse()
        .unwrap();
    assert_eq!(stdio.options.framing, Some(Framing::ContentLength));
    assert_eq!(stdio.options.max_message, Some(2_000_000));
    let exec: Endpoint = "exec:a b?framing=lines".parse().unwrap();
    assert_eq!(exec.options.framing, Some(Framing::Lines));
    let exec: Endpoint = "exec:a b?process-id=keep".parse().unwrap();
    assert_eq!(exec.options.keeps_process_id, Some(true));
    let text = "wss://0?cert=a%26b&key=c&token-file=d&ca=e&tunnel=never&preset=aws-api-gateway&max-frame=1KiB&fragment=32KiB";
    let wss: Endpoint = text.parse().unwrap();
    assert_eq!(
        wss.options,
        EndpointOptions {
            #[cfg(feature = "http")]
            down: None,
            framing: None,
            token_file: Some("d".into()),
            #[cfg(feature = "http")]
            headers_file: None,
            cert: Some("a&b".into()),
            key: Some("c".into()),
            ca: Some("e".into()),
            preset: Preset::by_name("aws-api-gateway"),
            client: None,
            misspelt: None,
            max_frame: Some(1024),
            fragment: Some(32_768),
            max_message: None,
            tunnel: Some(TunnelUse::Never),
            keeps_process_id: None,
            idle: None,
            #[cfg(feature = "nats")]
            nats: NatsNames::default(),
            relay: RelayOptions::default(),
        }
    );
}

#[cfg(feature = "http")]
#[test]
fn addresses_of_http_and_their_options_are_read() {
    for (text, url, is_secure) in [
        (
            "http://127.0.0.1:8080/mcp",
            "http://127.0.0.1:8080/mcp",
            false,
        ),
        ("whole+http://8080", "http://8080/", false),
        ("https://host/mcp?a=b&idle=5", "https://host/mcp?a=b", true),
    ] {
        let endpoint: Endpoint = text.parse().unwrap();
        let At::Http(address) = &endpoint.at else {
            panic!("{text}")
        };
        assert_eq!((address.url(), address.secure), (url.to_owned(), is_secure));
        assert_eq!(endpoint.wire, WireKind::Whole);
    }
    let text = "https://x:1/?token-file=a&headers-file=b&cert=c&key=d&ca=e&idle=60&max-frame=4MiB&max-message=64MiB";
    let endpoint: Endpoint = text.parse().unwrap();
    let expected = EndpointOptions {
        token_file: Some("a".into()),
        headers_file: Some("b".into()),
        cert: Some("c".into()),
        key: Some("d".into()),
        ca: Some("e".into()),
        idle: Some(Duration::from_secs(60)),
        max_frame: Some(4 << 20),
        max_message: Some(64 << 20),
        ..EndpointOptions::default()
    };
    assert_eq!(endpoint.options, expected);
    for (text, words) in [
        ("http:x", "write http:// with its slashes"),
        ("https://", "there is no host; write https://HOST:PORT/PATH"),
        ("http://me:secret@x:1/", "no names or passwords"),
        ("http://x:1?token=secret", "use ?token-file=FILE"),
        (
            "http://x:1?tunnel=auto",
            "tunnel is for other endpoints than http:// and https://",
        ),
        ("http://x:1?preset=none", "preset is for other endpoints"),
        (
            "http://x:1?client=mcp-typescript",
            "client=mcp-typescript receives over standard streams, and this endpoint sends over HTTP POST bodies",
        ),
        ("http://x:1?ca=a", "ca is for wss://"),
        ("http://x:1?idle=0", "idle: \"0\" is no number of seconds"),
    ] {
        let error = text.parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
        assert!(!error.contains("secret"), "{text}: {error}");
    }
}

/// A parameter that is no option of the gateway goes to the target's server; a listener has no such server
/// and refuses it.
#[test]
fn a_parameter_of_the_server_that_looks_like_an_option_is_told() {
    for (text, meant) in [
        ("ws://x:1?tokenfile=t", Some(("tokenfile", "token-file"))),
        (
            "https://x:1/mcp?a=1&max_frame=1KB",
            Some(("max_frame", "max-frame")),
        ),
        (
            "ahp+http://x:1?max-fram=1KB",
            Some(("max-fram", "max-frame")),
        ),
        ("ws://x:1?channel=7&user=me", None),
        ("ws://x:1", None),
    ] {
        let endpoint: Endpoint = text.parse().unwrap();
        let misspelt = endpoint.options.misspelt;
        let found = misspelt.as_ref().map(|it| (it.name.as_str(), it.meant));
        assert_eq!(found, meant, "{text}");
    }
}

#[test]
fn relays_and_their_options_are_read() {
    let key = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e";
    let npub = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg";
    let text = format!(
        "cep22+nostr:wss://a.example/nostr,ws://[::1]:7000?key=a%26b&server={npub}&allow={key},{npub}&encryption=required&wraps=ephemeral&idle=60&timeout=5&window=90&max-frame=32KB"
    );
    let endpoint: Endpoint = text.parse().unwrap();
    let relays = ["wss://a.example/nostr", "ws://[::1]:7000"].map(ToOwned::to_owned);
    let relays = relays.to_vec();
    assert_eq!(endpoint.at, At::Relays(RelayAddress { relays }));
    assert_eq!(endpoint.wire, WireKind::Cep22);
    let options = endpoint.options;
    assert_eq!(options.key, Some("a&b".into()));
    assert_eq!(options.max_frame, Some(32_000));
    let key = public_key(key).unwrap();
    let expected = RelayOptions {
        server: Some(key),
        allow: Some([key].into()),
        encryption: Some(Encryption::Required),
        wraps: Some(Wraps::Ephemeral),
        timeout: Some(Duration::from_secs(5)),
        window: Some(Duration::from_secs(90)),
    };
    assert_eq!(options.relay, expected);
    assert_eq!(options.idle, Some(Duration::from_secs(60)));

    // In the address of a WebSocket these are no options, but parameters for the server.
    let endpoint: Endpoint = "ws://x:1?server=1&idle=2".parse().unwrap();
    assert_eq!(endpoint.at, ws(false, "x:1", "/", Some("server=1&idle=2")));
}

#[test]
fn what_is_wrong_says_what_to_mend() {
    for (text, words) in [
        (
            "",
            "there is no colon; an endpoint is stdio:, exec:COMMAND, tcp://HOST:PORT, unix:PATH, ws://",
        ),
        ("stdio", "there is no colon; did you mean stdio:?"),
        (
            "breakbulk echo",
            "there is no colon; did you mean exec:COMMAND?",
        ),
        ("cat", "there is no colon"),
        (
            "udp://x:1",
            "\"udp\" is no transport; did you mean tcp://HOST:PORT?",
        ),
        ("ftp://x", "\"ftp\" is no transport"),
        (
            "mcp+ws://x:1",
            "\"mcp\" is no wire; use ahp, loro, whole or cep22",
        ),
        ("+ws://x:1", "\"\" is no wire"),
        ("ahp+stdio:", "streams carry whole messages"),
        ("loro+exec:cat", "streams carry whole messages"),
        ("cep22+stdio:", "cep22 is for relays; write cep22+nostr:"),
        ("ahp+nostr:wss://x", "write cep22+nostr: for ahp+nostr:"),
        ("nostr:", "a relay is written as wss://HOST"),
        ("nostr:wss://a,", "a relay is written as wss://HOST"),
        ("nostr:wss://", "a relay is written as wss://HOST"),
        ("nostr:wss://me:secret@x", "no names or passwords"),
        (
            "nostr:wss://x?framing=lines",
            "\"framing\" is no option; use key, server, allow",
        ),
        (
            "nostr:wss://x?idle=1&idle=1",
            "idle: the option is given twice",
        ),
        ("stdio:x", "stdio: has no address"),
        (
            "stdio:?framing=json",
            "framing: \"json\" is none of lines, content-length, ipc",
        ),
        (
            "stdio:?framing=",
            "framing: there is no value; write OPTION=VALUE",
        ),
        (
            "stdio:?framing=lines&framing=lines",
            "framing: the option is given twice",
        ),
        (
            "stdio:?frame=lines",
            "\"frame\" is no option; use framing, token-file",
        ),
        ("stdio:?token-file=x", "token-file is for ws:// and wss://"),
        ("stdio:?tunnel=auto", "tunnel is for ws:// and wss://"),
        ("stdio:?fragment=1KB", "fragment is for ws:// and wss://"),
        (
            "ws://x:1?process-id=keep",
            "process-id is for stdio:, exec:, tcp:// and unix:",
        ),
        (
            "stdio:?process-id=4711",
            "process-id: \"4711\" is none of keep, null",
        ),
        ("exec:", "there is no command; write exec:COMMAND"),
        ("exec:  ?framing=lines", "there is no command"),
        ("exec:sh -c 'x", "a ' is not closed"),
        ("exec:x\\", "a backslash at the end"),
        ("exec:x?max-message=1XB", "max-message: \"XB\" is no unit"),
        (
            "exec:cat | tee",
            "\"|\" means something to a shell, and exec: starts none; write exec:sh -c '…'",
        ),
        ("exec:a; b", "\"a;\" means something to a shell"),
        (
            "exec:a 2>/dev/null",
            "write exec:sh -c '…' around the whole",
        ),
        ("ws:x", "write ws:// with its slashes"),
        ("wss:/x", "write wss:// with its slashes"),
        ("ws://", "there is no host; write ws://HOST:PORT/PATH"),
        ("ws:///path", "there is no host"),
        (
            "ws://me:secret@host:1/",
            "no names or passwords in an address; use ?token-file=FILE",
        ),
        ("ws://x:1/#a", "no part after a #"),
        (
            "ws://x:1?token=secret",
            "seen by every program; use ?token-file=FILE",
        ),
        (
            "ws://x:1?framing=lines",
            "framing is for stdio:, exec:, tcp:// and unix:",
        ),
        ("ws://x:1?cert=a", "cert is for wss://"),
        ("ws://x:1?ca=a", "ca is for wss://"),
        (
            "ws://x:1?preset=azure",
            "preset: nothing is known of \"azure\" (did you mean azure-web-pubsub?); breakbulk caps lists all names",
        ),
        (
            "ws://x:1?preset=bun",
            "preset: bun is a receiver, not a path; write client=bun at the endpoint whose messages it takes",
        ),
        (
            "ws://x:1?client=kong",
            "client: kong is a path, not a receiver; write preset=kong",
        ),
        (
            "ws://x:1?client=rmpc",
            "client: nothing is known of \"rmpc\" (did you mean rmcp?)",
        ),
        (
            "ws://x:1?client=mcp-typescript",
            "client=mcp-typescript receives over standard streams, and this endpoint sends over WebSockets",
        ),
        (
            "stdio:?client=bun",
            "client=bun receives over WebSockets, and this endpoint sends over standard streams",
        ),
        (
            "exec:cat?client=mcp-http",
            "client=mcp-http receives over HTTP POST bodies, and this endpoint sends over standard streams",
        ),
        ("ws://x:1?max-frame=1.5KB", "max-frame: no fractions"),
        (
            "ws://x:1?tunnel=yes",
            "tunnel: \"yes\" is none of auto, always, never",
        ),
        ("whole+ws://x:1?tunnel=auto", "tunnel is for the wire ahp"),
        ("ws://x:1?token-file=%zz", "write a % itself as %25"),
        ("ws://x:1?token-file=%ff", "is not UTF-8"),
    ] {
        let error = text.parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
        assert!(!error.contains('\n'), "{text}: {error}");
        assert!(!error.contains("secret"), "{text}: {error}");
    }
}

#[test]
fn a_target_has_a_host() {
    for (text, words) in [
        ("ws://18099", "did you mean ws://127.0.0.1:18099?"),
        ("wss://443/a", "did you mean wss://127.0.0.1:443/a?"),
        ("ws://:18099/", "did you mean ws://127.0.0.1:18099?"),
        ("ws://99999", "names no host; write ws://HOST:PORT/PATH"),
        ("ws://0", "names no host"),
        ("ws://1:2", "names no host"),
        (
            "ws://127.0.0.1:99999",
            "\"99999\" is no port; ports are 1 to 65535",
        ),
        ("ws://host:abc/", "\"abc\" is no port"),
        ("ws://[::1]:0", "\"0\" is no port"),
        ("ws://127.0.0.1:1", ""),
        ("ws://host", ""),
        ("ws://host:1", ""),
        ("ws://[::1]", ""),
        ("ws://[::1]:1", ""),
    ] {
        let endpoint: Endpoint = text.parse().unwrap();
        let At::Ws(address) = endpoint.at else {
            panic!("{text}")
        };
        let said = address.check_target().map_err(|error| error.to_string());
        let said = said.err().unwrap_or_default();
        assert_eq!(said.is_empty(), words.is_empty(), "{text}: {said}");
        assert!(said.contains(words), "{text}: {said}");
    }
}

#[test]
fn a_listener_is_for_this_machine_unless_it_says_otherwise() {
    for (text, at) in [
        ("ws://8080", Some(("127.0.0.1", 8080))),
        ("ws://:8080", Some(("127.0.0.1", 8080))),
        ("ws://0", Some(("127.0.0.1", 0))),
        ("ws://localhost:1", Some(("localhost", 1))),
        ("ws://0.0.0.0:1", Some(("0.0.0.0", 1))),
        ("ws://*:1", Some(("0.0.0.0", 1))),
        ("ws://[::1]:1", Some(("::1", 1))),
        ("ws://[::1]", None),
        ("ws://host", None),
        ("ws://host:", None),
        ("ws://host:99999", None),
        ("ws://99999", None),
    ] {
        let endpoint: Endpoint = text.parse().unwrap();
        let At::Ws(address) = endpoint.at else {
            panic!("{text}")
        };
        let expected = at.map(|(host, port)| (host.to_owned(), port));
        match address.listen_at() {
            Ok(found) => assert_eq!(Some(found), expected, "{text}"),
            Err(error) => {
                assert_eq!(None, expected, "{text}");
                assert!(error.to_string().contains("write HOST:PORT"), "{error}");
            }
        }
    }
}
