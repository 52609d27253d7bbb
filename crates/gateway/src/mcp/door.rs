//! The listener for MCP over HTTP: one URL for clients of both eras.
//!
//! In the session era each `initialize` begins a session of the gateway, with a connection to the target
//! of its own. A request of the stateless era takes a session that no other request uses, from a pool
//! that grows on demand: so ids of different clients never meet, and nothing has to be rewritten.

mod answer;
mod body;
#[cfg(feature = "nats")]
mod elsewhere;
mod post;
mod session;
mod streams;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, HeaderValue};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use breakbulk_link::{Budget, Held, lock};
use breakbulk_net::http::{
    Bodies, Guard, GuardOptions, Limits, NoPlace, PageHeaders, Visitor, secret_name, serve_until,
    text_answer,
};
use breakbulk_net::ws::{ListenError, Tokens};
use breakbulk_net::{ListenAddress, ListenSocket, plain_text};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::answer::{Refusal, refusal, stream};
use self::body::Reading;
use self::post::post;
use self::session::{ClientSession, DoorTransport};
use self::streams::OWN;
use super::head::{self, Headers, LAST_EVENT, Refused, SERVER_ERROR, SESSION, SESSION_NOT_FOUND};
use super::tools::ToolHeaders;
use crate::endpoint::WsAddress;
use crate::error::RunError;
#[cfg(feature = "nats")]
use crate::fleet::Fleet;
use crate::open::{self, Opened};
use crate::plan::Plan;
use crate::probe::HttpEcho;
use crate::pump::Port;
use crate::serve::{self, Arrival, Door, Entered, Tell, bind, check_target};
use crate::stop::Stop;
use crate::tunnel::Caller;

/// What a web page may do.
const PAGE: PageHeaders = PageHeaders {
    methods: "GET, POST, DELETE",
    asked: "Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, MCP-Protocol-Version, Mcp-Session-Id",
    answered: "Mcp-Session-Id",
};

/// Sockets for each session: POSTs side by side, and a stream.
const SOCKETS: usize = 4;

/// A gateway of few sessions has at least so many.
const LEAST_SOCKETS: usize = 256;

/// How many new sessions may wait to be accepted by the gateway.
const ARRIVALS: usize = 16;

/// How long a new session waits to be accepted by the gateway.
const ARRIVAL_WAIT: Duration = Duration::from_secs(10);

/// How long the last answers may take to be sent when the gateway stops.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Sessions for the clients that come by HTTP.
pub(crate) async fn listen(
    plan: Arc<Plan>,
    address: &WsAddress,
    stop: &Stop,
    tell: Tell<'_>,
) -> Result<(), RunError> {
    check_target(&plan).await?;
    let socket = bind::web(&plan.sockets, &plan.guests, address).await?;
    let at = bind::address_of(&socket)?;
    let heard_at = bind::heard_at(address, &at);
    let door = HttpDoor::open(&plan, address, socket, at);
    serve::listen(plan, door, heard_at, stop, tell).await
}

/// The listener as a door of the gateway.
struct HttpDoor {
    state: Arc<DoorState>,
    arrivals: mpsc::Receiver<NewSession>,
    server: JoinHandle<Result<(), ListenError>>,
    at: ListenAddress,
    stop: watch::Sender<bool>,
}

/// A session that has begun, and has no target yet.
struct NewSession {
    name: String,
    transport: DoorTransport,
}

impl HttpDoor {
    fn open(plan: &Plan, address: &WsAddress, socket: ListenSocket, at: ListenAddress) -> Self {
        let (arriving, arrivals) = mpsc::channel(ARRIVALS);
        let state = Arc::new(DoorState::new(plan, address, arriving));
        let router = Router::new().fallback(answer).with_state(state.clone());
        #[cfg(feature = "nats")]
        if let Some(fleet) = &state.fleet {
            fleet.answer_with(router.clone());
        }
        let stop = watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        let limits = limits(plan, address);
        let server = tokio::spawn(async move {
            let stopped = async move { drop(stopped.wait_for(|stop| *stop).await) };
            serve_until(socket, router, limits, stopped).await
        });
        Self {
            state,
            arrivals,
            server,
            at,
            stop,
        }
    }
}

