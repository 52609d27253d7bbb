//! Where keys come from, and who sees them.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use breakbulk::contextvm::{Keys, public_key};

use super::{Scene, keygen, server};
use crate::common::{Listening, gateway};

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

// PROG-12
#[test]
fn keygen_writes_the_secret_for_its_owner_alone_and_prints_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_breakbulk"));
        command.arg("keygen").arg(&path).output().unwrap()
    };
    let made = run();
    assert_eq!(made.status.code(), Some(0));
    assert_eq!(mode(&path), 0o600);
    let secret = std::fs::read_to_string(&path).unwrap();
    let public = Keys::parse(&secret).unwrap().public_key();
    let printed = String::from_utf8(made.stdout).unwrap();
    let [npub, hex] = printed.lines().collect::<Vec<_>>()[..] else {
        panic!("{printed}")
    };
    assert!(npub.starts_with("npub1"), "{npub}");
    assert_eq!(public_key(npub).unwrap(), public);
    assert_eq!(hex, public.to_hex());
    assert!(made.stderr.is_empty());

    let again = run();
    assert_eq!(again.status.code(), Some(2));
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), secret);
}

// PROG-12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_the_environment_is_the_gateways_alone() {
    let scene = Scene::start("", &[]).await;
    let secret = std::fs::read_to_string(keygen(&scene.folder, "other")).unwrap();
    let listen = format!("nostr:{}", scene.relay.url());
    let mut command = gateway(&["--listen", &listen, "--to", &server()]);
    command.env("BREAKBULK_NOSTR_KEY", secret.trim());
    let far = Listening::start(command);
    let public = Keys::parse(&secret).unwrap().public_key().to_hex();
    assert!(
        far.address.ends_with(&format!("?server={public}")),
        "{}",
        far.address
    );
    let near = crate::common::Near::new(&["--listen", "stdio:", "--to", &far.address]);
    let mut client = super::Program(near);
    client.initialize("somebody");
    assert_eq!(client.about(1).2, "no key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_is_allowed_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let key = keygen(&folder, "client");
    let secret = std::fs::read_to_string(&key).unwrap();
    let allowed = breakbulk::contextvm::npub(&Keys::parse(&secret).unwrap().public_key());
    let scene = Scene::start(&format!("&allow={allowed}"), &[]).await;
    let mut client = scene.client(&format!("&key={}", key.display()));
    client.initialize("friend");
    assert_eq!(client.about(1).0, "friend");
    assert_eq!(mode(&folder.path().join("client.servers")), 0o600);
}
