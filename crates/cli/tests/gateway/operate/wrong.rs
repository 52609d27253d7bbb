//! Files that are wrong: what is said, to the letter, with line, column and caret.

use crate::common::{gateway, run, said};

/// A file, and what `--check` says of it.
struct Case {
    file: &'static str,
    said: &'static str,
}

const fn case(file: &'static str, said: &'static str) -> Case {
    Case { file, said }
}

/// The beginning of a route of which only what follows is wrong; it ends in line 4.
const ROUTE: &str = "[[route]]\nname = 'a'\nlisten = 'tcp://0'\nto = 'exec:cat'\n";

/// Each is one mistake, in a file of its own. `%R` is a route without mistakes, of four lines.
const WRONG: &[Case] = &[
    // Not TOML.
    case(
        "[[route]\n",
        "gateway.toml:1:9: this is not TOML: unclosed array table, expected `]`\n1 | [[route]\n  |         ^",
    ),
    case(
        "%Rpreset\n",
        "gateway.toml:5:7: this is not TOML: key with no value, expected `=`\n5 | preset\n  |       ^",
    ),
    case(
        "%Rpreset = aws\n",
        "gateway.toml:5:10: this is not TOML: string values must be quoted, expected literal string\n5 | preset = aws\n  |          ^^^",
    ),
    case(
        "%Rgrace = 1\ngrace = 2\n",
        "gateway.toml:6:1: this is not TOML: duplicate key\n6 | grace = 2\n  | ^^^^^",
    ),
    case(
        "%Rpreset = 'a\n",
        "gateway.toml:5:12: this is not TOML: invalid literal string, expected `'`\n5 | preset = 'a\n  |            ^",
    ),
    case(
        "[traces]\nurl = 'localhost:4318'\n%R",
        "gateway.toml:2:7: url: a collector is http://HOST:PORT or https://HOST:PORT\n2 | url = 'localhost:4318'\n  |       ^^^^^^^^^^^^^^^^",
    ),
    // Keys that do not exist.
    case(
        "%Rmax-fram = '1KB'\n",
        "gateway.toml:5:1: \"max-fram\" is no setting of a route; did you mean max-frame?\n5 | max-fram = '1KB'\n  | ^^^^^^^^",
    ),
    case(
        "%Rmax_message = '1MB'\n",
        "gateway.toml:5:1: \"max_message\" is no setting of a route; did you mean max-message?\n5 | max_message = '1MB'\n  | ^^^^^^^^^^^",
    ),
    case(
        "%Rcolour = 'red'\n",
        "gateway.toml:5:1: \"colour\" is no setting of a route; docs/OPERATIONS.md lists them\n5 | colour = 'red'\n  | ^^^^^^",
    ),
    case(
        "%Rmemory = '1GiB'\n",
        "gateway.toml:5:1: memory is for the top of the file, before the first [[route]]\n5 | memory = '1GiB'\n  | ^^^^^^",
    ),
    case(
        "listen = 'tcp://0'\n%R",
        "gateway.toml:1:1: listen is for a route; write it below [[route]]\n1 | listen = 'tcp://0'\n  | ^^^^^^",
    ),
    case(
        "memry = '1GiB'\n%R",
        "gateway.toml:1:1: \"memry\" is no setting; did you mean memory?\n1 | memry = '1GiB'\n  | ^^^^^",
    ),
    case(
        "%R[[rote]]\nname = 'b'\n",
        "gateway.toml:5:3: \"rote\" is no setting; did you mean route?\n5 | [[rote]]\n  |   ^^^^",
    ),
    // Routes that are not there, or not whole.
    case(
        "",
        "gateway.toml: there is no route; write [[route]], and below it name, listen and to",
    ),
    case(
        "[route]\nname = 'a'\n",
        "gateway.toml:1:1: route: a file may have several; write [[route]] with two brackets\n1 | [route]\n  | ^^^^^^^",
    ),
    case(
        "route = 'a'\n",
        "gateway.toml:1:9: route: a file may have several; write [[route]] with two brackets\n1 | route = 'a'\n  |         ^^^",
    ),
    case(
        "[[route]]\nname = 'a'\nlisten = 'tcp://0'\n",
        "gateway.toml:1:1: this route has no to; write to = \"ENDPOINT\"\n1 | [[route]]\n  | ^^^^^^^^^",
    ),
    case(
        "[[route]]\nlisten = 'tcp://0'\nto = 'exec:cat'\n",
        "gateway.toml:1:1: this route has no name; write name = \"tools\"\n1 | [[route]]\n  | ^^^^^^^^^",
    ),
    case(
        "[[route]]\nname = 'a b'\nlisten = 'tcp://0'\nto = 'exec:cat'\n",
        "gateway.toml:2:8: name: a name has 1 to 64 letters, digits, dots, dashes and underscores\n2 | name = 'a b'\n  |        ^^^^^",
    ),
    // Values of another kind.
    case(
        "%Rmax-frame = '1.5MB'\n",
        "gateway.toml:5:13: max-frame: no fractions: write 1500KB for 1.5 MB\n5 | max-frame = '1.5MB'\n  |             ^^^^^^^",
    ),
    case(
        "%Rmax-frame = '10XB'\n",
        "gateway.toml:5:13: max-frame: \"XB\" is no unit; use B, KB, MB, GB, KiB, MiB or GiB\n5 | max-frame = '10XB'\n  |             ^^^^^^",
    ),
    case(
        "%Rmax-frame = [1]\n",
        "gateway.toml:5:13: max-frame: this is a list; write max-frame = \"900KB\"\n5 | max-frame = [1]\n  |             ^^^",
    ),
    case(
        "%Rmax-sessions = '256'\n",
        "gateway.toml:5:16: max-sessions: this is a text; write max-sessions = 256\n5 | max-sessions = '256'\n  |                ^^^^^",
    ),
    case(
        "%Rmax-sessions = -1\n",
        "gateway.toml:5:16: max-sessions: -1 is negative or too large\n5 | max-sessions = -1\n  |                ^^",
    ),
    case(
        "%Rgrace = 1.5\n",
        "gateway.toml:5:9: grace: this is a number with a fraction; write grace = 10\n5 | grace = 1.5\n  |         ^^^",
    ),
    case(
        "%Rallow-remote = 'yes'\n",
        "gateway.toml:5:16: allow-remote: this is a text; write allow-remote = true\n5 | allow-remote = 'yes'\n  |                ^^^^^",
    ),
    case(
        "%Rorigin = [true]\n",
        "gateway.toml:5:10: origin: this is a list; write origin = \"https://app.example\"\n5 | origin = [true]\n  |          ^^^^^^",
    ),
    case(
        "%Rtrust-proxy = 'x-real-ip'\n",
        "gateway.toml:5:15: trust-proxy: name the header that the proxy sets: x-forwarded-for or forwarded\n5 | trust-proxy = 'x-real-ip'\n  |               ^^^^^^^^^^^",
    ),
    case(
        "memory = 1e9\n%R",
        "gateway.toml:1:10: memory: this is a number with a fraction; write memory = \"1GiB\"\n1 | memory = 1e9\n  |          ^^^",
    ),
    // Values that mean nothing, or do not fit together.
    case(
        "%Rpreset = 'aws-api-gatway'\n",
        "gateway.toml:5:10: preset: nothing is known of \"aws-api-gatway\" (did you mean aws-api-gateway?); breakbulk caps lists all names\n5 | preset = 'aws-api-gatway'\n  |          ^^^^^^^^^^^^^^^^",
    ),
    case(
        "[[route]]\nname = 'a'\nlisten = 'wz://8080'\nto = 'exec:cat'\n",
        "gateway.toml:3:10: listen: \"wz\" is no transport; did you mean ws://HOST:PORT/PATH?\n3 | listen = 'wz://8080'\n  |          ^^^^^^^^^^^",
    ),
    case(
        "[[route]]\nname = 'a'\nlisten = 'tcp://0'\nto = 'ws://me:secret@h:1'\n",
        "gateway.toml:4:6: to: no names or passwords in an address; use ?token-file=FILE or BREAKBULK_TOKEN\n4 | to = 'ws://*********@h:1'\n  |      ^^^^^^^^^^^^^^^^^^^^",
    ),
    case(
        "[[route]]\nname = 'a'\nlisten = 'exec:cat'\nto = 'tcp://127.0.0.1:1'\n",
        "gateway.toml:3:10: listen: exec: cannot listen: clients cannot connect to a command; use it as the target\n3 | listen = 'exec:cat'\n  |          ^^^^^^^^^^",
    ),
    case(
        "[[route]]\nname = 'a'\nlisten = 'tcp://0'\nto = 'exec:no-such-command'\n",
        "gateway.toml:4:6: to: exec: no program \"no-such-command\" in PATH; give its full path or correct PATH\n4 | to = 'exec:no-such-command'\n  |      ^^^^^^^^^^^^^^^^^^^^^^",
    ),
    case(
        "[[route]]\nname = 'a'\nlisten = 'tcp://0.0.0.0:0'\nto = 'exec:cat'\n",
        "gateway.toml:3:10: listen: 0.0.0.0 is open to others than this machine, and a stream has no token; listen at 127.0.0.1, at unix:PATH, or at ws:// with ?token-file=FILE (allow-remote accepts whoever connects)\n3 | listen = 'tcp://0.0.0.0:0'\n  |          ^^^^^^^^^^^^^^^^^",
    ),
    case(
        "%Rmax-sessions = 0\n",
        "gateway.toml:5:16: max-sessions 0 accepts no client; give at least 1\n5 | max-sessions = 0\n  |                ^",
    ),
    case(
        "memory = '1MB'\n%R",
        "gateway.toml:1:10: memory: the memory of 1000000 bytes is less than one session may need, 136314880 bytes; raise --memory or lower --max-message\n1 | memory = '1MB'\n  |          ^^^^^",
    ),
    case(
        "%Rmax-message = 10\n",
        "gateway.toml:5:15: max-message is 10 bytes; it must be at least 256 bytes\n5 | max-message = 10\n  |               ^^",
    ),
    case(
        "%Rtoken-file = 'tokens'\n",
        "gateway.toml:5:14: token-file is for WebSockets and HTTP; this route listens at something else\n5 | token-file = 'tokens'\n  |              ^^^^^^^^",
    ),
    case(
        "%Rcert = 'cert.pem'\n",
        "gateway.toml:5:8: cert and key go together; give both\n5 | cert = 'cert.pem'\n  |        ^^^^^^^^^^",
    ),
    case(
        "[[route]]\nname = 'a'\nlisten = 'ws://0'\nto = 'exec:cat'\ntoken-file = 'no-such-file'\n",
        "gateway.toml:5:14: token-file no-such-file: No such file or directory (os error 2)\n5 | token-file = 'no-such-file'\n  |              ^^^^^^^^^^^^^^",
    ),
    case(
        "[[route]]\nname = 'a'\nlisten = 'wss://0'\nto = 'exec:cat'\ncert = 'gateway.toml'\nkey = 'gateway.toml'\n",
        "gateway.toml:5:8: listen: gateway.toml: no certificates in PEM: the file has none\n5 | cert = 'gateway.toml'\n  |        ^^^^^^^^^^^^^^",
    ),
    // The tables of the process.
    case(
        "[admin]\naddres = '9090'\n%R",
        "gateway.toml:1:1: admin: there is no address; write address = \"127.0.0.1:9090\"\n1 | [admin]\n  | ^^^^^^^\ngateway.toml:2:1: \"addres\" is no setting of admin; did you mean address?\n2 | addres = '9090'\n  | ^^^^^^",
    ),
    case(
        "[admin]\naddress = 9090\n%R",
        "gateway.toml:2:11: address: this is a number; write address = \"127.0.0.1:9090\"\n2 | address = 9090\n  |           ^^^^",
    ),
    case(
        "[log]\nformat = 'xml'\n%R",
        "gateway.toml:2:10: format: the format of the log is text or json\n2 | format = 'xml'\n  |          ^^^^^",
    ),
    case(
        "log = 'debug'\n%R",
        "gateway.toml:1:7: log: write [log] and its keys below it\n1 | log = 'debug'\n  |       ^^^^^^^",
    ),
    case(
        "fleet = 'nats://127.0.0.1'\n%R",
        "gateway.toml:1:1: fleet is for a route; write it below [[route]]\n1 | fleet = 'nats://127.0.0.1'\n  | ^^^^^",
    ),
    case(
        "%Rfleet = 'nats://127.0.0.1?nam=x'\n",
        "gateway.toml:5:9: fleet: \"nam\" is no option; use name, secret-file, token-file, creds, inbox, cert, key, ca; did you mean name?\n5 | fleet = 'nats://127.0.0.1?nam=x'\n  |         ^^^^^^^^^^^^^^^^^^^^^^^^",
    ),
    // Two routes.
    case(
        "%R[[route]]\nname = 'a'\nlisten = 'unix:/run/x'\nto = 'exec:cat'\n",
        "gateway.toml:6:8: name: another route has this name; each needs one of its own\n6 | name = 'a'\n  |        ^^^",
    ),
    case(
        "[[route]]\nname = 'a'\nlisten = 'tcp://8080'\nto = 'exec:cat'\n[[route]]\nname = 'b'\nlisten = 'ws://127.0.0.1:8080/b'\nto = 'exec:cat'\n",
        "gateway.toml:7:10: listen: route a listens at 127.0.0.1:8080 too; give each route an address of its own\n7 | listen = 'ws://127.0.0.1:8080/b'\n  |          ^^^^^^^^^^^^^^^^^^^^^^^",
    ),
];