fn limits(plan: &Plan, address: &WsAddress) -> Limits {
    let guests = &plan.guests;
    Limits::default().with(|limits| {
        limits.sockets = plan.max_sessions.saturating_mul(SOCKETS).max(LEAST_SOCKETS);
        limits.per_address = guests.per_address.clone();
        limits.per_address.connections = guests.per_address.connections.saturating_mul(SOCKETS);
        limits.identity = plan.listen.identity.clone().filter(|_| address.secure);
        limits.client_authority = plan.listen.client_authority.clone();
        limits.refusals = plan.watched.turned_away();
    })
}

impl Door for HttpDoor {
    const LISTENS_TO_THE_END: bool = true;

    async fn accept(&mut self) -> Result<Arrival, RunError> {
        tokio::select! {
            Some(NewSession { name, transport }) = self.arrivals.recv() => Ok(Arrival {
                name,
                caller: Caller::default(),
                open: Box::new(move |end| {
                    let connection = open::open(end, open::whole(end), transport)?;
                    let opened = Opened::whole(Port::new(connection.clone()));
                    let refuse = move |code, reason: &str| {
                        connection.close(code, reason);
                        Box::pin(async move { connection.ended().await }) as _
                    };
                    Ok(Entered::Port(Box::new(opened), Box::new(refuse)))
                }),
            }),
            ended = &mut self.server => {
                let address = self.at.clone();
                Err(RunError::Accept(match ended {
                    Ok(Err(error)) => error,
                    _ => ListenError::Ended { address },
                }))
            }
        }
    }

    async fn close(&mut self) {
        // Sessions that are there still need the listener for their last answers.
        self.state.stopping.store(true, Ordering::Relaxed);
        self.arrivals.close();
    }

    async fn finish(mut self) {
        self.stop.send_replace(true);
        if !self.server.is_finished() && timeout(LAST_ANSWERS, &mut self.server).await.is_err() {
            self.server.abort();
        }
    }
}

/// What all requests share.
struct DoorState {
    /// The one path that is served; `None`: all.
    path: Option<String>,
    /// The largest message that comes in.
    limit: usize,
    guard: Guard,
    /// Answers probes.
    echo: HttpEcho,
    bodies: Bodies,
    /// Memory that is always reserved for bodies.
    _reserved: Held,
    /// The memory that all sessions share.
    common: Budget,
    tools: Arc<Mutex<ToolHeaders>>,
    idle: Duration,
    sessions: Mutex<HashMap<String, Arc<ClientSession>>>,
    /// Sessions of the stateless era that no request uses.
    pool: Mutex<Vec<Arc<ClientSession>>>,
    arriving: mpsc::Sender<NewSession>,
    stopping: AtomicBool,
    /// The fleet that this gateway is a member of.
    #[cfg(feature = "nats")]
    fleet: Option<Arc<Fleet>>,
    /// The prefix of the names of sessions: the name of this member, if it is one of a fleet.
    #[cfg(feature = "nats")]
    prefix: String,
}

