//! Access checks for routers of other crates: for each request, the same checks of web pages, tokens and
//! places that this crate's own routers perform.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::header::{
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN,
    WWW_AUTHENTICATE,
};
use axum::http::request::Parts;
use axum::http::{Method, Response, StatusCode};

use super::answer::Answer;
use super::cors::{allow_page, preflight};
use super::listen::LocalAddress;
use crate::gate::{Limit, PlaceGuard, Refusals, SharedPlaces, Warnings};
use crate::limiter::{AddressKey, Full};
use crate::ws::{Bearer, PageRules, Tokens, holder};

/// Which requests a [`Guard`] lets in.
#[derive(Clone, Debug, Default)]
pub struct GuardOptions {
    /// The token that every request must carry; others get 401.
    pub bearer: Option<Bearer>,
    /// Several tokens, of which every request must carry one; others get 401.
    pub tokens: Option<Arc<dyn Tokens>>,
    /// Whether clients prove who they are in another way: by a certificate.
    pub is_proven: bool,
    /// The origins of web pages that may send requests; `None` allows pages of this machine.
    pub allowed_origins: Option<Vec<String>>,
    /// The names in `Host` that are served beside those of this machine; `None` allows any name where
    /// clients prove who they are, or came from another machine.
    pub allowed_hosts: Option<Vec<String>>,
    /// The methods and headers that a web page may use, and the headers of answers that it may read.
    pub page: PageHeaders,
    /// How many places there are, and how many of them one client address may have (loopback addresses
    /// are not limited).
    pub places: (usize, usize),
    /// Where refused requests are counted.
    pub refusals: Refusals,
}

/// What a browser is told about an allowed page, as comma-separated lists.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageHeaders {
    /// The methods.
    pub methods: &'static str,
    /// The headers of requests.
    pub asked: &'static str,
    /// The headers of answers.
    pub answered: &'static str,
}

/// Decides about each request before anything of its body is read.
#[derive(Debug)]
pub struct Guard {
    options: GuardOptions,
    places: SharedPlaces,
    warnings: Warnings,
}

/// Why there is no place for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// All places are taken: this is their number.
    #[error("all {0} sessions are in use")]
    All(usize),
    /// The client's address has as many places as one address gets.
    #[error("this address has {0} sessions, the most for one")]
    Address(usize),
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// The client's address, if the HTTP server provides it.
    pub address: Option<SocketAddr>,
    /// The holder of the token that the request carries, if there are several tokens.
    pub holder: Option<String>,
    origin: Option<HeaderValue>,
}

impl Guard {
    /// A guard with these options.
    pub fn new(options: GuardOptions) -> Self {
        let (places, per_address) = options.places;
        Self {
            places: SharedPlaces::new(places, per_address),
            warnings: Warnings::counting(options.refusals.clone()),
            options,
        }
    }

    /// Lets a request in, or answers it: that of a forbidden page, one without a token, a preflight.
    ///
    /// # Errors
    /// The answer to a request that goes no further.
    pub fn admit(&self, head: &Parts) -> Result<Visitor, Box<Response<Body>>> {
        let options = &self.options;
        let has_secret = options.bearer.is_some() || options.tokens.is_some() || options.is_proven;
        let rules = PageRules {
            origins: options.allowed_origins.as_deref(),
            hosts: options.allowed_hosts.as_deref(),
            has_token: has_secret,
            local: head.extensions.get().map(|local: &LocalAddress| local.0),
        };
        let address = head.extensions.get::<ConnectInfo<SocketAddr>>();
        let address = address.map(|info| info.0);
        let refused = |refusal: crate::ws::Refusal| {
            let why = format_args!("{}: {}", refusal.status, refusal.text.trim_end());
            self.warn(Limit::Request, address, &why);
            let unauthorized = refusal.status.starts_with("401");
            let mut response = Response::from(Answer::from(refusal).closing());
            if unauthorized {
                let headers = response.headers_mut();
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        };
        rules
            .check(&head.headers)
            .map_err(|refusal| Box::new(refused(refusal)))?;
        let origin = head.headers.get(ORIGIN).cloned();
        if let Some(origin) = &origin
            && head.method == Method::OPTIONS
            && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
        {
            let mut response = preflight(options.page.methods, options.page.asked);
            allow_page(&mut response, origin.clone());
            return Err(Box::new(response));
        }
        let holder = holder(
            &head.headers,
            options.bearer.as_ref(),
            options.tokens.as_deref(),
        );
        Ok(Visitor {
            address,
            holder: holder.map_err(|refusal| {
                let mut response = refused(refusal);
                if let Some(origin) = &origin {
                    allow_page(&mut response, origin.clone());
                }
                Box::new(response)
            })?,
            origin,
        })
    }

    /// Adds the headers by which a browser lets an allowed page read the answer.
    pub fn let_page_read(&self, visitor: &Visitor, response: &mut Response<Body>) {
        if let Some(origin) = &visitor.origin {
            allow_page(response, origin.clone());
            let answered = HeaderValue::from_static(self.options.page.answered);
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, answered);
        }
    }

    /// A place for something that a client keeps here, such as a session. An idle place may be given up
    /// for it.
    ///
    /// # Errors
    /// If all places are taken, which is logged.
    pub fn place(&self, visitor: &Visitor) -> Result<Place, NoPlace> {
        let key = visitor
            .address
            .and_then(|address| AddressKey::of(address.ip()));
        match self.places.take(key, false) {
            Ok((place, _)) => Ok(Place(place)),
            Err(full) => {
                let (all, of_address) = self.options.places;
                let (limit, why, option) = match full {
                    Full::All => (Limit::Places, NoPlace::All(all), "max-sessions"),
                    Full::Address => (
                        Limit::Address,
                        NoPlace::Address(of_address),
                        "max-per-address",
                    ),
                };
                self.warn(limit, visitor.address, &format_args!("{why} ({option})"));
                Err(why)
            }
        }
    }

    /// Logs that a request of a client that was let in is refused because of a limit: one line a second,
    /// with a count of the others.
    pub fn warn_of_refusal(&self, visitor: &Visitor, why: &dyn std::fmt::Display) {
        self.warn(Limit::Request, visitor.address, why);
    }

    fn warn(&self, limit: Limit, address: Option<SocketAddr>, why: &dyn std::fmt::Display) {
        match address {
            Some(address) => self.warnings.log(limit, address, why),
            None => self.warnings.log(limit, "unknown", why),
        }
    }
}

/// A place that a client takes, given back when this is dropped.
#[derive(Debug)]
pub struct Place(PlaceGuard);

impl Place {
    /// Sets whether the place may be given up for another client.
    pub fn set_idle(&self, idle: bool) {
        self.0.set_idle(idle);
    }

    /// Completes when the place is needed for another client.
    pub fn evicted(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.evicted_by_newcomer()
    }
}

/// An answer of one line of text.
pub fn text_answer(status: StatusCode, text: &str) -> Response<Body> {
    Answer::text(status, text).into()
}

/// A name that nobody can guess: 32 hexadecimal digits from the system's random numbers.
///
/// # Errors
/// If the system gives none.
pub fn secret_name() -> Result<String, std::io::Error> {
    let mut bytes = [0; 16];
    let random = crate::ws::provider().secure_random;
    random
        .fill(&mut bytes)
        .map_err(|_| std::io::Error::other("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
