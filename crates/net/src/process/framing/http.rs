//! Recognizes a stream of HTTP by its first bytes.

/// How requests and answers of HTTP begin. A web page can choose the method, the path and the body, and
/// nothing that comes before them.
const BEGINNINGS: [&[u8]; 9] = [
    b"CONNECT ",
    b"DELETE /",
    b"GET /",
    b"HEAD /",
    b"HTTP/1.",
    b"OPTIONS ",
    b"PATCH /",
    b"POST /",
    b"PUT /",
];

/// What the first bytes of a stream say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    Http,
    /// It depends on the next bytes.
    Unknown,
    Other,
}

/// Whether a stream begins like HTTP.
pub(super) fn beginning(bytes: &[u8]) -> Beginning {
    if BEGINNINGS.iter().any(|begin| bytes.starts_with(begin)) {
        return Beginning::Http;
    }
    match BEGINNINGS.iter().any(|begin| begin.starts_with(bytes)) {
        true => Beginning::Unknown,
        false => Beginning::Other,
    }
}
