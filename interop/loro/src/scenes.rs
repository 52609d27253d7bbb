//! The test scenarios with clients of one implementation and a server of the other, over each transport.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use breakbulk::loro::Way;

use crate::client::{Client, PATIENCE};
use crate::hub::{Hub, Whose};
use crate::state::State;

const DOC: &str = "shared";

/// The roots that an edit of each client changes, one of each kind of container.
const KINDS: [&str; 6] = ["counter", "list", "map", "movable", "text", "tree"];

/// The implementations of server and clients, and the transport between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The server.
    pub hub: Whose,
    /// The clients.
    pub client: Whose,
    /// Their transport.
    pub way: Way,
}

impl Row {
    async fn join(&self, name: &str, hub: &Hub) -> Result<Client> {
        let client = Client::start(self.client, name, self.way, &hub.url()).await;
        client.with_context(|| format!("client {name}"))
    }
}

/// Runs a scenario for each row, and fails with all rows that failed.
pub async fn each<F>(rows: &[Row], scene: impl Fn(Row) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let mut failed = Vec::new();
    for row in rows {
        let start = tokio::time::Instant::now();
        match scene(*row).await {
            Ok(()) => println!("{row:?}: {:.1} s", start.elapsed().as_secs_f64()),
            Err(error) => failed.push(format!("{row:?}: {error:#}")),
        }
    }
    ensure!(
        failed.is_empty(),
        "{} rows fail:\n{}",
        failed.len(),
        failed.join("\n\n")
    );
    Ok(())
}

/// A client waits to sync a document that nobody has, and then begins it.
pub async fn new_document(row: Row) -> Result<()> {
    let hub = Hub::start(row.hub).await?;
    let mut one = row.join("one", &hub).await?;
    one.wait_for_sync(DOC).await.context("a new document")?;
    let empty = one.state(DOC).await?;
    ensure!(empty.version.is_empty(), "a new document has {empty:?}");
    let mut two = row.join("two", &hub).await?;
    two.wait_for_sync(DOC).await.context("an empty document")?;
    let begun = one.edit(DOC, "one").await?;
    let came = two.until(DOC, &begun.version, PATIENCE).await?;
    ensure!(came == begun, "{came:?} instead of {begun:?}");
    leave([one, two], hub).await
}

/// A client that waits to sync a document which exists has its content afterwards. All edits of
/// all kinds of containers reach all clients.
pub async fn existing_document(row: Row) -> Result<()> {
    let hub = Hub::start(row.hub).await?;
    let mut one = row.join("one", &hub).await?;
    let mut two = row.join("two", &hub).await?;
    let begun = one.edit(DOC, "one").await?;
    let came = two
        .until(DOC, &begun.version, PATIENCE)
        .await
        .context("the first edit")?;
    ensure!(came == begun, "{came:?} instead of {begun:?}");

    let mut three = row.join("three", &hub).await?;
    three
        .wait_for_sync(DOC)
        .await
        .context("an existing document")?;
    let synced = three.state(DOC).await?;
    ensure!(
        synced == begun,
        "synced with {synced:?} instead of {begun:?}"
    );

    two.edit(DOC, "two").await?;
    let mut clients = [one, two, three];
    converge(&mut clients)
        .await
        .context("an edit of the second")?;
    clients[2].edit(DOC, "three").await?;
    converge(&mut clients)
        .await
        .context("an edit of the third")?;
    let json = clients[0].json(DOC).await?;
    for kind in KINDS {
        let text = json[kind].to_string();
        // Each of the three clients adds 2.5.
        let all = if kind == "counter" {
            json[kind].as_f64() == Some(7.5)
        } else {
            ["one", "two", "three"]
                .iter()
                .all(|name| text.contains(name))
        };
        ensure!(all, "{kind} is {text}");
    }
    leave(clients, hub).await
}