impl DoorState {
    fn new(plan: &Plan, address: &WsAddress, arriving: mpsc::Sender<NewSession>) -> Self {
        let (end, guests) = (&plan.listen, &plan.guests);
        let http = end.http.clone().unwrap_or_default();
        let guard = GuardOptions {
            bearer: end.token.clone(),
            tokens: end.tokens.clone().map(|tokens| tokens as Arc<dyn Tokens>),
            is_proven: end.client_authority.is_some(),
            allowed_origins: guests.origins.clone(),
            allowed_hosts: guests.hosts.clone(),
            page: PAGE,
            places: (plan.max_sessions, guests.per_address.connections),
            refusals: plan.watched.turned_away(),
        };
        // Bodies that are still being received may take a part of what all sessions share, and some of that
        // is reserved for them: so messages that fill the memory cannot keep clients from posting.
        let common = &end.budget;
        let posted = (common.limit() / 2).max(end.max_message);
        let reserved = (common.limit() / 8).max(end.max_message).min(posted / 2);
        Self {
            path: (address.path != "/").then(|| address.path.clone()),
            limit: end.max_message,
            guard: Guard::new(guard),
            echo: HttpEcho::new(plan),
            bodies: Bodies::new(posted, Some(common.share(reserved))),
            _reserved: common.charge_allocated(reserved),
            common: common.clone(),
            tools: http.tools,
            idle: http.idle,
            sessions: Mutex::default(),
            pool: Mutex::default(),
            arriving,
            stopping: AtomicBool::new(false),
            #[cfg(feature = "nats")]
            fleet: plan.fleet.get().cloned(),
            #[cfg(feature = "nats")]
            prefix: plan.session_prefix(),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<ClientSession>>> {
        lock(&self.sessions)
    }

    /// The session that a request names, if it was begun with the same holder's token.
    fn find(&self, headers: &HeaderMap, visitor: &Visitor) -> Option<Arc<ClientSession>> {
        let id = headers.only(SESSION).ok()??;
        let session = self.sessions().get(&id).cloned()?;
        let is_theirs = session.holder == visitor.holder && !session.is_over();
        is_theirs.then_some(session)
    }

    /// Begins a session.
    async fn begin(
        self: &Arc<Self>,
        visitor: &Visitor,
        is_stateless: bool,
    ) -> Result<Arc<ClientSession>, String> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err("the gateway is stopping".to_owned());
        }
        let place = self.guard.place(visitor).map_err(|full| match full {
            NoPlace::All(_) => format!("{full} (--max-sessions)"),
            NoPlace::Address(_) => format!("{full} (--max-per-address)"),
        })?;
        let id = secret_name().map_err(|error| {
            tracing::error!(%error, "a session cannot begin: the system has no random numbers for its name");
            "the gateway cannot name a session".to_owned()
        })?;
        #[cfg(feature = "nats")]
        let id = format!("{}{id}", self.prefix);
        let holder = visitor.holder.clone();
        let (session, transport) =
            ClientSession::new(self, id.clone(), holder, is_stateless, place);
        let new = NewSession {
            name: name(visitor),
            transport,
        };
        match timeout(ARRIVAL_WAIT, self.arriving.send(new)).await {
            Ok(Ok(())) => {}
            _ => {
                let seconds = ARRIVAL_WAIT.as_secs();
                return Err(format!(
                    "the gateway began no new session within {seconds} s"
                ));
            }
        }
        // The session is listed only now, so that a client that gives up before leaves nothing behind.
        if !is_stateless && !session.is_over() {
            self.sessions().insert(id, session.clone());
        }
        Ok(session)
    }

    /// A session for one request of the stateless era: an unused one of the same holder, or a new one.
    async fn backend(self: &Arc<Self>, visitor: &Visitor) -> Result<Arc<ClientSession>, String> {
        let unused = {
            let mut pool = lock(&self.pool);
            pool.retain(|session| !session.is_over());
            let at = pool.iter().rposition(|it| it.holder == visitor.holder);
            at.map(|at| pool.remove(at))
        };
        match unused {
            Some(session) => {
                session.touch();
                Ok(session)
            }
            None => self.begin(visitor, true).await,
        }
    }

    /// Puts a session of the stateless era back into the pool, for the next request.
    fn give_back(&self, session: &Arc<ClientSession>) {
        if session.is_over() || self.stopping.load(Ordering::Relaxed) {
            return;
        }
        session.set_unused();
        lock(&self.pool).push(session.clone());
    }

    /// Removes a session that has ended.
    fn forget(&self, session: &Arc<ClientSession>) {
        self.sessions().remove(&session.id);
        lock(&self.pool).retain(|it| !Arc::ptr_eq(it, session));
    }
}

/// The name of a client in the log. Behind a proxy its port is not known.
fn name(visitor: &Visitor) -> String {
    let address = match visitor.address {
        Some(address) if address.port() == 0 => address.ip().to_string(),
        Some(address) => address.to_string(),
        None => "unknown".to_owned(),
    };
    match &visitor.holder {
        Some(holder) => format!("{holder}@{address}"),
        None => address,
    }
}

