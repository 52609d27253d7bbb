//! Tests of what systemd is told; a socket of the test takes its place.

use std::os::unix::net::UnixDatagram;

use super::Folder;
use crate::common::{Listening, PATIENCE, gateway};

// OPS-8
#[cfg(target_os = "linux")]
#[test]
fn systemd_hears_of_every_state() {
    let folder = Folder::new();
    let route = "[[route]]\nname = 'one'\nlisten = 'unix:$D/one'\nto = '$ANSWER'\n";
    folder.write(route);
    let socket = UnixDatagram::bind(folder.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // The next state, but for those that only say that it is alive.
    let alive = std::cell::Cell::new(0);
    let next = || loop {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        let said = String::from_utf8(buffer[..length].to_vec()).unwrap();
        match &*said {
            "WATCHDOG=1\n" => alive.set(alive.get() + 1),
            _ => return said,
        }
    };
    let config = folder.config().display().to_string();
    let mut command = gateway(&["--config", &config]);
    command
        .env("NOTIFY_SOCKET", folder.path("notify"))
        .env("WATCHDOG_USEC", "100000");
    let mut gateway = Listening::start(command);
    assert_eq!(next(), "READY=1\nSTATUS=1 route\n");
    for (text, status) in [
        (
            format!("{route}{}", route.replace("one", "two")),
            "2 routes",
        ),
        // The gateway reports that it is ready, also if the reload was refused.
        ("nonsense".to_owned(), "2 routes"),
    ] {
        folder.write(&text);
        gateway.signal("-HUP");
        let reloading = next();
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let time = time.and_then(|time| time.trim_end().parse::<u64>().ok());
        assert!(time.is_some_and(|time| time > 0), "{reloading}");
        assert_eq!(next(), format!("READY=1\nSTATUS={status}\n"));
    }
    gateway.signal("-TERM");
    assert_eq!(
        next(),
        "STOPPING=1\nSTATUS=stopping: queued messages are still sent\n"
    );
    assert_eq!(gateway.exit_code(), Some(0));
    assert!(alive.get() > 0, "the watchdog heard nothing");
}
