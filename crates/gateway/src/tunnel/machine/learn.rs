//! Learns the cap of a path from lines that end when a frame above a certain size is sent.

use breakbulk_link::Closed;

/// A learned cap is never below this: a path that lets less through is refused.
pub(crate) const LEAST_CAP: usize = 4 << 10;

/// The close code for a frame that is too large.
const TOO_LARGE: u16 = 1009;

/// How many lines in a row may end with the same first missing frame while nothing arrives either way, if no
/// cap explains that.
pub(super) const PATIENCE: u32 = 10;

/// What to do about a line that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send the same again.
    Again,
    /// Never send a frame larger than this again.
    Lower(usize),
    /// Give up: every line ends with the next frame, which has this size on the line.
    Stuck(usize),
}

/// What is known about a path in the outgoing direction.
#[derive(Debug, Default)]
pub(super) struct Learner {
    /// The largest frame that arrived.
    passed: usize,
    /// Whether the last line was closed because a frame was too large, with the smallest and the largest size
    /// that the close reason names.
    refused: Option<Option<(usize, usize)>>,
    /// The frame that was the first one missing when the last line ended, and how often in a row.
    stuck: Option<(u64, u32)>,
}

impl Learner {
    /// A frame of this size arrived.
    pub(super) fn passed(&mut self, size: usize) {
        self.passed = self.passed.max(size);
    }

    /// The line ended.
    pub(super) fn line_ended(&mut self, closed: &Closed) {
        self.refused = (closed.code == TOO_LARGE).then(|| sizes_in(&closed.reason));
    }

    /// Decides what to do on the next line. `missing` is the first frame that was put on the last line and
    /// did not arrive, with its size there; in `fruitless` lines in a row nothing arrived at either end.
    pub(super) fn judge(&mut self, missing: Option<(u64, usize)>, fruitless: u32) -> Verdict {
        let refused = self.refused.take();
        let Some((number, size)) = missing else {
            self.stuck = None;
            return Verdict::Again;
        };
        let times = match self.stuck {
            Some((stuck, times)) if stuck == number => times + 1,
            _ => 1,
        };
        self.stuck = Some((number, times));
        match refused {
            Some(Some((limit, _))) if limit < size => return self.lower(limit),
            // A path closes both directions: the frame that was refused is larger than this one, so the other
            // end sent it.
            Some(Some((_, largest))) if largest > size && times < PATIENCE => {
                return Verdict::Again;
            }
            _ => {}
        }
        // A size that passed before is doubted only if it does not pass again and again.
        let needed = match (refused.is_some(), size > self.passed) {
            (true, true) => 1,
            (true, false) | (false, true) => 2,
            (false, false) => 4,
        };
        if times >= needed && size > LEAST_CAP {
            let passed = if self.passed < size { self.passed } else { 0 };
            let cap = passed.max(LEAST_CAP).midpoint(size);
            // Near the smallest cap it is not worth many more lines to find the last bytes.
            return self.lower(match cap < LEAST_CAP + LEAST_CAP / 4 {
                true => LEAST_CAP,
                false => cap,
            });
        }
        match times >= PATIENCE && fruitless >= PATIENCE {
            true => Verdict::Stuck(size),
            false => Verdict::Again,
        }
    }

    fn lower(&mut self, cap: usize) -> Verdict {
        self.passed = self.passed.min(cap);
        self.stuck = None;
        Verdict::Lower(cap)
    }
}

