//! What happens to the gateways: lines are cut and held, files are reloaded, members are restarted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use breakbulk::link::Random;
use breakbulk_testkit::bad_path::{Cut, How};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::ledger::{Ledger, Trouble};
use crate::member::Member;
use crate::setup::{Setup, Variant, is_restarted};

/// How often something was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) cuts: u64,
    holds: u64,
    unchanged: u64,
    added: u64,
    changed: u64,
    refused: u64,
    pub(crate) restarts: u64,
}

impl Done {
    pub(crate) fn reloads(&self) -> u64 {
        self.unchanged + self.added + self.changed + self.refused
    }

    /// A soak in which nothing happened shows nothing.
    pub(crate) fn check(&self) {
        let Self {
            cuts,
            holds,
            unchanged,
            added,
            changed,
            refused,
            restarts,
        } = *self;
        let least = [cuts, holds, unchanged, added, changed, refused, restarts]
            .into_iter()
            .min();
        assert!(least > Some(0), "{self:?}");
    }
}

/// Makes trouble for this long.
pub(crate) async fn run(
    setup: Arc<Setup>,
    ledger: Arc<Ledger>,
    lasts: Duration,
    seed: u64,
) -> Done {
    let until = Instant::now() + lasts;
    let lines = disturb(&setup, &ledger, until, Random::from_number(seed));
    let members = operate(&setup, &ledger, until, lasts, Random::from_number(!seed));
    let (mut done, other) = tokio::join!(lines, members);
    (done.unchanged, done.added) = (other.unchanged, other.added);
    (done.changed, done.refused, done.restarts) = (other.changed, other.refused, other.restarts);
    done
}

/// Cuts and holds lines.
async fn disturb(setup: &Setup, ledger: &Ledger, until: Instant, mut random: Random) -> Done {
    let mut done = Done::default();
    for turn in 0_u64.. {
        sleep(Duration::from_millis(100 + random.below(1000))).await;
        if Instant::now() >= until {
            break;
        }
        let (way, path) = &setup.paths[random.below(setup.paths.len() as u64) as usize];
        let how = match random.one_in(2) {
            true => How::Reset,
            false => How::End,
        };
        let trouble = ledger.begin(Trouble::Cut(*way));
        match turn % 10 {
            0 => {
                path.hold();
                sleep(Duration::from_millis(random.below(1500))).await;
                path.resume();
                done.holds += 1;
            }
            1 => {
                path.cut(how);
            }
            2..5 => {
                let open = path.connections();
                if let Some(number) = open.get(random.below(open.len() as u64) as usize) {
                    path.cut_one(*number, how);
                }
            }
            // In the middle of a frame, mostly.
            _ => {
                let before = path.counts().cuts;
                path.cut_after(Cut {
                    how,
                    ..Cut::bytes(1 + random.below(2_000_000))
                });
                let cut = path.until(|counts| counts.cuts > before);
                // Not much goes this way at the moment.
                let _ = timeout(Duration::from_secs(2), cut).await;
                path.cut_no_more();
            }
        }
        ledger.over(trouble);
    }
    done.cuts = setup.paths.iter().map(|(_, path)| path.counts().cuts).sum();
    done
}

/// Reloads files and restarts members.
async fn operate(
    setup: &Setup,
    ledger: &Ledger,
    until: Instant,
    lasts: Duration,
    mut random: Random,
) -> Done {
    let mut done = Done::default();
    let pause = (lasts / 30).min(Duration::from_secs(15));
    let mut variants = vec![
        Variant {
            more: false,
            changes: 0
        };
        setup.members.len()
    ];
    for turn in 0_u64.. {
        sleep(pause / 2 + pause.mul_f64(random.below(1000) as f64 / 1e3)).await;
        // Each of the five happens, on however slow a machine.
        if Instant::now() >= until && turn >= 5 {
            break;
        }
        let which = random.below(setup.members.len() as u64) as usize;
        let (member, variant) = (setup.members[which].clone(), &mut variants[which]);
        match turn % 5 {
            0 => {
                reload(
                    &member,
                    setup.routes(member.name, *variant),
                    "started: none; stopped: none",
                )
                .await;
                done.unchanged += 1;
            }
            1 => {
                variant.more = !variant.more;
                let outcome = match variant.more {
                    true => "started: more; stopped: none",
                    false => "started: none; stopped: more",
                };
                reload(&member, setup.routes(member.name, *variant), outcome).await;
                done.added += 1;
            }
            2 => {
                let wrong = format!(
                    "{}[[route]]\nlissen = 'x'\n",
                    setup.routes(member.name, *variant)
                );
                reload(&member, wrong, "reload refused, nothing was changed").await;
                member.configure(&setup.routes(member.name, *variant));
                done.refused += 1;
            }
            3 => {
                variant.changes += 1;
                let trouble = ledger.begin(Trouble::Changed(member.name, "narrow"));
                reload(
                    &member,
                    setup.routes(member.name, *variant),
                    "started: narrow; stopped: none",
                )
                .await;
                ledger.over(trouble);
                done.changed += 1;
            }
            _ => {
                let members = setup.members.iter().filter(|it| is_restarted(it.name));
                let members: Vec<_> = members.collect();
                let member = members[done.restarts as usize % members.len()].clone();
                let trouble = ledger.begin(Trouble::Restart(member.name));
                let restart = move || {
                    member.stop();
                    member.start();
                };
                spawn_blocking(restart).await.unwrap();
                ledger.over(trouble);
                done.restarts += 1;
            }
        }
    }
    done
}

async fn reload(member: &Arc<Member>, routes: String, outcome: &'static str) {
    let member = member.clone();
    let reload = move || {
        member.configure(&routes);
        member.reload(outcome);
    };
    spawn_blocking(reload).await.unwrap();
}
