//! `breakbulk gateway`: carries the messages of unchanged programs over a capped path.

mod admin;
mod config;
mod explain;
mod notify;
mod options;
mod run;
mod settings;
mod setup;
mod state;
mod traces;

use std::path::PathBuf;
use std::sync::Arc;

use breakbulk::gateway::Config;
use breakbulk::gateway::record::Feed;
use clap::Args;
use tracing::Level;

use self::admin::AdminOptions;
pub(crate) use self::admin::admin_token;
use self::traces::TracesOptions;
use crate::failure::Failure;
use crate::log::LogOptions;
use crate::output::Output;
use crate::record::Record;
use crate::size::Size;
use explain::Spelling;
use options::RouteOptions;
use settings::{ListenerFiles, Places, RouteSettings, Settings};
use setup::{Refusal, Setup, Wanted};

/// The texts of the library's errors, with the options of this program that correct them.
pub(crate) fn explained(error: &breakbulk::gateway::RunError) -> String {
    explain::run(Spelling::CommandLine, error)
}

/// The name of the one route of a command line.
const NAME: &str = "gateway";

/// The variable with the secret of a fleet.
const FLEET_SECRET: &str = "BREAKBULK_FLEET_SECRET";

/// What `--help` begins with.
pub(crate) const EXAMPLES: &[&str] = &[
    "breakbulk gateway --listen ws://8080 \\\n      --to 'exec:npx some-mcp-server' --max-frame 100KB",
    "breakbulk gateway --listen stdio: --to ws://127.0.0.1:8080/ --max-frame 100KB",
    "breakbulk gateway --listen stdio: \\\n      --to 'https://mcp.example/mcp?token-file=FILE'",
    "breakbulk gateway --listen http://127.0.0.1:8080/mcp \\\n      --to 'exec:npx some-mcp-server'",
    "breakbulk gateway --listen 'tcp://7000?framing=content-length' \\\n      --to ws://127.0.0.1:8080",
    "breakbulk gateway --listen ahp+http://8080/tunnel \\\n      --to 'exec:npx some-mcp-server' --max-frame 64KiB",
    "breakbulk gateway --listen stdio: \\\n      --to ahp+https://host.example/tunnel --max-frame 64KiB",
    "breakbulk gateway --listen nats://127.0.0.1:4222/tools \\\n      --to 'exec:npx some-mcp-server'",
    "breakbulk gateway --listen ws://8080 \\\n      --to 'exec:npx some-mcp-server' --fleet 'nats://10.0.0.5?secret-file=FILE'",
    "breakbulk gateway --listen 'cep22+nostr:wss://relay.example?key=FILE' \\\n      --to 'exec:npx some-mcp-server'",
    "breakbulk gateway --listen stdio: \\\n      --to 'cep22+nostr:wss://relay.example?server=npub1…'",
];

