//! `wss://`: a certificate of the trusted authority is accepted; another authority or another name is not.

use std::path::{Path, PathBuf};

use breakbulk_link::Frame;
use breakbulk_net::ws::{
    ConnectError, ConnectOptions, Identity, ListenError, ListenOptions, Listener, Roots, connect,
};
use breakbulk_net::{Incoming, Sink, Transport};
use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::common::{next, next_frame, soon};

/// A directory of PEM files, removed after the test.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("breakbulk-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A certificate authority, and a certificate that it signed for these names.
    fn authority(&self, name: &str, hosts: &[&str]) -> (PathBuf, Identity) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(hosts).unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap();
        let root = self.write(&format!("{name}-root.pem"), &issuer.pem());
        let identity = Identity {
            chain: self.write(&format!("{name}-chain.pem"), &leaf.pem()),
            key: self.write(&format!("{name}-key.pem"), &key.serialize_pem()),
        };
        (root, identity)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn trusting(root: &Path) -> ConnectOptions {
    ConnectOptions {
        roots: Roots::File(root.to_owned()),
        ..ConnectOptions::default()
    }
}

#[tokio::test]
async fn a_listener_with_an_authority_accepts_only_clients_that_it_signed() {
    let files = Files::new("mutual");
    let (root, server) = files.authority("server", &["localhost"]);
    let (authority, client) = files.authority("clients", &["client"]);
    let (_, stranger) = files.authority("strangers", &["client"]);
    for (identity, accepted) in [(None, false), (Some(stranger), false), (Some(client), true)] {
        let options = ListenOptions {
            identity: Some(server.clone()),
            client_authority: Some(authority.clone()),
            ..ListenOptions::default()
        };
        let mut listener = Listener::bind("127.0.0.1:0", options).await.unwrap();
        let url = format!("wss://localhost:{}/", listener.local_addr().port());
        let options = ConnectOptions {
            identity: identity.clone(),
            ..trusting(&root)
        };
        let connected = soon("an answer", connect(&url, &options)).await;
        assert_eq!(connected.is_ok(), accepted, "{identity:?}: {connected:?}");
        if accepted {
            soon("the client", listener.accept()).await.unwrap();
        }
    }
}

async fn serve(identity: Identity) -> Listener {
    let options = ListenOptions {
        identity: Some(identity),
        ..ListenOptions::default()
    };
    Listener::bind("127.0.0.1:0", options).await.unwrap()
}

#[tokio::test]
async fn frames_travel_under_tls_both_ways() {
    let files = Files::new("tls-frames");
    let (root, identity) = files.authority("a", &["localhost"]);
    let mut listener = serve(identity).await;
    let url = format!("wss://localhost:{}/", listener.local_addr().port());
    let options = trusting(&root);
    let (client, server) = tokio::join!(connect(&url, &options), listener.accept());
    let (mut left, mut left_sink) = client.unwrap().split();
    let (mut right, mut right_sink) = server.unwrap().websocket.split();
    for size in [0, 1, 16_384, 900_000] {
        let frame = Frame::Binary(Bytes::from(vec![7; size]));
        let back = Frame::Text(Bytes::from(vec![b'x'; size]));
        let (sent, answered, came, came_back) = soon("frames", async {
            tokio::join!(
                left_sink.send(frame.clone()),
                right_sink.send(back.clone()),
                next_frame(&mut right),
                next_frame(&mut left)
            )
        })
        .await;
        sent.unwrap();
        answered.unwrap();
        assert!(came == Incoming::Frame(frame), "{size}");
        assert!(came_back == Incoming::Frame(back), "{size}");
    }
    left_sink.close(4001, "enough").await;
    let closed = breakbulk_link::Closed {
        code: 4001,
        reason: "enough".to_owned(),
    };
    assert_eq!(next(&mut right).await, Incoming::Closed(closed));
}

#[tokio::test]
async fn a_stranger_and_a_wrong_name_are_refused_with_the_remedy() {
    let files = Files::new("tls-trust");
    let (root, identity) = files.authority("a", &["localhost"]);
    let (other_root, _) = files.authority("b", &["localhost"]);
    let listener = serve(identity).await;
    let port = listener.local_addr().port();
    for (host, root, expected) in [
        (
            "localhost",
            &other_root,
            "give the PEM file of its authority",
        ),
        (
            "127.0.0.1",
            &root,
            "use a host name that its certificate contains",
        ),
    ] {
        let url = format!("wss://{host}:{port}/");
        let error = soon("an error", connect(&url, &trusting(root)))
            .await
            .unwrap_err();
        assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("{host}:{port}: TLS failed: ")),
            "{text}"
        );
        assert!(text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn plain_and_tls_are_not_mistaken_for_each_other() {
    let files = Files::new("tls-plain");
    let (root, identity) = files.authority("a", &["localhost"]);
    let secure = serve(identity).await;
    let url = format!("ws://127.0.0.1:{}/", secure.local_addr().port());
    let error = soon("an error", connect(&url, &ConnectOptions::default()))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ConnectError::NotWebSocket { .. }),
        "{error:?}"
    );
    let (plain, _) = crate::common::listen(ListenOptions::default()).await;
    let url = format!("wss://localhost:{}/", plain.local_addr().port());
    let error = soon("an error", connect(&url, &trusting(&root)))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("if not, use ws://"), "{error}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let files = Files::new("tls-files");
    let (_, identity) = files.authority("a", &["localhost"]);
    let (_, other) = files.authority("b", &["localhost"]);
    let empty = files.write("empty.pem", "");
    let nowhere = files.0.join("nowhere.pem");
    for (chain, key) in [
        (&nowhere, &identity.key),
        (&empty, &identity.key),
        (&identity.chain, &nowhere),
        (&identity.chain, &identity.chain),
        (&identity.chain, &other.key),
    ] {
        let identity = Identity {
            chain: chain.clone(),
            key: key.clone(),
        };
        let options = ListenOptions {
            identity: Some(identity),
            ..ListenOptions::default()
        };
        let error = Listener::bind("127.0.0.1:0", options).await.unwrap_err();
        assert!(matches!(error, ListenError::Identity { .. }), "{error}");
    }
    let (listener, _) = crate::common::listen(ListenOptions::default()).await;
    let url = format!("wss://localhost:{}/", listener.local_addr().port());
    for root in [&empty, &nowhere] {
        let error = connect(&url, &trusting(root)).await.unwrap_err();
        assert!(matches!(error, ConnectError::Roots { .. }), "{error}");
        assert!(
            error.to_string().contains(&root.display().to_string()),
            "{error}"
        );
    }
}
