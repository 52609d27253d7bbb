//! Functions in Rust for a host that speaks tywrap/1: `cargo run --release --example rust_bridge`
//!
//! Without an argument it is the host, and starts itself once more as the bridge.

use breakbulk_net::process::Program;
use breakbulk_tywrap::bridge::{Answer, Bridge, Functions};
use breakbulk_tywrap::{Config, Host};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().any(|word| word == "bridge") {
        let functions = Functions::new()
            .with("math", "sqrt", |call| Answer::number(call.float(0)?.sqrt()))
            .with("text", "repeat", |call| {
                let times = usize::try_from(call.integer(1)?).unwrap_or(0);
                Answer::text(&call.text(0)?.repeat(times))
            });
        // Takes the configuration that the host passed by arguments and environment.
        Bridge::from_process(functions)?.stdio().await?;
        return Ok(());
    }
    let myself = std::env::current_exe()?;
    let bridge = Program::new([myself.as_os_str(), "bridge".as_ref()]);
    let host = Host::new(bridge, Config::default());
    println!("{}", host.call("math", "sqrt", "[16]", None).await?.json());
    let long = host
        .call("text", "repeat", r#"["break bulk ", 200000]"#, None)
        .await?;
    println!("{} bytes", long.json().len());
    host.stop().await;
    Ok(())
}
