//! MCP over HTTP where others cannot come in: certificates at both ends, and Unix sockets.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::carry::{begun, read, text};
use super::door::server;
use super::wire::call;
use crate::common::{Listening, Near, gateway, run, said};

/// An authority, and the certificate and key that it signed for 127.0.0.1: their files in a folder.
fn authority(folder: &Path, name: &str) -> (String, String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let write = |what: &str, content: &str| {
        let file = folder.join(format!("{name}-{what}.pem"));
        std::fs::write(&file, content).unwrap();
        file.display().to_string()
    };
    (
        write("authority", &issuer.pem()),
        write("cert", &leaf.pem()),
        write("key", &key.serialize_pem()),
    )
}

/// A call and its answer.
fn calls(near: &mut Near) {
    let sent = call(1, "echo", &format!(r#""text":"{}""#, "x".repeat(300_000)));
    near.write(format!("{sent}\n").as_bytes());
    assert!(text(&read(near)) == "x".repeat(300_000));
}

/// The listener takes only clients whose certificate its authority signed, and they trust only a server
/// whose certificate theirs did.
// MCPH-13
#[test]
fn certificates_of_both_ends_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, cert, key) = authority(folder.path(), "servers");
    let (clients, client_cert, client_key) = authority(folder.path(), "clients");
    let (_, stranger_cert, stranger_key) = authority(folder.path(), "strangers");
    for scheme in ["https", "ahp+https"] {
        let listen = format!("{scheme}://0/mcp?cert={cert}&key={key}&ca={clients}");
        let far = Listening::new(&["--listen", &listen, "--to", &server()]);
        let to = format!(
            "{}?ca={servers}&cert={client_cert}&key={client_key}",
            far.address
        );
        calls(&mut begun(&to));
        for (to, words) in [
            (format!("{}?ca={servers}", far.address), "ertificate"),
            (
                format!(
                    "{}?ca={servers}&cert={stranger_cert}&key={stranger_key}",
                    far.address
                ),
                "nknownCA",
            ),
            (
                format!(
                    "{}?ca={clients}&cert={client_cert}&key={client_key}",
                    far.address
                ),
                "nvalid peer certificate",
            ),
        ] {
            let request = format!("{}\n", super::wire::INITIALIZE);
            let near = gateway(&["--listen", "stdio:", "--to", &to]);
            let output = run(near, request.into_bytes());
            let told = format!(
                "{}{}",
                said(&output),
                String::from_utf8_lossy(&output.stdout)
            );
            // A tunnel does not begin; MCP's request has its answer, an error.
            let is_refused = output.status.code() == Some(2);
            let is_answered = told.contains(r#""code":-32000"#);
            assert_eq!(is_refused, to.starts_with("ahp+"), "{to}: {told}");
            assert_eq!(is_answered, !is_refused, "{to}: {told}");
            assert!(told.contains(words), "{to}: {told}");
        }
    }
}

// MCPH-14
#[test]
fn a_unix_socket_carries_mcp_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mcp.sock");
    let listen = format!("http+unix:{}?path=/mcp", socket.display());
    let far = Listening::new(&["--listen", &listen, "--to", &server()]);
    assert_eq!(far.address, listen);
    calls(&mut begun(&far.address));
    let mode = std::fs::metadata(&socket).unwrap().permissions();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777;
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    // Where the target is wrong, each request has its answer: an error.
    for (to, code, words) in [
        (
            format!("http+unix:{}x", socket.display()),
            0,
            "No such file or directory",
        ),
        (format!("http+unix:{}", socket.display()), 0, "404"),
        ("http+unix:".to_owned(), 2, "http+unix:"),
        ("http+unix:/s?path=mcp".to_owned(), 2, "/PATH"),
        (
            "http+unix:/s?tunnel=never".to_owned(),
            2,
            "\"tunnel\" is no option",
        ),
        ("http+unix:/s?cert=x".to_owned(), 2, "cert is for"),
    ] {
        let request = format!("{}\n", super::wire::INITIALIZE);
        let near = gateway(&["--listen", "stdio:", "--to", &to]);
        let output = run(near, request.into_bytes());
        let told = format!(
            "{}{}",
            said(&output),
            String::from_utf8_lossy(&output.stdout)
        );
        assert_eq!(output.status.code(), Some(code), "{to}: {told}");
        assert!(told.contains(words), "{to}: {told}");
    }
}
