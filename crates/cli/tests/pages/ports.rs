//! The ports that pages write, replaced by free ones: other programs of this machine may have them.

use std::collections::BTreeMap;
use std::net::TcpListener;

/// What stands before a port.
const BEFORE: [&str; 9] = [
    "127.0.0.1:",
    "0.0.0.0:",
    "localhost:",
    "ws://",
    "http://",
    "tcp://",
    "--admin ",
    "--port ",
    "-p ",
];

/// Free ports by the port that is written.
#[derive(Default)]
pub(crate) struct Ports(BTreeMap<String, u16>);

impl Ports {
    pub(crate) fn replace(&mut self, text: &str) -> String {
        let mut replaced = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, digits) = rest.split_at(at);
            replaced.push_str(before);
            let end = digits.find(|c: char| !c.is_ascii_digit());
            let (number, after) = digits.split_at(end.unwrap_or(digits.len()));
            let is_port = BEFORE.iter().any(|before| replaced.ends_with(before))
                && (4..=5).contains(&number.len());
            match is_port {
                true => replaced.push_str(&self.free(number).to_string()),
                false => replaced.push_str(number),
            }
            rest = after;
        }
        replaced + rest
    }

    fn free(&mut self, written: &str) -> u16 {
        let any = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        *self.0.entry(written.to_owned()).or_insert_with(any)
    }
}

#[test]
fn ports_are_replaced_and_other_numbers_are_not() {
    let mut ports = Ports::default();
    let text = "a --listen ws://8080 --to ws://127.0.0.1:9000/x --cap 20000 http://127.0.0.1:8080 --ask 1000";
    let replaced = ports.replace(text);
    let (listen, to) = (ports.0["8080"], ports.0["9000"]);
    assert_eq!(ports.0.len(), 2);
    assert_eq!(
        replaced,
        format!(
            "a --listen ws://{listen} --to ws://127.0.0.1:{to}/x --cap 20000 http://127.0.0.1:{listen} --ask 1000"
        )
    );
}
