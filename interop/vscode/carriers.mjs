// Ways on which RPC messages travel. Each gives what `RPCProtocol` wants of its protocol: `onMessage`
// and `send`.
//
//   frame           one RPC message per binary WebSocket message
//   plain           ipc.net's Protocol over TCP
//   persistent      ipc.net's PersistentProtocol over TCP: a session that outlives its sockets
//   persistent-once the same on one socket, with nothing before its first byte
//   plain-ws, persistent-ws   the same two over WebSockets, where message boundaries mean nothing
//
// The remote server's own handshake is not spoken. Of a persistent session's sockets each begins
// with one line of JSON from the side that connected, `{"session":"any name"}`, and the protocol's
// first byte comes right behind the line feed. A name that is known is a reconnection.

import { randomUUID } from "node:crypto";
import net from "node:net";
import { WebSocket, WebSocketServer } from "ws";
import { Emitter, PersistentProtocol, Protocol, VSBuffer } from "./original.mjs";
import { TcpSocket, WebSocketSocket } from "./sockets.mjs";

const WEBSOCKET = { perMessageDeflate: false, maxPayload: 256 * 1024 * 1024 };
const LARGEST_HELLO = 1024;
const RETRY_MS = 20;
const RETRIES = 250;

export const CARRIERS = [
  "frame",
  "plain",
  "persistent",
  "persistent-once",
  "plain-ws",
  "persistent-ws",
];

// Opens one session, and tells of it by calling
//   listening(address), opened(protocol), reconnected(), closed(reason).
// What it returns has `cut()`: the socket ends without a word, as on a bad path.
export function open({ carrier, listen, host, port }, told) {
  const websocket = carrier === "frame" || carrier.endsWith("-ws");
  const one = { frame: overFrames, "persistent-once": overPersistent }[carrier];
  const session =
    one === undefined && carrier.startsWith("persistent")
      ? new PersistentSession(told, listen ? undefined : () => connect(websocket, host, port))
      : new OneSocket(one ?? overStream, told);
  if (listen) {
    const listening = (server) => told.listening(`${host}:${server.address().port ?? port}`);
    accept(websocket, host, port, listening, (socket) => session.accepted(socket));
  } else {
    connect(websocket, host, port).then(
      (socket) => session.connected(socket),
      (error) => told.closed(error.message),
    );
  }
  return session;
}

function accept(websocket, host, port, listening, accepted) {
  if (websocket) {
    const server = new WebSocketServer({ ...WEBSOCKET, host, port });
    server.on("listening", () => listening(server));
    server.on("connection", (socket) => accepted(new WebSocketSocket(socket)));
  } else {
    const server = net.createServer((stream) => accepted(new TcpSocket(stream)));
    server.listen(streamAddress(host, port), () => listening(server));
  }
}

function connect(websocket, host, port) {
  return new Promise((resolve, reject) => {
    if (websocket) {
      const socket = new WebSocket(`ws://${host}:${port}/`, WEBSOCKET);
      const wrapped = new WebSocketSocket(socket);
      socket.once("open", () => resolve(wrapped)).once("error", reject);
    } else {
      const stream = net.connect(streamAddress(host, port));
      const wrapped = new TcpSocket(stream);
      stream.once("connect", () => resolve(wrapped)).once("error", reject);
    }
  });
}

// `unix:PATH` is a socket of this machine.
const streamAddress = (host, port) => (host === "unix" ? { path: port } : { host, port });

const overStream = (socket) => new Protocol(socket);
const overPersistent = (socket) => new PersistentProtocol({ socket });

function overFrames(socket) {
  const messages = new Emitter();
  socket.onData((message) => messages.fire(message));
  return {
    onMessage: messages.event,
    send: (message) => socket.websocket.send(message.buffer, { binary: true }),
  };
}

// A session that is one socket. Whoever comes later is sent away.
class OneSocket {
  #protocol;
  #told;
  #socket;

  constructor(protocol, told) {
    this.#protocol = protocol;
    this.#told = told;
  }

  accepted(socket) {
    if (this.#socket) {
      socket.dispose();
      return;
    }
    this.#socket = socket;
    socket.onClose(({ error }) => this.#told.closed(error?.message ?? "the socket has ended"));
    this.#told.opened(this.#protocol(socket));
  }

  connected(socket) {
    this.accepted(socket);
  }

  cut() {
    this.#socket?.dispose();
  }

  end() {
    this.#socket?.end();
  }
}

// A session of which sockets come and go.
class PersistentSession {
  #told;
  #again;
  #name;
  #protocol;

  constructor(told, again) {
    this.#told = told;
    this.#again = again;
  }

  accepted(socket) {
    let held = Buffer.alloc(0);
    const reading = socket.onData(({ buffer }) => {
      held = Buffer.concat([held, buffer]);
      const end = held.indexOf("\n");
      if (end < 0 && held.length <= LARGEST_HELLO) {
        return;
      }
      reading.dispose();
      const { session } = JSON.parse(held.subarray(0, end).toString());
      const rest = VSBuffer.wrap(held.subarray(end + 1));
      if (this.#protocol === undefined) {
        this.#name = session;
        this.#open(socket, rest);
      } else if (session === this.#name) {
        this.#reconnect(socket, rest);
      } else {
        socket.dispose();
      }
    });
  }

  connected(socket) {
    this.#name = randomUUID();
    this.#hello(socket);
    this.#open(socket, null);
  }

  #hello(socket) {
    const hello = `${JSON.stringify({ session: this.#name })}\n`;
    socket.write(VSBuffer.fromString(hello));
  }

  #open(socket, initialChunk) {
    this.#protocol = new PersistentProtocol({ socket, initialChunk });
    this.#protocol.onDidDispose(() => this.#told.closed("the other side has said disconnect"));
    this.#protocol.onSocketClose(() => this.#lost());
    this.#told.opened(this.#protocol);
  }

  #reconnect(socket, initialChunk) {
    this.#protocol.beginAcceptReconnection(socket, initialChunk);
    this.#protocol.endAcceptReconnection();
    this.#told.reconnected();
  }

  // The side that connected connects again; the other one waits for it.
  async #lost() {
    if (this.#again === undefined) {
      return;
    }
    for (let attempt = 0; attempt < RETRIES; attempt++) {
      try {
        const socket = await this.#again();
        this.#hello(socket);
        this.#reconnect(socket, null);
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
    this.#told.closed("nobody is there to reconnect to");
  }

  cut() {
    this.#protocol?.getSocket().dispose();
  }

  end() {
    this.#protocol?.sendDisconnect();
    this.#protocol?.getSocket().end();
  }
}
