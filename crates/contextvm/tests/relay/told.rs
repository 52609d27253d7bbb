//! What could not be sent is told to whoever sent it.

use breakbulk_contextvm::{Config, Event, Kind, Server, ServerConfig};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use tokio::time::timeout;

use super::{PATIENCE, connect, relay_options};

/// A notification is never cut, and in a gift wrap a relay's 64 KiB hold about 47 KB of it.
// CEP22-20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_notification_that_is_too_large_is_reported_and_counted() {
    let relay = BadRelay::start(Weather::default()).await.unwrap();
    let relays = vec![relay.url().to_owned()];
    let mut setup = ServerConfig::new(breakbulk_contextvm::Keys::generate(), relays);
    setup.relay_options = relay_options();
    let server = Server::bind(setup).await.unwrap();
    let mut sessions = server.sessions();
    let client = connect(&server, &[relay.url()], Config::default()).await;
    client
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
        .await
        .unwrap();
    let mut session = timeout(PATIENCE, sessions.recv()).await.unwrap().unwrap();
    assert_eq!(session.recv().await.unwrap().kind, Kind::Request);

    for (size, lost) in [(40_000, 0), (50_000, 1), (60_000, 2), (100_000, 3)] {
        let data = "x".repeat(size);
        let note = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{data}"}}}}"#
        );
        let sent = session.send(note.clone()).await.unwrap();
        if lost == 0 {
            let message = timeout(PATIENCE, client.recv()).await.unwrap().unwrap();
            assert_eq!(message.bytes, note);
            continue;
        }
        let event = timeout(PATIENCE, session.event()).await.unwrap().unwrap();
        let Event::Failed {
            id, kind, failure, ..
        } = event
        else {
            panic!("{event:?}");
        };
        assert_eq!((id, kind), (sent, Kind::Notification), "{size}");
        assert_eq!(failure.reason(), "messageTooLarge", "{failure}");
        assert!(failure.to_string().contains("65536"), "{failure}");
        assert_eq!(server.stats().lost, lost);
    }
}
