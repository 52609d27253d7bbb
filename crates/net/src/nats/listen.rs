//! Accepts the sessions that NATS gives to this member of the queue group.

use std::sync::Arc;

use async_nats::{Message, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::bus::{Bus, NatsOptions};
use super::error::NatsError;
use super::line::NatsTransport;
use super::opening::{Reply, Side, is_below};

/// How many sessions may wait to be accepted.
const ARRIVALS: usize = 16;

/// How many refusals may wait to be sent; further requests are not answered.
const REFUSALS: usize = 64;

/// Listens at the subject at which sessions are opened.
#[derive(Debug)]
pub struct NatsListener {
    bus: Bus,
    requests: Subscriber,
    /// A denial after so many ends the listener: at this subject, or at any if the connection is its own.
    denied: (u64, Option<String>),
    /// One permit for each session that may be open.
    open: Arc<Semaphore>,
    limit: usize,
    /// One permit for each refusal that may wait to be sent.
    refusals: Arc<Semaphore>,
    opened: mpsc::Sender<NatsTransport>,
    arrivals: mpsc::Receiver<NatsTransport>,
}

impl NatsListener {
    /// Connects to NATS and subscribes; at most `sessions` may be open.
    pub async fn bind(options: &NatsOptions, sessions: usize) -> Result<Self, NatsError> {
        let bus = Bus::connect(options).await?;
        Self::at(bus, &options.subject, sessions, (0, None)).await
    }

    /// Subscribes to a subject over an existing connection.
    pub(super) async fn at(
        bus: Bus,
        subject: &str,
        sessions: usize,
        denied: (u64, Option<String>),
    ) -> Result<Self, NatsError> {
        let queue = bus.options.queue.clone();
        let requests = bus.client.queue_subscribe(subject.to_owned(), queue).await;
        let requests = requests.map_err(|error| bus.failed(error))?;
        bus.client
            .flush()
            .await
            .map_err(|error| bus.failed(error))?;
        let (opened, arrivals) = mpsc::channel(ARRIVALS);
        Ok(Self {
            bus,
            requests,
            denied,
            open: Arc::new(Semaphore::new(sessions.min(Semaphore::MAX_PERMITS))),
            limit: sessions,
            refusals: Arc::new(Semaphore::new(REFUSALS)),
            opened,
            arrivals,
        })
    }

    /// The next session. Cancel-safe.
    pub async fn accept(&mut self) -> Result<NatsTransport, NatsError> {
        loop {
            tokio::select! {
                biased;
                denied = self.bus.denied_since(self.denied.0, self.denied.1.as_deref()) => return Err(denied),
                // The sender is `self`, so that there is always a next one.
                Some(transport) = self.arrivals.recv() => return Ok(transport),
                request = self.requests.next() => {
                    let Some(request) = request else {
                        return Err(self.bus.failed("the subscription has ended"));
                    };
                    self.answer(request);
                }
            }
        }
    }

    /// Stops listening; sessions go on.
    pub async fn close(&mut self) {
        let _ = self.requests.unsubscribe().await;
    }

    /// Answers a request. Each answer holds a permit for a session or for a refusal, so that the number of
    /// answers is bounded.
    fn answer(&self, request: Message) {
        let bus = self.bus.clone();
        let Some(reply_to) = request.reply.clone() else {
            return tracing::debug!("a request for a session names no subject for the reply");
        };
        if !is_below(&reply_to, &bus.options.inbox) {
            // Otherwise a client could make this side publish to the subject of another program, or to one
            // that this side may not publish to.
            return tracing::debug!(
                "a request for a session wants its reply at a subject that is not below the inbox"
            );
        }
        if request.payload.is_empty() {
            // An empty request only asks whether this listener is there.
            if let Ok(permit) = self.refusals.clone().try_acquire_owned() {
                tokio::spawn(async move {
                    let _ = bus.client.publish(reply_to, Bytes::new()).await;
                    drop(permit);
                });
            }
            return;
        }
        let Ok(permit) = self.open.clone().try_acquire_owned() else {
            let Ok(refusal) = self.refusals.clone().try_acquire_owned() else {
                return;
            };
            let error = format!("all {} sessions are in use: try again later", self.limit);
            tokio::spawn(async move {
                reply(&bus, reply_to, &Reply::Refused { error }).await;
                drop(refusal);
            });
            return;
        };
        let opened = self.opened.clone();
        tokio::spawn(async move {
            let mut transport = match begin(&bus, &request, permit).await {
                Ok((side, transport)) => {
                    reply(&bus, reply_to, &Reply::Opened(side)).await;
                    transport
                }
                Err(error) => return reply(&bus, reply_to, &Reply::Refused { error }).await,
            };
            // A session of which the client says nothing more is not handed to the application.
            match timeout(super::OPEN_TIME, transport.first_message()).await {
                Ok(true) => drop(opened.send(transport).await),
                _ => tracing::debug!("a client asked for a session and said nothing more"),
            }
        });
    }
}

async fn reply(bus: &Bus, to: Subject, reply: &Reply) {
    // A client that gets no reply asks again.
    if let Ok(reply) = serde_json::to_vec(reply) {
        let _ = bus.client.publish(to, reply.into()).await;
    }
}

async fn begin(
    bus: &Bus,
    request: &Message,
    permit: OwnedSemaphorePermit,
) -> Result<(Side, NatsTransport), String> {
    let other: Side = serde_json::from_slice(&request.payload)
        .map_err(|error| format!("this is no request for a session: {error}"))?;
    other.check(&bus.options.inbox)?;
    let subject = bus.fresh_subject().map_err(|error| error.to_string())?;
    let subscriber = bus.client.subscribe(subject.clone()).await;
    let subscriber = subscriber.map_err(|error| error.to_string())?;
    let side = Side::new(bus, &subject);
    let transport = NatsTransport::new(bus.clone(), (subject, subscriber), other, Some(permit));
    Ok((side, transport))
}
