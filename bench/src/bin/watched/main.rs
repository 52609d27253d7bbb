//! Measures what watching costs while nobody uses it: messages through two gateways and back, watched as with
//! `--admin` and not watched, in turns; and not watched once more, which shows how much a measurement differs
//! from itself. It compares the rates by the clock and the processor times of this process, which other
//! programs of a busy machine change less, round by round.

use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk::gateway::watch::{Watch, WatchOptions};
use breakbulk::gateway::{Config, Event, Plan, Stop};
use breakbulk_bench::processor_time;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How often each way is measured, unless `BREAKBULK_ROUNDS` is set.
const ROUNDS: usize = 30;

/// The sizes of messages, and how many are sent in a round.
const LOADS: [(usize, usize); 2] = [(1 << 10, 20_000), (8 << 20, 12)];

/// The smallest acceptable part of the rate without watching.
const LEAST: f64 = 0.97;

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let rounds = match std::env::var("BREAKBULK_ROUNDS") {
        Ok(rounds) => rounds.parse()?,
        Err(_) => ROUNDS,
    };
    let machine = std::env::args().any(|argument| argument == "--json");
    let mut values = Vec::new();
    for (size, count) in LOADS {
        let (text, value) = runtime.block_on(measure(size, count, rounds))?;
        if !machine {
            println!("{text}");
        }
        values.push(value);
    }
    if machine {
        println!("{}", json!({ "watched": values }));
    }
    Ok(())
}

async fn measure(
    size: usize,
    count: usize,
    rounds: usize,
) -> Result<(String, serde_json::Value), Failure> {
    let mut ways = [
        Way::new(|| Watch::new(WatchOptions::default())).await?,
        Way::new(Watch::off).await?,
        Way::new(Watch::off).await?,
    ];
    for way in &mut ways {
        way.carry(size, count / 10 + 1).await?;
    }
    let (mut rates, mut times) = (<[Vec<f64>; 3]>::default(), <[Vec<f64>; 3]>::default());
    for round in 0..rounds {
        // Each setup goes first as often as the others.
        for turn in 0..ways.len() {
            let which = (round + turn) % ways.len();
            let before = processor_time()?;
            let took = ways[which].carry(size, count).await?;
            times[which].push(processor_time()? - before);
            rates[which].push((size * count) as f64 / took.as_secs_f64() / 1e6);
        }
    }
    for way in ways {
        way.stop.stop();
    }
    let ratios = |of: &[f64], to: &[f64]| {
        let ratios = of.iter().zip(to).map(|(of, to)| of / to);
        ratios.collect::<Vec<f64>>()
    };
    let part = ratios(&rates[0], &rates[1]);
    let control = ratios(&rates[2], &rates[1]);
    // More time is worse.
    let processor = ratios(&times[1], &times[0]);
    let processor_control = ratios(&times[1], &times[2]);
    let mark = |part: &[f64]| match spread(part)[1] >= LEAST {
        true => "ok",
        false => "MISSED",
    };
    let text = format!(
        "messages of {size} bytes through two gateways and back, {count} in each of {rounds} rounds: median (least to most)\n\
         watched {} MB/s, not watched {} MB/s: {} of it {} (at least {LEAST}); not watched and not watched: {}\n\
         processor time of a round: watched {} s, not watched {} s: {} {}; not watched and not watched: {}\n",
        show(&rates[0], 1),
        show(&rates[1], 1),
        show(&part, 3),
        mark(&part),
        show(&control, 3),
        show(&times[0], 3),
        show(&times[1], 3),
        show(&processor, 3),
        mark(&processor),
        show(&processor_control, 3),
    );
    let value = json!({
        "bytes": size, "count": count, "watched": rates[0], "unwatched": rates[1], "control": rates[2],
        "part": spread(&part)[1], "processorWatched": times[0], "processorUnwatched": times[1],
        "processorControl": times[2], "processorPart": spread(&processor)[1],
    });
    Ok((text, value))
}

/// Least, median and most.
fn spread(values: &[f64]) -> [f64; 3] {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    [
        at(0),
        at(values.len() / 2),
        at(values.len().saturating_sub(1)),
    ]
}

fn show(values: &[f64], digits: usize) -> String {
    let [least, median, most] = spread(values);
    format!("{median:.digits$} ({least:.digits$} to {most:.digits$})")
}

/// A client, two gateways with a tunnel between them, and a program that sends everything back.
struct Way {
    client: TcpStream,
    stop: Stop,
}

impl Way {
    async fn new(watch: impl Fn() -> Watch) -> Result<Self, Failure> {
        let target = TcpListener::bind("127.0.0.1:0").await?;
        let to = format!("tcp://{}", target.local_addr()?);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = target.accept().await {
                tokio::spawn(async move {
                    let (mut source, mut sink) = stream.split();
                    // The copying ends with the gateway.
                    let _ = tokio::io::copy(&mut source, &mut sink).await;
                });
            }
        });
        let stop = Stop::new();
        let far = gateway("ws://0", &to, watch(), &stop).await?;
        let near = gateway("tcp://0", &far, watch(), &stop).await?;
        let address = near.strip_prefix("tcp://").ok_or("no address")?;
        let client = TcpStream::connect(address).await?;
        client.set_nodelay(true)?;
        Ok(Self { client, stop })
    }

    /// Sends messages and reads them back.
    async fn carry(&mut self, size: usize, count: usize) -> Result<Duration, Failure> {
        let head = r#"{"jsonrpc":"2.0","method":"m","params":""#;
        let fill = "x".repeat(size - head.len() - 3);
        let line: Arc<[u8]> = format!("{head}{fill}\"}}\n").into_bytes().into();
        let (mut source, mut sink) = self.client.split();
        let start = Instant::now();
        let writing = async {
            for _ in 0..count {
                sink.write_all(&line).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        let reading = async {
            let (mut left, mut buffer) = (line.len() * count, vec![0; 256 << 10]);
            while left > 0 {
                match source.read(&mut buffer).await? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    read => left -= read,
                }
            }
            Ok(())
        };
        tokio::try_join!(writing, reading)?;
        Ok(start.elapsed())
    }
}

/// Starts a gateway; returns its address.
async fn gateway(listen: &str, to: &str, watch: Watch, stop: &Stop) -> Result<String, Failure> {
    let config = Config::default().with(|config| config.watch = watch);
    let plan = Plan::new(listen.parse()?, to.parse()?, config)?;
    let (tell, mut told) = mpsc::unbounded_channel();
    let stop = stop.clone();
    tokio::spawn(async move {
        let ended = plan.run(&stop, move |event| {
            if let Event::Listening(address) = event {
                let _ = tell.send(address);
            }
        });
        if let Err(error) = ended.await {
            eprintln!("{error}");
        }
    });
    Ok(told.recv().await.ok_or("the gateway did not start")?)
}
