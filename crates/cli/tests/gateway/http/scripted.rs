//! An HTTP server that answers requests by a function, and remembers them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use crate::common::PATIENCE;

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The server; requests can be taken from it in the order in which they came.
pub(super) struct Scripted {
    pub(super) url: String,
    pub(super) asked: mpsc::Receiver<Asked>,
}

impl Scripted {
    /// `answer` writes the whole answer; the connection is closed after it.
    pub(super) fn new(answer: impl Fn(&Asked, &mut TcpStream) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (tell, asked) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, tell) = (answer.clone(), tell.clone());
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    // A connection that only checks whether somebody listens sends no request.
                    let Some(request) = read(&stream) else { return };
                    let _ = tell.send(request.clone());
                    answer(&request, &mut stream);
                });
            }
        });
        Self { url, asked }
    }

    /// The next request of this method.
    pub(super) fn next(&self, method: &str) -> Asked {
        loop {
            let asked = self.asked.recv_timeout(PATIENCE).unwrap();
            if asked.method == method {
                return asked;
            }
        }
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let method = line.split(' ').next()?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            None => break,
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    (!method.is_empty()).then(|| Asked {
        method,
        headers,
        body: String::from_utf8(body).unwrap(),
    })
}

/// Writes an answer with a body.
pub(super) fn write(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    let _ = stream.write_all(answer.as_bytes());
}

pub(super) fn json(stream: &mut TcpStream, status: &str, body: &str) {
    write(stream, status, "Content-Type: application/json\r\n", body);
}

/// Writes an event stream that ends with the connection.
pub(super) fn events(stream: &mut TcpStream, events: &str) {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n";
    let _ = stream.write_all(format!("{head}{events}").as_bytes());
}
