//! TLS with rustls and ring: the certificates that a client trusts, and a server's own certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::error::{ConnectError, ListenError};
use super::socket::Socket;

/// The root certificates that a client trusts. The host name in a certificate is always checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// The root certificates of the system.
    #[default]
    Native,
    /// Only the root certificates in a PEM file.
    File(PathBuf),
}

/// The PEM files with a certificate and its key, of a server, or of a client whom the server asks for
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its certificate, followed by the intermediate ones.
    pub chain: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}

/// Performs the TLS handshake over a client's stream.
pub(crate) async fn client(
    stream: TcpStream,
    host: &str,
    address: &str,
    roots: &Roots,
    identity: Option<&Identity>,
) -> Result<Socket, ConnectError> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| ConnectError::Tls {
        address: address.to_owned(),
        reason: error.to_string(),
        remedy: "use a host name that a certificate can hold",
    })?;
    let config = client_config(address, roots, identity).await?;
    match TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
    {
        Ok(stream) => Ok(Socket::Tls(Box::new(stream.into()))),
        Err(error) => Err(match tls_error(&error) {
            Some(error) => failed(address, error),
            None => ConnectError::Tls {
                address: address.to_owned(),
                reason: error.to_string(),
                remedy: "is it a TLS server? if not, use ws://",
            },
        }),
    }
}

/// The TLS configuration of a client that trusts these roots, and shows this certificate to a server
/// that asks for one.
pub(crate) async fn client_config(
    address: &str,
    roots: &Roots,
    identity: Option<&Identity>,
) -> Result<ClientConfig, ConnectError> {
    let roots = roots.clone();
    // Reading the system's certificates takes a while and may block.
    let store = tokio::task::spawn_blocking(move || trusted(&roots))
        .await
        .map_err(|error| ConnectError::Roots {
            from: "the system".to_owned(),
            reason: error.to_string(),
        })??;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(address, &error))?
        .with_root_certificates(store);
    let Some(identity) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let wrong = |(file, reason): (PathBuf, String)| ConnectError::Identity { file, reason };
    let (chain, key) = identity.read().map_err(wrong)?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| wrong((identity.key.clone(), error.to_string())))
}

impl Identity {
    /// The certificates and the key; the error names the file that is wrong.
    fn read(&self) -> Result<(Chain, PrivateKeyDer<'static>), (PathBuf, String)> {
        let chain = certificates(&self.chain).map_err(|error| (self.chain.clone(), error))?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| (self.key.clone(), format!("no private key in PEM: {error}")))?;
        Ok((chain, key))
    }
}

type Chain = Vec<CertificateDer<'static>>;

/// Performs the TLS handshakes of a server with this certificate. With an authority, only clients with
/// a certificate that it signed are accepted.
pub(crate) fn acceptor(
    identity: &Identity,
    client_authority: Option<&Path>,
) -> Result<TlsAcceptor, ListenError> {
    let wrong = |(file, reason): (PathBuf, String)| ListenError::Identity { file, reason };
    let (chain, key) = identity.read().map_err(wrong)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong((identity.key.clone(), error.to_string())))?;
    let builder = match client_authority {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let failed = |reason: String| wrong((file.to_owned(), reason));
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(file).map_err(failed)?);
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| failed(error.to_string()))?)
        }
    };
    let config = builder.with_single_cert(chain, key);
    let config = config.map_err(|error| wrong((identity.key.clone(), error.to_string())))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Whether a server can use these files, without listening.
///
/// # Errors
/// If one of them cannot be read, or holds nothing that can be used.
pub fn check_server_files(
    identity: &Identity,
    client_authority: Option<&Path>,
) -> Result<(), ListenError> {
    acceptor(identity, client_authority).map(drop)
}

/// Whether a client can use these files, without connecting. The roots of the system are not looked at.
///
/// # Errors
/// If one of them cannot be read, or holds nothing that can be used.
pub fn check_client_files(roots: &Roots, identity: Option<&Identity>) -> Result<(), ConnectError> {
    if let Roots::File(_) = roots {
        trusted(roots)?;
    }
    let Some(identity) = identity else {
        return Ok(());
    };
    let wrong = |(file, reason): (PathBuf, String)| ConnectError::Identity { file, reason };
    let (chain, key) = identity.read().map_err(wrong)?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong((identity.key.clone(), error.to_string())))?;
    let builder = builder.with_root_certificates(RootCertStore::empty());
    let config = builder.with_client_auth_cert(chain, key);
    config
        .map(drop)
        .map_err(|error| wrong((identity.key.clone(), error.to_string())))
}

/// Performs the TLS handshake over the socket of a client, if the server has a certificate.
pub(crate) async fn accept(acceptor: Option<&TlsAcceptor>, socket: Socket) -> io::Result<Socket> {
    match (acceptor, socket) {
        (None, socket) => Ok(socket),
        (Some(acceptor), Socket::Plain(stream)) => {
            let stream = acceptor.accept(stream).await?;
            Ok(Socket::Tls(Box::new(stream.into())))
        }
        (Some(_), _) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "TLS is spoken over TCP only",
        )),
    }
}

fn trusted(roots: &Roots) -> Result<RootCertStore, ConnectError> {
    let mut store = RootCertStore::empty();
    let (from, first_error) = match roots {
        Roots::File(file) => {
            let from = file.display().to_string();
            let found = certificates(file).map_err(|reason| ConnectError::Roots {
                from: from.clone(),
                reason,
            })?;
            store.add_parsable_certificates(found);
            (from, None)
        }
        Roots::Native => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            let error = found.errors.first().map(ToString::to_string);
            ("the system".to_owned(), error)
        }
    };
    if store.is_empty() {
        return Err(ConnectError::Roots {
            from,
            reason: first_error.unwrap_or_else(|| "there are none; name a PEM file".to_owned()),
        });
    }
    Ok(store)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| format!("no certificates in PEM: {error}"))?;
    if found.is_empty() {
        return Err("no certificates in PEM: the file has none".to_owned());
    }
    Ok(found)
}

fn failed(address: &str, error: &rustls::Error) -> ConnectError {
    use rustls::Error::{InvalidCertificate, InvalidMessage, PeerIncompatible};
    let remedy = match error {
        InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "no trusted authority signed its certificate: give the PEM file of its authority"
        }
        InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "use a host name that its certificate contains",
        InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "renew its certificate, or set the clock right",
        InvalidCertificate(_) => "its certificate must be replaced",
        InvalidMessage(_) => "is it a TLS server? if not, use ws://",
        PeerIncompatible(_) => "it must speak TLS 1.2 or 1.3",
        _ => "see the server's log",
    };
    ConnectError::Tls {
        address: address.to_owned(),
        reason: error.to_string(),
        remedy,
    }
}

/// The alert by which the other end broke the connection off, if the error is one.
pub(crate) fn alert(error: &io::Error) -> Option<String> {
    match tls_error(error)? {
        rustls::Error::AlertReceived(alert) => Some(format!("{alert:?}")),
        _ => None,
    }
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Our crypto provider, named explicitly so that another one in the same program causes no conflict.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