/// A client that has left a document is no longer seen, neither by those who are there nor by later ones.
pub async fn presence(row: Row) -> Result<()> {
    let hub = Hub::start(row.hub).await?;
    let mut one = row.join("one", &hub).await?;
    let mut two = row.join("two", &hub).await?;
    let mut three = row.join("three", &hub).await?;
    let begun = one.edit(DOC, "one").await?;
    for client in [&mut two, &mut three] {
        client.until(DOC, &begun.version, PATIENCE).await?;
    }
    let [first, second, third] = [&one, &two, &three].map(Client::peer_id);
    let all = [first.as_str(), second.as_str(), third.as_str()];
    for client in [&mut one, &mut two, &mut three] {
        client.appear(DOC).await?;
    }
    for client in [&mut one, &mut two, &mut three] {
        client
            .until_present(DOC, &all)
            .await
            .context("all are there")?;
    }
    let mut later = row.join("later", &hub).await?;
    later
        .until_present(DOC, &all)
        .await
        .context("a newcomer sees all")?;

    one.leave().await?;
    let rest = [all[1], all[2]];
    for client in [&mut two, &mut three, &mut later] {
        client
            .until_present(DOC, &rest)
            .await
            .context("one has left")?;
    }
    // A polling client that dies is noticed only after two minutes without a poll, so this one leaves.
    if row.way == Way::Poll {
        three.leave().await?;
    } else {
        three.kill().await?;
    }
    for client in [&mut two, &mut later] {
        client
            .until_present(DOC, &[all[1]])
            .await
            .context("another one died")?;
    }
    let mut last = row.join("last", &hub).await?;
    last.until_present(DOC, &[all[1]])
        .await
        .context("a newcomer after both")?;
    // Presence that the hub sent to the newcomer before arrives before an edit that is made now.
    let edited = two.edit(DOC, "two").await?;
    last.until(DOC, &edited.version, PATIENCE).await?;
    last.until_present(DOC, &[all[1]])
        .await
        .context("a ghost came late")?;
    leave([two, later, last], hub).await
}

/// First the server, then a client is killed and started again: no edit made meanwhile is lost.
pub async fn restarts(row: Row) -> Result<()> {
    let hub = Hub::start(row.hub).await?;
    let mut clients = [row.join("one", &hub).await?, row.join("two", &hub).await?];
    clients[0].edit(DOC, "one").await?;
    converge(&mut clients).await.context("before")?;
    let down = hub.kill().await?;
    clients[0].edit(DOC, "one, alone").await?;
    clients[1].edit(DOC, "two, alone").await?;
    let hub = down.start().await?;
    converge(&mut clients)
        .await
        .context("after a restart of the server")?;
    clients[1].edit(DOC, "two, again").await?;
    let whole = converge(&mut clients)
        .await
        .context("an edit after the restart")?;

    let [one, two] = clients;
    one.kill().await?;
    let mut one = row.join("one, again", &hub).await?;
    one.wait_for_sync(DOC)
        .await
        .context("a client that was started again")?;
    let found = one.state(DOC).await?;
    ensure!(found == whole, "synced with {found:?} instead of {whole:?}");
    one.edit(DOC, "one, again").await?;
    let mut clients = [one, two];
    converge(&mut clients)
        .await
        .context("after a restart of a client")?;
    leave(clients, hub).await
}

/// A document with so many bytes of text goes from one client to another.
pub async fn large(row: Row, bytes: usize, within: Duration) -> Result<()> {
    let hub = Hub::start(row.hub).await?;
    let mut one = row.join("one", &hub).await?;
    let mut two = row.join("two", &hub).await?;
    let filled = one.fill(DOC, bytes, within).await?;
    let came = two.until(DOC, &filled.version, within).await?;
    ensure!(came == filled, "{came:?} instead of {filled:?}");
    two.edit(DOC, "two").await?;
    let mut clients = [one, two];
    converge(&mut clients)
        .await
        .context("an edit of the large document")?;
    leave(clients, hub).await
}

/// Waits until all clients have what any of them has, and returns that state.
async fn converge<const N: usize>(clients: &mut [Client; N]) -> Result<State> {
    let mut all = crate::state::Version::new();
    for client in clients.iter_mut() {
        for (peer, counter) in client.state(DOC).await?.version {
            let most = all.entry(peer).or_default();
            *most = counter.max(*most);
        }
    }
    let mut states = Vec::new();
    for client in clients.iter_mut() {
        states.push(client.until(DOC, &all, PATIENCE).await?);
    }
    let differ = states.iter().any(|state| *state != states[0]);
    ensure!(!differ, "they differ: {states:#?}");
    Ok(states.swap_remove(0))
}

async fn leave<const N: usize>(clients: [Client; N], hub: Hub) -> Result<()> {
    for client in clients {
        client.leave().await.context("a client leaves")?;
    }
    hub.stop().await.context("the hub stops")
}
