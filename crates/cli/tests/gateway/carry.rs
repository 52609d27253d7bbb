//! Messages arrive unchanged, and no frame is over the cap.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::common::{Listening, Near, announced, gateway, lines, run, said};

const SIZES: [usize; 8] = [10, 5_000_000, 3, 99_000, 100_000, 101_000, 5_000_000, 1];

#[test]
fn two_gateways_carry_a_program_unchanged_through_a_capped_path() {
    for (framing, input) in [
        ("lines", lines(&SIZES)),
        ("content-length", announced(&SIZES)),
    ] {
        let cap = ["--max-frame", "100KB"];
        let to = format!("exec:cat?framing={framing}");
        let far = Listening::new(&["--listen", "ws://0", "--to", &to, cap[0], cap[1]]);
        assert!(
            far.address.starts_with("ws://127.0.0.1:"),
            "{}",
            far.address
        );
        let listen = format!("stdio:?framing={framing}");
        let near = gateway(&["--listen", &listen, "--to", &far.address, cap[0], cap[1]]);
        let output = run(near, input.clone());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(output.stdout == input, "{framing}: not byte for byte");
        far.line("the command exited with status 0");
    }
}

#[cfg(unix)]
#[test]
fn two_gateways_meet_at_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("ws+unix:{}", folder.path().join("s").display());
    let mut far = Listening::new(&["--listen", &address, "--to", "exec:cat"]);
    assert_eq!(far.address, address);
    let input = lines(&[10, 3_000_000]);
    let output = run(
        gateway(&["--listen", "stdio:", "--to", &address]),
        input.clone(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == input, "not byte for byte");
    far.signal("-TERM");
    assert_eq!(far.exit_code(), Some(0));
    assert!(!folder.path().join("s").exists(), "the file stays behind");
}

#[test]
fn no_frame_on_the_path_is_over_the_cap() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:cat",
        "--max-frame",
        "100KB",
    ]);
    // A proxy that measures every frame, to find frames over the cap.
    let path = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("ws://{}/", path.local_addr().unwrap());
    let target = far.address.strip_prefix("ws://").unwrap().to_owned();
    let watch = std::thread::spawn(move || {
        let near = path.accept().unwrap().0;
        let far = TcpStream::connect(target).unwrap();
        let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let up = std::thread::spawn(move || largest_frame(near, far));
        (largest_frame(far_too, near_too), up.join().unwrap())
    });
    let input = lines(&[2_000_000]);
    let near = gateway(&[
        "--listen",
        "stdio:",
        "--to",
        &address,
        "--max-frame",
        "50KB",
    ]);
    let output = run(near, input.clone());
    assert!(output.stdout == input, "{}", said(&output));
    let (down, up) = watch.join().unwrap();
    // The cap of the near gateway, which knows the path, applies in both directions.
    for largest in [down, up] {
        assert!((40_000..=50_000).contains(&largest), "{largest}");
    }
}

/// Passes a WebSocket's bytes on, and tells its largest frame.
fn largest_frame(mut from: TcpStream, mut to: TcpStream) -> usize {
    let (mut pending, mut shaken, mut largest) = (Vec::new(), false, 0);
    let mut room = [0; 65_536];
    loop {
        let read = from.read(&mut room).unwrap_or(0);
        if read == 0 || to.write_all(&room[..read]).is_err() {
            let _ = to.shutdown(std::net::Shutdown::Write);
            return largest;
        }
        pending.extend_from_slice(&room[..read]);
        if !shaken {
            let Some(end) = pending.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            pending.drain(..end + 4);
            shaken = true;
        }
        while pending.len() >= 2 {
            let masked = if pending[1] & 0x80 == 0 { 0 } else { 4 };
            let (head, len) = match pending[1] & 0x7f {
                126 if pending.len() >= 4 => {
                    (4, usize::from(u16::from_be_bytes([pending[2], pending[3]])))
                }
                127 if pending.len() >= 10 => {
                    let len = u64::from_be_bytes(pending[2..10].try_into().unwrap());
                    (10, len as usize)
                }
                126 | 127 => break,
                len => (2, usize::from(len)),
            };
            if pending.len() < head + masked + len {
                break;
            }
            largest = largest.max(len);
            pending.drain(..head + masked + len);
        }
    }
}

#[test]
fn each_client_has_a_command_of_its_own() {
    let far = Listening::new(&[
        "--listen",
        "ws://0",
        "--to",
        "exec:sh -c 'echo $$; exec cat'",
    ]);
    let start = || Near::new(&["--listen", "stdio:", "--to", &far.address]);
    let (mut one, mut two) = (start(), start());
    let (first, second) = (one.read_line(), two.read_line());
    assert!(
        first != second && !first.trim().is_empty(),
        "{first} {second}"
    );
    one.write(b"{\"one\":1}\n");
    two.write(b"{\"two\":2}\n");
    assert_eq!(one.read_line(), "{\"one\":1}\n");
    assert_eq!(two.read_line(), "{\"two\":2}\n");
    // The end of one session does not affect the other.
    drop(one);
    two.write(b"{}\n");
    assert_eq!(two.read_line(), "{}\n");
}

// PROG-21
#[test]
fn a_language_server_behind_a_tunnel_is_told_no_process() {
    let body = |process: &str| {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"processId":{process},"rootUri":null}}}}"#
        );
        format!("Content-Length: {}\r\n\r\n{text}", text.len())
    };
    for (option, arrives) in [("", "null"), ("&process-id=keep", "4711")] {
        let to = format!("exec:cat?framing=content-length{option}");
        let far = Listening::new(&["--listen", "ws://0", "--to", &to]);
        let listen = format!("stdio:?framing=content-length{option}");
        let mut near = Near::new(&["--listen", &listen, "--to", &far.address]);
        near.write(body("4711").as_bytes());
        let mut echo = vec![0; body(arrives).len()];
        near.stdout.read_exact(&mut echo).unwrap();
        assert_eq!(String::from_utf8_lossy(&echo), body(arrives));
    }
}
