//! The measurements of a path, and the figures of all rounds.

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use crate::Failure;
use crate::path::{REQUEST, any_size};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Small requests one by one: microseconds of one.
    Small,
    /// Small requests, many under way: messages per second.
    Stream,
    /// Large requests one by one: megabytes per second, both ways together.
    Large,
    /// Small requests of many clients at once: messages per second.
    Crowd,
}

const SMALL: usize = 1000;
const LARGE: usize = 8 << 20;
const ONE_BY_ONE: usize = 1000;
const STREAMED: usize = 20_000;
/// How many requests are under way at a time.
const AHEAD: usize = 64;
const LARGE_ONES: usize = 6;
const CLIENTS: usize = 100;

impl Work {
    pub(crate) const ALL: [Self; 4] = [Self::Small, Self::Stream, Self::Large, Self::Crowd];

    /// Its name in an argument.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Stream => "stream",
            Self::Large => "large",
            Self::Crowd => "crowd",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Small => "1 KB one by one, microseconds (median)",
            Self::Stream => "1 KB, 64 under way, messages per second",
            Self::Large => "8 MiB one by one, MB/s out and in",
            Self::Crowd => "1 KB, 100 clients, messages per second",
        }
    }

    /// Whether more is better.
    fn is_rate(self) -> bool {
        self != Self::Small
    }

    /// Measures a path once.
    pub(crate) async fn measure(self, url: &str) -> Result<f64, Failure> {
        match self {
            Self::Small => {
                let (mut socket, request) = (connect(url).await?, request(1, &"x".repeat(SMALL)));
                let mut times = Vec::with_capacity(ONE_BY_ONE);
                for _ in 0..ONE_BY_ONE {
                    let start = Instant::now();
                    socket.send(Message::text(request.clone())).await?;
                    answered(&mut socket).await?;
                    times.push(start.elapsed().as_secs_f64() * 1e6);
                }
                Ok(median(&mut times))
            }
            Self::Stream => {
                let socket = connect(url).await?;
                let start = Instant::now();
                stream(socket, STREAMED).await?;
                Ok(STREAMED as f64 / start.elapsed().as_secs_f64())
            }
            Self::Large => {
                let (mut socket, request) = (connect(url).await?, request(1, &"x".repeat(LARGE)));
                let start = Instant::now();
                for _ in 0..LARGE_ONES {
                    socket.send(Message::text(request.clone())).await?;
                    answered(&mut socket).await?;
                }
                let bytes = (2 * LARGE * LARGE_ONES) as f64;
                Ok(bytes / 1e6 / start.elapsed().as_secs_f64())
            }
            Self::Crowd => {
                let mut sockets = Vec::new();
                for _ in 0..CLIENTS {
                    sockets.push(connect(url).await?);
                }
                let each = STREAMED / CLIENTS;
                let start = Instant::now();
                let mut clients = tokio::task::JoinSet::new();
                for socket in sockets {
                    clients.spawn(stream(socket, each));
                }
                while let Some(done) = clients.join_next().await {
                    done??;
                }
                Ok((each * CLIENTS) as f64 / start.elapsed().as_secs_f64())
            }
        }
    }
}

/// Sends small requests, [`AHEAD`] of them before their answers.
async fn stream(socket: Socket, messages: usize) -> Result<(), Failure> {
    let text = "x".repeat(SMALL);
    let (mut out, mut answers) = socket.split();
    let places = tokio::sync::Semaphore::new(AHEAD);
    let sends = async {
        for id in 0..messages {
            places.acquire().await?.forget();
            out.send(Message::text(request(id, &text))).await?;
        }
        Ok::<_, Failure>(())
    };
    let reads = async {
        for _ in 0..messages {
            answers.next().await.ok_or("closed before its answer")??;
            places.add_permits(1);
        }
        Ok::<_, Failure>(())
    };
    tokio::try_join!(sends, reads)?;
    Ok(())
}

async fn connect(url: &str) -> Result<Socket, Failure> {
    let (socket, _) = connect_async_with_config(url, Some(any_size()), true).await?;
    Ok(socket)
}

fn request(id: usize, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id}{REQUEST}{text}"}}}}"#)
}

async fn answered(socket: &mut Socket) -> Result<(), Failure> {
    let answer = socket.next().await.ok_or("closed before its answer")??;
    match answer {
        Message::Text(text) if text.contains("\"result\"") => Ok(()),
        other => Err(format!("an unexpected answer of {} bytes", other.len()).into()),
    }
}

/// The figures of one path, by the kind of measurement.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<Work, Vec<f64>>);

impl Figures {
    pub(crate) fn add(&mut self, work: Work, figure: f64) {
        self.0.entry(work).or_default().push(figure);
    }

    fn rounds(&self) -> usize {
        self.0.values().map(Vec::len).max().unwrap_or(0)
    }

    /// Least, median and most.
    fn spread(&self, work: Work) -> [f64; 3] {
        spread(self.0.get(&work).cloned().unwrap_or_default())
    }

    /// The ratio to another path, round by round.
    fn ratio(&self, other: &Self, work: Work) -> [f64; 3] {
        let of = |figures: &Self| figures.0.get(&work).cloned().unwrap_or_default();
        let ratios = of(self).into_iter().zip(of(other)).map(|(a, b)| a / b);
        spread(ratios.collect())
    }
}

fn spread(mut figures: Vec<f64>) -> [f64; 3] {
    let middle = median(&mut figures);
    let ends = (figures.first(), figures.last());
    [
        ends.0.copied().unwrap_or(f64::NAN),
        middle,
        ends.1.copied().unwrap_or(f64::NAN),
    ]
}

/// The median; the figures are sorted.
fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The place of `socat` among the paths.
const SOCAT: usize = 1;

pub(crate) fn table(names: &[&str], figures: &[Figures], works: &[Work]) -> String {
    let rounds = figures.first().map_or(0, Figures::rounds);
    let mut out = format!("{rounds} rounds, paths in turns: median (least to most)\n");
    for &work in works {
        out.push_str(&format!("\n{}\n", work.about()));
        for (name, of) in names.iter().zip(figures) {
            let [least, middle, most] = of.spread(work);
            let [low, ratio, high] = of.ratio(&figures[SOCAT], work);
            out.push_str(&format!(
                "  {name:<14} {middle:>9.0} ({least:.0} to {most:.0}), {ratio:.2} x socat ({low:.2} to {high:.2})"
            ));
            if !work.is_rate() {
                let direct = figures[0].spread(work)[1];
                let socat = figures[SOCAT].spread(work)[1] - direct;
                let added = middle - direct;
                out.push_str(&format!(
                    ", adds {added:.0} = {:.1} x socat's",
                    added / socat
                ));
            }
            out.push('\n');
        }
    }
    out
}

pub(crate) fn values(names: &[&str], figures: &[Figures]) -> Value {
    let paths = names.iter().zip(figures).map(|(name, of)| {
        let works =
            of.0.iter()
                .map(|(work, all)| (work.about().to_owned(), json!(all)));
        ((*name).to_owned(), Value::Object(works.collect()))
    });
    Value::Object(paths.collect())
}
