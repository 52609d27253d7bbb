//! CORS: refuses requests of web pages that may not use the server, and answers preflights.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN, VARY,
};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer::Answer;
use super::listen::LocalAddress;
use super::server::ServerState;
use crate::ws::PageRules;

/// Middleware around every route: refuses pages of other origins, and adds the headers by which a
/// browser lets an allowed page read the answer.
pub(crate) async fn cors(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let rules = PageRules {
        origins: state.options.allowed_origins.as_deref(),
        hosts: state.options.allowed_hosts.as_deref(),
        has_token: !state.options.authorize.is_open(),
        local: request
            .extensions()
            .get()
            .map(|local: &LocalAddress| local.0),
    };
    if let Err(refusal) = rules.check(headers) {
        return Answer::from(refusal).closing().into_response();
    }
    if request.method() == Method::HEAD {
        // A HEAD request would take the messages that a GET gets, and drop them.
        let error = "use GET".to_owned();
        return Answer::text(StatusCode::METHOD_NOT_ALLOWED, error).into_response();
    }
    let Some(origin) = headers.get(ORIGIN).cloned() else {
        return next.run(request).await;
    };
    let is_preflight =
        request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight {
        preflight(
            "GET, POST, DELETE",
            "Content-Type, X-Peer-Id, Authorization",
        )
    } else {
        next.run(request).await
    };
    allow_page(&mut response, origin);
    response
}

/// The answer to a preflight, by which a browser asks which methods and headers a page may use.
pub(super) fn preflight(methods: &'static str, headers: &'static str) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, methods),
        (ACCESS_CONTROL_ALLOW_HEADERS, headers),
        (ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Lets a page of this origin read an answer.
pub(super) fn allow_page(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from_static("Origin"));
}
