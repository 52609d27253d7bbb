//! What each request to the admin port is answered.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, RETRY_AFTER,
};
use axum::http::{Method, Response, StatusCode};
use breakbulk_net::now;
use serde::Serialize;

use super::{AdminState, events, metrics, tap};

/// The type of Prometheus' classic text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// What a path stands for.
enum Asked<'a> {
    Health,
    Ready,
    Metrics,
    State,
    Events,
    Tap,
    Session(&'a str),
    Close(&'a str),
    Nothing,
}

impl<'a> Asked<'a> {
    fn at(path: &'a str) -> Self {
        match path {
            "/healthz" => return Self::Health,
            "/readyz" => return Self::Ready,
            "/metrics" => return Self::Metrics,
            "/api/state" => return Self::State,
            "/api/events" => return Self::Events,
            "/api/tap" => return Self::Tap,
            _ => {}
        }
        let Some(rest) = path.strip_prefix("/api/sessions/") else {
            return Self::Nothing;
        };
        match rest.split_once('/') {
            None => Self::Session(rest),
            Some((id, "close")) => Self::Close(id),
            Some(_) => Self::Nothing,
        }
    }

    /// Whether it is answered without the token.
    fn is_open(&self) -> bool {
        matches!(self, Self::Health | Self::Ready)
    }

    fn method(&self) -> Method {
        match self {
            Self::Close(_) => Method::POST,
            _ => Method::GET,
        }
    }
}

/// Answers any request.
pub(super) async fn answer(
    State(state): State<Arc<AdminState>>,
    request: Request,
) -> Response<Body> {
    let (head, _) = request.into_parts();
    let asked = Asked::at(head.uri.path());
    if !is_same_origin(&head.headers) {
        let words = "the admin port takes no requests from web pages of other origins";
        return failed(StatusCode::FORBIDDEN, words);
    }
    let guard = if asked.is_open() {
        &state.open
    } else {
        &state.guard
    };
    if let Err(response) = guard.admit(&head) {
        // Guesses of the token have a rate of their own, and keep nobody who has it from asking.
        let is_guess = response.status() == StatusCode::UNAUTHORIZED;
        if is_guess && !state.refused_rate.take(now()) {
            return too_many();
        }
        return *response;
    }
    // Requests that were refused above do not count: otherwise a web page could use up the rate, and a
    // monitor would get 429.
    let rate = if asked.is_open() {
        &state.open_rate
    } else {
        &state.rate
    };
    if !rate.take(now()) {
        return too_many();
    }
    let method = asked.method();
    // What HEAD asks for is known without the body, which the server leaves out.
    let is_right = head.method == method || head.method == Method::HEAD && method == Method::GET;
    if !is_right && !matches!(asked, Asked::Nothing) {
        let words = format!("use {method} for {}", head.uri.path());
        let mut response = failed(StatusCode::METHOD_NOT_ALLOWED, &words);
        if let Ok(allowed) = HeaderValue::from_str(method.as_str()) {
            response.headers_mut().insert(ALLOW, allowed);
        }
        return response;
    }
    match asked {
        Asked::Health => text(StatusCode::OK, TEXT, "ok\n".to_owned()),
        Asked::Ready => match state.watch.ready() {
            Ok(()) => text(StatusCode::OK, TEXT, "ready\n".to_owned()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
        },
        Asked::Metrics => text(StatusCode::OK, METRICS, metrics::render(&state.watch)),
        Asked::State => json(StatusCode::OK, &state.watch.state()),
        Asked::Events => events::answer(&state),
        Asked::Tap => tap::answer(&state),
        Asked::Session(id) => match state.watch.session(id) {
            Some(session) => json(StatusCode::OK, &session),
            None => no_session(),
        },
        Asked::Close(id) => match state.watch.close(id) {
            true => json(StatusCode::ACCEPTED, &serde_json::json!({})),
            false => no_session(),
        },
        Asked::Nothing => failed(StatusCode::NOT_FOUND, "there is nothing at this path"),
    }
}

fn too_many() -> Response<Body> {
    let words = "too many requests: try again later";
    let mut response = failed(StatusCode::TOO_MANY_REQUESTS, words);
    let seconds = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, seconds);
    response
}

fn no_session() -> Response<Body> {
    let words = "there is no session of this name; it may have ended";
    failed(StatusCode::NOT_FOUND, words)
}

/// Whether a request comes from no web page, or from a page that this port served: any other page, even one
/// of this machine, could end sessions.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else {
        return true;
    };
    let (Ok(origin), Some(Ok(host))) = (origin.to_str(), headers.get(HOST).map(|it| it.to_str()))
    else {
        return false;
    };
    let origin = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
}

/// An error, as JSON.
pub(super) fn failed(status: StatusCode, words: &str) -> Response<Body> {
    json(status, &serde_json::json!({ "error": words }))
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_string(value) {
        Ok(body) => text(status, JSON, body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    set_head(&mut response, kind);
    response
}

/// Sets the headers of every answer: it is not cached, and browsers do not guess another content type.
pub(super) fn set_head(response: &mut Response<Body>, kind: &'static str) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert("x-content-type-options", nosniff);
}
