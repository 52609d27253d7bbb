//! The limit of open files is raised, and where it cannot be, respected.

use crate::common::{Server, program};

fn limited(limit: &str, more: &[&str]) -> Server {
    let arguments = ["gateway", "--listen", "whole+ws://0", "--to", "exec:cat"];
    let inner = program(&arguments, more);
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_remove("BREAKBULK_TOKEN");
    Server::start(&mut command)
}

#[test]
fn the_limit_of_open_files_is_raised_to_what_the_system_allows() {
    let server = limited("-Sn 64", &[]);
    let clients: Vec<_> = (0..60).map(|_| server.web_socket("/", "")).collect();
    assert!(clients.iter().all(|(status, _)| *status == 101));
}

#[test]
fn a_hard_limit_of_open_files_lowers_the_number_of_sessions() {
    let server = limited("-n 128", &[]);
    server.line("limit of 128 open files");
    let clients: Vec<_> = (0..60).map(|_| server.web_socket("/", "")).collect();
    for (number, (status, _)) in clients.iter().enumerate() {
        assert!([101, 503].contains(status), "client {number}: {status}");
    }
    assert_eq!(clients[59].0, 503);
    assert!(!server.log().contains("cannot begin"), "{}", server.log());
}
