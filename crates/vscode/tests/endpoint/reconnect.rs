//! Tests of a persistent session over a path that is cut again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use breakbulk_link::Random;
use breakbulk_testkit::bad_path::{BadPath, Cut, How, Weather};
use breakbulk_vscode::{Actors, Config, Endpoint};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{actor, id};

const CUTS: u64 = 50;

fn counting(runs: &Arc<AtomicU64>) -> Config {
    Config::default()
        .with(|config| config.actors = Actors::new().add(id(), "Tester", actor(runs.clone())))
}

/// Calls until told to stop, and returns how many calls were made. Each must return its own number.
async fn load(endpoint: Endpoint, mut stop: tokio::sync::watch::Receiver<bool>, seed: u64) -> u64 {
    let mut random = Random::from_number(seed);
    let mut made = 0;
    while !*stop.borrow_and_update() {
        let batch: Vec<_> = (0..1 + random.below(30))
            .map(|_| {
                made += 1;
                (made, endpoint.remote(id()).call("$count", &[made]))
            })
            .collect();
        for (number, call) in batch {
            let got: u64 = call.await.unwrap().typed().unwrap();
            assert_eq!(got, number, "seed {seed}");
        }
    }
    made
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_fifty_times_under_load_every_call_completes_once() {
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let path = BadPath::start_tcp(target, Weather::default())
        .await
        .unwrap();
    let address = path.address();
    let dial = move || async move {
        loop {
            if let Ok(stream) = TcpStream::connect(address).await {
                return stream;
            }
        }
    };
    let (client_runs, server_runs) = (Arc::default(), Arc::default());
    let (first, accepted) = tokio::join!(dial(), listener.accept());
    let open = |stream, runs| Endpoint::persistent(stream, counting(runs));
    let client = open(first, &client_runs);
    let server = open(accepted.unwrap().0, &server_runs);

    let resuming_server = {
        let server = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.resume(stream);
            }
        })
    };
    let resuming_client = {
        let client = client.clone();
        tokio::spawn(async move {
            let mut stream = 1;
            while client.lost(stream).await.is_ok() {
                stream = client.resume(dial().await);
            }
        })
    };

    let (stop, stopped) = tokio::sync::watch::channel(false);
    let loads = [
        tokio::spawn(load(client.clone(), stopped.clone(), seed)),
        tokio::spawn(load(server.clone(), stopped, seed + 1)),
    ];
    let mut random = Random::from_number(seed);
    for cut in 1..=CUTS {
        path.cut_after(Cut {
            how: if random.one_in(2) {
                How::Reset
            } else {
                How::End
            },
            ..Cut::bytes(1 + random.below(20_000))
        });
        let fell = path.until(|counts| counts.cuts >= cut);
        tokio::time::timeout(Duration::from_secs(60), fell)
            .await
            .unwrap();
    }
    stop.send(true).unwrap();
    let mut made = Vec::new();
    for load in loads {
        made.push(
            tokio::time::timeout(Duration::from_secs(60), load)
                .await
                .unwrap()
                .unwrap(),
        );
    }
    resuming_client.abort();
    resuming_server.abort();
    println!("calls: {made:?}");
    let ran = [
        server_runs.load(Ordering::Relaxed),
        client_runs.load(Ordering::Relaxed),
    ];
    assert_eq!(ran, made[..]);
    assert!(made.iter().all(|made| *made > 100));
}
