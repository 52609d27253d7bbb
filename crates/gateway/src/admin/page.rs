//! The live page: its files, which are part of the program, and the headers that isolate it from other sites.
//!
//! The files are the same for everybody and hold no secret, so they are served without a token; what the
//! page shows comes from the API, which asks for one.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Response, StatusCode};
use axum::routing::get;
use breakbulk_net::http::text_answer;

/// The Content-Security-Policy: nothing is loaded from other hosts, the markup holds no script and no style,
/// no text becomes markup, and no page may frame this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const INDEX: &str = include_str!("page/index.html");

/// The other files, by name.
const FILES: [(&str, &str, &str); 10] = [
    ("api.js", SCRIPT, include_str!("page/api.js")),
    ("detail.js", SCRIPT, include_str!("page/detail.js")),
    ("dom.js", SCRIPT, include_str!("page/dom.js")),
    ("format.js", SCRIPT, include_str!("page/format.js")),
    ("icon.svg", SVG, include_str!("page/icon.svg")),
    ("main.js", SCRIPT, include_str!("page/main.js")),
    ("overview.js", SCRIPT, include_str!("page/overview.js")),
    ("rates.js", SCRIPT, include_str!("page/rates.js")),
    ("sessions.js", SCRIPT, include_str!("page/sessions.js")),
    ("style.css", CSS, include_str!("page/style.css")),
];

/// The page at `/` and its files below `/page/`.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(|| async { file(HTML, INDEX) }))
        .route("/page/{name}", get(named))
}

async fn named(Path(name): Path<String>) -> Response<Body> {
    let found = FILES.iter().find(|(known, ..)| *known == name);
    match found {
        Some((_, kind, text)) => file(kind, text),
        None => text_answer(StatusCode::NOT_FOUND, "there is no such file"),
    }
}

fn file(kind: &'static str, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        // Another version of the program may be at the same address tomorrow.
        (CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    // PAGE-1
    #[test]
    fn the_page_names_no_other_host_and_makes_no_markup() {
        let scripts = FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT);
        let names: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        for (name, _, text) in FILES.iter().chain([&("index.html", HTML, INDEX)]) {
            let foreign = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!foreign.contains("://"), "{name}");
        }
        for (name, _, text) in scripts {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!text.contains(word), "{name}: {word}");
            }
            for import in text
                .lines()
                .filter_map(|line| line.split("from \"./").nth(1))
            {
                let import = import.trim_end_matches("\";");
                assert!(names.contains(&import), "{name} imports {import}");
            }
        }
        for word in ["<script>", " style=", " onclick=", "javascript:"] {
            assert!(!INDEX.contains(word), "{word}");
        }
    }
}
