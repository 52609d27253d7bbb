//! HTTP answers, with the texts of the server's dialect where it defines them.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use breakbulk_link::{Fault, FaultKind};

use super::dialect::Dialect;
use crate::receipt::Verdict;
use crate::ws::Refusal;

/// An answer in JSON, or one line of text.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    body: String,
    json: bool,
    /// Sends `Connection: close`, because the rest of the request is not read.
    close: bool,
}

/// An answer with a body other than a short text.
pub(crate) fn with_body(body: Body, kind: &'static str, cache: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

impl Answer {
    pub(crate) fn json(status: StatusCode, body: impl Into<String>) -> Self {
        Self {
            status,
            body: body.into(),
            json: true,
            close: false,
        }
    }

    pub(crate) fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self {
            json: false,
            ..Self::json(status, body)
        }
    }

    pub(crate) fn error(status: StatusCode, error: &str) -> Self {
        let error = serde_json::Value::from(error);
        Self::json(status, format!(r#"{{"error":{error}}}"#))
    }

    pub(crate) fn bad(error: &str) -> Self {
        Self::error(StatusCode::BAD_REQUEST, error)
    }

    /// 503: a limit is reached; the client may try again later.
    pub(crate) fn busy(error: &str) -> Self {
        Self::error(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    pub(crate) fn closing(self) -> Self {
        Self {
            close: true,
            ..self
        }
    }

    pub(crate) fn of(verdict: Verdict, dialect: &Dialect) -> Self {
        match verdict {
            Verdict::Settled(Ok(())) => Self::json(StatusCode::OK, dialect.kept),
            Verdict::Settled(Err(refusal)) => Self::error(
                StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST),
                &refusal.error,
            ),
            Verdict::Pending => Self::json(StatusCode::ACCEPTED, dialect.pending),
            Verdict::Fault(fault) => Self::of_fault(&fault, dialect),
        }
    }

    fn of_fault(fault: &Fault, dialect: &Dialect) -> Self {
        let text = fault.kind.to_string();
        match &fault.kind {
            FaultKind::FrameTooLarge { .. } | FaultKind::MessageTooLarge { .. } => {
                Self::error(StatusCode::PAYLOAD_TOO_LARGE, &text)
            }
            FaultKind::Busy => Self::busy(&text),
            kind => Self::bad((dialect.fault_text)(kind).unwrap_or(&text)),
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let status = refusal.status.split(' ').next().unwrap_or_default();
        let status = StatusCode::from_bytes(status.as_bytes()).unwrap_or(StatusCode::BAD_REQUEST);
        Self::text(status, refusal.text)
    }
}

impl From<Answer> for Response<Body> {
    fn from(answer: Answer) -> Self {
        let mut response = Response::new(Body::from(answer.body));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if answer.json {
            headers.insert(
                CONTENT_TYPE,
                HeaderValue::from_static("application/json; charset=utf-8"),
            );
        }
        if matches!(
            answer.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        ) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        if answer.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl axum::response::IntoResponse for Answer {
    fn into_response(self) -> axum::response::Response {
        self.into()
    }
}
