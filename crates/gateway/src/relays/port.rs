//! ContextVM's messages as the frames of a connection, so that the pump carries them like any other.

use std::sync::Arc;
use std::time::Duration;

use breakbulk_contextvm::{Client, PublicKey, Refused, SendError, Server, Session};
use breakbulk_link::{Carries, Closed, Frame};
use breakbulk_net::{Incoming, Lost, Sink, Source, Transport};
use bytes::Bytes;
use tokio::sync::{Mutex, mpsc, watch};

use super::session::Life;

/// Answers of our own that may wait for their reader.
const ANSWERS: usize = 64;

/// What is said to who sends something that cannot travel.
const NO_MESSAGE: &[u8] = br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"this is no JSON-RPC 2.0 message; a batch must be sent as its members"}}"#;

fn closed(reason: &str) -> Incoming {
    Incoming::Closed(Closed {
        code: 1000,
        reason: reason.to_owned(),
    })
}

/// A client of one server.
pub(super) struct ClientLine(Client);

impl ClientLine {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }
}

impl Transport for ClientLine {
    type Source = ClientSource;
    type Sink = ClientSink;

    fn carries(&self, carries: Carries) -> bool {
        carries == Carries::Text
    }

    fn split(self) -> (ClientSource, ClientSink) {
        let (answer, answers) = mpsc::channel(ANSWERS);
        let (over, told) = watch::channel(false);
        let source = ClientSource {
            client: self.0.clone(),
            answers,
            over: told,
        };
        let sink = ClientSink {
            client: self.0,
            answer,
            over,
        };
        (source, sink)
    }
}

pub(super) struct ClientSource {
    client: Client,
    /// Of our own.
    answers: mpsc::Receiver<Bytes>,
    over: watch::Receiver<bool>,
}

impl Source for ClientSource {
    async fn next(&mut self) -> Incoming {
        tokio::select! {
            message = self.client.recv() => match message {
                // From here on the connection's link has it charged.
                Some(message) => Incoming::Frame(Frame::Text(message.into_parts().0)),
                None => closed("the client of the relays has ended"),
            },
            Some(answer) = self.answers.recv() => Incoming::Frame(Frame::Text(answer)),
            _ = self.over.wait_for(|over| *over) => closed(""),
        }
    }
}

pub(super) struct ClientSink {
    client: Client,
    answer: mpsc::Sender<Bytes>,
    over: watch::Sender<bool>,
}

impl Sink for ClientSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        match self.client.send(frame.bytes().clone()).await {
            Ok(_) => Ok(()),
            Err(SendError::Closed) => Err(Lost("the client of the relays has ended".to_owned())),
            Err(error @ SendError::NotJsonRpc(_)) => {
                tracing::warn!(%error, "a message cannot travel, and its sender is told");
                // Who reads no answers is not told twice.
                let _ = self.answer.try_send(Bytes::from_static(NO_MESSAGE));
                Ok(())
            }
            Err(error) => {
                told(&error);
                Ok(())
            }
        }
    }

    async fn close(&mut self, _: u16, _: &str) {
        self.client.drained().await;
        self.client.close();
        self.over.send_replace(true);
    }
}

/// One client's session with our server.
pub(super) struct SessionLine {
    pub(super) session: Arc<Mutex<Session>>,
    pub(super) server: Server,
    pub(super) peer: PublicKey,
    pub(super) life: Arc<Life>,
    /// After so long without a word it ends.
    pub(super) idle: Duration,
}

impl Transport for SessionLine {
    type Source = SessionSource;
    type Sink = SessionSink;

    fn carries(&self, carries: Carries) -> bool {
        carries == Carries::Text
    }

    fn split(self) -> (SessionSource, SessionSink) {
        let (over, told) = watch::channel(false);
        let source = SessionSource {
            session: self.session,
            life: self.life.clone(),
            idle: self.idle,
            leaving: false,
            over: told,
        };
        let sink = SessionSink {
            server: self.server,
            peer: self.peer,
            life: self.life,
            over,
        };
        (source, sink)
    }
}

pub(super) struct SessionSource {
    session: Arc<Mutex<Session>>,
    life: Arc<Life>,
    idle: Duration,
    /// The session takes no more: what its client says next begins another.
    leaving: bool,
    over: watch::Receiver<bool>,
}

impl Source for SessionSource {
    async fn next(&mut self) -> Incoming {
        loop {
            let message = async { self.session.lock().await.recv().await };
            let silent = tokio::select! {
                message = message => match message {
                    Some(message) => {
                        self.life.heard(&message.bytes);
                        return Incoming::Frame(Frame::Text(message.into_parts().0));
                    }
                    None if self.leaving => return closed("the session is over"),
                    None => {
                        self.life.abandon();
                        return closed("the client made room for others");
                    }
                },
                _ = self.over.wait_for(|over| *over) => return closed(""),
                () = self.life.silent(self.idle), if !self.leaving => true,
                () = self.life.asked_to_end(), if !self.leaving => false,
            };
            self.session.lock().await.close();
            self.leaving = true;
            if silent {
                tracing::info!("a session was silent for too long");
            }
        }
    }
}

pub(super) struct SessionSink {
    server: Server,
    peer: PublicKey,
    life: Arc<Life>,
    over: watch::Sender<bool>,
}

impl Sink for SessionSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        // The ids of a client that began anew mean other requests.
        if !self.life.said(frame.bytes()) {
            return Ok(());
        }
        match self.server.send(self.peer, frame.bytes().clone()).await {
            Err(SendError::Closed) => Err(Lost("the server at the relays has ended".to_owned())),
            Err(error) => {
                told(&error);
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    async fn close(&mut self, _: u16, _: &str) {
        self.over.send_replace(true);
    }
}

fn told(error: &SendError) {
    match error {
        // Whoever asked does not want to know any more.
        SendError::Refused(Refused::NoSuchRequest(_) | Refused::NoSuchPeer(_)) => {
            tracing::debug!(%error, "an answer is dropped");
        }
        _ => tracing::warn!(%error, "a message is dropped"),
    }
}
