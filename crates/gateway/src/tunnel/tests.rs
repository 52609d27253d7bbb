//! Tunnels over lines within this process, which can be cut.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use breakbulk_link::{Budget, Cap, Carries, Closed, Event, Frame, Outgoing, lock};
use breakbulk_message::tunnel::{Control, Gone, Received, SESSION_BYTES, SessionId};
use breakbulk_net::memory::{Memory, MemorySink, MemorySource, pair};
use breakbulk_net::{Connection, Incoming, Lost, Sink, Source, Transport};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::lobby::{NoSeat, Seat};
use super::{
    Boxed, Caller, Dial, Greeted, Line, Lobby, Newcomer, NoTunnel, TunnelConfig, Tunnelled, connect,
};
use crate::error::OpenError;

const WINDOW: usize = 64 << 10;

fn config(budget: &Budget) -> TunnelConfig {
    TunnelConfig {
        cap: Cap::frame(10_000),
        max_frame: 10_000,
        max_message: 1 << 20,
        budget: budget.clone(),
        carries: Carries::Text,
        resume_for: Duration::from_secs(60),
        window: WINDOW,
        caps: Default::default(),
        watched: Default::default(),
    }
}

/// A transport that can be cut, and whose writes are counted.
struct Cuttable<T>(T, watch::Receiver<bool>, Arc<AtomicUsize>);

/// The most small frames that share a write.
const HELD: usize = 8;

/// The sending half of a transport that can be cut: what it holds at that moment is lost.
struct CuttableSink {
    sink: MemorySink,
    cut: watch::Receiver<bool>,
    held: Vec<Frame>,
    writes: Arc<AtomicUsize>,
}

impl Transport for Cuttable<Memory> {
    type Source = Cuttable<MemorySource>;
    type Sink = CuttableSink;

    fn carries(&self, _carries: Carries) -> bool {
        true
    }

    fn split(self) -> (Self::Source, Self::Sink) {
        let (source, sink) = self.0.split();
        let sink = CuttableSink {
            sink,
            cut: self.1.clone(),
            held: Vec::new(),
            writes: self.2.clone(),
        };
        (Cuttable(source, self.1, self.2), sink)
    }
}

async fn until_cut(cut: &mut watch::Receiver<bool>) {
    if cut.wait_for(|cut| *cut).await.is_err() {
        pending().await
    }
}

impl Source for Cuttable<MemorySource> {
    async fn next(&mut self) -> Incoming {
        tokio::select! {
            biased;
            () = until_cut(&mut self.1) => Incoming::Closed(Closed {
                code: 1006,
                reason: "cut".to_owned(),
            }),
            incoming = self.0.next() => incoming,
        }
    }
}

impl Sink for CuttableSink {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        self.held.push(frame);
        self.flush().await
    }

    fn hold(&mut self, frame: Frame) -> Option<Frame> {
        if self.held.len() == HELD {
            return Some(frame);
        }
        self.held.push(frame);
        None
    }

    async fn flush(&mut self) -> Result<(), Lost> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        for frame in self.held.drain(..) {
            tokio::select! {
                biased;
                () = until_cut(&mut self.cut) => return Err(Lost("cut".to_owned())),
                sent = self.sink.send(frame) => sent?,
            }
        }
        Ok(())
    }

    async fn ping(&mut self) -> Result<(), Lost> {
        self.sink.ping().await
    }

    async fn close(&mut self, code: u16, reason: &str) {
        if !*self.cut.borrow() {
            self.sink.close(code, reason).await;
        }
    }
}

/// A gateway that accepts lines, and the lines to it.
struct Far {
    lobby: Lobby,
    config: TunnelConfig,
    /// Who opens the next line.
    caller: Mutex<Caller>,
    /// Cuts the lines that are open.
    cut: Mutex<watch::Sender<bool>>,
    /// Whether lines can be opened.
    open: Mutex<bool>,
    newcomers: mpsc::UnboundedSender<Newcomer>,
    dialed: Mutex<usize>,
    /// How often the near end of a line wrote.
    writes: Arc<AtomicUsize>,
}

impl Far {
    fn new(config: &TunnelConfig) -> (Arc<Self>, mpsc::UnboundedReceiver<Newcomer>) {
        let (newcomers, arrived) = mpsc::unbounded_channel();
        let far = Self {
            lobby: Lobby::new(8, 8).unwrap(),
            config: config.clone(),
            caller: Mutex::default(),
            cut: Mutex::new(watch::Sender::new(false)),
            open: Mutex::new(true),
            newcomers,
            dialed: Mutex::new(0),
            writes: Arc::default(),
        };
        (Arc::new(far), arrived)
    }

