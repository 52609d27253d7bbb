//! A target that is a gateway at a subject of NATS.

use breakbulk_net::nats::{self, Credentials, NatsOptions, NatsTransport};

use crate::endpoint::NatsAddress;
use crate::error::OpenError;
use crate::plan::End;
use crate::tunnel::{Boxed, Dial, Line};

/// How an end reaches NATS.
pub(crate) fn options(end: &End, address: &NatsAddress) -> NatsOptions {
    let mut options = NatsOptions::new(&address.server, &address.subject);
    let names = &end.nats;
    options.name = "breakbulk gateway".to_owned();
    options.secure = address.secure;
    options.credentials = match (&names.creds, &end.nats_secret) {
        (Some(file), _) => Some(Credentials::File(file.clone())),
        (None, Some(secret)) => Some(secret.clone()),
        (None, None) => address.credentials.clone(),
    };
    options.queue = names
        .queue
        .clone()
        .unwrap_or_else(|| "breakbulk".to_owned());
    if let Some(inbox) = &names.inbox {
        options.inbox.clone_from(inbox);
    }
    options.roots = end.roots.clone();
    options.identity = end.identity.clone();
    options
}

/// A line over a session.
pub(crate) fn line(transport: NatsTransport) -> Line {
    let cap = transport.max_frame();
    Line::new(transport).capped(cap)
}

/// Opens sessions at a subject.
pub(super) struct NatsDial {
    name: String,
    options: NatsOptions,
}

impl NatsDial {
    pub(super) fn new(end: &End, address: &NatsAddress) -> Self {
        Self {
            name: address.name(),
            options: options(end, address),
        }
    }
}

impl Dial for NatsDial {
    fn dial(&self) -> Boxed<'_, Result<Line, OpenError>> {
        Box::pin(async { Ok(line(nats::connect(&self.options).await?)) })
    }

    fn path(&self) -> String {
        self.name.clone()
    }
}
