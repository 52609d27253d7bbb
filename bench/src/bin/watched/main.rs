//! Measures what watching costs while nobody looks: messages through two gateways and back, watched as with
//! `--admin` and not watched at all, in turns. Both by the clock and by the processor time of this process,
//! which other programs of a busy machine change less.

use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk::gateway::watch::{Watch, WatchOptions};
use breakbulk::gateway::{Config, Event, Plan, Stop};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How often each way is measured, unless `BREAKBULK_ROUNDS` is set.
const ROUNDS: usize = 10;

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
    ];
    for way in &mut ways {
        way.carry(size, count / 10 + 1).await?;
    }
    let (mut seconds, mut processor) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..rounds {
        // Each goes first as often as the other.
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let before = processor_time()?;
            let took = ways[which].carry(size, count).await?;
            seconds[which].push(took.as_secs_f64());
            processor[which].push(processor_time()? - before);
        }
    }
    for way in ways {
        way.stop.stop();
    }
    let rates = seconds.map(|seconds| {
        let bytes = (size * count) as f64;
        let mut rates: Vec<f64> = seconds.iter().map(|took| bytes / took / 1e6).collect();
        rates.sort_by(f64::total_cmp);
        rates
    });
    let [watched, unwatched] = [&rates[0], &rates[1]].map(|rates| median(rates));
    let part = watched / unwatched;
    let mark = if part >= LEAST { "ok" } else { "MISSED" };
    let spread = |rates: &[f64]| {
        let (least, most) = (rates.first().unwrap_or(&0.0), rates.last().unwrap_or(&0.0));
        format!("{least:.2} to {most:.2}")
    };
    for times in &mut processor {
        times.sort_by(f64::total_cmp);
    }
    let [worked, idle] = [&processor[0], &processor[1]].map(|times| median(times));
    let times = idle / worked;
    let text = format!(
        "messages of {size} bytes through two gateways and back, {count} in each of {rounds} rounds\n\
         watched {watched:.1} MB/s ({}), not watched {unwatched:.1} MB/s ({}): {part:.3} of it {mark} (at least {LEAST}), medians\n\
         processor time of a round: watched {worked:.2} s ({}), not watched {idle:.2} s ({}): {times:.3}\n",
        spread(&rates[0]),
        spread(&rates[1]),
        spread(&processor[0]),
        spread(&processor[1]),
    );
    let value = json!({
        "bytes": size, "count": count, "watched": rates[0], "unwatched": rates[1], "part": part,
        "processorWatched": processor[0], "processorUnwatched": processor[1], "processorPart": times,
    });
    Ok((text, value))
}

/// The processor time of this process so far, in seconds.
fn processor_time() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may contain spaces.
    let (_, fields) = stat.rsplit_once(')').ok_or("no such file of Linux")?;
    let mut ticks = fields.split_whitespace().skip(11).take(2);
    let mut next = || -> Result<f64, Failure> { Ok(ticks.next().ok_or("too short")?.parse()?) };
    // Linux counts in hundredths of a second for programs.
    Ok((next()? + next()?) / 100.0)
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        _ if sorted.is_empty() => 0.0,
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
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
                    // It ends with the gateway.
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

/// Starts a gateway; its address.
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
