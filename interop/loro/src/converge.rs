//! Two Rust peers and a browser edit one document at once, each over another transport, while their
//! connections break: at the end all have the same document, and no edit is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use breakbulk::loro::Way;
use loro::{LoroDoc, ToJson};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::browser::{Browser, Edits, Page};
use crate::content::Random;
use crate::party::{Party, next_cut};
use crate::server::Server;
use crate::state::{State, until, version_of};

const DOC: &str = "together";

/// The time between two edits of one peer. Over some transports each edit is a POST, which is answered once
/// the edit is stored: a busy machine must keep up.
const EVERY: Duration = Duration::from_millis(40);

/// Which transports the peers use, and how long they edit.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The browser's way.
    pub browser: Way,
    /// The ways of the two Rust peers; no data channels.
    pub peers: [Way; 2],
    /// How long they edit.
    pub time: Duration,
    /// The seed for the places of edits and the times of cuts.
    pub seed: u64,
}

/// What happened.
#[derive(Debug)]
pub struct Outcome {
    /// Edits of the first Rust peer, the second, and the browser.
    pub edits: [u64; 3],
    /// Connections that each made; for the Rust peers, of TCP.
    pub connections: [u64; 3],
    /// From the last edit until the server, each Rust peer and the browser had everything.
    pub settled: Vec<Duration>,
    /// Updates that the browser received before the answer to which they are relative.
    pub early: u64,
    /// Updates that the browser received without the updates they depend on.
    pub gaps: u64,
}

impl Plan {
    /// Runs the plan. Fails if a document differs or an edit is lost.
    pub async fn run(&self, browser: &Browser) -> Result<Outcome> {
        let server = Server::start().await?;
        let kept = server.node.open(DOC).await?;
        let one = Party::join("one", self.peers[0], server.address, DOC).await?;
        let two = Party::join("two", self.peers[1], server.address, DOC).await?;
        let page = browser.page("three", self.browser, &server.url()).await?;
        page.call("open", json!([DOC])).await?;
        page.connect().await?;

        let options = json!({"name": "three", "every": EVERY.as_millis(), "seed": self.seed});
        page.call("beginEdits", json!([DOC, options])).await?;
        let end = Instant::now() + self.time;
        let mut randoms = [1, 2, 3].map(|number| Random::new(self.seed * 10 + number));
        let [first, second, third] = &mut randoms;
        let (one_made, two_made, cut) = tokio::join!(
            one.edit_until(end, EVERY, first),
            two.edit_until(end, EVERY, second),
            cut_until(&page, end, third),
        );
        cut?;
        let three_made: Edits = page.ask("endEdits", json!([])).await?;
        let ended = Instant::now();

        let mut all = three_made.version.clone();
        for doc in [&one.doc, &two.doc] {
            for (peer, counter) in version_of(&doc.loro()) {
                let most = all.entry(peer).or_default();
                *most = counter.max(*most);
            }
        }
        let (server, first, second, third) = tokio::join!(
            timed(ended, until(&kept, &all)),
            timed(ended, until(&one.doc, &all)),
            timed(ended, until(&two.doc, &all)),
            timed(ended, page.until(DOC, &all)),
        );
        let arrived: Result<Vec<_>> = [server, first, second, third].into_iter().collect();
        let (states, settled): (Vec<_>, Vec<_>) = match arrived {
            Ok(arrived) => arrived.into_iter().unzip(),
            Err(error) => {
                let page = page.call("counts", json!([])).await;
                let (one, two) = (one.describe(), two.describe());
                bail!("{error:#}; {one}; {two}; the page: {page:?}");
            }
        };
        ensure!(
            states.iter().all(|state| *state == states[0]),
            "the server, both Rust peers and the browser differ: {states:#?}"
        );
        let edits = [one_made?, two_made?, three_made.count];
        let made = [("one", edits[0]), ("two", edits[1]), ("three", edits[2])];
        nothing_lost(&kept.loro(), &made)?;
        let counts = page.counts().await?;
        Ok(Outcome {
            edits,
            connections: [
                one.path.counts().accepted,
                two.path.counts().accepted,
                counts.opened,
            ],
            settled,
            early: counts.early,
            gaps: counts.gaps,
        })
    }
}

/// Breaks the page's connections again and again.
async fn cut_until(page: &Page, end: Instant, random: &mut Random) -> Result<()> {
    loop {
        let at = next_cut(random);
        if at >= end {
            sleep_until(end).await;
            return Ok(());
        }
        sleep_until(at).await;
        page.call("cut", json!([])).await?;
    }
}

async fn timed(
    start: Instant,
    settles: impl Future<Output = Result<State>>,
) -> Result<(State, Duration)> {
    Ok((settles.await?, start.elapsed()))
}

/// Checks that each edit is there once, in the list and in the map, and that there is nothing else.
fn nothing_lost(doc: &LoroDoc, made: &[(&str, u64)]) -> Result<()> {
    let entries = made
        .iter()
        .flat_map(|(name, count)| (0..*count).map(move |number| format!("{name} {number}")));
    let entries: BTreeSet<String> = entries.collect();
    let value = doc.get_deep_value().to_json_value();
    let list: Vec<String> = serde_json::from_value(value["list"].clone())?;
    let told = list.len();
    let list: BTreeSet<String> = list.into_iter().collect();
    ensure!(
        told == list.len(),
        "the list has {} entries twice",
        told - list.len()
    );
    let map: BTreeSet<String> = match &value["map"] {
        Value::Object(map) => map.keys().cloned().collect(),
        _ => BTreeSet::new(),
    };
    for (place, found) in [("list", list), ("map", map)] {
        let lost: Vec<_> = entries.difference(&found).take(10).collect();
        let foreign: Vec<_> = found.difference(&entries).take(10).collect();
        ensure!(
            lost.is_empty() && foreign.is_empty(),
            "the {place} lost {lost:?} and has {foreign:?} that nobody made"
        );
    }
    let letters = doc.get_text("text").len_unicode();
    ensure!(letters == entries.len(), "the text has {letters} letters");
    Ok(())
}
