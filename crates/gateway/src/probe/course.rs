//! The questions of a probe in their order, and what the answers amount to. Does no IO.
//!
//! For each direction: the largest text message in one frame; if there is a cap, whether larger messages
//! pass in several frames, and how large they may be; then the same for binary messages, beginning with
//! what was found for text.

use breakbulk_link::Preset;

use super::outcome::Outcome;
use super::search::{Finding, Search, Step};

/// The smallest message of a probe: paths that let less through carry nothing of ours.
pub(super) const LEAST: usize = 256;

/// A way that messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the probe to the end that answers it.
    Up,
    /// From that end to the probe.
    Down,
}

/// What a message consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text.
    Text,
    /// Bytes.
    Binary,
}

/// One message whose fate is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Which way it goes.
    pub direction: Direction,
    /// What it consists of.
    pub content: Content,
    /// Its bytes.
    pub size: usize,
    /// The largest WebSocket frame that it is sent in; `None` for one frame.
    pub fragment: Option<usize>,
    /// Whether the same was refused before, and this is to make sure.
    pub again: bool,
}

/// What passes in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest message, in as many frames as it takes.
    pub message: Finding,
    /// The largest WebSocket frame, if larger messages pass in several.
    pub frame: Option<Finding>,
}

/// What was found for one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// For text.
    pub text: Limits,
    /// For binary messages, if they were asked for.
    pub binary: Option<Limits>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    /// The largest message.
    pub(super) most: usize,
    /// Whether messages can be sent in several frames.
    pub(super) frames: bool,
    /// Whether text and binary messages differ.
    pub(super) binary: bool,
}

/// The state of a probe: the questions so far, and what was found.
#[derive(Debug)]
pub(super) struct Course {
    scope: Scope,
    hints: Vec<usize>,
    direction: Direction,
    content: Content,
    /// The cap of a single frame, while the search for the largest message in several frames goes on.
    frame: Option<Finding>,
    search: Search,
    text: Option<Limits>,
    up: Option<Way>,
    down: Option<Way>,
}

impl Course {
    pub(super) fn new(scope: Scope) -> Self {
        let hints = hints();
        Self {
            search: Search::new(LEAST, scope.most, &hints),
            scope,
            hints,
            direction: Direction::Up,
            content: Content::Text,
            frame: None,
            text: None,
            up: None,
            down: None,
        }
    }

    /// The next question; `None` when all are answered.
    pub(super) fn next(&mut self) -> Option<Question> {
        loop {
            if self.down.is_some() {
                return None;
            }
            match self.search.next() {
                Step::Try { size, again } => {
                    let fragment = self.frame.as_ref().and_then(Finding::cap);
                    return Some(Question {
                        direction: self.direction,
                        content: self.content,
                        size,
                        fragment,
                        again,
                    });
                }
                Step::Done(finding) => self.found(finding),
            }
        }
    }

    /// The answer to the last question.
    pub(super) fn handle(&mut self, question: &Question, outcome: Outcome) {
        self.search.handle(question.size, outcome);
    }

    /// What was found in both directions.
    pub(super) fn finish(self) -> Option<(Way, Way)> {
        self.up.zip(self.down)
    }

    fn found(&mut self, finding: Finding) {
        match (self.frame.take(), finding) {
            // It may be the cap of a frame or of a message: do larger messages pass in several frames?
            (None, Finding::Cap { bytes, refusal }) if self.scope.frames => {
                let search = Search::new(LEAST, self.scope.most, &self.hints).above(bytes);
                // The limit that was found for text, or in the other direction, is likely to hold here too.
                let before = match self.content {
                    Content::Binary => self.text.as_ref(),
                    Content::Text => self.up.as_ref().map(|up| &up.text),
                };
                self.search = match before.filter(|before| before.frame.is_some()) {
                    Some(before) => search.guessing_message(&before.message),
                    None => search,
                };
                self.frame = Some(Finding::Cap { bytes, refusal });
            }
            (None, message) => self.limits(Limits {
                message,
                frame: None,
            }),
            (Some(frame), message) => {
                let is_larger = message.passes() > frame.passes();
                self.limits(match is_larger {
                    true => Limits {
                        message,
                        frame: Some(frame),
                    },
                    // Larger messages do not pass in several frames either. How one frame is refused says
                    // more than how the second of two is.
                    false => Limits {
                        message: frame,
                        frame: None,
                    },
                });
            }
        }
    }

    fn limits(&mut self, limits: Limits) {
        let (text, binary) = match self.text.take() {
            None if self.scope.binary => {
                self.content = Content::Binary;
                let first = limits.frame.as_ref().unwrap_or(&limits.message);
                let search = Search::new(LEAST, self.scope.most, &self.hints);
                self.search = search.guessing_message(first);
                self.text = Some(limits);
                return;
            }
            None => (limits, None),
            Some(text) => (text, Some(limits)),
        };
        let way = Way { text, binary };
        let first = way.text.frame.as_ref().unwrap_or(&way.text.message).clone();
        match self.direction {
            Direction::Up => self.up = Some(way),
            Direction::Down => self.down = Some(way),
        }
        self.direction = Direction::Down;
        self.content = Content::Text;
        self.search = Search::new(LEAST, self.scope.most, &self.hints).guessing_message(&first);
    }
}