    /// Opens a new line: the lobby gets its far end, and the near one is returned.
    fn line(&self) -> Cuttable<Memory> {
        *lock(&self.dialed) += 1;
        let (far, near) = pair(2);
        let cut = lock(&self.cut).subscribe();
        let far = Line::new(Cuttable(far, cut.clone(), Arc::default()));
        let (lobby, config) = (self.lobby.clone(), self.config.clone());
        let (caller, newcomers) = (lock(&self.caller).clone(), self.newcomers.clone());
        tokio::spawn(async move {
            match lobby.greet(far, &caller, &config).await {
                Ok(Greeted::Newcomer(newcomer)) => drop(newcomers.send(newcomer)),
                Ok(Greeted::Elsewhere(stray)) => stray.refuse(Gone::Restarted).await,
                Ok(Greeted::Resumed) | Err(_) => {}
            }
        });
        Cuttable(near, cut, self.writes.clone())
    }

    fn cut(&self) {
        let cut = std::mem::replace(&mut *lock(&self.cut), watch::Sender::new(false));
        cut.send_replace(true);
    }
}

struct Path(Arc<Far>);

impl Dial for Path {
    fn dial(&self) -> Boxed<'_, Result<Line, OpenError>> {
        Box::pin(async {
            match *lock(&self.0.open) {
                true => Ok(Line::new(self.0.line())),
                false => Err(OpenError::Stopped),
            }
        })
    }

    fn path(&self) -> String {
        "memory:".to_owned()
    }
}

/// A tunnel between two gateways.
struct Setup {
    far: Arc<Far>,
    client: Tunnelled,
    server: Tunnelled,
}

async fn setup(near: &TunnelConfig, far: &TunnelConfig) -> Setup {
    let (far, mut newcomers) = Far::new(far);
    let accepting = {
        let far = far.clone();
        tokio::spawn(async move {
            let newcomer = newcomers.recv().await.unwrap();
            newcomer.accept(&far.config).await.unwrap()
        })
    };
    let line = Line::new(far.line());
    let client = connect(line, Arc::new(Path(far.clone())), near).await;
    Setup {
        client: client.unwrap(),
        server: accepting.await.unwrap(),
        far,
    }
}

async fn message(connection: &Connection) -> String {
    loop {
        match connection.event().await.unwrap() {
            Event::Message(message) => return String::from_utf8(message.bytes.to_vec()).unwrap(),
            Event::Closed(closed) => panic!("closed: {closed:?}"),
            _ => {}
        }
    }
}

fn request(number: usize, size: usize) -> String {
    let text = "x".repeat(size);
    format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"m","params":["{text}"]}}"#)
}

async fn send(connection: &Connection, text: String) {
    let sent = connection.send_when_writable(Outgoing::new(text)).await;
    assert!(sent.is_ok());
}

/// One end never reads, and what it writes arrives although lines are cut.
// TUN-2
#[tokio::test(start_paused = true)]
async fn an_application_that_does_not_read_does_not_stop_the_other_direction_or_a_new_line() {
    let budget = Budget::new(64 << 20);
    let setup = setup(&config(&budget), &config(&budget)).await;
    let flood = {
        let server = setup.server.connection.clone();
        tokio::spawn(async move {
            for number in 0..100 {
                send(&server, request(number, 100_000)).await;
            }
        })
    };
    // Nothing moves any more: the client's application takes nothing.
    sleep(Duration::from_secs(5)).await;
    assert!(!flood.is_finished());
    let writing = {
        let client = setup.client.connection.clone();
        tokio::spawn(async move {
            for number in 0..100 {
                send(&client, request(number, 100_000)).await;
            }
        })
    };
    for number in 0..100 {
        assert_eq!(
            message(&setup.server.connection).await,
            request(number, 100_000)
        );
        if number % 10 == 5 {
            setup.far.cut();
        }
    }
    writing.await.unwrap();
    assert!(*lock(&setup.far.dialed) > 5);
    // Now it reads, and everything is there.
    for number in 0..100 {
        assert_eq!(
            message(&setup.client.connection).await,
            request(number, 100_000)
        );
    }
    flood.await.unwrap();
    setup.client.connection.close(1000, "");
    setup.server.connection.closed().await;
    setup.client.connection.ended().await;
    setup.server.connection.ended().await;
    drop(setup);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(budget.used(), 0, "bytes that nobody holds");
}

