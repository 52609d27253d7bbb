//! What becomes of a gateway whose listener fails.

use std::sync::Mutex;

use breakbulk_link::lock;
use breakbulk_net::memory::{Memory, pair};
use breakbulk_net::ws::ListenError;
use tokio::sync::Notify;

use super::*;
use crate::plan::Config;
use crate::pump::Port;

/// A door by which one client comes in before it breaks.
struct Broken(Option<Memory>);

impl Door for Broken {
    const LISTENS_TO_THE_END: bool = true;

    async fn accept(&mut self) -> Result<Arrival, RunError> {
        let Some(transport) = self.0.take() else {
            let address = "127.0.0.1:7".parse::<std::net::SocketAddr>().unwrap();
            let address = breakbulk_net::ListenAddress::Tcp(address);
            return Err(RunError::Accept(ListenError::Ended { address }));
        };
        Ok(Arrival {
            name: "client".to_owned(),
            caller: Caller::default(),
            open: Box::new(move |end| {
                let connection = open::open(end, open::whole(end), transport)?;
                let opened = Opened::whole(Port::new(connection));
                let refuse = |_, _: &str| Box::pin(async {}) as _;
                Ok(Entered::Port(Box::new(opened), Box::new(refuse)))
            }),
        })
    }

    async fn close(&mut self) {}

    async fn finish(self) {}
}

/// Over HTTP sessions outlast their listener: a reload did not start it again before the last of them had ended.
// OPS-7
#[tokio::test]
async fn a_listener_that_failed_leaves_its_address_although_sessions_go_on() {
    let (listen, to) = ("whole+ws://127.0.0.1:0".parse(), "exec:cat".parse());
    let plan = Plan::new(listen.unwrap(), to.unwrap(), Config::default());
    let (here, client) = pair(8);
    let told = Arc::new((Mutex::new(Vec::new()), Notify::new()));
    let events = told.clone();
    let running = tokio::spawn(async move {
        let tell = |event| {
            lock(&events.0).push(event);
            events.1.notify_one();
        };
        let (plan, door) = (Arc::new(plan.unwrap()), Broken(Some(here)));
        listen_at(plan, door, &tell).await
    });
    let stopping = async {
        while !matches!(lock(&told.0).last(), Some(Event::Stopping(1))) {
            told.1.notified().await;
        }
    };
    timeout(Duration::from_secs(60), stopping).await.unwrap();
    assert!(!running.is_finished());
    assert!(lock(&told.0).contains(&Event::Closed), "{:?}", told.0);
    drop(client);
    let outcome = timeout(Duration::from_secs(60), running).await.unwrap();
    assert!(matches!(outcome.unwrap(), Err(RunError::Accept(_))));
}

async fn listen_at(plan: Arc<Plan>, door: Broken, tell: Tell<'_>) -> Result<(), RunError> {
    listen(
        plan,
        door,
        "ws://127.0.0.1:7".to_owned(),
        &Stop::new(),
        tell,
    )
    .await
}
