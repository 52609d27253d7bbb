//! What a demo prints: what was tried, with a mark for how it went, in lines that fit the terminal.

use std::time::Duration;

use crate::failure::Failure;
use crate::inspect::printable;
use crate::output::Output;
use crate::size;
use crate::terminal::{self, Marks, wrap};

/// The width where there is no terminal.
const WIDTH: usize = 80;

/// Characters of what a relay or another program says.
const WORDS: usize = 200;

/// How much a demo shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The plain way, and ours, with smaller messages where a large one takes long.
    Short,
    /// The same with large messages, what follows a cut, and what to try next.
    Full,
}

/// One demo's output.
pub(super) struct Story<'a> {
    out: &'a mut Output,
    marks: Marks,
    pub(super) form: Form,
}

impl<'a> Story<'a> {
    pub(super) fn new(out: &'a mut Output, form: Form) -> Self {
        Self {
            out,
            marks: Marks::of_output(),
            form,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.form == Form::Full
    }

    /// The width of the output.
    pub(super) fn width(&self) -> usize {
        terminal::width().unwrap_or(WIDTH)
    }

    /// What is carried, and over what.
    pub(super) fn title(&mut self, text: &str) -> Result<(), Failure> {
        self.note(text)?;
        match self.is_full() {
            true => self.line(""),
            false => Ok(()),
        }
    }

    /// A way that fails, and the words of whoever refused.
    pub(super) fn fails(&mut self, way: &str, words: &str) -> Result<(), Failure> {
        let mark = self.marks.bad();
        self.result(&mark, way, &printable(words, WORDS))
    }

    /// A way that works, and its figures.
    pub(super) fn works(&mut self, way: &str, figures: &str) -> Result<(), Failure> {
        let mark = self.marks.good();
        self.result(&mark, way, figures)
    }

    fn result(&mut self, mark: &str, way: &str, text: &str) -> Result<(), Failure> {
        let before = format!("  {mark} {way:<13} ");
        // The mark may have colours, which take no room.
        let indent = match self.marks {
            Marks::Words => 21,
            _ => 18,
        };
        let line = format!("{before}{text}");
        self.line(&wrap(&line, Some(self.width()), indent))
    }

    /// A sentence.
    pub(super) fn note(&mut self, text: &str) -> Result<(), Failure> {
        self.line(&wrap(text, Some(self.width()), 2))
    }

    /// Commands to try, after a full form. Those before the last one mostly go on running.
    pub(super) fn next(&mut self, commands: &[&str]) -> Result<(), Failure> {
        if !self.is_full() {
            return Ok(());
        }
        self.line(match commands {
            [_] => "Next:",
            _ => "Next, each in a terminal of its own:",
        })?;
        for command in commands {
            self.line(&format!("  {command}"))?;
        }
        Ok(())
    }

    pub(super) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.out.line(line)
    }
}

/// The figures of what arrived whole.
pub(super) fn figures(what: &str, count: u64, largest: u64, took: Duration) -> String {
    let largest = usize::try_from(largest).unwrap_or(usize::MAX);
    format!(
        "{count} {what}, the largest {}, in {:.2} s; identical",
        size::show(largest),
        took.as_secs_f64()
    )
}
