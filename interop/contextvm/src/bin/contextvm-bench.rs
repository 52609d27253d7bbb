//! Compares how fast a large result goes over one relay: from this project's server to its client, and from
//! the SDK's server to its client, in turns within one run. `--json` prints the figures for machines.

use anyhow::Result;
use breakbulk::contextvm::{Config, Encryption, Keys};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use interop_contextvm::call::Call;
use interop_contextvm::matrix::{EVENT_MAX, LARGE};
use interop_contextvm::ours::{self, Caller};
use interop_contextvm::peer::{Peer, Sdk};
use interop_contextvm::text::Text;
use serde_json::json;

const ROUNDS: usize = 3;

/// How many times as fast as the SDK's pair this project's pair must be.
const TIMES: f64 = 5.0;

/// How many times fewer events than the SDK's pair this project's pair must send.
const FEWER: f64 = 3.0;

/// The figures of one pair: its best time, its events in one round, and its largest event.
#[derive(Clone, Copy)]
struct Figures {
    seconds: f64,
    events: u64,
    largest: usize,
}

impl Figures {
    const NONE: Self = Self {
        seconds: f64::INFINITY,
        events: 0,
        largest: 0,
    };

    fn add(&mut self, seconds: f64, relay: &BadRelay) {
        self.seconds = self.seconds.min(seconds);
        self.events = relay.events();
        self.largest = self.largest.max(relay.largest());
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let machine = std::env::args()
        .skip(1)
        .any(|argument| argument == "--json");
    let (ours, theirs) = measure().await?;
    let times = theirs.seconds / ours.seconds;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let fewer = theirs.events as f64 / ours.events as f64;
    if machine {
        let figures = |figures: Figures| json!({"seconds": figures.seconds, "events": figures.events, "largest": figures.largest});
        println!(
            "{}",
            json!({"ours": figures(ours), "theirs": figures(theirs), "times": times, "fewer": fewer})
        );
        return Ok(());
    }
    println!("ContextVM: a result of {LARGE} bytes over one relay, best of {ROUNDS}");
    for (name, figures) in [("the SDK's own pair", theirs), ("ours", ours)] {
        println!(
            "{name:<20} {:>6.2} s, {:>4} events, the largest of {} bytes",
            figures.seconds, figures.events, figures.largest
        );
    }
    let mark = |good: bool| if good { "PASS" } else { "FAIL" };
    println!(
        "{} {times:.1} times as fast (at least {TIMES})",
        mark(times >= TIMES)
    );
    println!(
        "{} {fewer:.1} times fewer events (at least {FEWER})",
        mark(fewer >= FEWER)
    );
    let largest = ours.largest;
    println!(
        "{} the largest event has {largest} bytes (at most {EVENT_MAX})",
        mark(largest <= EVENT_MAX)
    );
    Ok(())
}

async fn measure() -> Result<(Figures, Figures)> {
    let relay = BadRelay::start(Weather::default()).await?;
    let plain = Config::default().with(|config| config.encryption = Encryption::Disabled);
    let plan = json!({"relay": relay.url(), "encryption": "disabled"});
    let their_server = Peer::server(Sdk::Npm, &plan).await?;
    let mut their_client = Peer::client(Sdk::Npm, &their_server.key, &plan).await?;
    let our_server = ours::serve(relay.url(), Keys::generate(), plain.clone()).await?;
    let key = our_server.public_key();
    let mut our_client = Caller::connect(relay.url(), Keys::generate(), key, plain).await?;
    // The first messages of a new pair carry the discovery tags: they are not measured.
    let small = Call::new(Text::Ascii, 10, 10);
    their_client.call(small).await?.whole(small)?;
    our_client.call(small).await?.whole(small)?;
    let call = Call::new(Text::Ascii, 10, LARGE);
    let (mut ours, mut theirs) = (Figures::NONE, Figures::NONE);
    for _ in 0..ROUNDS {
        relay.reset();
        theirs.add(their_client.call(call).await?.whole(call)?.seconds, &relay);
        relay.reset();
        ours.add(our_client.call(call).await?.whole(call)?.seconds, &relay);
    }
    their_client.stop().await?;
    their_server.stop().await?;
    Ok((ours, theirs))
}
