//! Wrong command lines of every command: options, files and input.

use std::path::Path;

use breakbulk::net::process::split;

use super::Case;

/// Files that are there, in `$F`.
pub(super) fn write_files(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    write("message", MESSAGE.as_bytes());
    write("empty", b"");
    write("words", b"just some words\n");
    write("key", b"not a key\n");
    write("bytes", &[0xff; 500]);
    write("object.json", b"{\"a\": 1}");
    write("broken.json", b"{\"a\": ");
    write("bad.toml", b"memory = \"1GiB\"\n[[route]]\nlisten = 7\n");
    write(
        "good.toml",
        b"[[route]]\nname = \"a\"\nlisten = \"ws://0\"\nto = \"exec:cat\"\n",
    );
    std::fs::create_dir(folder.join("folder")).unwrap();
}

const MESSAGE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"text":"Grüße, 世界 \"quoted\" and more of it, until it takes several pieces, and more, and still more of it, so that no cap below lets it through as a whole, since each of them is far smaller than this text."}}"#;

const AHP: &str = "{\"jsonrpc\":\"2.0\",\"method\":\"ahp/messageSegment\",\"params\":{\"groupId\":\"g1\",\"index\":0,\"total\":1,\"data\":\"eyJqc29ucnBjIjoiMi4wIiwKIm1ldGhvZCI6ImEifQ==\"}}\n";

/// A message in two fragments of the loro wire.
const LORO: &[u8] = b"\0\0\0\x11\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x01\0\0\0\x04\0\0\0\x11\x02\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x000123";