/// What `--check` says of a file, and its exit code.
fn check(file: &str) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let text = file.replace("%R", ROUTE);
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let mut command = gateway(&["--check", "--config", "gateway.toml"]);
    command.current_dir(folder.path());
    let output = run(command, Vec::new());
    assert_eq!(output.stdout.is_empty(), output.status.code() != Some(0));
    (said(&output), output.status.code())
}

/// As the program prints a text of several lines.
fn printed(text: &str) -> String {
    format!("breakbulk: {}\n", text.replace('\n', "\n  "))
}

// OPS-1
#[test]
fn every_wrong_file_is_told_with_line_column_and_caret() {
    let mut wrong = Vec::new();
    for Case { file, said } in WRONG {
        let (told, code) = check(file);
        if (&told, code) != (&printed(said), Some(2)) {
            wrong.push(format!(
                "{file}\nexpected:\n{}told ({code:?}):\n{told}",
                printed(said)
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\n{} of {}",
        wrong.join("\n"),
        wrong.len(),
        WRONG.len()
    );
}

// OPS-1
#[test]
fn all_that_is_wrong_is_told_at_once() {
    let file = "grace = true
max-fram = 1
[[route]]
name = 'a'
listen = 'wz://8080'
to = 'exce:cat'
[[route]]
name = 'b'
listen = 'ws://0?token-file=none'
to = 'ws://h:1?token-file=none'
[[route]]
name = 'b'
listen = 'tcp://0'
to = 'exec:no-such-command'
";
    let (told, code) = check(file);
    let places: Vec<&str> = told
        .lines()
        .filter_map(|line| line.split_once("gateway.toml:"))
        .map(|(_, rest)| rest)
        .collect();
    let expected = [
        "1:9: grace: this is true or false; write grace = 10",
        "2:1: \"max-fram\" is no setting; did you mean max-frame?",
        "5:10: listen: \"wz\" is no transport; did you mean ws://HOST:PORT/PATH?",
        "6:6: to: \"exce\" is no transport; did you mean exec:COMMAND?",
        "9:10: listen: token-file none: No such file or directory (os error 2)",
        "10:6: to: token-file none: No such file or directory (os error 2)",
        "12:8: name: another route has this name; each needs one of its own",
        "14:6: to: exec: no program \"no-such-command\" in PATH; give its full path or correct PATH",
    ];
    assert_eq!(
        (places.as_slice(), code),
        (&expected[..], Some(2)),
        "{told}"
    );
}

// OPS-1
#[test]
fn a_command_line_is_checked_like_a_file() {
    for (arguments, code, expected) in [
        (&["--listen", "tcp://0", "--to", "exec:cat"][..], 0, ""),
        (
            &["--listen", "wz://0", "--to", "exec:no-such-command"],
            2,
            "breakbulk: --listen: \"wz\" is no transport; did you mean ws://HOST:PORT/PATH?\n",
        ),
        (
            &["--listen", "tcp://0", "--to", "exec:no-such-command"],
            2,
            "breakbulk: --to: exec: no program \"no-such-command\" in PATH; give its full path or correct PATH\n",
        ),
        (
            &["--config", "x.toml", "--max-frame", "1KB"],
            2,
            "breakbulk: --config: the options of routes are read from x.toml, where they have the same names; leave them out of the command line\n",
        ),
        (
            &["--config", "/no/such/file"],
            2,
            "breakbulk: --config /no/such/file: No such file or directory (os error 2)\n",
        ),
    ] {
        let output = run(gateway(&[&["--check"], arguments].concat()), Vec::new());
        assert_eq!(
            (said(&output).as_str(), output.status.code()),
            (expected, Some(code))
        );
        let words = if code == 0 {
            "nothing is wrong with 1 route\n"
        } else {
            ""
        };
        assert_eq!(String::from_utf8_lossy(&output.stdout), words);
    }
    let (told, code) = check("memory = '64MiB'\nmax-message = '1MiB'\n%R");
    assert_eq!((told.as_str(), code), ("", Some(0)));
}
