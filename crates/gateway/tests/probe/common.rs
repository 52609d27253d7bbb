//! Ends that answer probes.

use std::time::Duration;

use breakbulk_gateway::probe;
use breakbulk_gateway::{Config, Event, Plan, Stop};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The largest message that is tried here: silence takes long, and growing is tested without sockets.
pub(crate) const MOST: usize = 1 << 20;

pub(crate) fn config() -> probe::Config {
    probe::Config::default().with(|config| {
        config.most = MOST;
        config.patience = Duration::from_millis(250);
    })
}

/// An end that answers probes, and what stops it.
pub(crate) struct Answering {
    pub(crate) address: String,
    stop: Stop,
    task: JoinHandle<()>,
}

impl Answering {
    pub(crate) async fn start(endpoint: &str, config: Config) -> Self {
        let endpoint = endpoint.parse().unwrap();
        Self::of(|stop, tell| async move {
            probe::listen(endpoint, config, &stop, tell).await.unwrap();
        })
        .await
    }

    pub(crate) async fn gateway(endpoint: &str, config: Config) -> Self {
        let plan = Plan::new(
            endpoint.parse().unwrap(),
            "exec:cat".parse().unwrap(),
            config,
        );
        let plan = plan.unwrap();
        Self::of(|stop, tell| async move { plan.run(&stop, tell).await.unwrap() }).await
    }

    async fn of<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(Stop, Box<dyn Fn(Event) + Send + Sync>) -> F,
    ) -> Self {
        let (tell, told) = oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let stop = Stop::new();
        let tell = move |event| {
            if let Event::Listening(address) = event
                && let Some(tell) = tell.lock().unwrap().take()
            {
                tell.send(address).unwrap();
            }
        };
        let task = tokio::spawn(run(stop.clone(), Box::new(tell)));
        let address = told.await.unwrap();
        Self {
            address,
            stop,
            task,
        }
    }

    pub(crate) fn host(&self) -> String {
        let (_, host) = self.address.split_once("://").unwrap();
        host.to_owned()
    }

    pub(crate) async fn stop(self) {
        self.stop.stop();
        self.task.await.unwrap();
    }
}
