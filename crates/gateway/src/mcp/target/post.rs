//! One POST: its head, the server's answer to it, and what its sender is told if it fails.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use tokio::sync::watch;
use tokio::task::Id;

use super::upload::{Stage, Upload, reach};
use super::{Memory, TargetState};
use crate::mcp::errors::{Failure, told};
use crate::mcp::head::{EVENTS, JSON, METHOD, NAME, PROTOCOL, SESSION};
use crate::mcp::message::{INITIALIZED, LIST_TOOLS, Message, Request, chosen_version};
use crate::mcp::mirror;
use crate::pump::Missed;
use breakbulk_link::lock;

/// How much is read of an answer that says why a message was refused.
const REASON: usize = 64 << 10;

/// A message that is posted, as far as its answer is concerned.
pub(super) struct Post {
    message: Option<Message>,
    size: usize,
    /// The requests in it that were answered.
    answered: BTreeSet<String>,
    /// The task that posts it.
    task: Option<Id>,
}

impl Post {
    pub(super) fn new(message: Option<Message>, size: usize) -> Self {
        Self {
            message,
            size,
            answered: BTreeSet::new(),
            task: None,
        }
    }

    /// The same, posted by this task.
    pub(super) fn of(self, task: Id) -> Self {
        let task = Some(task);
        Self { task, ..self }
    }

    fn requests(&self) -> Vec<&Request> {
        self.message
            .as_ref()
            .map(Message::requests)
            .unwrap_or_default()
    }

    pub(super) fn keys(&self) -> Vec<String> {
        let requests = self.requests().into_iter();
        requests.map(|request| request.key.clone()).collect()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        let requests = self.requests().into_iter();
        requests.map(|request| request.id.clone()).collect()
    }

    pub(super) fn is_request(&self) -> bool {
        !self.requests().is_empty()
    }

    pub(super) fn is_initialize(&self) -> bool {
        self.message.as_ref().is_some_and(Message::is_initialize)
    }

    pub(super) fn is_stateless(&self) -> bool {
        match &self.message {
            Some(Message::Request(request)) => request.version().is_some(),
            Some(Message::Notification { version, .. }) => version.is_some(),
            _ => false,
        }
    }

    /// The only request in it.
    pub(super) fn request(&self) -> Option<&Request> {
        match &self.message {
            Some(Message::Request(request)) => Some(request),
            _ => None,
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        let requests = self.requests();
        requests
            .iter()
            .all(|request| self.answered.contains(&request.key))
    }

    fn is_initialized(&self) -> bool {
        matches!(&self.message, Some(Message::Notification { method, .. }) if method == INITIALIZED)
    }
}

impl TargetState {
    /// Posts a message and takes what the server answers.
    pub(super) async fn run(
        self: std::sync::Arc<Self>,
        mut post: Post,
        upload: Upload,
        stage: &watch::Sender<Stage>,
    ) {
        let outcome = self.post(&mut post, upload, stage).await;
        if let Err(failure) = &outcome {
            self.failed(&post, failure).await;
        }
        for key in post.keys() {
            self.ended(&post, &key);
        }
        if outcome.is_ok() && post.is_initialized() {
            self.listen().await;
        }
        reach(stage, Stage::Accepted);
        if let Err(Failure::SessionGone) = outcome {
            self.session_gone().await;
        }
    }

    async fn post(
        &self,
        post: &mut Post,
        upload: Upload,
        stage: &watch::Sender<Stage>,
    ) -> Result<(), Failure> {
        let (request, has_session) = self.head(post, &upload);
        let response = request.body(Body::wrap(upload)).send().await;
        reach(stage, Stage::Written);
        let response =
            response.map_err(|error| Failure::Unreachable(breakbulk_net::http::failure(&error)))?;
        let status = response.status();
        if post.is_initialize() && status.is_success() {
            self.begin_session(&response);
        }
        if !status.is_success() {
            return self.refused(post, response, has_session).await;
        }
        if !post.is_initialize() && !post.is_initialized() {
            // The answer to `initialize` is taken first, since what follows needs the version in it, and
            // after `notifications/initialized` a stream is opened.
            reach(stage, Stage::Accepted);
        }
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case(EVENTS) {
            return self.follow(post, response).await;
        }
        // What is no message here may be one to the server.
        let may_have_answer = post.message.is_none()
            && status != StatusCode::ACCEPTED
            && kind.eq_ignore_ascii_case(JSON);
        if !post.is_request() && !may_have_answer {
            return Ok(());
        }
        if status == StatusCode::ACCEPTED {
            return Err(Failure::NoAnswer("it only accepted it (HTTP 202)"));
        }
        if !kind.eq_ignore_ascii_case(JSON) {
            return Err(Failure::NoAnswer(
                "its answer is neither JSON nor an event stream",
            ));
        }
        let mut memory = Memory::new(self);
        let body = self.read(response, self.limit, &mut memory).await?;
        self.arrived(post, body, &mut memory).await;
        match post.is_answered() {
            true => Ok(()),
            false => Err(Failure::NoAnswer("its answer has another id")),
        }
    }

