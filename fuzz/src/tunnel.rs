//! A gateway between a hostile program and a hostile tunnel: what one input causes is bounded, the session
//! ends, and the memory that it held is given back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_gateway::{
    Boxed, Dial, Ended, Line, OpenError, Options, Plain, Port, Tunnel, TunnelConfig, connect,
    relay, whole_link,
};
use breakbulk_link::{Budget, Cap, Carries, Frame, Outgoing};
use breakbulk_message::tunnel::{
    Control, Gone, Received, SESSION_BYTES, SessionId, tunnel_end,
};
use breakbulk_net::memory::{Memory, MemorySink, MemorySource, pair};
use breakbulk_net::{Connection, Incoming, Sink, Source, Transport};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::Input;
use crate::links::json_rpc;

/// The most steps of one run; more find nothing new.
const STEPS: usize = 200;

/// The largest message.
const MESSAGE: usize = 4 << 10;

/// The largest frame.
const FRAME: usize = 512;

/// The memory that both sides may hold together.
const MEMORY: usize = 4 << 20;

/// What the gateway may add for each message that came in: an error that contains a name of the sender's.
const ADDED: usize = 2 << 10;

/// The pump, the driver of each connection with its two halves, and the task of the tunnel.
const TASKS: usize = 9;

/// What the tunnel's repeated frames may add for each new connection.
const WINDOW: usize = 4 << 10;

/// How long to wait for a side; time is paused.
const MOMENT: Duration = Duration::from_millis(1);

/// Runs the steps of the input in paused time.
pub fn check(input: Input<'_>) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(play(input));
}

async fn play(mut input: Input<'_>) {
    let budget = Budget::new(MEMORY);
    let mut world = World::new(&budget, &mut input);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input).await;
        world.bounded(&budget);
    }
    world.end(&budget).await;
}

/// The far end of one side, driven by the fuzzer.
struct Peer {
    source: Option<MemorySource>,
    sink: Option<MemorySink>,
    sent: usize,
    sent_bytes: usize,
    received_bytes: usize,
}

