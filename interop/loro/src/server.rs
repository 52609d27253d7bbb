//! This project's server with all four transports on one port of the loopback, and counters of its POSTs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::Result;
use axum::extract::Request;
use axum::http::Method;
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::{Next, from_fn};
use breakbulk::loro::http::serve_options;
use breakbulk::loro::store::MemoryStore;
use breakbulk::loro::{Config, Node};
use breakbulk::net::http::{Limits, ServeOptions, router, serve};
use breakbulk::net::webrtc::ChannelOptions;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::browser::Passed;

/// The most bytes in the body of a POST; a larger one is refused.
pub const POST_CAP: u64 = 100 << 10;

/// A server that ends when it is dropped.
pub struct Server {
    /// Its documents.
    pub node: Node,
    /// Where it listens.
    pub address: SocketAddr,
    posts: Arc<Posts>,
    serving: Vec<JoinHandle<()>>,
}

/// The bodies that were posted.
#[derive(Default)]
struct Posts {
    messages: AtomicU64,
    bytes: AtomicU64,
    largest: AtomicU64,
    /// POSTs that have no length in their head.
    unmeasured: AtomicU64,
}

impl Server {
    /// Starts a server without documents.
    pub async fn start() -> Result<Self> {
        let node = Node::new(Config::server("server"), MemoryStore::new())?;
        let options = ServeOptions {
            body_max: usize::try_from(POST_CAP)?,
            webrtc: ChannelOptions {
                // On a machine without a network there is no other address.
                bind: vec!["127.0.0.1:0".to_owned()],
                ..ChannelOptions::default()
            },
            ..serve_options()
        };
        let (router, arrivals) = router(options);
        let posts = Arc::new(Posts::default());
        let counting = posts.clone();
        let router = router.layer(from_fn(move |request: Request, next: Next| {
            counting.count(&request);
            next.run(request)
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let listening = tokio::spawn(async move {
            let Err(error) = serve(listener, router, Limits::default()).await;
            eprintln!("the server does not listen any more: {error}");
        });
        let serving = vec![node.serve(arrivals), listening];
        Ok(Self {
            node,
            address,
            posts,
            serving,
        })
    }

    /// The base URL for clients over HTTP.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Count and sizes of the bodies of all POSTs with messages.
    pub fn posts(&self) -> Passed {
        let posts = &self.posts;
        assert_eq!(posts.unmeasured.load(Relaxed), 0, "POSTs without a length");
        Passed {
            messages: posts.messages.load(Relaxed),
            bytes: posts.bytes.load(Relaxed),
            largest: posts.largest.load(Relaxed),
        }
    }
}

impl Posts {
    fn count(&self, request: &Request) {
        if request.method() != Method::POST || !request.uri().path().ends_with("/sync") {
            return;
        }
        // HTTP requires a body to have the length that the head declares.
        let length = request.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let Some(length) = length else {
            self.unmeasured.fetch_add(1, Relaxed);
            return;
        };
        self.messages.fetch_add(1, Relaxed);
        self.bytes.fetch_add(length, Relaxed);
        self.largest.fetch_max(length, Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.serving {
            task.abort();
        }
    }
}
