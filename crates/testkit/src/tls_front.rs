//! Ends TLS before a plain server, and breaks off with a fatal TLS alert when the connection to that server
//! breaks: as some services refuse what is too large for them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls_pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client may take to read the alert.
const LINGER: Duration = Duration::from_secs(2);

/// More than a TLS record, so that one that is being read is completed.
static NONSENSE: [u8; 20_000] = [0; 20_000];

/// A running front; dropping it ends it.
#[derive(Debug)]
pub struct TlsFront {
    address: SocketAddr,
    certificate: String,
    task: JoinHandle<()>,
}

impl TlsFront {
    /// Starts a front for `target` on a free port of 127.0.0.1, with a new certificate for that address.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let made = made.map_err(io::Error::other)?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let key = key.map_err(io::Error::other)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let builder = builder.with_no_client_auth();
                builder.with_single_cert(vec![made.cert.der().clone()], key)
            });
        let acceptor = TlsAcceptor::from(Arc::new(config.map_err(io::Error::other)?));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut running = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while running.try_join_next().is_some() {}
                let acceptor = acceptor.clone();
                running.spawn(async move { drop(serve(client, target, acceptor).await) });
            }
        });
        Ok(Self {
            address,
            certificate: made.cert.pem(),
            task,
        })
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate to trust, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(client: TcpStream, target: SocketAddr, acceptor: TlsAcceptor) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut client = acceptor.accept(client).await?;
    let mut server = TcpStream::connect(target).await?;
    match copy_bidirectional(&mut client, &mut server).await {
        Ok(_) => Ok(()),
        Err(_) => alert(client).await,
    }
}

/// Makes the TLS connection fail as if the client had sent nonsense: its library then sends an alert.
async fn alert(mut client: TlsStream<TcpStream>) -> io::Result<()> {
    let (stream, connection) = client.get_mut();
    let mut nonsense = &NONSENSE[..];
    while !nonsense.is_empty() && connection.read_tls(&mut nonsense)? > 0 {
        if connection.process_new_packets().is_err() {
            break;
        }
    }
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes)?;
    }
    stream.write_all(&bytes).await?;
    stream.shutdown().await?;
    // Closing with bytes unread would reset the connection, and the alert might not arrive.
    let mut rest = [0; 4096];
    let drained = timeout(LINGER, async {
        while stream.read(&mut rest).await? > 0 {}
        Ok(())
    });
    drained.await.unwrap_or(Ok(()))
}
