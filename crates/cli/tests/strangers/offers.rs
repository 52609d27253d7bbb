//! Offers of data channels to a listener of this machine.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::UdpSocket;
use std::time::Duration;

use crate::common::{Server, status};

#[test]
fn an_offer_to_a_loopback_listener_lets_nothing_out() {
    let server = Server::documents(&[]);
    let named = UdpSocket::bind("127.0.0.1:0").unwrap();
    named
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let port = named.local_addr().unwrap().port();
    let fingerprint = ["AB"; 32].join(":");
    let sdp = [
        "v=0",
        "o=- 1 2 IN IP4 127.0.0.1",
        "s=-",
        "t=0 0",
        "a=group:BUNDLE 0",
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
        "c=IN IP4 0.0.0.0",
        "a=ice-ufrag:abcd",
        "a=ice-pwd:abcdefghijklmnopqrstuvwx",
        &format!("a=fingerprint:sha-256 {fingerprint}"),
        "a=setup:actpass",
        "a=mid:0",
        "a=sctp-port:5000",
        &format!("a=candidate:1 1 udp 2130706431 127.0.0.1 {port} typ host"),
        "a=end-of-candidates",
        "",
    ]
    .join("\\r\\n");
    let body = format!(r#"{{"type":"offer","sdp":"{sdp}"}}"#);
    let mut stream = server.connect();
    let head = format!(
        "POST /offer?peerId=1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    assert_eq!(status(&mut stream), 200, "{}", server.log());
    let bound = udp_addresses(server.child.id());
    assert!(!bound.is_empty());
    for address in bound {
        let is_loopback = address.starts_with("0100007F:");
        assert!(is_loopback && !address.ends_with(":14E9"), "{address}");
    }
    let received = named.recv(&mut [0; 2048]);
    assert!(
        received.is_err(),
        "a packet went to an address in the offer"
    );
}

/// The local addresses of a process's UDP sockets, as the system writes them.
fn udp_addresses(pid: u32) -> BTreeSet<String> {
    let inodes: BTreeSet<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| {
            let target = std::fs::read_link(entry.ok()?.path()).ok()?;
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            Some(inode.trim_end_matches(']').to_owned())
        })
        .collect();
    ["udp", "udp6"]
        .iter()
        .filter_map(|table| std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok())
        .flat_map(|table| {
            let lines: Vec<String> = table.lines().skip(1).map(ToOwned::to_owned).collect();
            lines
        })
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            inodes
                .contains(*fields.get(9)?)
                .then(|| fields[1].to_owned())
        })
        .collect()
}