/// Runs on several threads, so that a line may change between any two steps of those that use it.
// TUN-1
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lines_that_change_at_any_moment_lose_and_repeat_nothing() {
    let budget = Budget::new(64 << 20);
    let setup = setup(&config(&budget), &config(&budget)).await;
    let ends = [&setup.client.connection, &setup.server.connection];
    let flows = ends.map(|from| {
        let from = from.clone();
        tokio::spawn(async move {
            for number in 0..1000 {
                send(&from, request(number, number % 40 * 500)).await;
            }
        })
    });
    let far = setup.far.clone();
    let readers = ends.map(|to| {
        let (to, far) = (to.clone(), far.clone());
        tokio::spawn(async move {
            for number in 0..1000 {
                assert_eq!(message(&to).await, request(number, number % 40 * 500));
                if number % 7 == 3 {
                    far.cut();
                }
            }
        })
    });
    for task in flows.into_iter().chain(readers) {
        let done = timeout(Duration::from_secs(100), task).await;
        done.expect("nothing moves").unwrap();
    }
    assert!(*lock(&far.dialed) > 20, "{}", lock(&far.dialed));
}

/// More frames than a window holds: the sink must write what it holds before it waits for an acknowledgement.
#[tokio::test(start_paused = true)]
async fn small_frames_that_wait_together_are_written_together() {
    let budget = Budget::new(64 << 20);
    let setup = setup(&config(&budget), &config(&budget)).await;
    let before = setup.far.writes.load(Ordering::Relaxed);
    let messages = 100 + 2 * WINDOW / 1000;
    let client = &setup.client.connection;
    for number in 0..messages {
        client.send(Outgoing::new(request(number, 1000))).unwrap();
    }
    for number in 0..messages {
        let arrived = message(&setup.server.connection).await;
        assert_eq!(arrived, request(number, 1000));
    }
    let writes = setup.far.writes.load(Ordering::Relaxed) - before;
    assert!(
        (messages / (HELD + 1)..messages / 3).contains(&writes),
        "{writes} writes of {messages} frames"
    );
}

// TUN-4
#[tokio::test(start_paused = true)]
async fn a_close_is_told_to_the_other_end_by_whatever_line_there_is() {
    for server_closes in [false, true] {
        for cuts in [false, true] {
            let budget = Budget::new(64 << 20);
            let setup = setup(&config(&budget), &config(&budget)).await;
            let (closer, other) = match server_closes {
                true => (&setup.server.connection, &setup.client.connection),
                false => (&setup.client.connection, &setup.server.connection),
            };
            send(closer, request(1, 50_000)).await;
            if cuts {
                setup.far.cut();
            }
            closer.finish(4001, "enough").await;
            assert_eq!(message(other).await, request(1, 50_000));
            let closed = other.closed().await;
            assert_eq!((closed.code, &*closed.reason), (4001, "enough"));
            assert!(other.closed_by_peer());
            let ended = async { tokio::join!(closer.ended(), other.ended()) };
            // Less than the grace time of a close: the other end has answered.
            assert!(timeout(Duration::from_secs(4), ended).await.is_ok());
        }
    }
}

/// What is kept when no line comes back counts as lost.
// TUN-4
#[tokio::test(start_paused = true)]
async fn frames_that_did_not_arrive_before_the_end_are_counted() {
    let budget = Budget::new(64 << 20);
    let setup = setup(&config(&budget), &config(&budget)).await;
    *lock(&setup.far.open) = false;
    setup.far.cut();
    send(&setup.client.connection, request(1, 100)).await;
    let (near, listen) = pair(1);
    let link = crate::whole_link(Carries::Text, Cap::frame(1000), 1000, Budget::unlimited());
    let listen = Connection::open(link, listen, Default::default()).unwrap();
    let stop = crate::Stop::new();
    let pump = tokio::spawn({
        let stop = stop.clone();
        async move {
            let (listen, to) = (crate::Port::new(listen), setup.client.port);
            let options = crate::Options::default();
            crate::relay(listen, to, crate::Plain::default(), stop.stopped(), options).await
        }
    });
    drop(near);
    stop.stop();
    let ended = pump.await.unwrap();
    assert_eq!(ended.lost, 1, "{ended:?}");
    assert!(!ended.is_clean());
}

