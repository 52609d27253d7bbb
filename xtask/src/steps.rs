//! Runs steps one after the other, and prints how long each took.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The steps so far. Dropping it prints the table of times, also after a failure.
pub(crate) struct Steps {
    started: Instant,
    done: Vec<(&'static str, Duration)>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            done: Vec::new(),
        }
    }

    /// Runs one step; the error of a failed one begins with its name.
    pub(crate) fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = work();
        self.done.push((name, start.elapsed()));
        outcome.context(name)
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        println!("\n== time per step");
        for (name, time) in &self.done {
            println!("{:>5} s  {name}", time.as_secs());
        }
        println!("{:>5} s  total", self.started.elapsed().as_secs());
    }
}