/// Answers any request.
async fn answer(State(state): State<Arc<DoorState>>, request: Request) -> Response<Body> {
    let (head, mut body) = request.into_parts();
    let visitor = match state.guard.admit(&head) {
        Ok(visitor) => visitor,
        Err(response) => return *response,
    };
    let is_here = state
        .path
        .as_deref()
        .is_none_or(|path| path == head.uri.path());
    if is_here && let Some(response) = state.echo.answer(&head, &mut body).await {
        return response;
    }
    #[cfg(feature = "nats")]
    if is_here && let Some((fleet, member)) = elsewhere::elsewhere(&state, &head) {
        let forwarded = elsewhere::forward(&fleet, member, &head, body).await;
        let mut response = forwarded.unwrap_or_else(Response::from);
        state.guard.let_page_read(&visitor, &mut response);
        return response;
    }
    let answered = match head.method {
        _ if !is_here => Ok(text_answer(
            StatusCode::NOT_FOUND,
            "There is nothing at this path.\n",
        )),
        Method::POST => post(&state, &visitor, &head, body).await,
        Method::GET => get(&state, &visitor, &head.headers),
        Method::DELETE => delete(&state, &visitor, &head.headers),
        _ => {
            let words = "use POST, GET or DELETE\n";
            let mut response = text_answer(StatusCode::METHOD_NOT_ALLOWED, words);
            let allowed = HeaderValue::from_static(PAGE.methods);
            response.headers_mut().insert(ALLOW, allowed);
            Ok(response)
        }
    };
    let mut response = answered.unwrap_or_else(|refusal| {
        let why = format_args!("{}: {}", refusal.status(), refusal.words);
        match refusal.is_limit {
            true => state.guard.warn_of_refusal(&visitor, &why),
            false => tracing::debug!(peer = %name(&visitor), why = %plain_text(why), "a request is refused"),
        }
        refusal.into()
    });
    state.guard.let_page_read(&visitor, &mut response);
    response
}

/// The session that a GET or DELETE names.
fn named(
    state: &DoorState,
    visitor: &Visitor,
    headers: &HeaderMap,
) -> Result<Arc<ClientSession>, Refusal> {
    if headers.all(SESSION).is_empty() {
        let words = "a session is needed: begin one by initialize, and send its Mcp-Session-Id";
        return Err(refusal(&Refused::new(400, SERVER_ERROR, words)));
    }
    let session = state.find(headers, visitor).ok_or_else(|| {
        let words = "there is no such session; begin another by initialize";
        refusal(&Refused::new(404, SESSION_NOT_FOUND, words))
    })?;
    let chosen = session.version();
    let checked = head::check_version(headers, chosen.as_deref());
    checked.map_err(|refused| refusal(&refused))?;
    Ok(session)
}

/// Opens the stream for messages of the server's own, or resumes any stream.
fn get(
    state: &DoorState,
    visitor: &Visitor,
    headers: &HeaderMap,
) -> Result<Response<Body>, Refusal> {
    head::check_get(headers).map_err(|refused| refusal(&refused))?;
    let session = named(state, visitor, headers)?;
    session.touch();
    let last = headers.only(LAST_EVENT).ok().flatten();
    let place = match last.as_deref().filter(|last| !last.is_empty()) {
        None => Some((OWN, None)),
        Some(last) => last
            .split_once('-')
            .and_then(|(stream, number)| Some((stream.parse().ok()?, Some(number.parse().ok()?)))),
    };
    let attached = place.and_then(|(stream, from)| {
        let reader = session.streams().attach(stream, from)?;
        Some((stream, reader))
    });
    let Some((number, reader)) = attached else {
        let words = "the events after this Last-Event-ID are not kept any more";
        return Err(refusal(&Refused::new(400, SERVER_ERROR, words)));
    };
    session.wake();
    let reading = Reading {
        session,
        stream: number,
        reader,
    };
    Ok(stream(reading, None, None, None))
}

/// Ends a session.
fn delete(
    state: &DoorState,
    visitor: &Visitor,
    headers: &HeaderMap,
) -> Result<Response<Body>, Refusal> {
    let session = named(state, visitor, headers)?;
    session.end(1000, "the client ended the session");
    state.forget(&session);
    Ok(Response::new(Body::empty()))
}