/// Asks to resume a session on a new line; returns the first frame of the far end.
async fn answer(far: &Far, session: SessionId, received: u64) -> Option<Control> {
    let (mut source, mut sink) = far.line().split();
    let received = Received::frames(received);
    let resume = Control::Resume { session, received }.to_json();
    sink.send(Frame::Text(resume.into())).await.unwrap();
    match timeout(Duration::from_secs(3), source.next())
        .await
        .unwrap()
    {
        Incoming::Frame(frame) => Some(Control::read(frame.bytes()).unwrap()),
        _ => None,
    }
}

/// Opens a session by hand, without a gateway at the near end; returns the name of the session.
async fn bare_client(
    far: &Arc<Far>,
    newcomers: &mut mpsc::UnboundedReceiver<Newcomer>,
) -> (SessionId, Tunnelled) {
    let (mut source, mut sink) = far.line().split();
    let hello = Control::Hello(far.config.hello(None)).to_json();
    sink.send(Frame::Text(hello.into())).await.unwrap();
    let newcomer = newcomers.recv().await.unwrap();
    let server = newcomer.accept(&far.config).await.unwrap();
    let Incoming::Frame(frame) = source.next().await else {
        panic!("no hello");
    };
    let Ok(Control::Hello(hello)) = Control::read(frame.bytes()) else {
        panic!("no hello");
    };
    (hello.session.unwrap(), server)
}

// TUN-7
#[tokio::test(start_paused = true)]
async fn only_its_holder_goes_on_with_a_session_and_only_where_it_can() {
    let budget = Budget::new(64 << 20);
    let (far, mut newcomers) = Far::new(&config(&budget));
    lock(&far.caller).holder = Some("anna".to_owned());
    let (session, server) = bare_client(&far, &mut newcomers).await;
    far.cut();
    let mut other = session;
    other.0[SESSION_BYTES - 1] ^= 1;
    let gone = |why| Some(Control::Gone(why));
    assert_eq!(answer(&far, other, 0).await, gone(Gone::Expired));
    other = session;
    other.0[0] ^= 1;
    assert_eq!(answer(&far, other, 0).await, gone(Gone::Restarted));
    lock(&far.caller).holder = Some("bert".to_owned());
    assert_eq!(answer(&far, session, 0).await, gone(Gone::Expired));
    lock(&far.caller).holder = Some("anna".to_owned());
    // From another address too: a client may have moved to another network.
    lock(&far.caller).address = Some([192, 0, 2, 1].into());
    assert_eq!(
        answer(&far, session, 0).await,
        Some(Control::Resumed {
            received: Received::default(),
            cap: 0,
        })
    );
    assert_eq!(answer(&far, session, 7).await, gone(Gone::Numbers));
    let closed = server.connection.closed().await;
    assert_eq!(closed.code, 1011, "{closed:?}");
    server.connection.ended().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(answer(&far, session, 0).await, gone(Gone::Expired));
}

/// Lines for one session, each of which comes before the last one was known to be lost.
// TUN-7
#[tokio::test(start_paused = true)]
async fn a_flood_of_lines_for_one_session_leaves_one() {
    let budget = Budget::new(64 << 20);
    let (far, mut newcomers) = Far::new(&config(&budget));
    let (session, server) = bare_client(&far, &mut newcomers).await;
    let before = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    let mut resumed = 0;
    for _ in 0..50 {
        let answer = answer(&far, session, 0).await;
        resumed += usize::from(
            answer
                == Some(Control::Resumed {
                    received: Received::default(),
                    cap: 0,
                }),
        );
    }
    assert!(resumed > 0);
    sleep(Duration::from_secs(2)).await;
    let tasks = tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks();
    assert!(tasks <= before, "{tasks} tasks, {before} before");
    // No line is left.
    far.cut();
    let closed = server.connection.closed().await;
    assert!(
        closed.reason.contains("not restored within 60 s"),
        "{closed:?}"
    );
    server.connection.ended().await;
    drop(server);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(budget.used(), 0);
}