/// The end of `--help`: endpoints, what two of them make, and limits.
const RULES: &str = "\
An endpoint is [WIRE+]TRANSPORT:ADDRESS[?OPTIONS]:
  stdio:
      this process's own standard streams
  exec:COMMAND
      the standard streams of a command, which the gateway starts for each
      client. Quotes and backslashes as in a shell, but no shell runs it: for
      pipes and the like exec:sh -c '…'
  tcp://HOST:PORT
      a TCP socket; to listen, tcp://PORT is tcp://127.0.0.1:PORT, and port 0
      any free one. It has no token: beyond this machine it needs --allow-remote
  unix:PATH
      a Unix socket, for this user and root alone (--allow-user adds others)
  ws://HOST:PORT/PATH
      a WebSocket; to listen, ws://PORT is ws://127.0.0.1:PORT, and port 0 any
      free one
  ws+unix:PATH
      the same over a Unix socket, for this user and root alone (--allow-user
      adds others)
  wss://…
      the same with TLS
  http://HOST:PORT/PATH
      MCP over HTTP (Streamable HTTP, of 2025-03-26 to 2026-07-28): to listen,
      one URL for clients of all versions; as a target, a server. http://PORT as
      for ws://
  https://…
      the same with TLS
  http+unix:PATH
      the same over a Unix socket; ?path=/PATH is the path of its URL
  ahp+http://HOST:PORT/PATH
      a tunnel between two gateways over plain HTTP, in POSTs, event streams and
      polls, for paths that let no WebSocket through or cap bodies: none is over
      max-frame; ahp+https:// with TLS
  nats://[USER:PASSWORD@|TOKEN@]HOST:PORT/SUBJECT
      a tunnel over NATS: each session is for one of the gateways that listen at
      the subject; the server's max_payload is the cap; tls:// with TLS
  loro+http://HOST:PORT, loro+https://…
      loro-extended: to listen, by WebSocket, SSE, polling and WebRTC on one
      port; as a target, by ?transport=sse (the default), poll or webrtc
  cep22+nostr:RELAY[,RELAY…]?key=FILE
      to listen: an MCP server that is found by its key, at relays that are
      written as wss://HOST
  cep22+nostr:RELAY[,RELAY…]?server=PUBKEY
      as a target: that server (npub or hex)
  WIRE+
      how messages become frames: ahp+ (the default of WebSockets) cuts what is
      large; whole+ (the default of streams) never cuts: each message is one
      frame, however large; loro+ cuts binary messages; cep22+ is for relays
  OPTIONS
      framing=lines|content-length|ipc (streams; ipc is VSCode's ipc.net, whose
      frames pass as they are), token-file=FILE, cert=FILE&key=FILE (the
      certificate of a wss listener, or the one that a wss target is shown),
      ca=FILE (whom to trust: a wss target's authority, or that of the clients
      of a wss listener, who need a certificate then), preset=NAME (of a path),
      client=NAME (the program that takes this end's messages; breakbulk caps
      lists both), max-frame=SIZE, max-message=SIZE, fragment=SIZE (of
      WebSockets), tunnel=auto|always|never, process-id=null|keep (streams),
      down=sse|poll (how frames come down by ahp+http; sse falls back to polls);
      anything else in a target's query goes to the server
  OPTIONS of HTTP
      token-file, cert, key, ca, max-message as above, max-frame=SIZE (the
      largest POST to a target); targets: headers-file=FILE (NAME: VALUE on each
      line; only its owner may be able to read it); listeners: idle=SECONDS
      (1800) until a session ends
  OPTIONS of NATS
      creds=FILE (a JWT and its seed), token-file=FILE (USER:PASSWORD or a
      token, which others cannot read there as they can on a command line),
      queue=NAME (breakbulk: the group that shares the sessions of a subject),
      inbox=PREFIX (_INBOX: what the subjects of sessions begin with, the same
      at both gateways), cert, key, ca, max-frame, max-message
  OPTIONS of relays
      key=FILE, encryption=disabled|optional|required,
      wraps=any|persistent|ephemeral, max-frame=SIZE (of an event),
      max-message=SIZE, window=SECONDS (600) that the clocks of both ends may
      differ; listeners: allow=PUBKEY,…, idle=SECONDS (1800); targets:
      server=PUBKEY, timeout=SECONDS without a message about a request until it
      is answered with an error and cancelled (by default 120 while the server
      has sent nothing at all, and 3600 afterwards, since a tool at work may say
      nothing)

What a gateway does between --listen and --to, in either order (streams: stdio:,
exec:, tcp:, unix:):
  streams, whole+ws with the same
      passes messages on
  streams, whole+ws with ahp+ws
      a tunnel, if the other end of ahp+ws is a gateway too; otherwise segments
      are added and removed for an AHP program that does not know them: for a
      client if the whole side is --listen, for a host if it is --to
  ahp+ws with ahp+ws
      assembles messages and cuts them again
  loro+ws with loro+ws, whole+ws or streams with framing=ipc
      binary messages, in fragments and whole
  ahp+http, nats
      as ahp+ws, but always a tunnel: the other end is a gateway
  http://, https:// with streams, whole+ws, http:// or a tunnel
      MCP over HTTP
  streams with framing=ipc with the same, or a tunnel
      the frames of VSCode's ipc.net, as they are
  loro+ws, loro+http with the same
      a client and a server of loro-extended, each by its transport
  cep22+nostr with streams, whole+ws or a tunnel
      MCP over Nostr relays (ContextVM)

A tunnel carries any program of text messages (MCP, LSP, tywrap), or of
framing=ipc at both gateways, unchanged, but for one value: with
framing=content-length at either gateway a number in params.processId of
initialize becomes null, since it names a process of the client's machine, and
servers that do not find it exit. process-id=keep at both gateways passes it on.
Its gateways recognize each other by the WebSocket subprotocol breakbulk.v2, and
each first tells its limits. Of an AHP program nothing is edited but
capabilities.chunking and lastSeenServerSeq.

A session of a tunnel survives the loss of the connection between its two
gateways: each keeps what the other has not acknowledged, and the one that
connected connects again and continues with the first frame that is missing, for
up to --resume-for. After that, or if the other gateway was
restarted, open requests get error -32000, which says so. When the path refuses
a frame for its size, the tunnel sends smaller ones from then on and says so;
the gateway that connected keeps the size in --state for the next time.
--max-frame or a preset overrules what was learned.

