//! The routes of an HTTP server with hostile clients: requests of any kind in any order, bodies that never
//! end, answers that are not read. Every request is answered, and what it holds is given back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use breakbulk_link::{Budget, Carries, Event, Link, Outgoing};
use breakbulk_net::Connection;
use breakbulk_net::http::{Arrival, Arrivals, ServeOptions, Server};
use breakbulk_wire::{Loro, Whole};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tower_service::Service;

use crate::Input;

/// The most steps of one run; more find nothing new.
const STEPS: usize = 200;

/// Connections that may be open at a time.
const CONNECTIONS: usize = 4;

/// Requests under way at a time; before a further one, the first is given up.
const REQUESTS: usize = 16;

/// The largest body of a POST.
const BODY: usize = 2 << 10;

/// The memory that all may hold together.
const MEMORY: usize = 64 << 10;

/// An answer to a poll is complete once it has this many bytes.
const ANSWER: usize = 1 << 10;

/// The most bytes of one answer: a poll's last message can begin below [`ANSWER`].
const ANSWER_MOST: usize = ANSWER + (2 << 10);

/// The tasks of one connection: its driver, and the application's.
const TASKS: usize = 8;

const PATHS: [&str; 9] = [
    "/", "/ws", "/events", "/poll", "/frames", "/offer", "/else", "/poll/x", "//",
];
const METHODS: [&str; 6] = ["GET", "POST", "DELETE", "OPTIONS", "PUT", "HEAD"];
const PEERS: [&str; 7] = ["a", "b", "c", "d", "e", "", "a-name-over-the-limit"];
const HEADERS: [(&str, &str); 12] = [
    ("host", "localhost"),
    ("host", "evil.example"),
    ("origin", "http://localhost:80"),
    ("origin", "null"),
    ("sec-fetch-site", "cross-site"),
    ("content-type", "application/octet-stream"),
    ("content-type", "text/plain"),
    ("content-length", "99999999999"),
    ("content-encoding", "gzip"),
    ("upgrade", "websocket"),
    ("connection", "upgrade"),
    ("access-control-request-method", "POST"),
];

/// Runs the steps of the input in paused time.
pub fn check(input: Input<'_>) {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut world = World::new();
        world.play(input).await;
        world.end().await;
    });
}

struct World {
    router: Router,
    budget: Budget,
    requests: VecDeque<JoinHandle<Response<Body>>>,
    /// Streams of events that their clients keep open.
    streams: Vec<Body>,
}

impl World {
    fn new() -> Self {
        let budget = Budget::new(MEMORY);
        let options = ServeOptions {
            connections: CONNECTIONS,
            arrivals: 2,
            posts: 2,
            posted_bytes: 4 * BODY,
            budget: Some(budget.clone()),
            body_max: BODY,
            post_time: Duration::from_secs(5),
            peer_id_max: 16,
            answer_max: ANSWER,
            ..ServeOptions::default()
        };
        let (server, arrivals) = Server::new(options);
        tokio::spawn(application(arrivals, budget.clone()));
        Self {
            router: server.router(),
            budget,
            requests: VecDeque::new(),
            streams: Vec::new(),
        }
    }

    async fn play(&mut self, mut input: Input<'_>) {
        for _ in 0..STEPS {
            if input.is_empty() {
                return;
            }
            match input.below(8) {
                0..4 => self.request(&mut input),
                4 => self.answer(&mut input).await,
                5 => {
                    let millis = u64::from(input.short()) * 4;
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                }
                6 if !self.streams.is_empty() => {
                    let which = input.below(self.streams.len());
                    drop(self.streams.swap_remove(which));
                }
                _ => tokio::task::yield_now().await,
            }
            // Lets the tasks of a request that was just given up end first.
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            self.bounded();
        }
    }

    fn bounded(&self) {
        let (used, limit) = (self.budget.used(), self.budget.limit());
        assert!(used <= limit, "{used} bytes are held of {limit}");
        let tasks = Handle::current().metrics().num_alive_tasks();
        let most = REQUESTS + CONNECTIONS * TASKS + 1;
        assert!(tasks <= most, "{tasks} tasks run, more than {most}");
    }

