//! What a Rust program does with the library: two endpoints, a plan, a stop handle.

#![cfg(all(feature = "nostr", feature = "process"))]
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use breakbulk_contextvm::{Client, ClientConfig, Keys};
use breakbulk_gateway::{
    Config, Event, Options, Plain, Plan, PlanError, Port, RunError, Side, Stop, relay,
    session_memory, whole_link,
};
use breakbulk_link::{Budget, Cap, Carries, Event as LinkEvent, Link, Outgoing};
use breakbulk_net::{Connection, memory, ws};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const MESSAGE: usize = 1 << 20;

/// A gateway that listens in this process.
struct Running {
    address: String,
    stop: Stop,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    async fn start(listen: &str, to: &str, config: Config) -> Self {
        let plan = Plan::new(listen.parse().unwrap(), to.parse().unwrap(), config).unwrap();
        let (stop, (tell, mut events)) = (Stop::new(), mpsc::unbounded_channel());
        let stopping = stop.clone();
        let task = tokio::spawn(async move {
            plan.run(&stopping, move |event| drop(tell.send(event)))
                .await
        });
        let Some(Event::Listening(address)) = events.recv().await else {
            panic!("{:?}", task.await)
        };
        Self {
            address,
            stop,
            task,
        }
    }

    async fn stop(self) {
        self.stop.stop();
        self.task.await.unwrap().unwrap();
    }
}

fn whole() -> Link {
    let cap = Cap::frame(usize::MAX);
    whole_link(Carries::Text, cap, MESSAGE, Budget::unlimited())
}

async fn message(connection: &Connection) -> String {
    loop {
        match connection.event().await.unwrap() {
            LinkEvent::Message(message) => {
                return String::from_utf8(message.bytes.to_vec()).unwrap();
            }
            LinkEvent::Closed(closed) => panic!("closed: {closed:?}"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_in_one_process_carry_a_large_answer_over_a_relay() {
    let relay = BadRelay::start(Weather::default()).await.unwrap();
    let config = Config::default().with(|config| config.key = Some(Keys::generate()));
    // The command turns each request into its own answer.
    let command = r#"exec:sed -u 's/"method":"[a-z]*","params"/"result"/'"#;
    let far = Running::start(&format!("nostr:{}", relay.url()), command, config).await;
    let near = Running::start("whole+ws://0", &far.address, Config::default()).await;
    let options = ws::ConnectOptions::default();
    let websocket = ws::connect(&near.address, &options).await.unwrap();
    let program = Connection::open(whole(), websocket, breakbulk_net::Options::default()).unwrap();
    for (id, method, size) in [(0, "initialize", 10), (1, "echo", 10), (2, "echo", 300_000)] {
        let text = "x".repeat(size);
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"t":"{text}"}}}}"#
        );
        program.send(Outgoing::new(request)).unwrap();
        let answer = message(&program).await;
        assert!(answer.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"t":"x"#)));
        assert!(answer.len() > size, "{}", answer.len());
    }
    near.stop().await;
    far.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_relay_stops_its_sender_within_the_senders_memory() {
    let weather = Weather {
        delay: Duration::from_secs(3600),
        ..Weather::default()
    };
    let slow = BadRelay::start(weather).await.unwrap();
    let nobody = Keys::generate().public_key();
    let mut setup = ClientConfig::new(Keys::generate(), nobody, vec![slow.url().to_owned()]);
    setup.config.limits.queued_bytes = MESSAGE;
    let client = Client::connect(setup).await.unwrap();
    let (near, listen) = memory::pair(1);
    let open = |transport| {
        Connection::open(whole(), transport, breakbulk_net::Options::default()).unwrap()
    };
    let (program, held) = (open(near), open(listen));
    let to = Port::client(client.clone(), Duration::ZERO);
    let stop = Stop::new();
    let options = Options::default().with(|options| options.grace = Duration::from_millis(200));
    let listen = Port::new(held.clone());
    let pump = tokio::spawn(relay(listen, to, Plain::default(), stop.stopped(), options));
    let text = "x".repeat(20_000);
    let text = format!(r#"{{"jsonrpc":"2.0","method":"n","params":{{"t":"{text}"}}}}"#);
    let mut sent = 0;
    let flood = async {
        loop {
            let message = Outgoing::new(text.clone());
            program.send_when_writable(message).await.unwrap();
            sent += 1;
        }
    };
    let stuck = tokio::time::timeout(Duration::from_secs(3), flood).await;
    assert!(stuck.is_err());
    // The queue of the client, twice the memory of the link, and the queue of the program.
    let most = (2 * MESSAGE + session_memory(MESSAGE)) / text.len() + 10;
    assert!(
        (60..most).contains(&sent),
        "{sent} messages, at most {most}"
    );
    assert!(client.stats().outgoing > 0, "{:?}", client.stats());
    let memory = held.with(|link| link.memory());
    assert!(
        (MESSAGE..=session_memory(MESSAGE)).contains(&memory),
        "{memory} bytes are held"
    );
    // What the relay never took is told as lost.
    stop.stop();
    let ended = pump.await.unwrap();
    assert!(ended.lost > 0 && !ended.is_clean(), "{ended:?}");
}

#[tokio::test]
async fn errors_can_be_told_apart() {
    let plan = |listen: &str, to: &str, config| {
        let error = Plan::new(listen.parse().unwrap(), to.parse().unwrap(), config).err();
        error.unwrap()
    };
    let small = Config::default().with(|config| config.memory = 1 << 20);
    let error = plan("ws://0", "exec:cat", small);
    assert!(
        matches!(error, PlanError::Memory { memory: 1_048_576, needed } if needed > 64 << 20),
        "{error}"
    );
    let error = plan("ws://0.0.0.0:0", "exec:cat", Config::default());
    assert!(
        matches!(
            error,
            PlanError::End {
                side: Side::Listen,
                ..
            }
        ),
        "{error}"
    );
    let nowhere = Plan::new(
        "ws://0".parse().unwrap(),
        "exec:no-such-program".parse().unwrap(),
        Config::default(),
    );
    let error = nowhere.unwrap().run(&Stop::new(), drop).await.unwrap_err();
    assert!(error.is_setup(), "{error}");
    for error in [
        error.to_string(),
        plan("ws://0", "ws://8080", Config::default()).to_string(),
    ] {
        assert!(
            error.starts_with("to: ") && !error.contains("--"),
            "{error}"
        );
    }
}
