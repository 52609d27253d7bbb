// A network adapter of npm's Repo that serves WebSockets, events and polls on one port of the loopback,
// with the paths and answers of loro-extended's own adapters, which are not published.

import { createServer } from "node:http";
import { Adapter, serializeChannelMsg } from "@loro-extended/repo";
import { WebSocketServer } from "ws";
import { Incoming, toPayloads } from "./messages.mjs";

const THRESHOLD = 102_400;
const BODY_MAX = 1 << 20;
const HEARTBEAT_EVERY = 30_000;
const POLL_WAIT_MAX = 60_000;
/** A peer that does not poll for so many milliseconds is gone. */
const STALE_AFTER = 120_000;

export class ServerAdapter extends Adapter {
  /** `log(direction, what)` hears of all. */
  constructor({ port, log }) {
    super({ adapterType: "server" });
    Object.assign(this, { port, log });
    /** Connections over HTTP by peer: to which of them a POST belongs. */
    this.peers = new Map();
  }

  generate({ send }) {
    return { send, stop() {} };
  }

  async onStart() {
    this.http = createServer((request, response) => this.handle(request, response));
    new WebSocketServer({ server: this.http }).on("connection", (socket) => this.accept(socket));
    this.listening = new Promise((resolve, reject) => {
      this.http.once("error", reject);
      this.http.listen(this.port, "127.0.0.1", () => resolve(this.http.address().port));
    });
  }

  async onStop() {
    this.http.close();
    this.http.closeAllConnections();
  }

  /** A new connection; `write` takes one message. */
  begin(write) {
    const connection = { incoming: new Incoming() };
    connection.send = (message) => {
      this.log(">", message);
      write(message);
    };
    connection.channel = this.addChannel(connection);
    return connection;
  }

  end(connection) {
    if (connection.ended) return;
    connection.ended = true;
    this.removeChannel(connection.channel.channelId);
    if (this.peers.get(connection.peerId) === connection) this.peers.delete(connection.peerId);
  }

  /** Takes a payload; false if more of its message has to come. */
  take(connection, payload) {
    const messages = connection.incoming.take(payload);
    for (const message of messages ?? []) {
      this.log("<", message);
      connection.channel.onReceive(message);
    }
    return messages !== undefined;
  }

  accept(socket) {
    const connection = this.begin((message) => {
      for (const payload of toPayloads(message, THRESHOLD)) socket.send(payload);
    });
    socket.on("message", (data, binary) => {
      if (binary) this.take(connection, new Uint8Array(data));
      else if (String(data) === "ping") socket.send("pong");
    });
    socket.on("error", (error) => this.log("!", error.message));
    socket.on("close", () => this.end(connection));
    socket.send("ready");
  }

  async handle(request, response) {
    const url = new URL(request.url, "http://localhost");
    const peerId = url.searchParams.get("peerId") ?? request.headers["x-peer-id"];
    const answer = (status, body) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    if (!peerId) return answer(400, { error: "no peer id" });
    switch (`${request.method} ${url.pathname}`) {
      case "GET /events":
        return this.events(peerId, response);
      case "GET /poll":
        return this.poll(peerId, Number(url.searchParams.get("wait") ?? 0), answer);
      case "DELETE /poll":
        if (this.peers.has(peerId)) this.end(this.peers.get(peerId));
        return answer(200, { ok: true });
      case "POST /sync":
        return this.posted(peerId, request, answer);
    }
    return answer(404, { error: "no such path" });
  }

  /** Registers a connection over HTTP; an earlier one of this peer ends. */
  register(peerId, write) {
    if (this.peers.has(peerId)) this.end(this.peers.get(peerId));
    const connection = this.begin(write);
    connection.peerId = peerId;
    this.peers.set(peerId, connection);
    return connection;
  }

  events(peerId, response) {
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
    response.write(": ok\n\n");
    const connection = this.register(peerId, (message) => {
      response.write(`data: ${JSON.stringify(serializeChannelMsg(message))}\n\n`);
    });
    const beating = setInterval(() => response.write(": heartbeat\n\n"), HEARTBEAT_EVERY);
    response.on("close", () => {
      clearInterval(beating);
      this.end(connection);
    });
  }

  async poll(peerId, wait, answer) {
    let connection = this.peers.get(peerId);
    const isNewConnection = connection === undefined;
    if (isNewConnection) {
      const queue = [];
      connection = this.register(peerId, (message) => {
        queue.push(serializeChannelMsg(message));
        connection.wake?.();
      });
      connection.queue = queue;
    }
    clearTimeout(connection.stale);
    connection.stale = setTimeout(() => this.end(connection), STALE_AFTER);
    if (connection.queue.length === 0 && !isNewConnection) {
      await new Promise((resolve) => {
        connection.wake = resolve;
        setTimeout(resolve, Math.min(wait, POLL_WAIT_MAX)).unref();
      });
    }
    answer(200, { messages: connection.queue.splice(0), isNewConnection });
  }

  async posted(peerId, request, answer) {
    const connection = this.peers.get(peerId);
    if (!connection) return answer(404, { error: "Peer not connected" });
    const parts = [];
    let size = 0;
    for await (const part of request) {
      size += part.length;
      if (size > BODY_MAX) return answer(413, { error: "too large" });
      parts.push(part);
    }
    try {
      const whole = this.take(connection, new Uint8Array(Buffer.concat(parts)));
      return whole ? answer(200, { ok: true }) : answer(202, { pending: true });
    } catch (error) {
      this.log("!", `POST of ${peerId}: ${error.message}`);
      return answer(400, { error: error.message });
    }
  }
}
