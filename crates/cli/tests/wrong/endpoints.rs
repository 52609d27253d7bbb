//! Endpoints that are written wrong: one line, exit code 2, and what was probably meant.

use super::Case;

/// A wrong target or listener, and what the one line suggests.
const WRONG: &[(&str, &str)] = &[
    // No colon.
    ("stdio", "did you mean stdio:?"),
    ("stdin", "did you mean stdio:?"),
    ("-", "did you mean stdio:?"),
    ("exec", "did you mean exec:COMMAND?"),
    ("ws", "did you mean ws://HOST:PORT/PATH?"),
    ("tcp", "did you mean tcp://HOST:PORT?"),
    ("8080", "did you mean tcp://PORT or ws://PORT to listen?"),
    ("/run/s", "did you mean unix:PATH or exec:COMMAND?"),
    ("", "an endpoint is stdio:, exec:COMMAND, tcp://HOST:PORT"),
    // Another transport, or letters of one in the wrong order.
    ("stido:", "did you mean stdio:?"),
    ("STDIO:", "did you mean stdio:?"),
    ("stdout:", "did you mean stdio:?"),
    ("exce:cat", "did you mean exec:COMMAND?"),
    ("exe:cat", "did you mean exec:COMMAND?"),
    ("cmd:cat", "did you mean exec:COMMAND?"),
    ("sh:cat", "did you mean exec:COMMAND?"),
    ("tpc://h:1", "did you mean tcp://HOST:PORT?"),
    ("tcp6://h:1", "did you mean tcp://HOST:PORT?"),
    ("udp://h:1", "did you mean tcp://HOST:PORT?"),
    ("unx:/run/s", "did you mean unix:PATH?"),
    ("socket:/run/s", "did you mean unix:PATH?"),
    ("wss+unix:/run/s", "did you mean ws+unix:PATH?"),
    ("ws+unx:/run/s", "did you mean ws+unix:PATH?"),
    ("sw://h:1", "did you mean ws://HOST:PORT/PATH?"),
    ("WS://h:1", "did you mean ws://HOST:PORT/PATH?"),
    ("wws://h:1", "did you mean ws://HOST:PORT/PATH?"),
    ("wsss://h:1", "did you mean wss://HOST:PORT/PATH?"),
    ("htpp://h:1", "did you mean http://HOST:PORT/PATH?"),
    ("nost:wss://r", "did you mean cep22+nostr:RELAY?"),
    (
        "localhost:8080",
        "did you mean tcp://HOST:PORT or ws://HOST:PORT/PATH?",
    ),
    ("127.0.0.1:8080", "did you mean tcp://HOST:PORT or"),
    // Wires.
    ("lora+ws://h:1", "did you mean loro+ws://HOST:PORT/PATH?"),
    ("hole+ws://h:1", "did you mean whole+ws://HOST:PORT/PATH?"),
    ("apl+ws://h:1", "did you mean ws://HOST:PORT/PATH?"),
    ("cep23+nostr:wss://r", "did you mean cep22+nostr:RELAY?"),
    ("loro+wss+unix:/s", "did you mean loro+ws+unix:PATH?"),
    (
        "ahp+stdio:",
        "write stdio:, exec:, tcp:// or unix: without ahp+",
    ),
    (
        "loro+tcp://h:1",
        "without loro+, and put it on the ws:// end",
    ),
    ("ahp+unix:/s", "without ahp+, and put it on the ws:// end"),
    ("cep22+ws://h:1", "write cep22+nostr:wss://RELAY"),
    ("whole+nostr:wss://r", "write cep22+nostr: for whole+nostr:"),
    // Addresses.
    ("stdio:x", "leave it out"),
    ("exec:", "write exec:COMMAND"),
    ("exec:a | b", "write exec:sh -c '…'"),
    ("tcp:h:1", "write tcp:// with its slashes"),
    ("tcp:/h:1", "write tcp:// with its slashes"),
    ("tcp://", "write tcp://HOST:PORT"),
    (
        "tcp://h:1/path",
        "write tcp://HOST:PORT, or ws://HOST:PORT/PATH",
    ),
    ("tcp://me:secret@h:1", "use ws:// with a token"),
    ("unix:", "write unix:/PATH"),
    ("unix:///run/s", "did you mean unix:/run/s?"),
    ("unix://run/s", "did you mean unix:/run/s?"),
    ("ws+unix:", "write ws+unix:/PATH"),
    ("ws:h:1", "write ws:// with its slashes"),
    ("ws://", "write ws://HOST:PORT/PATH"),
    ("wss:/h", "write wss:// with its slashes"),
    ("ws://me:secret@h:1", "use ?token-file=FILE"),
    ("nostr:r.example", "a relay is written as wss://HOST"),
    // Options.
    ("stdio:?fraiming=lines", "did you mean framing?"),
    ("stdio:?framing=line", "did you mean lines?"),
    (
        "stdio:?framing=Content-Length",
        "did you mean content-length?",
    ),
    ("tcp://h:1?framing=icp", "did you mean ipc?"),
    ("tcp://h:1?maxmessage=1MB", "did you mean max-message?"),
    ("tcp://h:1?max-message=1XB", "use B, KB, MB, GB"),
    ("tcp://h:1?max-message=-1", "a size is a whole number"),
    (
        "tcp://h:1?token-file=f",
        "token-file is for ws:// and wss://",
    ),
    ("unix:/s?tunnel=always", "tunnel is for ws:// and wss://"),
    ("ws://h:1?tunnel=allways", "did you mean always?"),
    ("ws://h:1?preset=aws-api", "did you mean aws-api-gateway?"),
    (
        "ws://h:1?framing=lines",
        "framing is for stdio:, exec:, tcp:// and unix:",
    ),
    ("ws://h:1?cert=f", "cert is for wss://"),
    ("ws://h:1?token=secret", "use ?token-file=FILE"),
    ("nostr:wss://r?servr=npub1", "did you mean server?"),
    ("nostr:wss://r?encryption=require", "did you mean required?"),
];

