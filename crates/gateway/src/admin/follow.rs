//! Follows a running gateway by its admin port: the other end of `GET /api/tap`.

use std::time::Duration;

use breakbulk_net::http::{ClientOptions, ConnectError, HttpTarget};
use breakbulk_net::plain_text;
use breakbulk_net::ws::Bearer;
use reqwest::{Method, StatusCode};

use super::AdminAddress;
use crate::record::Live;

/// How long the gateway may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The longest line.
const LINE_MAX: usize = 64 << 10;

/// Why a gateway cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// It is no address.
    #[error("{0}")]
    Address(&'static str),
    /// It is no address of HTTP, or its certificate cannot be checked.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Nobody answers there.
    #[error("{url} does not answer: {error}; is a gateway running with --admin?")]
    Unreachable {
        /// The address.
        url: String,
        /// What went wrong.
        error: String,
    },
    /// It answered with something else.
    #[error("{url} answered {status}: {words}")]
    Refused {
        /// The address.
        url: String,
        /// The status.
        status: u16,
        /// What it said.
        words: String,
    },
    /// The connection broke.
    #[error("the connection to the admin port broke: {0}")]
    Broke(String),
    /// A line that no gateway sends.
    #[error("the admin port sent a line that is no record; is it the admin port of a gateway?")]
    NoRecord,
}

impl FollowError {
    /// Whether nothing was followed yet.
    pub fn is_setup(&self) -> bool {
        !matches!(self, Self::Broke(_) | Self::NoRecord)
    }
}

/// What comes next.
#[derive(Debug)]
pub enum Followed {
    /// A record.
    Record(Box<Live>),
    /// The gateway has stopped.
    Ended,
}

/// The records of a gateway from now on.
#[derive(Debug)]
pub struct Following {
    response: reqwest::Response,
    /// Received bytes that are not a whole line yet.
    rest: Vec<u8>,
}

/// Follows the gateway whose admin port is at a port, `HOST:PORT` or URL.
///
/// # Errors
/// If it is no address, nobody answers there, or the token is wrong.
pub async fn follow(admin: &str, token: Option<&Bearer>) -> Result<Following, FollowError> {
    let url = url(admin)?;
    let mut options = ClientOptions::new("");
    options.bearer = token.cloned();
    options.timeout = ANSWER;
    let target = HttpTarget::new(&url, &options).await?;
    let unreachable = |error: String| FollowError::Unreachable {
        url: url.clone(),
        error,
    };
    let asked = target.request(Method::GET).send();
    let response = match tokio::time::timeout(ANSWER, asked).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(unreachable(plain_text(error.without_url()))),
        Err(_) => {
            let seconds = ANSWER.as_secs();
            return Err(unreachable(format!("no answer within {seconds} s")));
        }
    };
    let status = response.status();
    if status != StatusCode::OK {
        let words = refusal(response).await;
        return Err(FollowError::Refused {
            url,
            status: status.as_u16(),
            words,
        });
    }
    let rest = Vec::new();
    Ok(Following { response, rest })
}

/// The URL of the records.
fn url(admin: &str) -> Result<String, FollowError> {
    let base = match admin.contains("://") {
        true => admin.trim_end_matches('/').to_owned(),
        false => {
            let address: Result<AdminAddress, _> = admin.parse();
            let wrong = "write PORT, HOST:PORT or http://HOST:PORT";
            let address = address.map_err(|_| FollowError::Address(wrong))?;
            format!("http://{address}")
        }
    };
    Ok(format!("{base}/api/tap"))
}

/// What the admin port says about a refusal.
async fn refusal(mut response: reqwest::Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > LINE_MAX {
            break;
        }
    }
    let said: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    let words = said.as_ref().and_then(|it| it["error"].as_str());
    match words {
        Some(words) => plain_text(words),
        None => "is it the admin port of a gateway? The token may be missing".to_owned(),
    }
}

impl Following {
    /// Waits for the next record.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn next(&mut self) -> Result<Followed, FollowError> {
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let live = serde_json::from_slice(&line);
                return live
                    .map(|live| Followed::Record(Box::new(live)))
                    .map_err(|_| FollowError::NoRecord);
            }
            if self.rest.len() > LINE_MAX {
                return Err(FollowError::NoRecord);
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.rest.extend_from_slice(&chunk),
                Ok(None) => return Ok(Followed::Ended),
                Err(error) => return Err(FollowError::Broke(plain_text(error.without_url()))),
            }
        }
    }
}
