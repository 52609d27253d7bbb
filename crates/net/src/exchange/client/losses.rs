//! Tells an answer that is refused on the way from answers that are lost by chance. Does no IO.
//!
//! An answer that the path refuses for its size never comes, while small answers pass. A path that loses
//! every third answer looks the same for a while. So small answers are asked for in between, and the share of
//! them that is lost determines how many losses in a row can no longer be chance.

/// An answer counts as refused only after at least this many attempts.
const LEAST_ATTEMPTS: u32 = 6;

/// Losses that are less likely than this are not due to chance: a large transfer has thousands of answers.
const CHANCE: f64 = 1e-8;

/// How many small answers of a session came, and how many were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    came: u32,
    lost: u32,
}

impl Losses {
    /// A small answer came.
    pub(super) fn came(&mut self) {
        self.came = self.came.saturating_add(1);
    }

    /// A small answer was lost.
    pub(super) fn lost(&mut self) {
        self.lost = self.lost.saturating_add(1);
    }

    /// Whether an answer that was lost this often in a row counts as refused.
    pub(super) fn is_refused(self, attempts: u32) -> bool {
        attempts >= LEAST_ATTEMPTS && self.rate().powf(f64::from(attempts)) < CHANCE
    }

    /// The estimated share of answers that the path loses; cautious while few were seen.
    fn rate(self) -> f64 {
        let (came, lost) = (f64::from(self.came), f64::from(self.lost));
        (lost + 1.0) / (came + lost + 2.0)
    }
}

/// How many small answers are asked for after this attempt: 3 or 4 in turn. With the large answer these are 4
/// and 5 requests, which have no common divisor: a path that loses every n-th answer would otherwise lose the
/// large one each time.
pub(super) fn small_answers(attempt: u32) -> u32 {
    4 - attempt % 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for an answer until it comes or counts as refused; `loses` says whether a request is lost.
    fn attempts(
        losses: &mut Losses,
        is_refused: bool,
        mut loses: impl FnMut() -> bool,
    ) -> Option<u32> {
        for attempt in 1.. {
            if !(is_refused | loses()) {
                return None;
            }
            if losses.is_refused(attempt) {
                return Some(attempt);
            }
            for _ in 0..small_answers(attempt) {
                match loses() {
                    true => losses.lost(),
                    false => losses.came(),
                }
            }
        }
        None
    }

    fn random(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) % below
        }
    }

    // LINE-2
    #[test]
    fn losses_by_chance_are_not_taken_for_refusals() {
        for percent in [5, 20, 33, 50, 66] {
            let mut random = random(percent);
            for session in 0..20 {
                let mut losses = Losses::default();
                for answer in 0..1000 {
                    let refused = attempts(&mut losses, false, || random(100) < percent);
                    assert_eq!(refused, None, "{percent} %, {session}, answer {answer}");
                }
            }
        }
    }

    // LINE-2
    #[test]
    fn losses_at_regular_intervals_are_not_taken_for_refusals() {
        for every in 2..40 {
            for phase in 0..every {
                let mut losses = Losses::default();
                let mut request = phase;
                for answer in 0..200 {
                    let refused = attempts(&mut losses, false, || {
                        request += 1;
                        request % every == 0
                    });
                    assert_eq!(refused, None, "every {every}, answer {answer}");
                }
            }
        }
    }

    // LINE-2
    #[test]
    fn a_refusal_is_noticed_after_a_few_attempts() {
        for (percent, most) in [(0, 7), (5, 15), (33, 40), (50, 60)] {
            for seed in 0..100 {
                let mut random = random(seed);
                let mut losses = Losses::default();
                let noticed = attempts(&mut losses, true, || random(100) < percent);
                let noticed = noticed.unwrap_or_default();
                assert!(noticed <= most, "{percent} %: {noticed} attempts");
            }
        }
    }
}
