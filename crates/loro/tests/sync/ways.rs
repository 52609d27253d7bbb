//! Tests of syncing the same document over SSE and polling.

use breakbulk_loro::http::serve_options;
use breakbulk_loro::{Dial, Node};
use breakbulk_net::http::{self};

use super::common::{client_config, insert, node, server_config, text, until_text, within};
use super::cuts::impatient;

async fn serve(server: &Node) -> String {
    let (router, arrivals) = http::router(serve_options());
    server.serve(arrivals);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(http::serve(listener, router, http::Limits::default()));
    address.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_document_by_web_socket_sse_and_polling() {
    let server = node(server_config());
    let address = serve(&server).await;
    let urls = [
        format!("ws://{address}/ws"),
        format!("http://{address}?transport=sse"),
        format!("http://{address}?transport=poll"),
    ];
    let mut docs = Vec::new();
    let mut held = Vec::new();
    for (number, url) in urls.iter().enumerate() {
        let mut config = client_config();
        config.identity.peer_id = (4000 + number).to_string();
        let client = node(config);
        let mut dial = Dial::new(url);
        dial.backoff = impatient();
        let remote = client.dial(dial);
        within(url, remote.established()).await.unwrap();
        let doc = client.open("d").await.unwrap();
        // More than fits in one POST.
        insert(&doc, 0, &format!("{url}{}", "x".repeat(200_000)));
        within(url, doc.sync()).await.unwrap();
        docs.push(doc);
        held.push((client, remote));
    }
    for doc in &docs {
        until_text(doc, |text| {
            urls.iter().all(|url| text.contains(url.as_str()))
        })
        .await;
    }
    assert_eq!(text(&docs[0]), text(&docs[1]));
    assert_eq!(text(&docs[0]), text(&docs[2]));
}
