//! The comparison: a Python loop of readline, loads, dumps and write, and a host that only writes a
//! line and reads a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use breakbulk::tywrap::python::INTERPRETER;

/// The Python loop. It calls the function, as a bridge does, and checks nothing.
const LOOP: &str = r#"
import sys, json, importlib
read, write, flush = sys.stdin.buffer.readline, sys.stdout.buffer.write, sys.stdout.buffer.flush
while True:
    line = read()
    if not line:
        break
    request = json.loads(line)
    params = request["params"]
    function = getattr(importlib.import_module(params["module"]), params["functionName"])
    result = function(*params["args"])
    write(json.dumps({"id": request["id"], "protocol": "tywrap/1", "result": result}).encode() + b"\n")
    flush()
"#;

pub(crate) struct Plain {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Plain {
    pub(crate) fn start() -> Result<Self, Box<dyn std::error::Error>> {
        let mut child = Command::new(INTERPRETER)
            .args(["-u", "-c", LOOP])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("no standard output")?;
        Ok(Self {
            child,
            input,
            output: BufReader::with_capacity(256 << 10, output),
            line: Vec::new(),
        })
    }

    /// Writes a large line and reads one at the same time.
    pub(crate) fn exchange(&mut self, line: &[u8]) -> Result<&[u8], Box<dyn std::error::Error>> {
        let mut input = self.input.take().ok_or("no standard input")?;
        self.line.clear();
        let (output, answer) = (&mut self.output, &mut self.line);
        thread::scope(|scope| {
            let writing = scope.spawn(|| input.write_all(line));
            output.read_until(b'\n', answer)?;
            writing
                .join()
                .map_err(|_| std::io::Error::other("the writer failed"))?
        })?;
        self.input = Some(input);
        Ok(&self.line)
    }

    /// Has Python add 1 to `count` numbers, in batches of `ahead` requests.
    pub(crate) fn ask_all(
        &mut self,
        count: usize,
        ahead: usize,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut questions = Vec::new();
        for from in (0..count).step_by(ahead) {
            questions.clear();
            for id in from..count.min(from + ahead) {
                writeln!(
                    questions,
                    r#"{{"method":"call","params":{{"module":"operator","functionName":"add","args":[{id},1]}},"id":{id},"protocol":"tywrap/1"}}"#
                )?;
            }
            self.input
                .as_mut()
                .ok_or("no standard input")?
                .write_all(&questions)?;
            for id in from..count.min(from + ahead) {
                self.line.clear();
                self.output.read_until(b'\n', &mut self.line)?;
                if !self
                    .line
                    .ends_with(format!("\"result\": {}}}\n", id + 1).as_bytes())
                {
                    let line = String::from_utf8_lossy(&self.line);
                    return Err(format!("{id} + 1 is {line}").into());
                }
            }
        }
        Ok(())
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.input = None;
        // Python exits when its input ends; an error cannot be reported here.
        let _ = self.child.wait();
    }
}