// TUN-7
#[test]
fn seats_are_counted_in_all_and_by_address() {
    let lobby = Lobby::new(5, 2).unwrap();
    let [anna, bert] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|address| Some(address.into()));
    let seats = [lobby.seat(anna), lobby.seat(anna)];
    assert!(seats.iter().all(Result::is_ok));
    let full = |seat: Result<Seat, NoSeat>| seat.err().unwrap().to_string();
    let words =
        "this address has 2 sessions, the most for one (--max-per-address): try again later";
    assert_eq!(full(lobby.seat(anna)), words);
    let local = Some([127, 0, 0, 1].into());
    let more = [lobby.seat(bert), lobby.seat(local), lobby.seat(None)];
    assert!(more.iter().all(Result::is_ok));
    let words = "all 5 sessions are in use (--max-sessions): try again later";
    assert_eq!(full(lobby.seat(None)), words);
    drop(more);
    assert!(lobby.seat(anna).is_err());
    drop(seats);
    assert!(lobby.seat(anna).is_ok());
    // All addresses of an IPv6 network count as one.
    let lobby = Lobby::new(5, 2).unwrap();
    let of = |text: &str| Some(text.parse().unwrap());
    let seats = [lobby.seat(of("2001:db8::1")), lobby.seat(of("2001:db8::2"))];
    assert!(seats.iter().all(Result::is_ok));
    assert!(lobby.seat(of("2001:db8::3")).is_err());
    assert!(lobby.seat(of("2001:db8:0:1::1")).is_ok());
}

// TUN-6
#[tokio::test(start_paused = true)]
async fn a_line_that_falls_silent_is_replaced() {
    let budget = Budget::new(64 << 20);
    let (far, mut newcomers) = Far::new(&config(&budget));
    let accepting = tokio::spawn({
        let config = far.config.clone();
        async move {
            newcomers
                .recv()
                .await
                .unwrap()
                .accept(&config)
                .await
                .unwrap()
        }
    });
    // The first line takes the greetings and then nothing.
    let (mut proxy, near) = {
        let (proxy, near) = pair(2);
        (proxy.split(), near)
    };
    let mut behind = far.line().split();
    let greeting = tokio::spawn(async move {
        let Incoming::Frame(hello) = proxy.0.next().await else {
            panic!("no hello");
        };
        behind.1.send(hello).await.unwrap();
        let Incoming::Frame(hello) = behind.0.next().await else {
            panic!("no hello");
        };
        proxy.1.send(hello).await.unwrap();
        pending::<()>().await;
        drop((proxy, behind));
    });
    let path = Arc::new(Path(far.clone()));
    let client = connect(Line::new(near), path, &far.config).await.unwrap();
    let server = accepting.await.unwrap();
    let before = tokio::time::Instant::now();
    send(&client.connection, request(1, 20_000)).await;
    assert_eq!(message(&server.connection).await, request(1, 20_000));
    let after = before.elapsed();
    assert!((29..32).contains(&after.as_secs()), "{after:?}");
    greeting.abort();
}

// TUN-3
#[tokio::test(start_paused = true)]
async fn the_shorter_time_of_both_ends_applies() {
    for (near, far, seconds) in [(5, 600, 5), (600, 5, 5), (0, 600, 0)] {
        let budget = Budget::new(64 << 20);
        let with = |seconds| TunnelConfig {
            resume_for: Duration::from_secs(seconds),
            ..config(&budget)
        };
        let setup = setup(&with(near), &with(far)).await;
        *lock(&setup.far.open) = false;
        let before = tokio::time::Instant::now();
        setup.far.cut();
        for connection in [&setup.client.connection, &setup.server.connection] {
            let closed = connection.closed().await;
            assert_eq!(before.elapsed().as_secs(), seconds, "{closed:?}");
            let words = format!("not restored within {seconds} s (resume-for)");
            match seconds {
                0 => assert_eq!((closed.code, &*closed.reason), (1006, "cut")),
                _ => assert!(closed.reason.contains(&words), "{closed:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn binary_messages_pass_too_and_both_ends_must_carry_them() {
    let budget = Budget::new(64 << 20);
    let binary = TunnelConfig {
        carries: Carries::Binary,
        ..config(&budget)
    };
    let setup = setup(&binary, &binary).await;
    for size in [0, 1, 9_000, 200_000] {
        let bytes: Vec<u8> = (0..size).map(|n: u32| (n * 7 + n / 256) as u8).collect();
        let sent = setup.client.connection.send(Outgoing::new(bytes.clone()));
        assert!(sent.is_ok());
        setup.far.cut();
        let got = loop {
            match setup.server.connection.event().await.unwrap() {
                Event::Message(message) => break message.bytes,
                Event::Closed(closed) => panic!("{closed:?}"),
                _ => {}
            }
        };
        assert!(got == bytes, "{size}");
    }
    let (far, _newcomers) = Far::new(&config(&budget));
    let path = Arc::new(Path(far.clone()));
    let refused = connect(Line::new(far.line()), path, &binary).await;
    let words = NoTunnel::Carries.to_string();
    assert!(refused.err().unwrap().to_string().contains(&words));
}
