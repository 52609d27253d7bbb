//! The fleet on three NATS servers: any of them dies, and so do members that have nothing to do with the
//! session.

use breakbulk_testkit::bad_path::{After, BadPath, Cut, How, Over, Weather};
use breakbulk_testkit::nats::NatsCluster;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::lines::mixed;
use super::{Members, WS, noted_echo};
use crate::common::Near;
use crate::lines::echo_each;

const MAX_PAYLOAD: usize = 64 << 10;

/// 200 messages over lines that are cut after a few frames, while each NATS server dies in turn, and then a
/// member.
// FLEET-1, FLEET-4
#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_every_nats_server_and_every_other_member() {
    let mut cluster = NatsCluster::start(3, MAX_PAYLOAD).await;
    let fleet = format!("nats://{}?name=cluster", cluster.servers());
    let more = ["--max-frame", "20KB"];
    let members = spawn_blocking(move || Members::start(WS, &fleet, noted_echo, &more));
    let mut members = members.await.unwrap();
    let path = BadPath::start(members.balancer.address, Weather::default());
    let path = path.await.unwrap();
    path.cut_after(Cut {
        after: After::Frames(20),
        counting: None,
        over: Over::EachConnection,
        how: How::Reset,
    });
    let to = format!("ws://{}/", path.address());
    let echoed = spawn_blocking(move || {
        let mut near = Near::new(&["--listen", "stdio:", "--to", &to, "--max-frame", "20KB"]);
        echo_each(&mut near, &mixed(), |number| match number {
            20 | 70 | 120 => cluster.kill(number / 50),
            50 | 100 | 150 => Handle::current().block_on(cluster.restart(number / 50 - 1)),
            170 => {
                let owner = members.owner();
                members.kill((owner + 1) % 3);
            }
            _ => {}
        });
        (near, members, cluster)
    });
    let (near, mut members, _cluster) = echoed.await.unwrap();
    assert!(path.counts().cuts >= 20, "{:?}", path.counts());
    let sent = members.balancer.sent();
    assert!(sent.iter().all(|count| *count >= 5), "{sent:?}");
    let owner = members.owner();
    spawn_blocking(move || {
        members.kill(owner);
        near.log
            .line("the member of the other gateway's fleet that had this session is gone");
        assert_eq!(members.started().iter().sum::<usize>(), 1);
    })
    .await
    .unwrap();
}