    fn request(&mut self, input: &mut Input<'_>) {
        let (path, peer) = (input.pick(&PATHS), input.pick(&PEERS));
        let mut request = Request::builder()
            .method(input.pick(&METHODS))
            .uri(format!("{path}?peer={peer}&wait={}", input.number()))
            .header("x-peer", peer);
        if input.below(8) != 7 {
            request = request.header("host", "localhost");
        }
        for _ in 0..input.below(4) {
            let (name, value) = input.pick(&HEADERS);
            request = request.header(name, HeaderValue::from_static(value));
        }
        let body = body(input);
        let request = request.body(body).expect("a request");
        // The client of the first request closes its connection.
        if self.requests.len() == REQUESTS
            && let Some(first) = self.requests.pop_front()
        {
            first.abort();
        }
        let answer = self.router.call(request);
        self.requests.push_back(tokio::spawn(async {
            let Ok(response) = answer.await;
            response
        }));
    }

    /// Takes the answer to one request, if it is there.
    async fn answer(&mut self, input: &mut Input<'_>) {
        if self.requests.is_empty() {
            return;
        }
        let which = input.below(self.requests.len());
        if self.requests[which].is_finished() {
            let request = self.requests.remove(which).expect("it is there");
            let response = request.await.expect("an answer");
            self.look(response).await;
        }
    }

    /// Handles an answer; keeps the stream of one that does not end.
    async fn look(&mut self, response: Response<Body>) {
        let (head, body) = response.into_parts();
        let status = head.status;
        assert!(
            status.is_success()
                || status.is_client_error()
                || status == StatusCode::SERVICE_UNAVAILABLE,
            "{status}"
        );
        let kind = head.headers.get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind == "text/event-stream" {
            return self.streams.push(body);
        }
        let text = to_bytes(body, ANSWER_MOST).await.expect("a short answer");
        if kind.starts_with("application/json") {
            serde_json::from_slice::<serde_json::Value>(&text).expect("JSON");
        }
    }

    /// Every request is answered in time, every connection ends with its client, and no memory is held.
    async fn end(mut self) {
        tokio::time::sleep(Duration::from_secs(600)).await;
        for request in std::mem::take(&mut self.requests) {
            assert!(request.is_finished(), "a request was never answered");
            let response = request.await.expect("an answer");
            self.look(response).await;
        }
        self.streams.clear();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(self.budget.used(), 0, "bytes that nobody holds");
        let tasks = Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks, 1, "tasks of connections that have ended");
        for peer in &PEERS[..CONNECTIONS] {
            let uri = format!("/poll?peer={peer}");
            let request = Request::get(uri).header("host", "localhost");
            let request = request.body(Body::empty()).expect("a request");
            let Ok(answer) = self.router.call(request).await;
            assert_eq!(answer.status(), StatusCode::OK, "a place was never freed");
        }
    }
}

/// A body: complete, in parts, or without an end.
fn body(input: &mut Input<'_>) -> Body {
    let mode = input.byte();
    let bytes = Bytes::from(input.slice().repeat(1 + usize::from(mode >> 4)));
    match mode & 3 {
        0 => Body::empty(),
        1 => Body::from(bytes),
        mode => {
            let size = 1 + usize::from(input.byte());
            let pieces: Vec<_> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
            let pieces = stream::iter(pieces).map(Ok::<_, std::io::Error>);
            if mode == 2 {
                Body::from_stream(pieces)
            } else {
                Body::from_stream(pieces.chain(stream::pending()))
            }
        }
    }
}

/// Accepts every connection and every message, and sends one message back for each.
async fn application(mut arrivals: Arrivals, budget: Budget) {
    while let Some(arrival) = arrivals.next().await {
        tokio::spawn(converse(arrival, budget.clone()));
    }
}

async fn converse(arrival: Arrival, budget: Budget) {
    let mut config = Loro::config();
    config.rules = Loro::http_rules();
    config.limits.message = 4 << 10;
    config.limits.memory = 16 << 10;
    let json = Whole {
        carries: Carries::Text,
    };
    let link = Link::new(Arc::new(json), Arc::new(Loro), config, budget, [7; 32]);
    let options = arrival.transport.options();
    let Ok(connection) = Connection::open(link, arrival.transport, options) else {
        return;
    };
    while let Some(event) = connection.event().await {
        if let Event::Message(message) = event {
            connection.settle(message.id, Ok(()));
            // A client that does not read loses its answers, as any application may decide.
            drop(connection.send(Outgoing::new(r#"{"heard":true}"#)));
        }
    }
}
