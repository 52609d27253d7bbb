//! This process's standard output, without a detour for what is small.

use std::io::{self, Write};

use breakbulk_link::Frame;
use breakbulk_net::process::StreamSink;
use breakbulk_net::{Lost, Sink};

/// A pipe takes so much without waiting, unless its reader is far behind.
const SMALL: usize = 4096;

/// An asynchronous write to a standard stream costs two journeys to another thread (measured: 54 µs a
/// call instead of 6). A bridge has nothing else to do meanwhile, so a small line is written here.
pub(super) struct StandardOutput(pub(super) StreamSink);

impl Sink for StandardOutput {
    async fn send(&mut self, frame: Frame) -> Result<(), Lost> {
        let line = frame.bytes();
        if line.len() >= SMALL {
            return self.0.send(frame).await;
        }
        write(line).map_err(|error| Lost(format!("writing failed: {error}")))
    }

    async fn close(&mut self, code: u16, reason: &str) {
        self.0.close(code, reason).await;
    }
}

fn write(line: &[u8]) -> io::Result<()> {
    let whole = [line, b"\n"].concat();
    let mut output = io::stdout().lock();
    output.write_all(&whole)?;
    output.flush()
}
