//! Finds the largest size that passes: which size to try next, given what became of those before. Does no
//! IO.
//!
//! Sizes grow fourfold until one is refused; then sizes that are known as caps are tried, each together
//! with one byte more; then the rest is halved. The smallest refused size is tried a second time, with
//! more patience, so that a connection that broke by chance is not taken for a cap.

use super::outcome::{Outcome, Refusal};

/// How many times a likely size is tried before the rest is halved.
const GUESSES: u32 = 6;

/// How many times a refused size may pass later, before the path counts as unsteady.
const SURPRISES: u32 = 3;

/// What the search wants, or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Find out whether a message of this size passes.
    Try {
        size: usize,
        /// Whether it was refused before, and this is to make sure.
        again: bool,
    },
    /// The search is over.
    Done(Finding),
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// All sizes passed, up to this one, which was the largest to try.
    NoCap {
        /// The largest size.
        tried: usize,
    },
    /// This size passes, and one byte more does not.
    Cap {
        /// The largest size that passes.
        bytes: usize,
        /// What happens to a larger one.
        refusal: Refusal,
    },
    /// Not even the smallest size passes.
    Nothing {
        /// The smallest size.
        tried: usize,
        /// What happens to it.
        refusal: Refusal,
    },
    /// Sizes that were refused passed when they were tried again.
    Unsteady {
        /// The largest size that passed.
        passed: usize,
    },
}

impl Finding {
    /// The largest size that is known to pass.
    pub fn passes(&self) -> Option<usize> {
        match self {
            Self::NoCap { tried } => Some(*tried),
            Self::Cap { bytes, .. } => Some(*bytes),
            Self::Unsteady { passed } => Some(*passed),
            Self::Nothing { .. } => None,
        }
    }

    /// The cap, if there is one.
    pub fn cap(&self) -> Option<usize> {
        match self {
            Self::Cap { bytes, .. } => Some(*bytes),
            _ => None,
        }
    }
}

/// One search.
#[derive(Clone, Debug)]
pub(super) struct Search {
    least: usize,
    most: usize,
    /// Likely caps, in ascending order.
    hints: Vec<usize>,
    /// The likeliest of them, which is tried first.
    guess: Option<usize>,
    passed: Option<usize>,
    refused: Option<(usize, Refusal)>,
    guesses: u32,
    confirmed: bool,
    surprises: u32,
}

impl Search {
    /// Searches from `least` to `most`.
    pub(super) fn new(least: usize, most: usize, hints: &[usize]) -> Self {
        let mut hints = hints.to_vec();
        hints.sort_unstable();
        hints.dedup();
        Self {
            least,
            most: most.max(least),
            hints,
            guess: None,
            passed: None,
            refused: None,
            guesses: GUESSES,
            confirmed: false,
            surprises: 0,
        }
    }

    /// Tries this size first, since it probably is the cap.
    pub(super) fn guessing(mut self, size: usize) -> Self {
        self.guess = Some(size);
        self.hint(size);
        self
    }

    /// Searches above this size, which is known to pass.
    pub(super) fn above(mut self, size: usize) -> Self {
        self.passed = Some(size);
        self.guessing(size)
    }

    fn hint(&mut self, size: usize) {
        if let Err(place) = self.hints.binary_search(&size) {
            self.hints.insert(place, size);
        }
    }

