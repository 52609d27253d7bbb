//! Tunnels over plain HTTP and over NATS: through caps, losses and cuts, with all that they carry.

mod http;
mod nats;

use std::io::{BufRead, Write};

use crate::common::{Lines, Near, lines};

/// A program that answers each line with itself.
const ECHO: &str = "exec:cat";

/// Messages of many sizes, 20 MB among them.
const SIZES: [usize; 7] = [10, 20_000_000, 3, 63_000, 64_000, 66_000, 1];

/// Sends lines one after another, and calls `between` after each has come back.
pub(crate) fn echo_each(near: &mut Near, sizes: &[usize], mut between: impl FnMut(usize)) {
    for (number, line) in lines(sizes)
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate()
    {
        near.write(line);
        let back = near.read_line();
        assert!(
            back.as_bytes() == line,
            "message {number} of {} bytes",
            line.len()
        );
        between(number);
    }
}

/// Sends a large line while `meanwhile` runs, which may wait for lines of the log, and reads it back.
pub(crate) fn echo_during(near: &mut Near, size: usize, meanwhile: impl FnOnce(&mut Lines) + Send) {
    let input = lines(&[size]);
    let mut stdin = near.stdin.take().unwrap();
    let (log, stdout) = (&mut near.log, &mut near.stdout);
    let back = std::thread::scope(|scope| {
        scope.spawn(|| {
            stdin.write_all(&input).unwrap();
            stdin.flush().unwrap();
        });
        scope.spawn(|| meanwhile(log));
        let mut back = String::new();
        stdout.read_line(&mut back).unwrap();
        back
    });
    near.stdin = Some(stdin);
    assert!(
        back.as_bytes() == input,
        "{} of {} bytes",
        back.len(),
        input.len()
    );
}

/// A certificate for 127.0.0.1 and its key, as files in a folder.
fn certificate(folder: &std::path::Path) -> (String, String) {
    let file = |name: &str| folder.join(name).display().to_string();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(file("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
    (file("cert.pem"), file("key.pem"))
}