With --fleet several gateways behind one load balancer share a NATS, and a
client that comes back to another member keeps its session: the member that its
new connection reached forwards it to the one that has the session. So tunnels are
resumed (ws://, ahp+http://, nats://), and requests of MCP sessions over http://
may reach any member. A session lives in one member; if that one is gone, open
requests of a tunnel get error -32000, requests over HTTP get 404, and the
client begins anew. A member that has no connection to NATS serves its own
sessions, and tells clients of others to try again later. All members have the
same listener, tokens and target, and a secret: secret-file=FILE, or
BREAKBULK_FLEET_SECRET, of at least 16 characters. Further options: name=NAME
(gateway: the fleet's name, where several share a NATS), creds, token-file,
inbox, cert, key, ca as at nats://. The NATS account must allow
breakbulk.fleet.NAME.> and the inbox.

A gateway tells the other its max-frame and max-message, and the smaller of the
two applies both ways; the WebSocket frame size of a preset (aws-api-gateway:
32 KB) is not told, so give a preset to both gateways. Of --max-frame and a
preset the smaller one applies.

A message over --max-message (32MiB) is skipped: a request is answered with
error -32011, a response is replaced by it, a notification is dropped with a
warning; an AHP action ends the session (4413), since later actions would hide
that one is missing. On a WebSocket such a message closes the connection (1009).

By HTTP each initialize begins a session, with a command or connection of its
own (--max-sessions in all). Requests of MCP 2026-07-28 have no sessions: each
takes a command that no other request uses, and the next one takes it again. A
POST over max-message gets 413. A target's session is deleted at the end; if the
target ends it, so does the gateway's.

client=NAME at an endpoint says that the program there has the limit that is
known for NAME (breakbulk caps lists such programs): a larger request is
answered with error -32011, a larger response is replaced by it, a larger
notification is dropped with a warning, and the session continues.

A WebSocket listener answers breakbulk probe of clients that it lets in, within
8 MiB/s for all probes together; --no-probe turns that off.

At relays each client has a command of its own (--max-sessions in all), which
ends when the client is silent for longer than idle=SECONDS; if the client sends
again, another command is started and gets the client's initialize. Requests
still open when a command exits are answered with an error. The gateway adds a
progress token to requests to a server, without which nothing large can come
back; the client does not get progress that it did not ask for. A tool call to a
server that opens streams (CEP-41) gets no token, since the server would send
its output as a stream. Give such a call a token of its own if it wants the
stream or an answer over 48 KB.

The key of relays comes from a file that nobody else can read (breakbulk keygen
FILE makes one) or from BREAKBULK_NOSTR_KEY, which is the listener's, and the
target's if the listener is no relay. Without one a target gets a new key for
each session. What servers support is kept beside the key, in FILE.servers.

A quarter of --max-sessions is reserved for known clients: those in allow=, or
in FILE.clients beside the key (a public key in each line), to which a client is
added that comes again after an hour.

Each event is accepted once, and only if its time differs from this machine's
clock by at most window=SECONDS, so that a relay cannot replay events that it
recorded. Accepted events are remembered for that time beside the key, in
FILE.heard; a listener without a key file accepts no event from before its
start.

A token comes from token-file, or from the environment: BREAKBULK_TOKEN is the
listener's, and the target's if the listener is neither a WebSocket nor HTTP.
The token-file of a listener may have several lines, each with a name for the
log and a token; it is read again when it changes. Only its owner may be able to
read it.

With --admin the gateway answers over HTTP: /healthz, /readyz (503 until it
listens, and while it stops), /metrics for Prometheus, / a page for people,
which follows the gateway in a browser, /api/state and /api/sessions/ID as JSON,
POST /api/sessions/ID/close to end a session, /api/events (the state about once
a second). The token is sent as Authorization: Bearer; /healthz and /readyz need
none.

With --config FILE (TOML) one process has several routes, each with a name,
listen and to, and with the options above as keys of the same names; what stands
at the top of the file is for all routes, and all of them share memory. SIGHUP
reads the file again: routes that did not change keep their sessions, others
stop as by SIGTERM and the new ones start; if anything is wrong, nothing is
changed, and the log says what, with line and column. --check says it without
starting anything (exit code 0 or 2). Example:
  memory = \"1GiB\"
  [[route]]
  name = \"tools\"
  listen = \"ws://8080\"
  to = \"exec:npx some-mcp-server\"
  max-frame = \"100KB\"

After SIGINT, SIGTERM or (without --config) SIGHUP queued messages are still
sent and open requests are waited for, within --grace; a second signal, a second
later or more, stops at once. A request that nobody is left to answer gets error
-32000, which says why.";

#[derive(Args, Debug)]
#[command(after_long_help = RULES, after_help = "See --help for examples, and what an endpoint is.")]
pub(crate) struct Gateway {
    /// The endpoint that programs connect to
    #[arg(long, value_name = "ENDPOINT", required_unless_present = "config")]
    listen: Option<String>,
    /// The target that their messages go to: for each program that connects, the gateway opens another
    /// connection to it, or starts the command once more
    #[arg(long, value_name = "ENDPOINT", required_unless_present = "config")]
    to: Option<String>,
    /// Several routes and their options from a file (TOML), which SIGHUP reads again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "to"])]
    config: Option<PathBuf>,
    /// Say what is wrong with the options or the file, and start nothing
    #[arg(long)]
    check: bool,
    /// The memory of all sessions: their messages, and 80 KiB for each of --max-sessions [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    #[command(flatten)]
    options: RouteOptions,
    /// The file for the frame sizes that paths were found to let through, or the word none to keep them in
    /// memory [default: breakbulk/caps.json in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    #[command(flatten)]
    record: Record,
    #[command(flatten)]
    admin: AdminOptions,
    /// What a tywrap host appends to the command of its bridge; the host and the bridge agree by the lines
    /// that pass here, and this gateway does not read it
    #[arg(long, value_name = "BYTES", hide = true)]
    tywrap_max_frame_bytes: Option<u64>,
    #[command(flatten)]
    traces: TracesOptions,
    #[command(flatten)]
    log: LogOptions,
}

impl Gateway {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (check, mut traces) = (self.check, self.traces.clone());
        let mut asked = (self.log.clone(), self.admin.clone(), self.record.clone());
        let mut setup = self.setup()?;
        let parsed = setup.parse()?;
        // Options of the command line override those of the file.
        let of_file = &parsed.settings;
        if let Some(log) = of_file.log.as_ref().filter(|_| !asked.0.is_given()) {
            asked.0 = log.clone();
        }
        if let Some(admin) = of_file.admin.as_ref().filter(|_| !asked.1.is_on()) {
            asked.1 = admin.clone();
        }
        if let Some(record) = of_file.record.as_ref().filter(|_| !asked.2.is_on()) {
            asked.2 = record.clone();
        }
        if let Some(of_file) = of_file.traces.as_ref().filter(|_| !traces.is_on()) {
            traces = of_file.clone();
        }
        let (log, admin, record) = asked;
        log.start(Level::INFO)?;
        setup.watch = admin.watch();
        let (traces, exporter) = traces.open()?.unzip();
        setup.traces = traces.clone();
        let wanted = setup.understand(parsed).map_err(Refusal::into_failure)?;
        if check {
            return check_only(wanted);
        }
        let recorder = record.start()?;
        // With an admin port, `breakbulk tap` follows what is not recorded, too.
        if recorder.is_some() || admin.is_on() {
            let feed = Feed::new(recorder.clone());
            setup.watch.set_record(Arc::new(feed));
        }
        let runtime = tokio::runtime::Runtime::new()
            .map_err(|error| Failure::Io("cannot start threads".to_owned(), error))?;
        let traces = traces.zip(exporter);
        let outcome = runtime.block_on(run::run(setup, wanted, &admin, traces));
        if let Some(recorder) = recorder {
            recorder.finish();
        }
        // A blocked write to standard output must not keep the process alive.
        runtime.shutdown_background();
        outcome
    }

    /// A command line is a file with one route.
    fn setup(self) -> Result<Setup, Failure> {
        if let Some(path) = self.config {
            let has_options = self.options != RouteOptions::default()
                || self.memory.is_some()
                || self.state.is_some();
            return match has_options {
                true => Err(Failure::Usage(format!(
                    "--config: the options of routes are read from {}, where they have the same names; leave them out of the command line",
                    path.display()
                ))),
                false => Ok(Setup::of_file(path)),
            };
        }
        Ok(Setup::of_command_line(Settings {
            spelling: Spelling::CommandLine,
            memory: self.memory.map_or(Config::default().memory, |size| size.0),
            state: self.state,
            routes: vec![RouteSettings {
                name: NAME.to_owned(),
                listen: self.listen.unwrap_or_default(),
                to: self.to.unwrap_or_default(),
                options: self.options,
                files: ListenerFiles::default(),
                places: Places::new(),
            }],
            admin: None,
            log: None,
            record: None,
            traces: None,
            places: Places::new(),
        }))
    }
}

/// Says what is wrong, without opening anything.
fn check_only(wanted: Wanted) -> Result<(), Failure> {
    if let Err(faults) = wanted.check() {
        return Err(wanted.refuse(&faults, Vec::new()).into_failure());
    }
    let routes = wanted.understood.routes.len();
    let words = match routes {
        1 => "nothing is wrong with 1 route".to_owned(),
        routes => format!("nothing is wrong with {routes} routes"),
    };
    Output::open(None)?.line(&words)
}
