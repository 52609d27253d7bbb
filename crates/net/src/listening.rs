//! The sockets that servers accept clients from: a TCP port, or a Unix socket.
//!
//! A Unix socket is for programs of this machine, and the kernel tells which user each one runs as:
//! without a list only our own user and root may connect. Its clients count as clients from a loopback
//! address; no web page can come this way.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpListener;

use crate::gate::Warnings;
use crate::ws::{ListenError, Socket, tune};

/// How long to wait after accepting failed, for example for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The address that clients of a Unix socket count as.
pub(crate) const THIS_MACHINE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A socket to accept clients from.
#[derive(Debug)]
pub struct ListenSocket(Kind);

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(unix::UnixSocket),
}

impl From<TcpListener> for ListenSocket {
    fn from(listener: TcpListener) -> Self {
        Self(Kind::Tcp(listener))
    }
}

/// Where a socket listens, for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(std::path::PathBuf),
}

impl ListenAddress {
    /// Whether only programs of this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl ListenSocket {
    /// Listens at a Unix socket, for our own user, root, and the users whose numbers are given.
    ///
    /// A socket file that nobody listens at any more is replaced; the file is removed when this is
    /// dropped.
    #[cfg(unix)]
    pub fn unix(path: impl Into<std::path::PathBuf>, users: &[u32]) -> Result<Self, ListenError> {
        let path = path.into();
        let address = format!("unix:{}", path.display());
        let socket = unix::UnixSocket::bind(path, users.to_vec());
        socket
            .map(|socket| Self(Kind::Unix(socket)))
            .map_err(|error| ListenError::Bind { address, error })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<ListenAddress> {
        Ok(match &self.0 {
            Kind::Tcp(listener) => ListenAddress::Tcp(listener.local_addr()?),
            #[cfg(unix)]
            Kind::Unix(socket) => ListenAddress::Unix(socket.path().to_owned()),
        })
    }

    /// Waits for the next client; an error is the listening socket's own. Cancel-safe.
    pub(crate) async fn accept(&self, warnings: &Warnings) -> io::Result<Client> {
        loop {
            let accepted = match &self.0 {
                Kind::Tcp(listener) => listener.accept().await.map(|(stream, peer)| {
                    tune(&stream);
                    let local = stream.local_addr().ok();
                    let socket = Socket::Plain(stream);
                    Some(Client {
                        socket,
                        peer,
                        local,
                    })
                }),
                #[cfg(unix)]
                Kind::Unix(listener) => listener.accept(warnings).await.map(|stream| {
                    Some(Client {
                        socket: Socket::Unix(stream?),
                        peer: THIS_MACHINE,
                        local: None,
                    })
                }),
            };
            match accepted {
                Ok(Some(client)) => return Ok(client),
                // A user who may not connect.
                Ok(None) => {}
                Err(error) if is_client_error(&error) => {}
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "accepting a connection failed, trying again in {PAUSE:?}; \
                         raise the limit of open files if it is reached"
                    );
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// A client that connected.
pub(crate) struct Client {
    pub(crate) socket: Socket,
    pub(crate) peer: SocketAddr,
    /// The address that it connected to; `None` for a Unix socket.
    pub(crate) local: Option<SocketAddr>,
}

/// Whether an error of `accept` concerns only the client that was connecting.
fn is_client_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Whether the listening socket itself has failed.
fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected | io::ErrorKind::Unsupported
    )
}

#[cfg(unix)]
mod unix {
    use std::fs::{self, Permissions};
    use std::io;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::path::{Path, PathBuf};

    use tokio::net::{UnixListener, UnixStream};

    use crate::gate::{Limit, Warnings};

    /// A listening Unix socket and its file.
    #[derive(Debug)]
    pub(super) struct UnixSocket {
        listener: UnixListener,
        path: PathBuf,
        /// Device and inode of the file, so that only our own is removed.
        file: (u64, u64),
        /// The ids of the users who may connect, beside root.
        users: Vec<u32>,
    }

    impl UnixSocket {
        pub(super) fn bind(path: PathBuf, mut users: Vec<u32>) -> io::Result<Self> {
            remove_dead(&path)?;
            let listener = UnixListener::bind(&path)?;
            // The check is the user id that the kernel reports for each client; the file's mode only agrees
            // with it.
            let mode = if users.is_empty() { 0o600 } else { 0o666 };
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            let file = fs::symlink_metadata(&path)?;
            users.push(file.uid());
            Ok(Self {
                listener,
                path,
                file: (file.dev(), file.ino()),
                users,
            })
        }

        pub(super) fn path(&self) -> &Path {
            &self.path
        }

        /// The next client; `None` for one who may not connect.
        pub(super) async fn accept(&self, warnings: &Warnings) -> io::Result<Option<UnixStream>> {
            let (stream, _) = self.listener.accept().await?;
            let user = stream.peer_cred()?.uid();
            if user == 0 || self.users.contains(&user) {
                return Ok(Some(stream));
            }
            let why = format_args!("its user may not use {} (allow-user)", self.path.display());
            warnings.log(Limit::Request, format_args!("user {user}"), &why);
            Ok(None)
        }
    }

    impl Drop for UnixSocket {
        fn drop(&mut self) {
            let ours = fs::symlink_metadata(&self.path)
                .is_ok_and(|file| (file.dev(), file.ino()) == self.file);
            if ours && let Err(error) = fs::remove_file(&self.path) {
                tracing::debug!(path = %self.path.display(), %error, "a socket file stays behind");
            }
        }
    }

    /// Removes a socket file that nobody listens at.
    fn remove_dead(path: &Path) -> io::Result<()> {
        let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if !is_socket {
            // A file of another kind is not ours to remove: binding then fails and reports it.
            return Ok(());
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            _ => Ok(()),
        }
    }
}
