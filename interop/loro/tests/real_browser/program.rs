//! The program `breakbulk` as a server for four pages, each over another transport on the same port.

use breakbulk::loro::Way;
use interop_loro::browser::Browser;
use interop_loro::program::Program;
use interop_loro::state::State;
use serde_json::json;

const SIZE: usize = 2_000_000;
const DOC: &str = "shared";
const WAYS: [Way; 4] = [Way::WebSocket, Way::Sse, Way::Poll, Way::DataChannel];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "cargo xtask interop loro"]
async fn four_pages_share_a_document_that_outlives_the_program() {
    let data = tempfile::tempdir().unwrap();
    let program = Program::start(data.path()).await.unwrap();
    let browser = Browser::start().await.unwrap();
    let url = format!("http://{}", program.address);
    let mut pages = Vec::new();
    for way in WAYS {
        let page = browser.page(&format!("{way:?}"), way, &url).await.unwrap();
        pages.push(page);
    }
    let mut state = pages[0].fill(DOC, SIZE, 1).await.unwrap();
    for page in &pages {
        page.connect().await.unwrap();
        assert_eq!(page.until(DOC, &state.version).await.unwrap(), state);
    }
    for (number, page) in pages.iter().enumerate() {
        state = page.ask("edit", json!([DOC, number])).await.unwrap();
        for other in &pages {
            assert_eq!(other.until(DOC, &state.version).await.unwrap(), state);
        }
    }
    program.stop().await.unwrap();

    let program = Program::start(data.path()).await.unwrap();
    let url = format!("http://{}", program.address);
    let page = browser.page("later", Way::Sse, &url).await.unwrap();
    page.call("open", json!([DOC])).await.unwrap();
    page.connect().await.unwrap();
    let found: State = page.until(DOC, &state.version).await.unwrap();
    assert_eq!(found, state);
    browser.stop().await.unwrap();
    program.stop().await.unwrap();
}
