//! `loro+http://HOST:PORT/PATH[?transport=…]`: loro-extended's server and clients over HTTP.
//!
//! A listener takes clients by all four transports of loro-extended, on one port: WebSockets, event
//! streams, polls and data channels. A target is reached by one of them.

use super::options::{EndpointOptions, NAMES, none_of, options, unknown_option};
use super::web::{Located, located};
use super::{At, EndpointError, OptionError, WireKind, address};
use crate::error::EndError;

/// The option that the other transports do not have.
const TRANSPORT: &str = "transport";

/// The transports of loro-extended over HTTP, beside WebSockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoroWay {
    /// An event stream down, POSTs up.
    Sse,
    /// Polls down, POSTs up.
    Poll,
    /// A WebRTC data channel, whose offer goes by a POST.
    #[cfg(feature = "webrtc")]
    DataChannel,
}

/// The address of a server of loro-extended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoroAddress {
    /// `https`.
    pub(crate) secure: bool,
    /// Host and port, as written.
    pub(crate) authority: String,
    /// The path below which the server has its own, at least `/`.
    pub(crate) path: String,
    /// The query without the gateway's own options.
    pub(crate) query: Option<String>,
    /// How a target is reached; a listener takes all.
    pub(crate) way: Option<LoroWay>,
}

/// What follows `loro+http:` or `loro+https:`.
pub(super) fn endpoint(
    secure: bool,
    rest: &str,
) -> Result<(WireKind, At, EndpointOptions), EndpointError> {
    let scheme = if secure { "loro+https" } else { "loro+http" };
    let Located {
        authority,
        path,
        query,
    } = located(scheme, rest)?;
    let (options, unknown) = options(query, NAMES)?;
    let (mut way, mut rest) = (None, Vec::new());
    for pair in unknown {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = |error| EndpointError::Option {
            name: name.to_owned(),
            error,
        };
        match name {
            TRANSPORT if way.is_some() => return Err(wrong(OptionError::Twice)),
            TRANSPORT => way = Some(self::way(value).map_err(wrong)?),
            _ => rest.push(pair),
        }
    }
    let address = LoroAddress {
        secure,
        authority: authority.to_owned(),
        path: path.to_owned(),
        query: (!rest.is_empty()).then(|| rest.join("&")),
        way,
    };
    Ok((WireKind::Loro, At::Loro(address), options))
}

fn way(value: &str) -> Result<LoroWay, OptionError> {
    match value {
        "" => Err(OptionError::Empty),
        "sse" => Ok(LoroWay::Sse),
        "poll" => Ok(LoroWay::Poll),
        #[cfg(feature = "webrtc")]
        "webrtc" => Ok(LoroWay::DataChannel),
        _ => Err(none_of(value, "sse, poll, webrtc")),
    }
}

impl LoroAddress {
    fn scheme(&self) -> &'static str {
        match self.secure {
            true => "https",
            false => "http",
        }
    }

    /// The URL that a client requests.
    pub(crate) fn url(&self) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}"));
        let (scheme, query) = (self.scheme(), query.unwrap_or_default());
        format!("{scheme}://{}{}{query}", self.authority, self.path)
    }

    /// The wire and scheme with which the endpoint's text begins.
    pub(crate) fn form(&self) -> &'static str {
        match self.secure {
            true => "loro+https:",
            false => "loro+http:",
        }
    }

    /// Whether it can be a target.
    pub(crate) fn check_target(&self) -> Result<(), EndError> {
        address::check_target(self.prefix(), &self.authority, &self.path)
    }

    fn prefix(&self) -> &'static str {
        match self.secure {
            true => "loro+https",
            false => "loro+http",
        }
    }

    /// The host and port to listen at. Unknown options are an error, since a listener has no server to
    /// pass them on to; so is a transport, since it takes all.
    pub(crate) fn listen_at(&self) -> Result<(String, u16), EndError> {
        if self.way.is_some() {
            return Err(EndError::LoroTransport);
        }
        if let Some(query) = &self.query {
            return Err(unknown_option(query, NAMES).into());
        }
        address::listen_at(self.prefix(), &self.authority)
    }
}
