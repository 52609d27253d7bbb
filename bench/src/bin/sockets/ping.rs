//! Measures how long a ping takes while a large action is sent over a slow path, with and without
//! lanes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use breakbulk::ahp::host::{Applied, State};
use breakbulk::ahp::log::{Limits, MemoryLog};
use breakbulk::ahp::{Application, Client, ClientConfig, Event, Host, HostConfig};
use breakbulk::net::ws::{ConnectOptions, connect};
use breakbulk_ahp::testing::{Lanes, switched};
use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::payload::{FRAME, LARGE, config, listen, text};

/// The rate of the path to the client, in bytes per second.
const PACE: u64 = 20_000_000;

/// How many actions are sent one after the other.
const ACTIONS: usize = 5;

const CHANNEL: &str = "ahp-session:/bench";

/// The longest acceptable ping, in multiples of the time of a frame.
const MOST: f64 = 3.0;

struct Nothing;

impl Application for Nothing {
    fn snapshot(&self, channel: &str) -> Option<State> {
        (channel == CHANNEL).then(State::none)
    }

    fn apply(&self, _: &Applied<'_>) {}
}

pub(crate) async fn measure() -> Result<(String, Value), Box<dyn std::error::Error>> {
    let frame = FRAME as f64 / PACE as f64;
    let mut out = format!(
        "ping while a 32 MB action crosses a path of 20 MB/s in frames of 900 KB ({:.0} ms each)\n",
        frame * 1000.0
    );
    let mut values = Vec::new();
    for (name, lanes) in [("with lanes", Lanes::ByMeaning), ("without", Lanes::One)] {
        let mut times = pings(lanes).await?;
        times.sort_unstable();
        let at = |part: f64| {
            let index = ((times.len() as f64 * part) as usize).min(times.len() - 1);
            times[index].as_secs_f64()
        };
        let (median, p99) = (at(0.5), at(0.99));
        let mark = match p99 / frame {
            within if within <= MOST => "ok",
            _ if lanes == Lanes::One => "as expected",
            _ => "OVER",
        };
        out.push_str(&format!(
            "{name:<12} {:>4} pings: median {:.0} ms, p99 {:.0} ms = {:.2} frame times {mark} (at most {MOST})\n",
            times.len(),
            median * 1000.0,
            p99 * 1000.0,
            p99 / frame,
        ));
        values.push(json!({
            "lanes": name, "pings": times.len(), "medianSeconds": median, "p99Seconds": p99,
            "frameTimes": p99 / frame,
        }));
    }
    Ok((out, json!(values)))
}

/// The times of all pings that were answered while an action was being sent.
async fn pings(lanes: Lanes) -> Result<Vec<Duration>, Box<dyn std::error::Error>> {
    let connection = switched(config(), lanes, true);
    let config = HostConfig::default().with(|config| config.connection = connection.clone());
    let host = Host::new(Nothing, MemoryLog::new(Limits::default()), config);
    let (mut listener, url) = listen().await?;
    let serving = host.clone();
    tokio::spawn(async move {
        while let Ok(accepted) = listener.accept().await {
            tokio::spawn(serving.serve(accepted.websocket));
        }
    });
    let slow = Way {
        pace: Some(PACE),
        ..Way::default()
    };
    let weather = Weather {
        from_target: slow,
        ..Weather::default()
    };
    let target = url.trim_start_matches("ws://").trim_end_matches('/');
    let path = BadPath::start(target, weather).await?;
    let socket = connect(
        &format!("ws://{}/", path.address()),
        &ConnectOptions::default(),
    )
    .await?;
    let client =
        Client::new(ClientConfig::new("bench").with(|config| config.connection = connection));
    client.initialize(socket, &[CHANNEL]).await?;
    let action = RawValue::from_string(format!(r#"{{"text":"{}"}}"#, text(LARGE)))?;
    let mut times = Vec::new();
    for _ in 0..ACTIONS {
        host.publish(CHANNEL, &action, None)?;
        let arrived = AtomicBool::new(false);
        let arrives = async {
            while let Some(event) = client.next().await {
                if matches!(event, Event::Action(_)) {
                    break;
                }
            }
            arrived.store(true, Ordering::Relaxed);
        };
        let asks = async {
            while !arrived.load(Ordering::Relaxed) {
                let start = Instant::now();
                client.ping().await?;
                times.push(start.elapsed());
            }
            Ok::<_, Box<dyn std::error::Error>>(())
        };
        let ((), asked) = tokio::join!(arrives, asks);
        asked?;
    }
    Ok(times)
}