    /// What to try next, or what was found.
    pub(super) fn next(&self) -> Step {
        let attempt = |size| Step::Try { size, again: false };
        let again = |size| Step::Try { size, again: true };
        let Some(passed) = self.passed else {
            return match &self.refused {
                None => attempt(self.least),
                Some((size, _)) if !self.confirmed => again(*size),
                Some((tried, refusal)) => Step::Done(Finding::Nothing {
                    tried: *tried,
                    refusal: refusal.clone(),
                }),
            };
        };
        if self.surprises > SURPRISES {
            return Step::Done(Finding::Unsteady { passed });
        }
        let Some((refused, refusal)) = &self.refused else {
            return match self.guess {
                _ if passed >= self.most => Step::Done(Finding::NoCap { tried: self.most }),
                Some(guess) if passed < guess && guess <= self.most => attempt(guess),
                Some(guess) if passed == guess => attempt(passed + 1),
                _ => attempt(passed.saturating_mul(4).min(self.most)),
            };
        };
        if *refused == passed + 1 {
            return match self.confirmed {
                false => again(*refused),
                true => Step::Done(Finding::Cap {
                    bytes: passed,
                    refusal: refusal.clone(),
                }),
            };
        }
        if self.guesses > 0 {
            if self.hints.binary_search(&passed).is_ok() {
                return attempt(passed + 1);
            }
            let first = self.hints.partition_point(|hint| *hint <= passed);
            let end = self.hints.partition_point(|hint| hint < refused);
            if first < end {
                return attempt(self.hints[first + (end - first) / 2]);
            }
        }
        attempt(passed + (refused - passed) / 2)
    }