impl Search {
    /// Tries first the cap that was found elsewhere on the path.
    fn guessing_message(self, finding: &Finding) -> Self {
        match finding.passes() {
            Some(size) => self.guessing(size),
            None => self,
        }
    }
}

/// Sizes that are likely to be caps: those of the table, and powers of two.
fn hints() -> Vec<usize> {
    let known = Preset::ALL.iter();
    let known = known.flat_map(|row| [row.message, row.fragment]).flatten();
    let powers = (10..24).map(|power| 1 << power);
    known.chain(powers).filter(|size| *size >= LEAST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::outcome::Refusal;

    /// The caps of one way: a message, a frame, and whether binary passes.
    type Caps = (usize, usize, bool);

    fn run(scope: Scope, up: Caps, down: Caps) -> (Way, Way, usize) {
        let mut course = Course::new(scope);
        let mut rounds = 0;
        while let Some(question) = course.next() {
            rounds += 1;
            assert!(rounds < 300, "{question:?}");
            let (message, frame, binary) = match question.direction {
                Direction::Up => up,
                Direction::Down => down,
            };
            let largest = question.size.min(question.fragment.unwrap_or(usize::MAX));
            let outcome = match () {
                () if question.content == Content::Binary && !binary => refused(1003),
                () if largest > frame => refused(1002),
                () if question.size > message => refused(1009),
                () => Outcome::Passed,
            };
            course.handle(&question, outcome);
        }
        let (up, down) = course.finish().unwrap();
        (up, down, rounds)
    }

    fn refusal(code: u16) -> Refusal {
        Refusal::Close {
            code,
            reason: String::new(),
        }
    }

    fn refused(code: u16) -> Outcome {
        Outcome::Refused(refusal(code))
    }

    fn cap(bytes: usize, code: u16) -> Finding {
        let refusal = refusal(code);
        Finding::Cap { bytes, refusal }
    }

    const SCOPE: Scope = Scope {
        most: 16 << 20,
        frames: true,
        binary: true,
    };

    #[test]
    fn messages_and_frames_are_told_apart_in_both_directions() {
        let no_cap = Finding::NoCap { tried: SCOPE.most };
        let one = |message: Finding| Limits {
            message,
            frame: None,
        };
        let two = |message, frame| Limits {
            message,
            frame: Some(frame),
        };
        let nothing = || Finding::Nothing {
            tried: LEAST,
            refusal: refusal(1003),
        };
        const ALL: usize = usize::MAX;
        // The caps of both ways, what is found, and the most rounds.
        for (up, down, expected_up, expected_down, most) in [
            (
                (ALL, ALL, true),
                (ALL, ALL, true),
                (one(no_cap.clone()), one(no_cap.clone())),
                (one(no_cap.clone()), one(no_cap.clone())),
                15,
            ),
            (
                (100_003, ALL, true),
                (70_001, ALL, true),
                (one(cap(100_003, 1009)), one(cap(100_003, 1009))),
                (one(cap(70_001, 1009)), one(cap(70_001, 1009))),
                75,
            ),
            (
                (128_000, 32_000, false),
                (128_000, 32_000, false),
                (two(cap(128_000, 1009), cap(32_000, 1002)), one(nothing())),
                (two(cap(128_000, 1009), cap(32_000, 1002)), one(nothing())),
                45,
            ),
            (
                (ALL, 65_535, true),
                (12_345, ALL, false),
                (
                    two(no_cap.clone(), cap(65_535, 1002)),
                    two(no_cap.clone(), cap(65_535, 1002)),
                ),
                (one(cap(12_345, 1009)), one(nothing())),
                60,
            ),
        ] {
            let (found_up, found_down, rounds) = run(SCOPE, up, down);
            let way = |(text, binary)| Way {
                text,
                binary: Some(binary),
            };
            assert_eq!(found_up, way(expected_up), "{up:?}");
            assert_eq!(found_down, way(expected_down), "{down:?}");
            assert!(rounds <= most, "{rounds} rounds for {up:?} {down:?}");
        }
    }

    #[test]
    fn bodies_have_one_limit_for_each_direction() {
        let scope = Scope {
            frames: false,
            binary: false,
            ..SCOPE
        };
        let (up, down, _) = run(
            scope,
            (4_194_304, usize::MAX, true),
            (999, usize::MAX, true),
        );
        assert_eq!(up.text.message, cap(4_194_304, 1009));
        assert_eq!(down.text.message, cap(999, 1009));
        assert_eq!((up.binary, down.binary), (None, None));
    }
}