/// The smallest and the largest size that the reason of a close seems to name: mostly a limit, and what
/// was over it.
fn sizes_in(reason: &str) -> Option<(usize, usize)> {
    let numbers = reason.split(|c: char| !c.is_ascii_digit());
    let sizes = numbers.filter_map(|number| number.parse().ok());
    let mut sizes: Vec<usize> = sizes.filter(|size| *size >= LEAST_CAP).collect();
    sizes.sort_unstable();
    Some((*sizes.first()?, *sizes.last()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(code: u16, reason: &str) -> Closed {
        let reason = reason.to_owned();
        Closed { code, reason }
    }

    /// Lines that end one after the other: how, the first missing frame and its size, and the verdict.
    // TUN-5
    #[test]
    fn what_is_learned_from_how_lines_end() {
        use Verdict::{Again, Lower, Stuck};
        type Lines = [(u16, &'static str, Option<(u64, usize)>, Verdict)];
        let cases: [(&str, usize, &Lines); _] = [
            (
                "a close names the limit",
                0,
                &[(
                    1009,
                    "message of 900000 bytes over the cap of 100003",
                    Some((5, 900_000)),
                    Lower(100_003),
                )],
            ),
            (
                "a close names nothing: halves until it passes",
                300,
                &[
                    (1009, "too big", Some((5, 900_000)), Lower(452_048)),
                    (1009, "too big", Some((5, 452_048)), Lower(228_072)),
                ],
            ),
            (
                "a close names the size alone",
                50_000,
                &[(
                    1009,
                    "code 13, 60000 bytes",
                    Some((5, 60_000)),
                    Lower(55_000),
                )],
            ),
            (
                "a larger size was refused: a frame of the other end",
                50_000,
                &[
                    (1009, "5000000 bytes", Some((5, 60_000)), Again),
                    (
                        1009,
                        "message of 900000 bytes over the cap of 100003",
                        Some((6, 100_003)),
                        Again,
                    ),
                ],
            ),
            (
                "near the smallest cap",
                0,
                &[(1009, "", Some((5, 5000)), Lower(4096))],
            ),
            (
                "one cut says nothing, two at the same frame do",
                300,
                &[
                    (1006, "reset", Some((5, 900_000)), Again),
                    (1006, "reset", Some((5, 900_000)), Lower(452_048)),
                ],
            ),
            (
                "cuts at different frames say nothing",
                300,
                &[
                    (1006, "reset", Some((5, 900_000)), Again),
                    (1006, "reset", Some((6, 900_000)), Again),
                    (1006, "reset", None, Again),
                    (1006, "reset", Some((6, 900_000)), Again),
                ],
            ),
            (
                "a close for a frame of the other end",
                0,
                &[
                    (1009, "over 65536", None, Again),
                    (1009, "over 65536", Some((9, 300)), Again),
                ],
            ),
            (
                "a path that became narrower",
                900_000,
                &[
                    (1009, "too big", Some((5, 900_000)), Again),
                    (1009, "too big", Some((5, 900_000)), Lower(452_048)),
                ],
            ),
            (
                "cuts of a path that became narrower",
                900_000,
                &[
                    (1006, "", Some((5, 900_000)), Again),
                    (1006, "", Some((5, 900_000)), Again),
                    (1006, "", Some((5, 900_000)), Again),
                    (1006, "", Some((5, 900_000)), Lower(452_048)),
                ],
            ),
            (
                "a limit below the floor",
                0,
                &[(1009, "over 1000", Some((5, 9000)), Lower(6548))],
            ),
            (
                "nothing small enough helps",
                0,
                &[
                    (1009, "", Some((5, 4096)), Again),
                    (1009, "", Some((5, 4096)), Again),
                    (1009, "", Some((5, 4096)), Again),
                    (1009, "", Some((5, 4096)), Again),
                    (1009, "", Some((5, 4096)), Again),
                    (1009, "", Some((5, 4096)), Again),
                    (1009, "", Some((5, 4096)), Again),
                    (1009, "", Some((5, 4096)), Again),
                    (1009, "", Some((5, 4096)), Again),
                    (1009, "", Some((5, 4096)), Stuck(4096)),
                ],
            ),
        ];
        // While other frames arrive a session does not end, however often the same one is missing.
        let mut learner = Learner::default();
        for _ in 0..3 * PATIENCE {
            assert_eq!(learner.judge(Some((5, 300)), 0), Again);
        }
        for (name, passed, lines) in cases {
            let mut learner = Learner::default();
            learner.passed(passed);
            for (step, (code, reason, missing, verdict)) in lines.iter().enumerate() {
                learner.line_ended(&closed(*code, reason));
                assert_eq!(
                    learner.judge(*missing, PATIENCE),
                    *verdict,
                    "{name}, line {step}"
                );
            }
        }
    }
}
