//! The page's own codec writes and reads the recorded bytes: it does not merely agree with this project's.

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "cargo xtask interop loro"]
fn the_pages_codec_makes_the_recorded_bytes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let checked = Command::new("node")
        .arg(folder.join("codec.mjs"))
        .arg(folder.join("../../vectors/loro"))
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{problem}");
    println!("checked: {}", String::from_utf8_lossy(&checked.stdout));
}
