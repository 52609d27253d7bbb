//! A path that is slow, or far.

use std::time::{Duration, Instant};

use breakbulk_testkit::bad_path::{BadPath, Way, Weather};
use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{Seen, connect, echo, round_trip, soon, text};

#[tokio::test]
async fn a_pace_is_not_exceeded_and_can_change() {
    let (server, _seen) = echo().await;
    let mut weather = Weather::default();
    weather.from_client.pace = Some(4_000_000);
    let path = BadPath::start(server, weather).await.unwrap();
    let mut client = soon(connect(&path)).await.unwrap();
    let paced = round_trip(&mut client, 2_000_000).await;
    println!("2 MB at 4 MB/s: {paced:?}");
    assert!(paced >= Duration::from_millis(400));
    path.change(|weather| {
        weather.from_client.pace = None;
        weather.from_target.pace = Some(4_000_000);
    });
    let paced = round_trip(&mut client, 2_000_000).await;
    println!("and back: {paced:?}");
    assert!(paced >= Duration::from_millis(400));
    path.change(|weather| weather.from_target.pace = None);
    println!("and free: {:?}", round_trip(&mut client, 2_000_000).await);
}

#[tokio::test]
async fn little_hides_in_the_system_on_a_paced_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let weather = Weather::both_ways(Way {
        pace: Some(1000),
        ..Way::default()
    });
    let path = BadPath::start_tcp(listener.local_addr().unwrap(), weather)
        .await
        .unwrap();
    let client = TcpStream::connect(path.address()).await.unwrap();
    socket2::SockRef::from(&client)
        .set_send_buffer_size(4096)
        .unwrap();
    let _target = listener.accept().await.unwrap();
    let mut accepted = 0;
    // Writes until the path takes no more for a while; at this pace a second is 1,000 bytes.
    while let Ok(written) = tokio::time::timeout(Duration::from_millis(300), async {
        client.writable().await.unwrap();
        client.try_write(&[0; 4096])
    })
    .await
    {
        accepted += written.unwrap_or(0);
    }
    println!("{accepted} bytes were taken");
    assert!(accepted < 96 * 1024, "{accepted} bytes hide in buffers");
}

#[tokio::test]
async fn bytes_are_delayed_in_each_direction_and_keep_their_order() {
    let (server, mut seen) = echo().await;
    let mut weather = Weather::default();
    weather.from_client.delay = Duration::from_millis(60);
    weather.from_target.delay = Duration::from_millis(90);
    let path = BadPath::start(server, weather).await.unwrap();
    let mut client = soon(connect(&path)).await.unwrap();
    let began = Instant::now();
    for length in 1..=50 {
        client.send(text(length)).await.unwrap();
    }
    for length in 1..=50 {
        assert_eq!(soon(client.next()).await.unwrap().unwrap().len(), length);
    }
    let took = began.elapsed();
    println!("50 messages with 150 ms of delay: {took:?}");
    assert!(took >= Duration::from_millis(150));
    // All were under way together.
    assert!(took < Duration::from_millis(50 * 150));
    assert_eq!(seen.recv().await, Some(Seen::Message(1)));
    path.change(|weather| *weather = Weather::default());
    round_trip(&mut client, 1).await;
}
