//! Cuts one stream into reads of many lengths.

use crate::Input;

/// The most reads with these lengths; the rest of the stream is one more read.
const READS: usize = 4096;

/// The lengths of reads, repeated over and over.
#[derive(Clone, Debug)]
pub struct Cuts(Vec<usize>);

impl Cuts {
    /// Takes the lengths from the front of the input.
    pub fn new(input: &mut Input<'_>) -> Self {
        Self(input.slice().iter().map(|&cut| usize::from(cut)).collect())
    }

    /// The reads of a stream.
    pub fn of<'a>(&self, mut stream: &'a [u8]) -> Vec<&'a [u8]> {
        let mut reads = Vec::new();
        for &cut in self.0.iter().cycle() {
            if stream.is_empty() || reads.len() > READS {
                break;
            }
            let (read, rest) = stream.split_at(cut.min(stream.len()));
            reads.push(read);
            stream = rest;
        }
        reads.push(stream);
        reads
    }
}
