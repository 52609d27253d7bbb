//! Runs a client that follows a session to its end: this project's, and that of the crate `ahp`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ahp::{Client as RealClient, ClientConfig as RealConfig, SubscriptionEvent};
use ahp_types::actions::{ActionEnvelope, StateAction};
use ahp_types::commands::ReconnectResult;
use breakbulk_ahp::foreign::Sessions;
use breakbulk_ahp::transport::Segmenting;
use breakbulk_ahp::{Client, ClientConfig, ClientError, Event};
use tokio::sync::watch;

use crate::random::Random;
use crate::session::{Plan, World};
use crate::tape::{CHANNEL, Tape, title};

/// More virtual time than any session needs.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);

/// What a session has led to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) published: Tape,
    pub(crate) applied: Tape,
    pub(crate) frames: u64,
    pub(crate) lines: u64,
    pub(crate) snapshots: u64,
}

/// Runs a session with our client.
pub(crate) fn ours(plan: Plan) -> Outcome {
    run(plan, |world| async move {
        let mut config = ClientConfig::new("c");
        config.connection = plan.config();
        let client = Client::new(config);
        let tape = Arc::new(watch::Sender::new(Tape::default()));
        let snapshots = Arc::new(Mutex::new(0));
        let reader = tokio::spawn(read(client.clone(), tape.clone(), snapshots.clone(), plan));
        let mut started = false;
        let connecting = async {
            loop {
                let (line, mut ended) = world.connect();
                let outcome = if started {
                    client.reconnect(line).await.map(drop)
                } else {
                    client.initialize(line, &[CHANNEL]).await.map(drop)
                };
                match outcome {
                    Ok(()) => {
                        started = true;
                        world.begin();
                        let _ = ended.wait_for(|ended| *ended).await;
                    }
                    Err(ClientError::Disconnected { .. }) => {}
                    Err(error) => panic!("{plan:?}: {error}"),
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let done = finished(&world, tape.subscribe());
        tokio::select! {
            biased;
            () = done => {}
            () = connecting => {}
        }
        reader.abort();
        let snapshots = *snapshots.lock().unwrap();
        (*tape.borrow(), snapshots)
    })
}

/// Waits until the client has the last action.
async fn finished(world: &World, mut tape: watch::Receiver<Tape>) {
    let last = *world
        .last
        .subscribe()
        .wait_for(|last| *last > 0)
        .await
        .unwrap();
    tape.wait_for(|tape| tape.seq >= last).await.unwrap();
    // Time for an action to arrive a second time, if it were sent again.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

async fn read(
    client: Client,
    tape: Arc<watch::Sender<Tape>>,
    snapshots: Arc<Mutex<u64>>,
    plan: Plan,
) {
    let mut random = Random::new(plan.seed ^ 0x51);
    loop {
        let Some(event) = client.next().await else {
            // The client has no connection at the moment.
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        match event {
            Event::Action(action) => {
                tape.send_modify(|tape| tape.apply(action.seq, title(action.action.as_str())));
            }
            Event::Snapshot(snapshot) => {
                *snapshots.lock().unwrap() += 1;
                tape.send_replace(Tape::read(snapshot.state.as_str()));
            }
            _ => {}
        }
        if random.chance(20) {
            tokio::time::sleep(random.up_to(plan.slow)).await;
        }
    }
}

/// Runs a session with the client of the crate `ahp` over this project's transport.
pub(crate) fn real(plan: Plan) -> Outcome {
    run(plan, |world| async move {
        let sessions = Sessions::default();
        let tape = watch::Sender::new(Tape::default());
        let mut started = false;
        let connecting = async {
            loop {
                let (line, _) = world.connect();
                let carrier = Segmenting::over(line, plan.config(), sessions.clone()).unwrap();
                let config = RealConfig {
                    subscription_buffer: 100_000,
                    ..RealConfig::default()
                };
                let client = RealClient::connect(carrier, config).await.unwrap();
                let mut events = client.events();
                let shaken = if started {
                    // As the crate's own runtime does: from the largest number it saw.
                    let last = tape.borrow().seq;
                    let subscriptions = vec![CHANNEL.to_owned()];
                    match client.reconnect("c".into(), last, subscriptions).await {
                        Ok(ReconnectResult::Replay(replay)) => {
                            for action in &replay.actions {
                                apply(&tape, action);
                            }
                            true
                        }
                        Ok(other) => panic!("{other:?}"),
                        Err(_) => false,
                    }
                } else {
                    let versions = vec!["1.0.0".to_owned()];
                    let subscriptions = vec![CHANNEL.to_owned()];
                    client
                        .initialize("c".into(), versions, subscriptions)
                        .await
                        .is_ok()
                };
                if shaken {
                    started = true;
                    world.begin();
                }
                while shaken && let Some(event) = events.recv().await {
                    if let SubscriptionEvent::Action(action) = &event.event {
                        apply(&tape, action);
                    }
                }
                client.shutdown().await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let done = finished(&world, tape.subscribe());
        tokio::select! {
            biased;
            () = done => {}
            () = connecting => {}
        }
        (*tape.borrow(), 0)
    })
}

fn apply(tape: &watch::Sender<Tape>, action: &ActionEnvelope) {
    let StateAction::SessionTitleChanged(changed) = &action.action else {
        panic!("{action:?}");
    };
    let seq = i64::try_from(action.server_seq).unwrap();
    tape.send_modify(|tape| tape.apply(seq, &changed.title));
}

/// Runs a session on one thread, with a clock that jumps to the next timer.
fn run<F: Future<Output = (Tape, u64)>>(
    plan: Plan,
    follow: impl FnOnce(Arc<World>) -> F,
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::new(plan);
        let publishing = tokio::spawn(world.clone().publish());
        let followed = tokio::time::timeout(PATIENCE, follow(world.clone())).await;
        let Ok((applied, snapshots)) = followed else {
            panic!("no end: {plan:?}");
        };
        publishing.await.unwrap();
        let (frames, lines) = world.frames();
        Outcome {
            published: world.published(),
            applied,
            frames,
            lines,
            snapshots,
        }
    })
}
