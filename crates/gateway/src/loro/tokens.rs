//! Checks the tokens of clients over HTTP.

use std::sync::Arc;

use breakbulk_net::http::{Authorize, Claim, Denied, Grant};
use breakbulk_net::ws::{Bearer, Tokens};

use crate::token::TokenFile;

/// Accepts clients that send a token: as `Authorization: Bearer`, or, where a browser cannot, as `token`
/// in the query.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TokenCheck {
    /// This token, for all clients.
    One(Bearer),
    /// The tokens of a file, whose names are the names of the clients.
    File(Arc<TokenFile>),
}

impl TokenCheck {
    /// What a header with a token grants, if it grants anything.
    fn grant(&self, header: &[u8]) -> Option<Grant> {
        match self {
            Self::One(token) => token.admits(header).then(Grant::default),
            Self::File(tokens) => Some(Grant {
                subject: Some(tokens.holder(header)?),
            }),
        }
    }
}

impl Authorize for TokenCheck {
    fn authorize(&self, claim: &Claim) -> Result<Grant, Denied> {
        let header = claim.headers.get("authorization");
        let by_header = header.and_then(|header| self.grant(header.as_bytes()));
        let by_query = || {
            let token = claim.parameter("token")?;
            self.grant(format!("Bearer {token}").as_bytes())
        };
        by_header.or_else(by_query).ok_or_else(|| Denied {
            status: 401,
            error: "this server requires a token: send Authorization: Bearer".to_owned(),
        })
    }
}
