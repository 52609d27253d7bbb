//! Opens a session with whoever listens at a subject.

use async_nats::{Client, RequestErrorKind};
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

/// Opens a session that only asks what passes: see [`NatsTransport::is_probe`].
pub async fn connect_probe(options: &NatsOptions) -> Result<NatsTransport, NatsError> {
    connect_as(options, true).await
}

async fn connect_as(options: &NatsOptions, probe: bool) -> Result<NatsTransport, NatsError> {
    let bus = Bus::connect(options).await?;
    tokio::select! {
        biased;
        denied = bus.denied() => Err(denied),
        opened = open(&bus, probe) => opened,
    }
}

async fn open(bus: &Bus, probe: bool) -> Result<NatsTransport, NatsError> {
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
        match ask(bus, &bus.client, request.clone()).await? {
            Reply::Refused { error } => refused = plain_text(error),
            Reply::Opened(side) => {
                side.check(&bus.options.inbox)
                    .map_err(|reason| unexpected(bus, reason))?;
                let transport = NatsTransport::new(bus.clone(), subscriber, side, None);
                transport.greet().await.map_err(|lost| bus.failed(lost.0))?;
                return Ok(transport);
            }
        }
    }
    Err(NatsError::Refused {
        subject: bus.options.subject.clone(),
        reason: refused,
    })
}

async fn ask(bus: &Bus, client: &Client, request: Bytes) -> Result<Reply, NatsError> {
    let subject = bus.options.subject.clone();
    let server = bus.options.server.clone();
    let reply = client.request(subject.clone(), request).await;
    let reply = reply.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => NatsError::NobodyListens { server, subject },
        RequestErrorKind::TimedOut => NatsError::Silent {
            server,
            subject,
            after: super::OPEN_TIME,
        },
        _ => bus.failed(error),
    })?;
    serde_json::from_slice(&reply.payload).map_err(|error| unexpected(bus, error.to_string()))
}

fn unexpected(bus: &Bus, reason: String) -> NatsError {
    NatsError::UnexpectedAnswer {
        subject: bus.options.subject.clone(),
        reason,
    }
}
