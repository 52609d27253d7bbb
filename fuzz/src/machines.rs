//! A session of VSCode's RPC over `ipc.net`: what a hostile peer writes, and this side's actions in between.

mod framing;
mod session;

use bytes::Bytes;

use crate::Input;
use crate::streams::Cuts;
use framing::Framing;
use session::{Outcome, Session};

/// An action at a place in the stream, given by one byte.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The number of bytes before it.
    after: usize,
    what: u8,
}

/// Runs the stream with one read per part, then in other reads: nothing may differ, and every limit holds.
pub fn check(mut input: Input<'_>) {
    let persistent = input.flag();
    let cuts = Cuts::new(&mut input);
    let steps: Vec<Step> = input
        .slice()
        .chunks_exact(2)
        .map(|step| Step {
            after: usize::from(step[0]),
            what: step[1],
        })
        .collect();
    let stream = input.rest();
    let whole = play(persistent, &steps, stream, |stretch| vec![stretch]);
    let cut = play(persistent, &steps, stream, |stretch| cuts.of(stretch));
    assert_eq!(whole, cut);
}

fn play<'a>(
    persistent: bool,
    steps: &[Step],
    mut stream: &'a [u8],
    reads: impl Fn(&'a [u8]) -> Vec<&'a [u8]>,
) -> Outcome {
    let mut session = Session::new(Framing::new(persistent));
    for step in steps {
        let (stretch, rest) = stream.split_at(step.after.min(stream.len()));
        stream = rest;
        read(&mut session, reads(stretch));
        session.step(step.what);
    }
    read(&mut session, reads(stream));
    session.end()
}

fn read(session: &mut Session, reads: Vec<&[u8]>) {
    for read in reads {
        // Bytes after an error are ignored.
        if !session.read(Bytes::copy_from_slice(read)) {
            return;
        }
    }
}
