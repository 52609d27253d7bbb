//! Frames both ways in HTTP exchanges of bounded size, for paths that let no WebSocket through or cap
//! bodies.
//!
//! A client opens a session by a POST, whose answer names the session: 256 random bits, which every
//! further request must bring along. Frames go up in the bodies of POSTs and come down in the answers to
//! polls, several in one body if they fit. Both are numbered from 1. A POST is answered with the number
//! of the next one that the server takes, and one that the server has is not taken twice; a poll asks for
//! an answer by its number and says which answers the client has got, and the server keeps an answer
//! until then. So a request or an answer that a proxy lost is simply sent again. Small answers come by an
//! event stream where the path lets it through as it is written; an answer that is larger than 64 KiB, or
//! than what is left of a stream, is polled for. The numbers end with the session: if a client or server is
//! gone, the layer above has to find out which frames were lost.
//!
//! | request | means | answer |
//! |---|---|---|
//! | `POST open` | a new session | 200, JSON: `session`, `wait` (the longest wait of a poll, in ms), `body` (the largest body of a POST) |
//! | `POST frames?number=N` | body N of the client | 200, JSON: `next`, the number of the next body to send; if it is N, this one could not be taken in time |
//! | `GET poll?number=N&got=G&wait=W&max=M` | asks for body N of the server, of at most M bytes, and waits for W ms; all up to G have come | 200 and the body, or 204: nothing in this time |
//! | `GET poll?…&events=1` | the same, and all that follow | 200 and an event stream of at most M bytes: `open`, an event for each body (`id` is its number, the body in base64), and `end`, with `more` if the next body has to be polled for |
//! | `DELETE poll` | the client has gone; with `refused=N`: something on the way refuses body N of the server | 200 |

mod body;
mod client;
mod downloads;
mod events;
mod outbox;
mod server;
mod streams;
mod uploads;

pub use body::FRAME_HEAD;
pub use client::{EventStreams, ExchangeSink, ExchangeSource, ExchangeTransport, connect};
pub use server::{ExchangeServer, ExchangeServerSink, ExchangeServerSource};

pub(crate) use server::{Exchange, disconnect, open, poll, post};

/// How many bytes may be on their way one way, in several requests: about what a socket holds. One body
/// may always be on its way, however large.
const WINDOW: usize = 256 << 10;

/// How many requests of each kind a client has on their way.
const REQUESTS: usize = 4;
