//! Tests of routes whose listener failed.

use super::*;
use crate::{Config, LearnedCaps};

fn route(command: &str, caps: &Arc<LearnedCaps>) -> Route {
    let config = Config::default().with(|config| config.learned_caps = caps.clone());
    let (listen, to) = ("ws://127.0.0.1:0".parse(), command.parse());
    Route::new("route", listen.unwrap(), to.unwrap(), config)
}

#[tokio::test]
async fn what_is_left_of_a_failed_route_ends_unless_it_is_started_again_unchanged() {
    let caps = Arc::default();
    let reloads = [
        (vec![route("exec:cat", &caps)], true),
        (vec![route("exec:sed p", &caps)], false),
        (vec![], false),
    ];
    for (reloaded, goes_on) in reloads {
        let first = vec![route("exec:cat", &caps)];
        let mut routes = Routes::start(first, 1 << 30, |_, _| {}).await.unwrap();
        // The phase of a route whose listener has failed while sessions go on.
        let (_closed, phase) = watch::channel(Phase::Closed);
        routes.running[0].phase = phase;
        let (count, is_gone) = (reloaded.len(), reloaded.is_empty());
        let changes = routes.reload(reloaded, 1 << 30).await.unwrap();
        assert_eq!((changes.kept, changes.started.len()), (0, count));
        assert_eq!(changes.stopped.len(), usize::from(is_gone));
        let first = routes.running.iter().find(|running| running.id == 0);
        let stopped = first.is_none_or(|running| running.is_stopping);
        assert_eq!(stopped, !goes_on);
        for end in routes.stop().await {
            end.outcome.unwrap();
        }
    }
}
