//! HTTP/1.1 as far as a probe needs it: where a head ends, what it says about the body, and the body
//! without its coding. Does no IO.

/// The header by which a gateway knows that a POST is a question of a probe, and no message.
pub(super) const PROBE_HEADER: &str = "breakbulk-probe";

/// How the body is delimited, and what is left of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// So many bytes are left.
    Length(usize),
    /// In chunks.
    Chunks(Chunk),
    /// Everything up to the end of the connection.
    ToTheEnd,
    Done,
}

/// Where in a chunked body the reader is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Chunk {
    /// In the line with a chunk's size.
    Size(String),
    /// So many bytes of a chunk are left, and its line break.
    Data(usize),
    /// In the line break behind a chunk.
    Break,
    /// In the lines behind the last chunk; whether this one is empty so far.
    Trailer { empty: bool },
}

/// A body that breaks the rules of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Takes the coding off a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decoder(Shape);

impl Decoder {
    /// Gives the decoded bytes to `take`; whether the body is whole.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(&[u8]),
    ) -> Result<bool, Malformed> {
        loop {
            match &mut self.0 {
                Shape::Done | Shape::Length(0) => return Ok(true),
                _ if bytes.is_empty() => return Ok(false),
                Shape::ToTheEnd => {
                    take(bytes);
                    return Ok(false);
                }
                Shape::Length(left) => {
                    let (part, rest) = bytes.split_at(bytes.len().min(*left));
                    *left -= part.len();
                    take(part);
                    bytes = rest;
                }
                Shape::Chunks(Chunk::Data(left)) => {
                    let (part, rest) = bytes.split_at(bytes.len().min(*left));
                    *left -= part.len();
                    take(part);
                    bytes = rest;
                    if *left == 0 {
                        self.0 = Shape::Chunks(Chunk::Break);
                    }
                }
                Shape::Chunks(chunk) => {
                    let byte = bytes[0];
                    bytes = &bytes[1..];
                    if let Some(next) = chunk.next(byte)? {
                        self.0 = next;
                    }
                }
            }
        }
    }

    /// Whether the end of the connection ends the body.
    pub(super) fn ends_with_connection(&self) -> bool {
        self.0 == Shape::ToTheEnd
    }
}

impl Chunk {
    /// The state after a byte that is no data; `None` if it does not change.
    fn next(&mut self, byte: u8) -> Result<Option<Shape>, Malformed> {
        Ok(match (&mut *self, byte) {
            (Self::Size(line), b'\n') => {
                let digits = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(digits, 16).map_err(|_| Malformed)?;
                Some(Shape::Chunks(match size {
                    0 => Self::Trailer { empty: true },
                    size => Self::Data(size),
                }))
            }
            (Self::Size(line), byte) if line.len() < 64 => {
                line.push(char::from(byte));
                None
            }
            (Self::Size(_), _) => return Err(Malformed),
            (Self::Break, b'\n') => Some(Shape::Chunks(Self::Size(String::new()))),
            (Self::Break, b'\r') => None,
            (Self::Break, _) => return Err(Malformed),
            (Self::Trailer { empty: true }, b'\n') => Some(Shape::Done),
            (Self::Trailer { empty }, b'\n') => {
                *empty = true;
                None
            }
            (Self::Trailer { .. }, b'\r') => None,
            (Self::Trailer { empty }, _) => {
                *empty = false;
                None
            }
            (Self::Data(_), _) => None,
        })
    }
}

/// Where a head ends, its blank line included.
pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(end + 4)
}

/// The status of a response, and how its body is read.
pub(super) fn read_response(head: &[u8]) -> Option<(u16, Decoder)> {
    let head = std::str::from_utf8(head).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    Some((status, decoder(head, Shape::ToTheEnd)?))
}

/// A request: its method, its path, its token, and how its body is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) authorization: Option<&'a str>,
    /// Whether the client waits for an interim answer before it sends the body.
    pub(super) expects: bool,
    pub(super) body: Decoder,
}

/// Reads the head of a request.
pub(super) fn read_request(head: &[u8]) -> Option<Request<'_>> {
    let head = std::str::from_utf8(head).ok()?;
    let mut words = head.lines().next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    version.starts_with("HTTP/1.").then_some(())?;
    Some(Request {
        method,
        path: target.split('?').next()?,
        authorization: field(head, "authorization"),
        expects: field(head, "expect").is_some(),
        body: decoder(head, Shape::Length(0))?,
    })
}

/// `otherwise` is for a head that says nothing about the body.
fn decoder(head: &str, otherwise: Shape) -> Option<Decoder> {
    let is_chunked = |coding: &str| coding.to_ascii_lowercase().contains("chunked");
    Some(Decoder(match field(head, "content-length") {
        _ if field(head, "transfer-encoding").is_some_and(is_chunked) => {
            Shape::Chunks(Chunk::Size(String::new()))
        }
        Some(length) => Shape::Length(length.parse().ok()?),
        None => otherwise,
    }))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let found = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_in_every_coding_and_in_any_parts() {
        for (head, stream, expected) in [
            ("Content-Length: 5", "helloXX", Ok(("hello", true))),
            ("content-length:5", "hel", Ok(("hel", false))),
            ("Content-Length: 0", "", Ok(("", true))),
            ("X: y", "all of it", Ok(("all of it", false))),
            (
                "Transfer-Encoding: chunked",
                "5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nT: u\r\n\r\nXX",
                Ok(("hello world", true)),
            ),
            ("Transfer-Encoding: chunked", "5\r\nhel", Ok(("hel", false))),
            ("Transfer-Encoding: chunked", "0\r\n\r\n", Ok(("", true))),
            ("Transfer-Encoding: chunked", "x\r\n", Err(Malformed)),
            ("Transfer-Encoding: chunked", "2\r\nabc", Err(Malformed)),
        ] {
            for step in [1, 2, 3, 100] {
                let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
                assert_eq!(head_end(head.as_bytes()), Some(head.len()));
                let (status, mut decoder) = read_response(head.as_bytes()).unwrap();
                assert_eq!(status, 200);
                let mut body = Vec::new();
                let mut outcome = Ok(decoder.push(b"", |_| {}) == Ok(true));
                for part in stream.as_bytes().chunks(step) {
                    if outcome == Ok(false) {
                        outcome = decoder.push(part, |part| body.extend_from_slice(part));
                    }
                }
                let text = String::from_utf8(body).unwrap();
                let found = outcome.map(|whole| (text.as_str(), whole));
                assert_eq!(found, expected, "{head}{stream} {step}");
            }
        }
    }

    #[test]
    fn heads_are_read_or_refused() {
        let head = b"POST /probe?x=y HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer b\r\nExpect: 100-continue\r\n\r\n";
        let request = read_request(head).unwrap();
        assert_eq!((request.method, request.path), ("POST", "/probe"));
        assert_eq!(request.authorization, Some("Bearer b"));
        assert!(request.expects);
        assert_eq!(request.body, Decoder(Shape::Length(0)));
        for wrong in [
            &b"GET\r\n\r\n"[..],
            b"POST / SPDY\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"\xff\r\n\r\n",
        ] {
            assert_eq!(read_request(wrong), None);
        }
        for wrong in [
            &b"HTTP/2\r\n\r\n"[..],
            b"SSH-2.0\r\n\r\n",
            b"HTTP/1.1 x\r\n\r\n",
        ] {
            assert_eq!(read_response(wrong), None);
        }
        assert_eq!(head_end(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
