//! Calls a Python function with an argument larger than a line: `cargo run --release --example python_call`

use std::path::Path;

use breakbulk_tywrap::{CallError, Config, Host, python};

#[tokio::main]
async fn main() -> Result<(), CallError> {
    // The Python bridge is part of this crate: the machine needs only Python 3.9 or later.
    let host = Host::python(Path::new(python::INTERPRETER), Config::default());

    let root = host.call("math", "sqrt", "[16]", None).await?;
    println!("math.sqrt(16) = {}", root.json());

    // 3 MB are sent in frames of 1 MiB, and come back whole.
    let text = "x".repeat(3_000_000);
    let back = host
        .call("builtins", "str", format!("[{text:?}]"), None)
        .await?;
    println!("builtins.str returned {} bytes", back.json().len());

    // An exception of the function is an error of the call.
    match host.call("math", "sqrt", "[-1]", None).await {
        Err(CallError::Raised(raised)) => println!("{}: {}", raised.kind, raised.message),
        other => println!("unexpected: {other:?}"),
    }
    host.stop().await;
    Ok(())
}