/// What is wrong only as a target, or only as a listener.
const WRONG_THERE: &[(&str, &str, &str)] = &[
    ("stdio:", "tcp://8080", "did you mean tcp://127.0.0.1:8080?"),
    (
        "stdio:",
        "tcp://:8080",
        "did you mean tcp://127.0.0.1:8080?",
    ),
    ("stdio:", "tcp://h", "write tcp://HOST:PORT"),
    ("stdio:", "tcp://h:http", "is no port; ports are 1 to 65535"),
    ("stdio:", "ws://8080", "did you mean ws://127.0.0.1:8080?"),
    (
        "tcp://h",
        "exec:cat",
        "as in tcp://127.0.0.1:8080, or the port alone",
    ),
    ("tcp://h:99999", "exec:cat", "as in tcp://127.0.0.1:8080"),
    ("ws://h", "exec:cat", "as in ws://127.0.0.1:8080"),
    ("ws://0?framming=lines", "exec:cat", "did you mean framing?"),
    ("exec:cat", "ws://h:1", "use it as the target"),
    ("stdio:", "stdio:", "use another target"),
    ("tcp://0", "stdio:", "use stdio: as the listener"),
];

/// Each as a listener and as a target.
pub(super) fn cases() -> Vec<Case> {
    let gateway = |listen: &str, to: &str| {
        let arguments = ["gateway", "--listen", listen, "--to", to];
        arguments.map(str::to_owned).to_vec()
    };
    let anywhere = WRONG.iter().flat_map(|(text, words)| {
        let listen = Case::new(gateway(text, "exec:cat"), 2, words).begins("breakbulk: --listen: ");
        let to = Case::new(gateway("stdio:", text), 2, words).begins("breakbulk: --to: ");
        [listen, to]
    });
    let there = WRONG_THERE
        .iter()
        .map(|(listen, to, words)| Case::new(gateway(listen, to), 2, words));
    anywhere.chain(there).map(Case::one_line).collect()
}
