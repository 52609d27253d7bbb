//! The Python bridge, embedded in this crate: a machine needs only Python 3.9 or later.
//!
//! The interpreter reads the source from its standard input, before the first message of the host: no
//! file has to be written or cleaned up, nothing of it stands in the list of processes, and modules of
//! the working directory can be imported.

use std::ffi::OsString;
use std::path::Path;

#[cfg(feature = "net")]
use breakbulk_net::process::Program;

/// The bridge as Python source, which can be run as a script as well.
pub const SOURCE: &str = concat!(
    include_str!("python/values.py"),
    include_str!("python/frames.py"),
    include_str!("python/bridge.py"),
);

/// The default interpreter.
pub const INTERPRETER: &str = if cfg!(windows) { "python" } else { "python3" };

/// The command line and the environment that make an interpreter (a name in PATH, or a path such as that
/// of a virtual environment's interpreter) a bridge. A host appends its arguments, and writes [`SOURCE`]
/// to the standard input before anything else.
pub fn command(interpreter: &Path) -> (Vec<OsString>, Vec<(String, String)>) {
    let words = vec![
        interpreter.as_os_str().to_owned(),
        "-u".into(),
        "-c".into(),
        loader().into(),
    ];
    let env = [
        ("PYTHONUTF8", "1"),
        ("PYTHONIOENCODING", "UTF-8"),
        ("PYTHONUNBUFFERED", "1"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
    (words, env.into())
}

/// The same as a program that a host can start. Arrays are sent as JSON, unless the variable
/// `TYWRAP_CODEC_FALLBACK` of this process says otherwise: nobody here reads Arrow.
#[cfg(feature = "net")]
pub fn program(interpreter: &Path) -> Program {
    const FALLBACK: &str = "TYWRAP_CODEC_FALLBACK";
    let (words, environment) = command(interpreter);
    let program = environment
        .into_iter()
        .fold(Program::new(words), |program, (name, value)| {
            program.env(name, value)
        })
        .preamble(SOURCE);
    match std::env::var_os(FALLBACK) {
        Some(_) => program,
        None => program.env(FALLBACK, "json"),
    }
}

/// Reads the source, and no byte more, since the messages of the host come after it.
fn loader() -> String {
    format!(
        r#"import os
source = b""
while len(source) < {size}:
    more = os.read(0, {size} - len(source))
    if not more:
        raise SystemExit(0)
    source += more
exec(compile(source, "<tywrap bridge>", "exec"))"#,
        size = SOURCE.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_short() {
        let (words, _) = command(Path::new("python3"));
        let size: usize = words.iter().map(|word| word.len()).sum();
        assert!(size < 500, "{size}");
        assert!(SOURCE.is_ascii() && !SOURCE.contains('\r'));
    }
}
