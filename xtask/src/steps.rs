//! Steps one after the other, and at the end where the minutes went.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The steps that were taken so far. The table is printed when this is dropped, after a failure too.
pub(crate) struct Steps {
    started: Instant,
    taken: Vec<(&'static str, Duration)>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            taken: Vec::new(),
        }
    }

    /// Takes one step; the error of a failed one begins with its name.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = work();
        self.taken.push((name, start.elapsed()));
        outcome.context(name)
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        println!("\n== where the time went");
        for (name, time) in &self.taken {
            println!("{:>5} s  {name}", time.as_secs());
        }
        println!("{:>5} s  in all", self.started.elapsed().as_secs());
    }
}
