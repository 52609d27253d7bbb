//! Opens a session with a program that listens at a subject.

use async_nats::{RequestError, RequestErrorKind};
use bytes::Bytes;

use super::bus::{Bus, NatsOptions};
use super::error::NatsError;
use super::line::NatsTransport;
use super::opening::{Reply, Side};
use crate::plain_text::plain_text;

/// How often another server is asked if one has no room: NATS chooses one of the queue group each time.
const TRIES: usize = 3;

/// Opens a session.
pub async fn connect(options: &NatsOptions) -> Result<NatsTransport, NatsError> {
    connect_as(options, false).await
}

/// Opens a session that only probes which messages pass: see [`NatsTransport::is_probe`].
pub async fn connect_probe(options: &NatsOptions) -> Result<NatsTransport, NatsError> {
    connect_as(options, true).await
}

async fn connect_as(options: &NatsOptions, probe: bool) -> Result<NatsTransport, NatsError> {
    let bus = Bus::connect(options).await?;
    tokio::select! {
        biased;
        denied = bus.denied_since(0, None) => Err(denied),
        opened = open(&bus, &options.subject, probe) => opened,
    }
}

/// Opens a session, or a probe, with a program that listens at a subject, over an existing connection.
pub(super) async fn open(bus: &Bus, at: &str, probe: bool) -> Result<NatsTransport, NatsError> {
    let subject = bus.fresh_subject()?;
    let subscriber = bus.client.subscribe(subject.clone()).await;
    let subscriber = subscriber.map_err(|error| bus.failed(error))?;
    let side = Side {
        probe,
        ..Side::new(bus, &subject)
    };
    let request = serde_json::to_vec(&side).map_err(|error| bus.failed(error))?;
    let request = Bytes::from(request);
    let mut refused = String::new();
    for _ in 0..TRIES {
        match ask(bus, at, request.clone()).await? {
            Reply::Refused { error } => refused = plain_text(error),
            Reply::Opened(side) => {
                side.check(&bus.options.inbox)
                    .map_err(|reason| unexpected(at, reason))?;
                let transport = NatsTransport::new(bus.clone(), (subject, subscriber), side, None);
                transport.greet().await.map_err(|lost| bus.failed(lost.0))?;
                return Ok(transport);
            }
        }
    }
    Err(NatsError::Refused {
        subject: at.to_owned(),
        reason: refused,
    })
}

async fn ask(bus: &Bus, at: &str, request: Bytes) -> Result<Reply, NatsError> {
    let reply = bus.client.request(at.to_owned(), request).await;
    let reply = reply.map_err(|error| unanswered(bus, at, &error))?;
    serde_json::from_slice(&reply.payload).map_err(|error| unexpected(at, error.to_string()))
}

/// Why a request at a subject has no answer.
pub(super) fn unanswered(bus: &Bus, at: &str, error: &RequestError) -> NatsError {
    let (server, subject) = (bus.options.server.clone(), at.to_owned());
    match error.kind() {
        RequestErrorKind::NoResponders => NatsError::NobodyListens { server, subject },
        RequestErrorKind::TimedOut => NatsError::Silent {
            server,
            subject,
            after: super::OPEN_TIME,
        },
        _ => bus.failed(error),
    }
}

fn unexpected(at: &str, reason: String) -> NatsError {
    NatsError::UnexpectedAnswer {
        subject: at.to_owned(),
        reason,
    }
}
