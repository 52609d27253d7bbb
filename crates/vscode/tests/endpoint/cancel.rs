//! Tests of cancellation, in both directions.

use std::sync::Arc;

use breakbulk_message::vscode::SerializedError;
use breakbulk_vscode::{Actor, Actors, CallError, Config, Returned};
use tokio::sync::mpsc;

use crate::common::{config, id, pair};

/// An actor whose `$wait` tells when it begins and when it is cancelled.
fn waiting(told: mpsc::UnboundedSender<&'static str>) -> Config {
    let told = Arc::new(told);
    let actor = Actor::new().method("$wait", move |incoming| {
        let told = told.clone();
        async move {
            told.send("begun").unwrap();
            let cancellation = incoming.cancellation();
            cancellation.cancelled().await;
            assert!(cancellation.is_cancelled());
            told.send("cancelled").unwrap();
            let [reply]: [String; 1] = incoming.args()?;
            match reply.as_str() {
                "canceled" => Err(SerializedError::canceled().into()),
                _ => Returned::json(&7),
            }
        }
    });
    Config::default().with(|config| config.actors = Actors::new().add(id(), "Waiter", actor))
}

#[tokio::test]
async fn the_callee_decides_what_a_cancelled_call_gives() {
    let (told, mut hears) = mpsc::unbounded_channel();
    let (a, _b) = pair(config(), waiting(told));
    for (reply, expected) in [("7", Ok(7)), ("canceled", Err("Canceled: Canceled"))] {
        let mut call = a.remote(id()).cancellable().call("$wait", &[reply]);
        assert_eq!(hears.recv().await, Some("begun"));
        call.cancel();
        call.cancel();
        let outcome = call.await.map(|answer| answer.typed::<i32>().unwrap());
        assert_eq!(hears.recv().await, Some("cancelled"));
        assert_eq!(
            outcome.map_err(|error| error.to_string()),
            expected.map_err(str::to_owned)
        );
    }
}

#[tokio::test]
async fn a_dropped_call_cancels() {
    let (told, mut hears) = mpsc::unbounded_channel();
    let (a, _b) = pair(config(), waiting(told));
    let call = a.remote(id()).cancellable().call("$wait", &["7"]);
    assert_eq!(hears.recv().await, Some("begun"));
    drop(call);
    assert_eq!(hears.recv().await, Some("cancelled"));
    // The late reply is ignored.
    let error = a.remote(id()).call("$x", &[0]).await.unwrap_err();
    assert!(matches!(error, CallError::Thrown(_)));
}

#[tokio::test]
async fn a_call_cancelled_before_it_was_sent_is_never_sent() {
    let (told, mut hears) = mpsc::unbounded_channel();
    let (a, _b) = pair(config(), waiting(told));
    // There is no await between these lines, so the endpoint's task has not seen the call.
    let mut call = a.remote(id()).cancellable().call("$wait", &["7"]);
    call.cancel();
    assert_eq!(call.await.unwrap_err(), CallError::Canceled);
    drop(a.remote(id()).cancellable().call("$wait", &["7"]));
    let error = a.remote(id()).call("$x", &[0]).await.unwrap_err();
    assert!(matches!(error, CallError::Thrown(_)));
    assert!(hears.try_recv().is_err());
}