    /// The head of a POST, and whether it is in a session.
    fn head(&self, post: &Post, upload: &Upload) -> (RequestBuilder, bool) {
        let stateless = post.is_stateless();
        let (mut request, has_session) = match stateless || post.is_initialize() {
            true => (self.server.request(Method::POST), false),
            false => self.in_session(Method::POST),
        };
        request = request
            .header("accept", format!("{JSON}, {EVENTS}"))
            .header(CONTENT_TYPE, JSON);
        match &post.message {
            Some(Message::Request(asked)) => {
                if let Some(version) = asked.version() {
                    request = request
                        .header(PROTOCOL, version)
                        .header(METHOD, &asked.method);
                    if let Some(name) = &asked.name {
                        request = request.header(NAME, mirror::encode(name));
                    }
                    let headers = lock(&self.tools).headers(&asked.method, upload.left());
                    for (name, value) in headers {
                        request = request.header(name, value);
                    }
                }
            }
            Some(Message::Notification {
                version: Some(version),
                method,
                ..
            }) => request = request.header(PROTOCOL, version).header(METHOD, method),
            _ => {}
        }
        (request, has_session)
    }

    /// The server has accepted `initialize`: from now on its session is named.
    fn begin_session(&self, response: &Response) {
        let id = response.headers().get(SESSION);
        let id = id.and_then(|id| id.to_str().ok()).map(ToOwned::to_owned);
        let mut session = self.session();
        (session.id, session.version) = (id, None);
    }

    /// The server refused a message: an error of its own for the request is passed on as it is.
    async fn refused(
        &self,
        post: &mut Post,
        response: Response,
        has_session: bool,
    ) -> Result<(), Failure> {
        let status = response.status().as_u16();
        let mut memory = Memory::new(self);
        let body = self
            .read(response, REASON.min(self.limit), &mut memory)
            .await;
        let body = body.unwrap_or_default();
        if let Ok(answer @ Message::Answer { error: Some(_), .. }) = Message::read(&body)
            && post
                .keys()
                .iter()
                .any(|key| answer.answers().contains(&&**key))
            && !(status == 404 && has_session)
        {
            self.arrived(post, body, &mut memory).await;
            return Ok(());
        }
        match status {
            404 if has_session => Err(Failure::SessionGone),
            status => Err(Failure::Status(status, told(&body))),
        }
    }

    /// Reads an answer of at most `limit` bytes.
    async fn read(
        &self,
        mut response: Response,
        limit: usize,
        memory: &mut Memory<'_>,
    ) -> Result<Bytes, Failure> {
        let declared = response.content_length();
        if let Some(size) = declared.filter(|size| *size > limit as u64) {
            return Err(Failure::TooLarge { size, limit });
        }
        let mut body = BytesMut::new();
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(body.freeze()),
                Err(error) => {
                    let error = breakbulk_net::http::failure(&error);
                    tracing::debug!(error, "an answer of the target broke off");
                    return Err(Failure::CutOff);
                }
            };
            let size = body.len() + chunk.len();
            if size > limit {
                return Err(Failure::TooLarge {
                    size: size as u64,
                    limit,
                });
            }
            if !memory.grow_to(size).await {
                return Err(Failure::NoMemory);
            }
            if body.capacity() < size {
                let wanted = size.max(body.len() + body.len() / 4).min(limit);
                body.reserve(wanted - body.len());
            }
            body.extend_from_slice(&chunk);
        }
    }

    /// A message came in: as an answer to a POST, or beside it.
    pub(super) async fn arrived(&self, post: &mut Post, bytes: Bytes, memory: &mut Memory<'_>) {
        let read = Message::heard(&bytes, |id| post.requests().iter().any(|it| it.key == id));
        let answers = read.as_ref().map(Message::answers).unwrap_or_default();
        for key in answers {
            let requests = post.requests();
            let Some(request) = requests.iter().find(|request| request.key == key) else {
                continue;
            };
            if request.method == LIST_TOOLS {
                lock(&self.tools).learn(&bytes);
            }
            if post.is_initialize() {
                self.session().version = chosen_version(&bytes);
            }
            post.answered.insert(key.to_owned());
            self.ended(post, key);
        }
        self.deliver(bytes, memory.take()).await;
    }

    /// A request of a POST is open no more.
    fn ended(&self, post: &Post, key: &str) {
        if let Some(task) = post.task {
            self.session().open.end(key, task);
        }
    }

    /// Tells the sender of a message that it failed.
    async fn failed(&self, post: &Post, failure: &Failure) {
        let size = post.size;
        if let Failure::Unreachable(error) = failure {
            tracing::warn!(
                error,
                size,
                "the target could not be asked; is it running, and is the URL that of an MCP server?"
            );
        } else {
            tracing::warn!(size, "{}", failure.words(size));
        }
        if !post.is_request() {
            // The pump counts it.
            let words = failure.words(size);
            let _ = self.missed.send(Missed::Lost(words)).await;
            return;
        }
        for request in post.requests() {
            if !post.answered.contains(&request.key) {
                let answer = failure.answer(&request.id, size);
                self.deliver(answer.into(), None).await;
            }
        }
    }
}
