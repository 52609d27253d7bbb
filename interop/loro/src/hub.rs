//! The server to which the clients connect: the program `breakbulk`, or npm's own Repo.

use anyhow::Result;
use tempfile::TempDir;

use crate::program::Program;
use crate::repo::Repo;

/// Whose implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This project's.
    Ours,
    /// npm's `@loro-extended/repo`.
    Npm,
}

/// A server that keeps its port when it is started again.
pub enum Hub {
    /// `breakbulk loro serve`, and the folder of its documents.
    Ours(Program, TempDir),
    /// A Repo that keeps documents in memory, and its port.
    Npm(Repo, u16),
}

impl Hub {
    /// Starts a server without documents.
    pub async fn start(whose: Whose) -> Result<Self> {
        Ok(match whose {
            Whose::Ours => {
                let data = tempfile::tempdir()?;
                Self::Ours(Program::start(data.path()).await?, data)
            }
            Whose::Npm => {
                let (repo, port) = Repo::server("hub", 0).await?;
                Self::Npm(repo, port)
            }
        })
    }

    /// The URL under which its paths are.
    pub fn url(&self) -> String {
        match self {
            Self::Ours(program, _) => format!("http://{}", program.address),
            Self::Npm(_, port) => format!("http://127.0.0.1:{port}"),
        }
    }

    /// Kills the server.
    pub async fn kill(self) -> Result<Down> {
        Ok(match self {
            Self::Ours(program, data) => {
                let address = program.address.clone();
                program.kill().await?;
                Down::Ours(address, data)
            }
            Self::Npm(repo, port) => {
                repo.kill().await?;
                Down::Npm(port)
            }
        })
    }

    /// Ends the server in good order.
    pub async fn stop(self) -> Result<()> {
        match self {
            Self::Ours(program, _) => program.stop().await,
            Self::Npm(repo, _) => repo.stop().await,
        }
    }
}

/// A server that was killed, with what is needed to start it again.
pub enum Down {
    /// Its address and its documents.
    Ours(String, TempDir),
    /// Its port. Its documents were in memory: the clients send them again.
    Npm(u16),
}

impl Down {
    /// Starts it again at the same address.
    pub async fn start(self) -> Result<Hub> {
        Ok(match self {
            Self::Ours(address, data) => {
                let program = Program::start_at(&address, data.path()).await?;
                Hub::Ours(program, data)
            }
            Self::Npm(port) => Hub::Npm(Repo::server("hub", port).await?.0, port),
        })
    }
}