/// The command line, the exit code, and words of the message.
const OPTIONS: &[(&str, i32, &str)] = &[
    // The program.
    ("", 2, "Usage"),
    ("spilt", 2, "'split'"),
    ("gatway --listen stdio: --to exec:cat", 2, "'gateway'"),
    ("nothing", 2, "unrecognized subcommand"),
    ("--nothing", 2, "unexpected argument '--nothing'"),
    ("-x", 2, "unexpected argument '-x'"),
    // split and join.
    ("split", 2, "--wire"),
    ("split --max-frame 1KB", 2, "--wire <WIRE>"),
    ("split --wire ahp", 2, "--max-frame"),
    (
        "split --wire nothing --max-frame 1KB",
        2,
        "possible values: ahp, tywrap, cep22, loro",
    ),
    ("split --wire AHP --max-frame 1KB", 2, "possible values"),
    ("split --wire vscode --max-frame 1KB", 2, "possible values"),
    (
        "split --wire ahp --max-frame 1XB",
        2,
        "is no unit; use B, KB, MB",
    ),
    ("split --wire ahp --max-frame 1.5MB", 2, "1500KB"),
    ("split --wire ahp --max-frame 1,5MB", 2, "1500KB"),
    ("split --wire ahp --max-frame ''", 2, "--max-frame"),
    (
        "split --wire ahp --max-frame KB",
        2,
        "a size is a whole number",
    ),
    ("split --wire ahp --max-frame=-1", 2, "not negative"),
    (
        "split --wire ahp --max-frame -1",
        2,
        "unexpected argument '-1'",
    ),
    (
        "split --wire ahp --max-frame 99999999999999999999",
        2,
        "more than this machine can count",
    ),
    (
        "split --wire ahp --max-frame 99999999999GiB",
        2,
        "more than this machine can count",
    ),
    (
        "split --wire ahp --max-frame 1KB --max-message 1XB",
        2,
        "--max-message",
    ),
    (
        "split --wire ahp --max-frame 1KB a b",
        2,
        "unexpected argument 'b'",
    ),
    (
        "split --wire ahp --max-frame 1KB --wrap paper",
        2,
        "possible values: nostr, giftwrap",
    ),
    (
        "split --wire tywrap --max-frame 1KB --style wide",
        2,
        "possible values: compact, ascii",
    ),
    (
        "split --wire ahp --max-frame 200 --strict",
        2,
        "--strict is for --wire tywrap",
    ),
    (
        "split --wire ahp --max-frame 200 --wrap nostr",
        2,
        "--wrap is for --wire cep22",
    ),
    (
        "split --wire ahp --max-frame 200 --style ascii",
        2,
        "--style is for --wire tywrap",
    ),
    ("split --wire loro --max-frame 8GiB", 2, "u32"),
    (
        "split --wire loro --max-frame 40 --key xyz",
        2,
        "16 hex digits",
    ),
    (
        "split --wire loro --max-frame 40 --key +102030405060708",
        2,
        "16 hex digits",
    ),
    (
        "split --wire tywrap --max-frame 32 --key 7",
        2,
        "request:ID",
    ),
    (
        "split --wire ahp --max-frame 200 no-such-file",
        2,
        "no-such-file: ",
    ),
    ("split --wire ahp --max-frame 10 MB", 2, "MB: "),
    ("split --wire ahp --max-frame 200 $F/folder", 2, "folder: "),
    (
        "split --wire ahp --max-frame 200 -o nowhere/out $F/message",
        2,
        "nowhere/out: ",
    ),
    (
        "split --wire ahp --max-frame 200 -o $F/folder $F/message",
        2,
        "folder: ",
    ),
    (
        "split --wire ahp --max-frame 20 $F/message",
        1,
        "at least 145",
    ),
    (
        "split --wire ahp --max-frame 0 $F/message",
        1,
        "at least 145",
    ),
    (
        "split --wire tywrap --max-frame 3 $F/message",
        1,
        "at least 4",
    ),
    (
        "split --wire loro --max-frame 16 $F/message",
        1,
        "at least 17",
    ),
    (
        "split --wire ahp --max-frame 200 --max-message 50 $F/message",
        1,
        "raise --max-message",
    ),
    (
        "split --wire ahp --max-frame 1KB $F/empty",
        1,
        "the message is empty",
    ),
    ("split --wire ahp --max-frame 1KB $F/words", 1, "not JSON"),
    (
        "split --wire tywrap --max-frame 32 $F/bytes",
        1,
        "not UTF-8",
    ),
    (
        "split --wire cep22 --max-frame 400 $F/bytes",
        1,
        "not UTF-8",
    ),
    ("join --wire nothing", 2, "possible values"),
    (
        "join --wire ahp --style ascii",
        2,
        "--style is for --wire tywrap",
    ),
    ("join --wire tywrap --key nonsense", 2, "request:ID"),
    ("join --wire loro --max-frame 8GiB", 2, "u32"),
    ("join --max-frame 1XB", 2, "--max-frame"),
    ("join a b", 2, "unexpected argument 'b'"),
    ("join no-such-file", 2, "no-such-file: "),
    ("join $F/folder", 2, "folder: "),
    ("join $F/empty", 1, "it is empty"),
    ("join $F/words", 1, "name it with --wire"),
    ("join -o nowhere/out $F/message", 2, "nowhere/out: "),
    // inspect.
    ("inspect", 2, "FILE|DIR"),
    ("inspect no-such-file", 2, "no-such-file: "),
    ("inspect --wire nothing $F/message", 2, "possible values"),
    ("inspect --max-frame 1XB $F/message", 2, "--max-frame"),
    ("inspect $F/message $F/message", 2, "one capture"),
    ("inspect --session 7kq3 $F/message", 2, "--session is for"),
    ("inspect $F/empty", 1, "the capture is empty"),
    ("inspect $F/words", 1, "--wire"),
    (
        "inspect $F/folder",
        1,
        "no records; breakbulk gateway --record",
    ),
    // gateway.
    ("gateway", 2, "--listen <ENDPOINT>"),
    ("gateway --listen stdio:", 2, "--to <ENDPOINT>"),
    ("gateway --to exec:cat", 2, "--listen <ENDPOINT>"),
    ("gateway stdio: exec:cat", 2, "unexpected argument 'stdio:'"),
    ("gateway --config no-such.toml", 2, "no-such.toml"),
    ("gateway --config $F/bad.toml", 2, "bad.toml:"),
    (
        "gateway --config $F/good.toml --listen stdio:",
        2,
        "cannot be used with",
    ),
    (
        "gateway --config $F/good.toml --max-frame 1KB",
        2,
        "--config: the options of routes are read from",
    ),
    ("gateway --check --config $F/bad.toml", 2, "bad.toml:"),
    (
        "gateway --listen stdio: --to exec:cat --max-frame 1XB",
        2,
        "--max-frame",
    ),
    (
        "gateway --listen stdio: --to ws://127.0.0.1:1 --max-frame 1",
        2,
        "--max-frame",
    ),
    (
        "gateway --listen stdio: --to ws://127.0.0.1:1 --max-message 1",
        2,
        "--max-message",
    ),
    (
        "gateway --listen stdio: --to ws://127.0.0.1:1 --fragment 0",
        2,
        "--fragment",
    ),
    (
        "gateway --listen stdio: --to exec:cat --max-sessions 0",
        2,
        "--max-sessions 0",
    ),
    (
        "gateway --listen stdio: --to exec:cat --max-sessions many",
        2,
        "--max-sessions",
    ),
    (
        "gateway --listen stdio: --to ws://127.0.0.1:1 --preset nothing",
        2,
        "--preset",
    ),
    (
        "gateway --listen stdio: --to ws://127.0.0.1:1 --preset aws-api",
        2,
        "did you mean aws-api-gateway?",
    ),
    (
        "gateway --listen stdio: --to exec:cat --grace soon",
        2,
        "--grace",
    ),
    (
        "gateway --listen stdio: --to exec:cat --grace=-1",
        2,
        "--grace",
    ),
    (
        "gateway --listen stdio: --to exec:cat --resume-for soon",
        2,
        "--resume-for",
    ),
    (
        "gateway --listen stdio: --to exec:cat --memory 1KB",
        2,
        "--memory",
    ),
    (
        "gateway --listen stdio: --to exec:cat --memory lots",
        2,
        "--memory",
    ),
    (
        "gateway --listen ws://0 --to exec:cat --fleet nowhere",
        2,
        "--fleet",
    ),
    (
        "gateway --listen ws://0 --to exec:cat --fleet nats://127.0.0.1:1",
        2,
        "BREAKBULK_FLEET_SECRET",
    ),
    (
        "gateway --listen stdio: --to exec:cat --record-size 1MB",
        2,
        "--record <DIR>",
    ),
    (
        "gateway --listen stdio: --to exec:cat --record $F/message",
        2,
        "--record: ",
    ),
    (
        "gateway --listen stdio: --to exec:cat --record-age 0 --record x",
        2,
        "--record-age",
    ),
    (
        "gateway --listen stdio: --to exec:cat --admin nowhere",
        2,
        "--admin",
    ),
    (
        "gateway --listen stdio: --to exec:cat --admin 0.0.0.0:0",
        2,
        "--admin",
    ),
    (
        "gateway --listen stdio: --to exec:cat --admin-token-file no-such --admin 0",
        2,
        "no-such",
    ),
    (
        "gateway --listen ws://0 --to exec:cat --trust-proxy x",
        2,
        "--trust-proxy",
    ),
    (
        "gateway --listen ws://0 --to exec:cat --allow-user me",
        2,
        "--allow-user",
    ),
    (
        "gateway --listen ws://0.0.0.0:0 --to exec:cat",
        2,
        "--allow-remote",
    ),
    (
        "gateway --listen tcp://0.0.0.0:0 --to exec:cat",
        2,
        "--allow-remote",
    ),
    (
        "gateway --listen ws://256.0.0.1:80 --to exec:cat --allow-remote",
        2,
        "--listen",
    ),
    (
        "gateway --listen stdio: --to exec:no-such-command",
        2,
        "no-such-command",
    ),
    (
        "gateway --listen ws://0 --to ws://127.0.0.1:1",
        2,
        "--no-check",
    ),
    ("gateway --listen wss://0 --to exec:cat", 2, "cert"),
    (
        "gateway --listen 'wss://0?cert=no-such&key=no-such' --to exec:cat",
        2,
        "no-such",
    ),
    (
        "gateway --listen 'ws://0?token-file=no-such' --to exec:cat",
        2,
        "no-such",
    ),
    (
        "gateway --listen cep22+nostr:wss://relay.invalid --to exec:cat",
        2,
        "breakbulk keygen FILE",
    ),
    (
        "gateway --listen 'cep22+nostr:wss://relay.invalid?key=no-such' --to exec:cat",
        2,
        "breakbulk keygen no-such",
    ),
    (
        "gateway --listen stdio: --to cep22+nostr:wss://relay.invalid",
        2,
        "server",
    ),
    (
        "gateway --listen stdio: --to 'cep22+nostr:wss://relay.invalid?server=me'",
        2,
        "server",
    ),
    (
        "gateway --listen stdio: --to exec:cat --log x=y",
        2,
        "--log x=y: this is no filter",
    ),
    (
        "gateway --listen stdio: --to exec:cat -v -q",
        2,
        "cannot be used with",
    ),
    (
        "gateway --listen stdio: --to exec:cat --log-format xml",
        2,
        "possible values: text, json",
    ),
    (
        "gateway --listen stdio: --to exec:cat --otlp nowhere",
        2,
        "--otlp",
    ),
    // tap, caps, probe.
    ("tap", 2, "--admin <ADDRESS|URL>"),
    ("tap --admin nowhere", 2, "--admin"),
    ("tap --admin 1", 2, "--admin"),
    ("tap --admin 1 --admin-token-file no-such", 2, "no-such"),
    ("caps nothing", 2, "breakbulk caps"),
    ("caps aws-api", 2, "did you mean aws-api-gateway?"),
    ("caps a b", 2, "unexpected argument 'b'"),
    ("probe", 2, "<ENDPOINT>"),
    ("probe nowhere", 2, "a probe is for ws://"),
    ("probe stdio:", 2, "ws://"),
    ("probe ws://127.0.0.1:1", 2, "127.0.0.1:1"),
    ("probe http://127.0.0.1:1", 2, "127.0.0.1:1"),
    ("probe ws://h:1 --listen ws://0", 2, "cannot be used with"),
    ("probe ws://127.0.0.1:1 --up-to 1XB", 2, "--up-to"),
    ("probe ws://127.0.0.1:1 --patience soon", 2, "--patience"),
    ("probe --listen ws://0.0.0.0:0", 2, "--allow-remote"),
    // call.
    ("call", 2, "<TARGET>"),
    ("call python:", 2, "<OBJECT>"),
    ("call python: math", 2, "<FUNCTION>"),
    ("call python math sqrt 2", 2, "there is no colon"),
    ("call ruby: math sqrt 2", 2, "is no kind of target"),
    (
        "call tywrap+exec: math sqrt 2",
        2,
        "write tywrap+exec:COMMAND",
    ),
    ("call 'tywrap+exec:a \"b' math sqrt 2", 2, "not closed"),
    ("call vscode+tcp:5007 1 ping", 2, "no HOST:PORT"),
    (
        "call vscode+tcp:localhost:5007?protocol=x 1 ping",
        2,
        "?protocol is plain or persistent",
    ),
    (
        "call vscode+tcp:127.0.0.1:1 1 ping",
        2,
        "is the extension host running",
    ),
    (
        "call vscode+tcp:127.0.0.1:1 one ping",
        2,
        "is not the number of an actor; give 1 to 255",
    ),
    (
        "call python:/no/such/python math sqrt 2",
        2,
        "/no/such/python",
    ),
    (
        "call tywrap+exec:no-such-command math sqrt 2",
        2,
        "no-such-command",
    ),
    ("call python: math sqrt 2 --timeout soon", 2, "as in 30"),
    ("call python: math sqrt 2 --timeout=-1", 2, "--timeout"),
    ("call python: math sqrt 2 --timeout nan", 2, "--timeout"),
    (
        "call python: math sqrt 2 --args-from $F/message",
        2,
        "cannot be used with",
    ),
    ("call python: math sqrt --args-from no-such", 2, "no-such: "),
    (
        "call python: math sqrt --args-from $F/object.json",
        2,
        "--args-from",
    ),
    (
        "call python: math sqrt --args-from $F/broken.json",
        2,
        "--args-from",
    ),
    ("call python: math sqrt --kwarg x", 2, "--kwarg"),
    (
        "call python: math sqrt --kwarg x=1 --kwarg x=2",
        2,
        "--kwarg",
    ),
    ("call python: math nothing", 1, "nothing"),
    ("call python: no_such_module f", 1, "no_such_module"),
    ("call python: math sqrt '\"x\"'", 1, "TypeError"),
    (
        "call python: time sleep 60 --timeout 0.5",
        124,
        "raise --timeout",
    ),
    (
        "call python: math sqrt 2 -o nowhere/out",
        2,
        "nowhere/out: ",
    ),
    (
        "call python: operator mul '\"ab\"' 3000000 --max-message 1MB",
        1,
        "--max-message",
    ),
    (
        "call python: math sqrt 2 --max-message 1XB",
        2,
        "--max-message",
    ),
    // loro.
    ("loro", 2, "Usage"),
    ("loro pul", 2, "'pull'"),
    ("loro pull", 2, "<URL>"),
    ("loro pull ws://127.0.0.1:1/ws", 2, "<DOC>"),
    ("loro pull nowhere notes", 2, "ws://"),
    ("loro pull ftp://h notes", 2, "ws://"),
    (
        "loro pull 'http://127.0.0.1:1?transport=x' notes",
        2,
        "transport",
    ),
    (
        "loro pull ws://127.0.0.1:1/ws notes --timeout 20",
        2,
        "127.0.0.1:1",
    ),
    (
        "loro pull http://127.0.0.1:1 notes --timeout 20",
        2,
        "127.0.0.1:1",
    ),
    ("loro pull ws://127.0.0.1:1/ws '' --timeout 20", 2, "name"),
    (
        "loro pull ws://127.0.0.1:1/ws notes --timeout soon",
        2,
        "--timeout",
    ),
    (
        "loro pull ws://127.0.0.1:1/ws notes --max-frame 1XB",
        2,
        "--max-frame",
    ),
    (
        "loro pull wss://127.0.0.1:1/ws notes --ca no-such --timeout 20",
        2,
        "--ca no-such: ",
    ),
    (
        "loro pull wss://127.0.0.1:1/ws notes --cert x",
        2,
        "--key <FILE>",
    ),
    (
        "loro push ws://127.0.0.1:1/ws notes no-such.json",
        2,
        "no-such.json: ",
    ),
    (
        "loro push ws://127.0.0.1:1/ws notes $F/broken.json",
        1,
        "it is no JSON",
    ),
    ("loro push ws://127.0.0.1:1/ws notes $F/words", 1, "words: "),
    ("loro list", 2, "<URL>"),
    (
        "loro list ws://127.0.0.1:1/ws --timeout 20",
        2,
        "127.0.0.1:1",
    ),
    ("loro delete ws://127.0.0.1:1/ws", 2, "<DOC>"),
    ("loro serve --listen nowhere", 2, "give HOST:PORT"),
    ("loro serve --listen 0.0.0.0:0", 2, "--allow-remote"),
    ("loro serve --listen unix:no/such/folder", 2, "--listen"),
    (
        "loro serve --listen 127.0.0.1:0 --cert x",
        2,
        "--key <FILE>",
    ),
    (
        "loro serve --listen 127.0.0.1:0 --token-file no-such",
        2,
        "--token-file",
    ),
    (
        "loro serve --listen 127.0.0.1:0 --data $F/message",
        2,
        "--data",
    ),
    (
        "loro serve --listen 127.0.0.1:0 --store nowhere",
        2,
        "--store",
    ),
    (
        "loro serve --listen 127.0.0.1:0 --data x --store nats://h/S",
        2,
        "cannot be used with",
    ),
    ("loro serve --listen 127.0.0.1:0 --right fly:", 2, "--right"),
    (
        "loro serve --listen 127.0.0.1:0 --max-message 1XB",
        2,
        "--max-message",
    ),
    // The rest.
    ("relay", 2, "--to <ENDPOINT>"),
    (
        "relay --listen nowhere --to ws://127.0.0.1:1",
        2,
        "--listen",
    ),
    ("relay --to ws://127.0.0.1:1 --cap 1XB", 2, "--cap"),
    (
        "relay --to ws://127.0.0.1:1 --nostr",
        2,
        "cannot be used with",
    ),
    ("echo --timeout 5", 2, "--ask <SIZE>"),
    ("echo --ask 1XB cat", 2, "--ask"),
    (
        "echo --ask 1KB --timeout soon cat",
        2,
        "write seconds, as in 30",
    ),
    ("keygen", 2, "<FILE>"),
    ("keygen -", 2, "breakbulk keygen relay.key"),
    ("keygen $F/key", 2, "exists already"),
    ("keygen nowhere/key", 2, "nowhere/key: "),
    ("keygen $F/folder", 2, "exists already"),
    ("demo nothing", 2, "possible values: ahp"),
    ("demo ahp loro", 2, "unexpected argument 'loro'"),
    (
        "explain nothing",
        2,
        "breakbulk explain without an argument lists all names",
    ),
    ("explain 1009 1013", 2, "unexpected argument '1013'"),
    ("completions", 2, "<SHELL>"),
    ("completions tcsh", 2, "possible values"),
    ("man", 2, "<DIR>"),
    ("man nowhere", 2, "mkdir -p nowhere"),
    ("man $F/message", 2, "message: "),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<_> = OPTIONS
        .iter()
        .map(|(line, code, words)| case(line, *code, words))
        .collect();
    let long = "x".repeat(4 << 20);
    let batch = format!("[{MESSAGE},{MESSAGE}]");
    let input: [(&str, &[u8], &str); 12] = [
        (
            "split --wire ahp --max-frame 1KB",
            "\u{feff}{}".as_bytes(),
            "byte order mark",
        ),
        (
            "split --wire ahp --max-frame 145",
            long.as_bytes(),
            "needs more than 65535 pieces",
        ),
        (
            "split --wire cep22 --max-frame 400",
            long.as_bytes(),
            "needs more than 10000 pieces",
        ),
        (
            "split --wire ahp --max-frame 1000",
            long.as_bytes(),
            "not JSON",
        ),
        (
            "split --wire ahp --max-frame 160",
            batch.as_bytes(),
            "batch",
        ),
        ("join --wire ahp", b"", "without a message"),
        ("join --wire loro", b"\0\0\0", "truncated"),
        (
            "join --wire loro --max-frame 10",
            b"\x7f\x7f\x7f\x7f",
            "frame-too-large",
        ),
        (
            "join --wire ahp --max-frame 10",
            b"{\"jsonrpc\":\"2.0\"}",
            "frame 1",
        ),
        ("join --wire tywrap", b"no json at all", "BAD_JSON"),
        ("join --wire loro", AHP.as_bytes(), "use --wire ahp"),
        ("join --wire ahp", LORO, "use --wire loro"),
    ];
    cases.extend(input.map(|(line, input, words)| case(line, 1, words).input(input)));
    cases
}

fn case(line: &str, code: i32, words: &str) -> Case {
    let arguments = match line {
        "" => Vec::new(),
        line => split(line).unwrap(),
    };
    Case::new(arguments, code, words)
}