    /// What became of the size that [`next`](Self::next) asked for.
    pub(super) fn handle(&mut self, size: usize, outcome: Outcome) {
        let is_hint = |size: &usize| self.hints.binary_search(size).is_ok();
        if is_hint(&size) || size.checked_sub(1).is_some_and(|below| is_hint(&below)) {
            self.guesses = self.guesses.saturating_sub(1);
        }
        match outcome {
            Outcome::Passed => {
                if self
                    .refused
                    .as_ref()
                    .is_some_and(|(least, _)| size >= *least)
                {
                    self.refused = None;
                    self.surprises += 1;
                }
                self.confirmed = false;
                self.passed = self.passed.max(Some(size));
            }
            Outcome::Refused(refusal) => {
                self.confirmed = self.refused.as_ref().is_some_and(|(it, _)| *it == size);
                for number in refusal.numbers() {
                    if (self.least..self.most).contains(&number) {
                        self.hint(number);
                        self.guesses = self.guesses.max(2);
                    }
                }
                self.refused = Some((size, refusal));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: usize = 256;
    const MOST: usize = 16 << 20;

    /// Runs a search on a path; returns what it found and the sizes that it tried.
    fn run(mut search: Search, mut passes: impl FnMut(usize) -> Outcome) -> (Finding, Vec<usize>) {
        let mut tried = Vec::new();
        loop {
            match search.next() {
                Step::Try { size, .. } => {
                    assert!((LEAST..=MOST).contains(&size), "{size} after {tried:?}");
                    tried.push(size);
                    assert!(tried.len() < 200, "{tried:?}");
                    search.handle(size, passes(size));
                }
                Step::Done(finding) => return (finding, tried),
            }
        }
    }

    fn capped(cap: usize) -> impl FnMut(usize) -> Outcome {
        move |size| match size <= cap {
            true => Outcome::Passed,
            false => Outcome::Refused(Refusal::Silence),
        }
    }

    fn found(bytes: usize) -> Finding {
        let refusal = Refusal::Silence;
        Finding::Cap { bytes, refusal }
    }

    #[test]
    fn every_cap_is_found_exactly_and_in_few_rounds() {
        let hints = [
            10_000,
            32_000,
            65_535,
            65_536,
            128_000,
            131_072,
            1_000_000,
            1 << 20,
        ];
        // The cap, and the most rounds that it may take.
        for (cap, most) in [
            (256, 16),
            (257, 16),
            (1023, 16),
            (1024, 16),
            (10_000, 10),
            (65_535, 13),
            (65_536, 12),
            (100_003, 26),
            (128_000, 13),
            (1_000_000, 15),
            (1 << 20, 15),
            (999_999, 32),
            (8_388_607, 33),
            (MOST - 1, 36),
        ] {
            let search = Search::new(LEAST, MOST, &hints);
            let (finding, tried) = run(search, capped(cap));
            assert_eq!(finding, found(cap), "{tried:?}");
            assert!(
                tried.len() <= most,
                "{cap}: {} rounds {tried:?}",
                tried.len()
            );
        }
    }

    #[test]
    fn every_cap_of_a_small_range_is_found() {
        for cap in LEAST..3000 {
            let (finding, tried) = run(Search::new(LEAST, 3000, &[512, 2048]), capped(cap));
            assert_eq!(finding, found(cap), "{tried:?}");
        }
        let (finding, _) = run(Search::new(LEAST, 3000, &[512, 2048]), capped(3000));
        assert_eq!(finding, Finding::NoCap { tried: 3000 });
    }

    #[test]
    fn a_path_without_a_cap_and_one_without_anything_are_told() {
        let (finding, tried) = run(Search::new(LEAST, MOST, &[]), capped(usize::MAX));
        assert_eq!(finding, Finding::NoCap { tried: MOST });
        assert_eq!(
            tried,
            [
                256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216
            ]
        );
        let (finding, tried) = run(Search::new(LEAST, MOST, &[]), capped(0));
        let (tried_size, refusal) = (LEAST, Refusal::Silence);
        assert_eq!(
            finding,
            Finding::Nothing {
                tried: tried_size,
                refusal
            }
        );
        assert_eq!(tried, [256, 256]);
    }

    #[test]
    fn a_guess_that_is_right_takes_few_rounds_and_a_wrong_one_costs_little() {
        for (guess, cap, expected) in [
            (100_003, 100_003, &[256, 100_003, 100_004, 100_004][..]),
            (MOST, MOST, &[256, MOST]),
        ] {
            let search = Search::new(LEAST, MOST, &[]).guessing(guess);
            let (_, tried) = run(search, capped(cap));
            assert_eq!(tried, expected);
        }
        for (guess, cap) in [(100_003, 100_004), (100_003, 50_000), (100_003, 5_000_000)] {
            let search = Search::new(LEAST, MOST, &[]).guessing(guess);
            let (finding, tried) = run(search, capped(cap));
            assert_eq!(finding, found(cap));
            assert!(tried.len() < 36, "{tried:?}");
        }
        let search = Search::new(LEAST, MOST, &[]).above(5000);
        let (finding, tried) = run(search, capped(5000));
        assert_eq!((finding, tried), (found(5000), vec![5001, 5001]));
    }

    #[test]
    fn a_cap_that_the_path_names_is_tried_at_once() {
        let cap = 77_777;
        let passes = |size: usize| match size <= cap {
            true => Outcome::Passed,
            false => Outcome::Refused(Refusal::Close {
                code: 1009,
                reason: format!("frame of {size} bytes over the cap of {cap}"),
            }),
        };
        let (finding, tried) = run(Search::new(LEAST, MOST, &[]), passes);
        assert_eq!(finding.cap(), Some(cap));
        assert_eq!(tried[5..], [262_144, 77_777, 77_778, 77_778]);
    }

    // PATH-2
    #[test]
    fn a_connection_that_broke_by_chance_is_no_cap() {
        for unlucky in [1024, 65_536, 80_000, 100_004] {
            let mut bad_luck = 1;
            let mut path = capped(100_003);
            let (finding, tried) = run(Search::new(LEAST, MOST, &[]), |size| {
                if size >= unlucky && size <= 100_003 && bad_luck > 0 {
                    bad_luck -= 1;
                    return Outcome::Refused(Refusal::Reset);
                }
                path(size)
            });
            assert_eq!(finding, found(100_003), "{unlucky}: {tried:?}");
        }
    }

    // PATH-2
    #[test]
    fn a_path_on_which_refused_sizes_pass_later_is_unsteady() {
        let mut seen = std::collections::BTreeSet::new();
        let (finding, tried) = run(Search::new(LEAST, MOST, &[]), |size| {
            match size == LEAST || !seen.insert(size) {
                true => Outcome::Passed,
                false => Outcome::Refused(Refusal::Reset),
            }
        });
        assert_eq!(finding, Finding::Unsteady { passed: 265 }, "{tried:?}");
    }
}
