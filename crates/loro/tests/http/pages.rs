//! Web pages of other origins, and the headers that browsers get.

use breakbulk_loro::http::serve_options;
use breakbulk_net::http::ServeOptions;

use crate::common::{all_ways, keepers};
use crate::raw::ask;

#[tokio::test]
async fn only_pages_of_allowed_origins_are_served() {
    let listed = || Some(vec!["https://app.example".to_owned()]);
    for (allowed, origin, method, status) in [
        (None, "http://localhost:3000", "GET", 200),
        (None, "https://evil.example", "GET", 403),
        (None, "https://evil.example", "OPTIONS", 403),
        (None, "null", "GET", 403),
        (listed(), "https://app.example", "GET", 200),
        (listed(), "https://app.example", "OPTIONS", 204),
        (listed(), "https://app.example.evil", "GET", 403),
        (listed(), "http://localhost:3000", "GET", 403),
        (
            Some(vec!["*".to_owned()]),
            "https://any.example",
            "OPTIONS",
            204,
        ),
    ] {
        let options = ServeOptions {
            allowed_origins: allowed,
            ..serve_options()
        };
        let (address, arrivals, _serving) = all_ways(options).await;
        keepers(arrivals);
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "x-peer-id"),
        ];
        let answer = ask(address, method, "/loro/poll?peerId=1", &headers, &[]).await;
        assert_eq!(answer.status, status, "{origin} {method}: {answer:?}");
        let told = answer.header("access-control-allow-origin");
        assert_eq!(told, (status < 300).then_some(origin));
        if status == 204 {
            let headers = answer.header("access-control-allow-headers");
            assert_eq!(headers, Some("Content-Type, X-Peer-Id, Authorization"));
            let methods = answer.header("access-control-allow-methods");
            assert_eq!(methods, Some("GET, POST, DELETE"));
        }
    }
}
