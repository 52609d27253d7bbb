//! 24 MB over the same path in simulated time: a transport that takes as long as the path would, and a
//! clock that jumps.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use breakbulk::ahp::log::MemoryLog;
use breakbulk::ahp::{Client, ClientConfig, Host, HostConfig};
use breakbulk::link::{Budget, Cap, Carries, Frame, Link, PeerLimits, PeerSupport};
use breakbulk::message::vscode::{RpcId, Thrown};
use breakbulk::net::memory::{self, Memory, MemorySink, MemorySource};
use breakbulk::net::{Connection, Incoming, Lost, Options, Sink, Source, Transport};
use breakbulk::vscode::{Actor, Actors, Config, Endpoint};
use breakbulk::wire::Loro;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::library::Notes;
use crate::{BYTES_A_SECOND, DELAY};

const SIZE: usize = 24_000_000;
const CAP: usize = 64_000;

/// One end of the path.
struct Paced(Memory);

struct PacedSink {
    sink: MemorySink,
    pinged: mpsc::Sender<Instant>,
}

struct PacedSource {
    source: MemorySource,
    /// What is on its way, and when it arrives.
    arriving: Option<(Instant, Incoming)>,
    /// When the answers to pings arrive.
    pongs: mpsc::Receiver<Instant>,
    pong: Option<Instant>,
}

impl Transport for Paced {
    type Source = PacedSource;
    type Sink = PacedSink;

    fn carries(&self, carries: Carries) -> bool {
        self.0.carries(carries)
    }

    fn split(self) -> (PacedSource, PacedSink) {
        let (source, sink) = self.0.split();
        let (pinged, pongs) = mpsc::channel(1);
        let source = PacedSource {
            source,
            arriving: None,
            pongs,
            pong: None,
        };
        (source, PacedSink { sink, pinged })
    }
}

impl Source for PacedSource {
    async fn next(&mut self) -> Incoming {
        let until = |at: Option<Instant>| async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        loop {
            let arrival = self.arriving.as_ref().map(|(at, _)| *at);
            tokio::select! {
                () = until(arrival) => {
                    if let Some((_, incoming)) = self.arriving.take() {
                        return incoming;
                    }
                }
                () = until(self.pong) => {
                    self.pong = None;
                    return Incoming::Alive;
                }
                Some(at) = self.pongs.recv(), if self.pong.is_none() => self.pong = Some(at),
                incoming = self.source.next(), if arrival.is_none() => {
                    self.arriving = Some((Instant::now() + DELAY, incoming));
                }
            }
        }
    }
}

impl Sink for PacedSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let seconds = frame.bytes().len() as f64 / BYTES_A_SECOND as f64;
        sleep(Duration::from_secs_f64(seconds)).await;
        self.sink.send(frame).await
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        // As a WebSocket does, the other end answers by itself.
        let _ = self.pinged.try_send(Instant::now() + 2 * DELAY);
        self.sink.ping().await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.sink.close(code, reason).await;
    }
}

fn path() -> (Paced, Paced) {
    let (near, far) = memory::pair(1);
    (Paced(near), Paced(far))
}

/// Checks that it took as long as the path takes, and no multiple of that: nothing was sent twice.
fn took(begun: Instant) {
    let once = Duration::from_secs(SIZE as u64 / BYTES_A_SECOND);
    let took = begun.elapsed();
    println!("{took:?}");
    assert!(took > once && took < once * 3 / 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn twenty_four_megabytes_of_state_reach_a_client_of_ahp() {
    let notes = RawValue::from_string(format!("{:?}", "x".repeat(SIZE))).unwrap();
    let config = HostConfig::default().with(|host| host.connection.cap = Cap::frame(CAP));
    let host = Host::new(Notes(notes), MemoryLog::default(), config);
    let (near, far) = path();
    tokio::spawn(host.serve(far));
    let begun = Instant::now();
    let client = Client::new(ClientConfig::new("me"));
    let answer = client.initialize(near, &["ahp-root://"]).await.unwrap();
    let sizes: Vec<_> = answer.snapshots.iter().map(|it| it.state.len()).collect();
    assert_eq!(sizes, [SIZE + 2]);
    took(begun);
}

#[tokio::test(start_paused = true)]
async fn an_argument_of_twenty_four_megabytes_reaches_an_actor_of_vscode() {
    let id = RpcId::new(3).unwrap();
    let count = Actor::new().typed("$count", |(text,): (String,)| async move {
        Ok::<_, Thrown>(text.len())
    });
    let actors = Config::default().with(|it| it.actors = Actors::new().add(id, "Documents", count));
    let open = |transport, config, seed| {
        let (wire, budget) = (Arc::new(Loro), Budget::unlimited());
        let mut link = Link::new(wire.clone(), wire, Loro::config(), budget, [seed; 32]);
        link.set_cap(Cap::frame(CAP));
        link.set_peer(PeerSupport::Yes(PeerLimits::NONE));
        let connection = Connection::open(link, transport, Options::default()).unwrap();
        Endpoint::over_connection(connection, config)
    };
    let (near, far) = path();
    let _far = open(far, actors, 1);
    let near = open(near, Config::default(), 2);
    let begun = Instant::now();
    let call = near.remote(id).call("$count", &("x".repeat(SIZE),)).await;
    assert_eq!(call.unwrap().typed::<usize>().unwrap(), SIZE);
    took(begun);
}
