//! Runs a test for each row of a table.

use std::fmt::Debug;
use std::time::Instant;

use anyhow::{Result, ensure};

/// Runs each row, and fails with all rows that failed.
pub async fn each<R: Copy + Debug>(
    rows: impl IntoIterator<Item = R>,
    run: impl AsyncFn(R) -> Result<()>,
) -> Result<()> {
    let mut failed = Vec::new();
    for row in rows {
        let start = Instant::now();
        match run(row).await {
            Ok(()) => println!("{row:?}: {:.1} s", start.elapsed().as_secs_f64()),
            Err(error) => failed.push(format!("{row:?}: {error:#}")),
        }
    }
    ensure!(
        failed.is_empty(),
        "{} rows fail:\n{}",
        failed.len(),
        failed.join("\n")
    );
    Ok(())
}