impl Peer {
    fn new(memory: Memory) -> Self {
        let (source, sink) = memory.split();
        Self {
            source: Some(source),
            sink: Some(sink),
            sent: 0,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    async fn send(&mut self, frame: Frame) {
        let Some(sink) = &mut self.sink else { return };
        let size = frame.bytes().len();
        // A gateway that has to wait does not read.
        if let Ok(Ok(())) = timeout(MOMENT, sink.send(frame)).await {
            self.sent += 1;
            self.sent_bytes += size;
        }
    }

    async fn receive(&mut self) {
        let Some(source) = &mut self.source else {
            return;
        };
        match timeout(MOMENT, source.next()).await {
            Ok(Incoming::Frame(frame)) => self.received_bytes += frame.bytes().len(),
            Ok(Incoming::Closed(_)) => self.source = None,
            _ => {}
        }
    }
}

/// The far ends of the connections that the gateway opened: the last one counts.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<(Option<Memory>, usize)>>);

impl Dial for Lines {
    fn dial(&self) -> Boxed<'_, Result<Line, OpenError>> {
        Box::pin(async {
            let (far, near) = pair(2);
            let mut lines = self.0.lock().expect("no panic");
            lines.0 = Some(far);
            lines.1 += 1;
            Ok(Line::new(near))
        })
    }

    fn path(&self) -> String {
        "memory:".to_owned()
    }
}

struct World {
    program: Peer,
    tunnel: Peer,
    lines: Lines,
    /// Cuts messages of the other gateway as that gateway would.
    other: breakbulk_link::Link,
    stop: Option<oneshot::Sender<()>>,
    session: JoinHandle<Option<Ended>>,
}

impl World {
    fn new(budget: &Budget, input: &mut Input<'_>) -> Self {
        let (near, listen) = pair(2);
        let (far, to) = pair(2);
        let config = config(budget);
        let unlimited = self::config(&Budget::unlimited());
        let other = unlimited.link(&config.hello(None), [9; 32]);
        let lines = Lines::default();
        let dial = Arc::new(lines.clone());
        let link = whole_link(
            Carries::Text,
            Cap::frame(if input.flag() { FRAME } else { 2 * MESSAGE }),
            MESSAGE,
            budget.clone(),
        );
        let (stop, stopped) = oneshot::channel();
        let session = tokio::spawn(async move {
            let open = breakbulk_net::Options::default();
            let listen = Connection::open(link, listen, open).expect("text");
            let to = connect(Line::new(to), dial, &config).await.ok()?.port;
            let passing = Tunnel {
                listen: false,
                to: true,
                inner: Plain::default(),
            };
            let stopped = async {
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            Some(relay(Port::new(listen), to, passing, stopped, Options::default()).await)
        });
        Self {
            program: Peer::new(near),
            tunnel: Peer::new(far),
            lines,
            other,
            stop: Some(stop),
            session,
        }
    }

    /// Takes the connection that the gateway has opened last.
    fn next_line(&mut self) {
        let line = self.lines.0.lock().expect("no panic").0.take();
        if let Some(line) = line {
            let new = Peer::new(line);
            (self.tunnel.source, self.tunnel.sink) = (new.source, new.sink);
        }
    }

    async fn step(&mut self, input: &mut Input<'_>) {
        match input.below(14) {
            12 => self.next_line(),
            13 => self.tunnel.send(Frame::Text(control(input).into())).await,
            0 => self.tunnel.send(Frame::Text(hello(input).into())).await,
            1 => self.transfer(input).await,
            2 => self.tunnel.send(made_up(input)).await,
            3 => self.tunnel.send(Frame::Text(tunnel_end().into())).await,
            4 => self.program.send(message(input)).await,
            5 => self.program.send(made_up(input)).await,
            6 | 7 => self.program.receive().await,
            8 | 9 => self.tunnel.receive().await,
            10 => tokio::time::sleep(Duration::from_millis(input.short().into())).await,
            _ => match input.below(16) {
                0 => self.program.sink = None,
                1 => self.tunnel.sink = None,
                2 => drop(self.stop.take().map(|stop| stop.send(()))),
                _ => tokio::task::yield_now().await,
            },
        }
    }

    /// A message as another gateway cuts it; frames may be lost, repeated or damaged on the way.
    async fn transfer(&mut self, input: &mut Input<'_>) {
        let Frame::Text(text) = message(input) else {
            return;
        };
        let now = breakbulk_net::now();
        drop(self.other.send(now, Outgoing::new(text)));
        let fate = input.byte();
        let mut place = 0;
        loop {
            let mut bytes = Vec::new();
            if self.other.poll_transmit(now, &mut bytes).is_none() {
                break;
            }
            let frame = Frame::Text(bytes.into());
            place += 1;
            match fate {
                0..8 if fate == place => {}
                8..16 if fate - 8 == place => {
                    self.tunnel.send(frame.clone()).await;
                    self.tunnel.send(frame).await;
                }
                16..24 if fate - 16 == place => {
                    let mut bytes = frame.bytes().to_vec();
                    let at = usize::from(input.short()) % bytes.len().max(1);
                    bytes[at] = input.byte() & 0x7f;
                    self.tunnel.send(Frame::Text(bytes.into())).await;
                }
                _ => self.tunnel.send(frame).await,
            }
        }
        while self.other.poll_event().is_some() {}
    }

    fn bounded(&self, budget: &Budget) {
        let (used, limit) = (budget.used(), budget.limit());
        assert!(used <= limit, "{used} bytes are held of {limit}");
        let tasks = Handle::current().metrics().num_alive_tasks();
        assert!(tasks <= TASKS, "{tasks} tasks run");
        let sent = self.program.sent + self.tunnel.sent + 2;
        for (to, from) in [(&self.program, &self.tunnel), (&self.tunnel, &self.program)] {
            // A message is cut into frames with headers of their own: less than twice its size.
            let lines = self.lines.0.lock().expect("no panic").1 + 1;
            let most = 2 * from.sent_bytes + sent * ADDED + lines * WINDOW;
            let received = to.received_bytes;
            assert!(received <= most, "{received} bytes came of {most}");
        }
    }

    /// Both ends disconnect: the session ends, and holds no memory.
    async fn end(mut self, budget: &Budget) {
        self.program.sink = None;
        self.tunnel.sink = None;
        self.program.source = None;
        self.tunnel.source = None;
        self.lines.0.lock().expect("no panic").0 = None;
        drop(
            timeout(Duration::from_secs(600), &mut self.session)
                .await
                .expect("it ends"),
        );
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(budget.used(), 0, "bytes that nobody holds");
        let tasks = Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks, 0, "tasks of a session that has ended");
    }
}

fn config(budget: &Budget) -> TunnelConfig {
    TunnelConfig {
        cap: Cap::frame(FRAME),
        max_frame: FRAME,
        max_message: MESSAGE,
        budget: budget.clone(),
        carries: Carries::Text,
        resume_for: Duration::from_secs(10),
        window: WINDOW,
        caps: Default::default(),
        watched: Default::default(),
    }
}

/// A hello: a matching one, or one with limits from the input.
fn hello(input: &mut Input<'_>) -> String {
    let session = SessionId([7; SESSION_BYTES]);
    let mut hello = config(&Budget::unlimited()).hello(Some(session));
    if input.flag() {
        hello.frame = input.number();
        hello.message = input.number();
        hello.window = input.number();
        hello.resume_ms = input.number();
    }
    Control::Hello(hello).to_json()
}

/// A control frame of the tunnel, with numbers from the input.
fn control(input: &mut Input<'_>) -> String {
    let small = u64::from(input.byte() % 8);
    let control = match input.below(8) {
        0 => Control::Ack { taken: small },
        1 => Control::Ack {
            taken: input.number(),
        },
        2 | 3 => Control::Resumed {
            received: Received {
                frames: small,
                bytes: input.below(4) as u64,
            },
            cap: input.number(),
        },
        4 => Control::Gone(match input.below(3) {
            0 => Gone::Restarted,
            1 => Gone::Expired,
            _ => Gone::Numbers,
        }),
        5 | 6 => Control::Part {
            at: input.below(4) as u64,
            last: input.flag(),
            data: input.slice().to_vec(),
        },
        _ => Control::Close {
            code: input.short(),
            reason: String::from_utf8_lossy(input.slice()).into_owned(),
        },
    };
    control.to_json()
}

/// A JSON-RPC message of any kind, up to twice the largest size.
fn message(input: &mut Input<'_>) -> Frame {
    let kind = input.byte();
    let text = String::from_utf8_lossy(input.slice()).repeat(1 + usize::from(kind >> 4));
    let text = serde_json::to_string(&text).expect("text");
    let id = input.byte();
    let text = match kind & 7 {
        0 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":[{text}]}}"#),
        1 => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{text}}}"#),
        2 => format!(r#"{{"jsonrpc":"2.0","id":{text},"error":{{"code":1,"message":"e"}}}}"#),
        3 => format!(r#"{{"jsonrpc":"2.0","method":{text}}}"#),
        4 => format!(r#"[{{"jsonrpc":"2.0","id":{id},"method":"m"}},{{"x":{text}}}]"#),
        5 => format!(r#"{{"jsonrpc":"2.0","method":"breakbulk/hello","params":{text}}}"#),
        _ => return Frame::Text(json_rpc(&text).into()),
    };
    Frame::Text(text.into())
}

/// Bytes from the input, as text or not.
fn made_up(input: &mut Input<'_>) -> Frame {
    let binary = input.byte() % 8 == 7;
    let bytes = input.slice();
    if binary {
        return Frame::Binary(bytes.to_vec().into());
    }
    let text = String::from_utf8_lossy(bytes).into_owned();
    Frame::Text(text.into())
}
