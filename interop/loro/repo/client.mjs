// A network adapter of npm's Repo that calls a server. loro-extended's own adapters are not published;
// this one keeps to what theirs do: who establishes when, what is tried again, and what never is.

import { setTimeout as delay } from "node:timers/promises";
import { Adapter, deserializeChannelMsg } from "@loro-extended/repo";
import WebSocket from "ws";
import { Incoming, toPayloads } from "./messages.mjs";

/** Longer frames are cut, as theirs are. */
const THRESHOLDS = { ws: 102_400, sse: 81_920, poll: 81_920 };
/** Milliseconds before it calls again. Theirs wait for a second or more; a test need not. */
const AGAIN = 100;
/** How often a POST is tried. */
const TRIES = 3;
/** How long a poll waits for a message. */
const POLL_WAIT = 30_000;
const PING_EVERY = 30_000;

export class ClientAdapter extends Adapter {
  /** `way`: ws, sse or poll. `url`: where the server's paths begin. `log(direction, what)` hears of all. */
  constructor({ way, url, log }) {
    super({ adapterType: `${way}-client` });
    Object.assign(this, { way, url: new URL(url.endsWith("/") ? url : `${url}/`), log });
    this.over = new AbortController();
    this.posting = Promise.resolve();
  }

  generate(send) {
    return { send, stop() {} };
  }

  async onStart() {
    // Whoever starts a Repo does not wait for its connections.
    this.calling = this.callAgainAndAgain();
  }

  async onStop() {
    this.over.abort();
    this.forget();
    await this.calling;
    if (this.way === "poll") await fetch(this.address("poll"), { method: "DELETE" }).catch(() => {});
  }

  address(path, query = {}) {
    const url = new URL(path, this.url);
    url.search = new URLSearchParams({ peerId: this.identity.peerId, ...query });
    return url;
  }

  async callAgainAndAgain() {
    while (!this.over.signal.aborted) {
      try {
        await this[this.way]();
      } catch (error) {
        if (!this.over.signal.aborted) this.log("!", `${error.message} ${error.cause?.message ?? ""}`);
      }
      await delay(AGAIN, undefined, { signal: this.over.signal }).catch(() => {});
    }
  }

  /** A connection may be used. */
  begin(send) {
    this.forget();
    this.channel = this.addChannel((message) => {
      this.log(">", message);
      send(message);
    });
    this.establishChannel(this.channel.channelId);
  }

  /** The connection is no more. */
  forget() {
    if (this.channel) this.removeChannel(this.channel.channelId);
    this.channel = undefined;
  }

  hear(message) {
    this.log("<", message);
    this.channel?.onReceive(message);
  }

  /** Resolves when the socket is closed. */
  async ws() {
    const url = this.address("ws");
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    const incoming = new Incoming();
    const send = (message) => {
      for (const payload of toPayloads(message, THRESHOLDS.ws)) socket.send(payload);
    };
    socket.on("message", (data, binary) => {
      if (binary) incoming.take(new Uint8Array(data))?.forEach((message) => this.hear(message));
      else if (String(data) === "ready") this.begin(send);
    });
    const pinging = setInterval(() => socket.readyState === WebSocket.OPEN && socket.send("ping"), PING_EVERY);
    const leave = () => socket.close(1000, "Client disconnecting");
    this.over.signal.addEventListener("abort", leave);
    try {
      await new Promise((resolve, reject) => {
        socket.on("error", reject);
        socket.on("close", (code, reason) => {
          this.log("!", `closed with ${code} ${reason}`);
          resolve();
        });
      });
    } finally {
      clearInterval(pinging);
      this.over.signal.removeEventListener("abort", leave);
      this.forget();
    }
  }

  /** Resolves when the stream of events ends. */
  async sse() {
    const response = await fetch(this.address("events"), { signal: this.over.signal });
    if (!response.ok) throw new Error(`events: ${response.status} ${await response.text()}`);
    this.begin((message) => this.post(message));
    try {
      const decoder = new TextDecoder();
      let waiting = [];
      for await (const chunk of response.body) {
        const parts = decoder.decode(chunk, { stream: true }).split("\n\n");
        // The last is not whole yet. What came before it is joined once: a document is one event.
        const last = parts.pop();
        for (const part of parts) {
          this.event(waiting.join("") + part);
          waiting = [];
        }
        waiting.push(last);
      }
    } finally {
      this.forget();
    }
  }

  event(text) {
    const data = text.split("\n").filter((line) => line.startsWith("data:"));
    if (data.length === 0) return;
    const json = data.map((line) => line.slice(5).trimStart()).join("\n");
    this.hear(deserializeChannelMsg(JSON.parse(json)));
  }

  /**
   * Polls once. As the original it establishes with the first answer and never again, also if the server
   * says later that it does not know this peer.
   */
  async poll() {
    const response = await fetch(this.address("poll", { wait: POLL_WAIT }), { signal: this.over.signal });
    if (!response.ok) throw new Error(`poll: ${response.status} ${await response.text()}`);
    const { messages, isNewConnection } = await response.json();
    if (isNewConnection) this.log("!", "the server says that this connection is new");
    if (isNewConnection && !this.channel) this.begin((message) => this.post(message));
    for (const message of messages) this.hear(deserializeChannelMsg(message));
    if (!this.over.signal.aborted) return this.poll();
  }

  /** Posts all payloads of a message, one after another and after those of earlier ones. */
  post(message) {
    const payloads = toPayloads(message, THRESHOLDS[this.way]);
    this.posting = this.posting.then(async () => {
      try {
        for (const payload of payloads) await this.postOne(payload);
      } catch (error) {
        // Nobody hears of it, as in the original.
        this.log("!", `not sent: ${error.message}`);
      }
    });
  }

  async postOne(body, tried = 1) {
    const headers = { "Content-Type": "application/octet-stream", "X-Peer-Id": this.identity.peerId };
    try {
      const response = await fetch(new URL("sync", this.url), { method: "POST", headers, body });
      const answer = await response.text();
      if (!response.ok) throw new Error(`POST: ${response.status} ${answer}`);
    } catch (error) {
      if (tried >= TRIES) throw error;
      await delay(AGAIN);
      await this.postOne(body, tried + 1);
    }
  }
}
