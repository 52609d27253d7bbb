//! CORS: refuses requests of web pages whose origin is not allowed, and answers preflights.

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
use super::server::ServerState;
use crate::ws::origin_allowed;

/// Middleware around every route: refuses pages of other origins, and adds the headers by which a
/// browser lets an allowed page read the answer.
pub(crate) async fn cors(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let Some(origin) = headers.get(ORIGIN).cloned() else {
        return next.run(request).await;
    };
    let allowed = state.options.allowed_origins.as_deref();
    if !origin_allowed(&origin, headers, allowed) {
        return Answer::text(
            StatusCode::FORBIDDEN,
            "This server takes no requests from this web page's origin. If it should, add the origin \
             to its allowed origins.\n",
        )
        .closing()
        .into_response();
    }
    let preflight =
        request.method() == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if preflight {
        let mut response = StatusCode::NO_CONTENT.into_response();
        for (name, value) in [
            (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                "Content-Type, X-Peer-Id, Authorization",
            ),
            (ACCESS_CONTROL_MAX_AGE, "600"),
        ] {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from_static("Origin"));
    response
}
