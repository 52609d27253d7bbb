//! Messages that could not be sent are reported to the application that sent them.

use std::time::Duration;

use breakbulk_contextvm::{Client, ClientConfig, Config, Event, Kind, Server, ServerConfig};
use breakbulk_testkit::bad_relay::{BadRelay, Weather};
use breakbulk_testkit::log::{Level, Log};
use tokio::time::timeout;

use super::{PATIENCE, connect, relay_options};

/// A notification is never cut. In a gift wrap it may have about 47 KB, since a relay takes 64 KiB.
// CEP22-20
#[tokio::test]
async fn a_sealed_notification_that_is_too_large_is_reported_and_counted() {
    let log = Log::capture();
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
        let size = format!("size={}", note.len());
        let warning = ["a notification is dropped", &size, "65536"];
        log.assert_line(Level::WARN, &warning);
    }
}

/// A notification, which anybody can send, begins no session; the request after it does.
// PROG-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_begins_with_a_request() {
    let relay = BadRelay::start(Weather::default()).await.unwrap();
    let relays = vec![relay.url().to_owned()];
    let mut setup = ServerConfig::new(breakbulk_contextvm::Keys::generate(), relays);
    setup.relay_options = relay_options();
    let server = Server::bind(setup).await.unwrap();
    let mut sessions = server.sessions();
    let client = connect(&server, &[relay.url()], Config::default()).await;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let answer = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#;
    let ping =
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":"t"}}}"#;
    client.send(note).await.unwrap();
    // No request of the server waits for this response, so the client's machine refuses to send it.
    assert!(client.send(answer).await.is_err());
    client.drained().await;
    client.send(ping).await.unwrap();
    let mut session = timeout(PATIENCE, sessions.recv()).await.unwrap().unwrap();
    let first = session.recv().await.unwrap();
    assert_eq!(first.kind, Kind::Request);
    client.send(note).await.unwrap();
    let second = timeout(PATIENCE, session.recv()).await.unwrap().unwrap();
    assert_eq!(second.kind, Kind::Notification);
    // Once the session is closed, a notification does not begin another.
    session.close();
    client.send(note).await.unwrap();
    client.drained().await;
    session
        .send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
        .await
        .unwrap();
    timeout(PATIENCE, client.recv()).await.unwrap().unwrap();
    assert!(sessions.try_recv().is_err());
}

/// `Stats::outgoing` counts messages that no relay has accepted; closing the client drops them.
#[tokio::test]
async fn what_no_relay_has_taken_is_counted_and_goes_with_the_last_handle() {
    let log = Log::capture();
    let relay = BadRelay::start(Weather {
        delay: Duration::from_secs(3600),
        ..Weather::default()
    })
    .await
    .unwrap();
    let relays = vec![relay.url().to_owned()];
    let nobody = breakbulk_contextvm::Keys::generate().public_key();
    let mut setup = ClientConfig::new(breakbulk_contextvm::Keys::generate(), nobody, relays);
    setup.relay_options = relay_options();
    let client = Client::connect(setup).await.unwrap();
    let note = r#"{"jsonrpc":"2.0","method":"n"}"#;
    client.send(note).await.unwrap();
    assert_eq!(client.stats().outgoing, 1);
    let drained = timeout(Duration::from_millis(200), client.drained()).await;
    assert!(drained.is_err(), "no relay has it");
    client.close();
    assert!(client.event().await.is_none(), "nobody is told");
    log.assert_quiet();
    assert_eq!(relay.events(), 0);
}
