//! Runs routes until a signal stops them; SIGHUP reads their file again.

use std::future::pending;
use std::time::Duration;

use breakbulk::gateway::{Changes, Event, RouteEnd, Routes, Traces, TracesExporter};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::admin::AdminOptions;
use super::explain::{self, Spelling};
use super::notify;
use super::setup::{Refusal, Setup, Wanted};
use super::traces::Exporting;
use crate::failure::Failure;
use crate::log;
use crate::signals::{HangUps, Stop};

/// Runs the routes until all of them have ended or a signal stops them; a second signal does not wait for
/// what is queued.
pub(super) async fn run(
    setup: Setup,
    wanted: Wanted,
    admin: &AdminOptions,
    traces: Option<(Traces, TracesExporter)>,
) -> Result<(), Failure> {
    let signals = watch_signals(setup.spelling())?;
    let exporting = Exporting::start(traces, setup.spelling()).await?;
    let admin = admin.open(&setup.watch).await?;
    let outcome = serve(setup, wanted, signals).await;
    if let Some(admin) = admin {
        admin.end().await;
    }
    exporting.finish().await;
    outcome
}

async fn serve(
    mut setup: Setup,
    wanted: Wanted,
    (signals, mut hang_ups): (Stop, Option<HangUps>),
) -> Result<(), Failure> {
    let spelling = setup.spelling();
    let (routes, memory) = (wanted.understood.routes.clone(), wanted.settings.memory);
    let start = Routes::start(routes, memory, move |name, event| {
        tell(spelling, name, event)
    });
    let mut routes = tokio::select! {
        started = start => match started {
            Ok(routes) => routes,
            Err(faults) => return Err(wanted.refuse(&faults, Vec::new()).into_failure()),
        },
        () = signals.asked() => return Ok(()),
    };
    notify::ready(&status(&routes));
    let mut alive = notify::alive_every().map(ticks);
    let mut outcome = Ok(());
    loop {
        tokio::select! {
            end = routes.ended() => match end {
                Some(end) => outcome = tell_end(spelling, end).and(outcome),
                None => return outcome,
            },
            () = signals.asked() => break,
            () = hung_up(&mut hang_ups) => tokio::select! {
                () = while_alive(reload(&mut setup, &mut routes), &mut alive) => {}
                () = signals.asked() => break,
            },
            () = tick(&mut alive) => notify::alive(),
        }
    }
    notify::stopping("stopping: queued messages are still sent");
    tokio::select! {
        ends = while_alive(routes.stop(), &mut alive) => {
            let mut outcomes = ends.into_iter().map(|end| tell_end(spelling, end));
            outcomes.find(Result::is_err).unwrap_or(Ok(()))
        }
        () = signals.insisted() => {
            Err(Failure::Session("stopped at once by a second signal".to_owned()))
        }
    }
}

/// SIGHUP ends a gateway that was started with a command line; one with a file reads the file again.
fn watch_signals(spelling: Spelling) -> Result<(Stop, Option<HangUps>), Failure> {
    let watched = match spelling {
        Spelling::CommandLine => Stop::on_signals().map(|stop| (stop, None)),
        Spelling::File => {
            Stop::on_signals_but_hang_up().map(|(stop, hang_ups)| (stop, Some(hang_ups)))
        }
    };
    watched.map_err(|error| Failure::Io("cannot watch for signals".to_owned(), error))
}

/// Reads the file again and does what it says; if something is wrong with it, nothing is changed.
async fn reload(setup: &mut Setup, routes: &mut Routes) {
    notify::reloading();
    let read = setup.parse().map_err(Refusal::from);
    let refused = match read.and_then(|parsed| setup.understand(parsed)) {
        Ok(wanted) => {
            let (new, memory) = (wanted.understood.routes.clone(), wanted.settings.memory);
            match routes.reload(new, memory).await {
                Ok(changes) => {
                    tell_changes(wanted, &changes);
                    None
                }
                Err(faults) => Some(wanted.refuse(&faults, Vec::new())),
            }
        }
        Err(refused) => Some(refused),
    };
    if let Some(refused) = refused {
        for line in refused.lines() {
            tracing::error!("reload refused, nothing was changed: {line}");
        }
    }
    notify::ready(&status(routes));
}

fn tell_changes(wanted: Wanted, changes: &Changes) {
    let none = |names: &[String]| match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    };
    tracing::info!(
        "reloaded: {} unchanged; started: {}; stopped: {}",
        counted(changes.kept),
        none(&changes.started),
        none(&changes.stopped)
    );
    if !changes.failed.is_empty() {
        for line in wanted.refuse(&changes.failed, Vec::new()).lines() {
            tracing::error!("a route was not started: {line}");
        }
    }
}

/// What systemd shows.
fn status(routes: &Routes) -> String {
    counted(routes.names().len())
}

fn counted(routes: usize) -> String {
    match routes {
        1 => "1 route".to_owned(),
        routes => format!("{routes} routes"),
    }
}

/// How a route ended. One that ended by itself ends the program only if it was the last one.
fn tell_end(spelling: Spelling, end: RouteEnd) -> Result<(), Failure> {
    let outcome = end.outcome.map_err(|error| {
        let text = explain::run(spelling, &error);
        match error.is_setup() {
            true => Failure::Usage(text),
            false => Failure::Session(text),
        }
    });
    if spelling == Spelling::CommandLine {
        return outcome;
    }
    let name = end.name;
    match (outcome, end.was_stopped) {
        (Ok(()), true) => {
            tracing::info!("route {name} has stopped");
            Ok(())
        }
        (Ok(()), false) => {
            tracing::info!("route {name} has ended");
            Ok(())
        }
        (Err(failure), was_stopped) => {
            let next = match was_stopped {
                true => "",
                false => "; a reload (SIGHUP) starts it again",
            };
            tracing::error!("route {name} has ended: {failure}{next}");
            Err(Failure::Session(format!("route {name}: {failure}")))
        }
    }
}

fn tell(spelling: Spelling, name: &str, event: Event) {
    let option = |side: breakbulk::gateway::Side| spelling.option(&side.to_string());
    match event {
        Event::Listening(address) if spelling == Spelling::File => {
            log::address(&format!("route {name}: listening on"), &address);
        }
        Event::Listening(address) => log::address("listening on", &address),
        Event::Overruled(side, overruled) => tracing::warn!("{}: {overruled}", option(side)),
        Event::Misspelt(side, misspelt) => tracing::warn!("{}: {misspelt}", option(side)),
        Event::TokenInClear(side) => tracing::warn!(
            "{}: the token travels in clear text, and whoever sees it can use it; use TLS",
            option(side)
        ),
        Event::Stopping(sessions) if spelling == Spelling::File => tracing::info!(
            sessions,
            "route {name} stops: queued messages are still sent"
        ),
        Event::Stopping(sessions) => tracing::info!(
            sessions,
            "stopping: queued messages are still sent; another signal after a second stops at once"
        ),
        _ => {}
    }
}

async fn hung_up(hang_ups: &mut Option<HangUps>) {
    match hang_ups {
        Some(hang_ups) => hang_ups.next().await,
        None => pending().await,
    }
}

fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The output of a future; systemd hears that we are alive meanwhile.
async fn while_alive<T>(future: impl Future<Output = T>, alive: &mut Option<Interval>) -> T {
    tokio::pin!(future);
    loop {
        tokio::select! {
            output = &mut future => return output,
            () = tick(alive) => notify::alive(),
        }
    }
}

async fn tick(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => pending().await,
    }
}
