// The four transports.

import { cut as pieces, Reassembler } from "./fragments.js";
import { decodeFrame, encodeFrame, fromJson } from "./wire.js";

/** Longer frames are cut. */
const THRESHOLDS = { ws: 102_400, sse: 81_920, poll: 81_920, webrtc: 204_800 };
const LABEL = "loro-sync";
const PING_EVERY = 30_000;
/** How long a poll waits for a message. */
const POLL_WAIT = 20_000;
/** A data channel is given no more while so much waits in it. */
const CHANNEL_BUFFER = 1 << 20;
const OPEN_WITHIN = 15_000;

/**
 * Opens a line to `url` as `peerId`, by the transport `kind` (ws, sse, poll, webrtc), and resolves once
 * messages may go. Those that come in go to `hear`, what passes is added to `counts`.
 */
export async function open(options) {
  const line = new Line(options);
  try {
    await { ws, sse, poll, webrtc }[options.kind](line, options);
    return line;
  } catch (error) {
    line.end(`cannot connect: ${error.message ?? error}`);
    throw error;
  }
}

/** What all transports have: an end with a reason, and payloads in order. */
class Line {
  constructor({ kind, counts, hear }) {
    this.threshold = THRESHOLDS[kind];
    this.counts = counts;
    this.hear = hear;
    this.over = new AbortController();
    /** Resolves to the reason of its end. */
    this.closed = new Promise((resolve) => {
      this.over.signal.addEventListener("abort", () => resolve(this.over.signal.reason));
    });
    this.sending = Promise.resolve();
    this.reassembler = new Reassembler();
  }

  get ended() {
    return this.over.signal.aborted;
  }

  end(reason) {
    if (!this.ended) this.over.abort(reason);
  }

  /** Hands all payloads of a message over, one after another and after those of earlier ones. */
  send(message) {
    const payloads = pieces(encodeFrame(message), this.threshold);
    this.sending = this.sending.then(async () => {
      try {
        for (const payload of payloads) {
          if (this.ended) return;
          await this.hand(payload);
          this.counts.sent.add(payload.length);
        }
      } catch (error) {
        this.end(`cannot send: ${error.message ?? error}`);
      }
    });
  }

  /** A binary payload came in. */
  take(payload) {
    this.counts.received.add(payload.length);
    this.guarded(() => {
      const frame = this.reassembler.take(payload);
      if (frame) decodeFrame(frame).forEach(this.hear);
    });
  }

  /** A message in its JSON form came in. */
  takeJson(json) {
    this.guarded(() => this.hear(fromJson(json)));
  }

  /** A message that cannot be read ends the line: documents are synced anew by the next one. */
  guarded(work) {
    try {
      if (!this.ended) work();
    } catch (error) {
      this.end(`cannot read: ${error.stack ?? error}`);
    }
  }

  close() {
    this.end("closed here");
  }

  /** Ends it without a word, as far as a page can. */
  cut() {
    this.end("cut here");
  }
}

/** Resolves when `event` happens on the target; fails if the line ends or nothing happens for long. */
function happens(line, target, event, wanted = () => true) {
  return new Promise((resolve, reject) => {
    const signal = line.over.signal;
    const late = setTimeout(() => line.end(`no ${event} within ${OPEN_WITHIN} ms`), OPEN_WITHIN);
    const seen = (happened) => {
      if (!wanted(happened)) return;
      clearTimeout(late);
      target.removeEventListener(event, seen);
      resolve(happened);
    };
    target.addEventListener(event, seen);
    const failed = () => {
      clearTimeout(late);
      reject(new Error(String(signal.reason)));
    };
    signal.aborted ? failed() : signal.addEventListener("abort", failed, { once: true });
  });
}

function address(options, path, query = {}) {
  const url = new URL(path, options.url.endsWith("/") ? options.url : `${options.url}/`);
  url.search = new URLSearchParams({ peerId: options.peerId, ...query });
  return url;
}

async function ws(line, options) {
  const url = address(options, "ws");
  url.protocol = url.protocol.replace("http", "ws");
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  socket.addEventListener("close", ({ code, reason }) => line.end(`closed with ${code} ${reason}`));
  line.over.signal.addEventListener("abort", () => socket.close(1000, "Client disconnecting"));
  line.hand = async (payload) => socket.send(payload);
  await happens(line, socket, "message", ({ data }) => data === "ready");
  socket.addEventListener("message", ({ data }) => {
    // The words of the other side, `pong` among them, are no messages.
    if (typeof data !== "string") line.take(new Uint8Array(data));
  });
  const pinging = setInterval(() => socket.send("ping"), PING_EVERY);
  line.over.signal.addEventListener("abort", () => clearInterval(pinging));
}

/** One payload to the server, which answers once it has it. */
function posting(line, options) {
  const url = new URL("sync", address(options, ""));
  return async (payload) => {
    const response = await fetch(url, {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream", "X-Peer-Id": options.peerId },
      body: payload,
      signal: line.over.signal,
    });
    if (response.status !== 200 && response.status !== 202) {
      throw new Error(`${response.status} ${await response.text()}`);
    }
  };
}

async function sse(line, options) {
  const events = new EventSource(address(options, "events"));
  line.over.signal.addEventListener("abort", () => events.close());
  // It would connect again by itself, and nobody would sync.
  events.addEventListener("error", () => line.end("the event stream broke off"));
  events.addEventListener("message", ({ data }) => {
    line.counts.received.add(data.length);
    line.guarded(() => line.takeJson(JSON.parse(data)));
  });
  line.hand = posting(line, options);
  await happens(line, events, "open");
}

async function poll(line, options) {
  const ask = async (wait) => {
    const url = address(options, "poll", { wait });
    const response = await fetch(url, { signal: line.over.signal });
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    const text = await response.text();
    line.counts.received.add(text.length);
    return JSON.parse(text);
  };
  const forget = () => fetch(address(options, "poll"), { method: "DELETE" });
  line.hand = posting(line, options);
  line.close = () => {
    line.end("closed here");
    forget().catch(() => {});
  };
  let answer = await ask(0);
  if (!answer.isNewConnection) {
    // What an earlier connection was sent and did not get is lost: begin anew.
    await forget();
    answer = await ask(0);
    if (!answer.isNewConnection) throw new Error("the server does not forget this peer");
  }
  const polling = async () => {
    for (;;) {
      answer.messages.forEach((message) => line.takeJson(message));
      answer = await ask(POLL_WAIT);
      if (answer.isNewConnection) throw new Error("the server forgot this peer");
    }
  };
  // Not before the caller has the line.
  setTimeout(() => polling().catch((error) => line.end(`cannot poll: ${error.message ?? error}`)));
}

async function webrtc(line, options) {
  const connection = new RTCPeerConnection();
  line.over.signal.addEventListener("abort", () => connection.close());
  connection.addEventListener("connectionstatechange", () => {
    if (connection.connectionState === "failed") line.end("the connection failed");
  });
  const channel = connection.createDataChannel(LABEL, { ordered: true });
  channel.binaryType = "arraybuffer";
  channel.bufferedAmountLowThreshold = CHANNEL_BUFFER / 2;
  channel.addEventListener("close", () => line.end("the channel was closed"));
  channel.addEventListener("message", ({ data }) => {
    if (typeof data !== "string") line.take(new Uint8Array(data));
  });
  line.hand = async (payload) => {
    if (channel.bufferedAmount > CHANNEL_BUFFER) await happens(line, channel, "bufferedamountlow");
    channel.send(payload);
  };
  await connection.setLocalDescription();
  while (connection.iceGatheringState !== "complete") {
    await happens(line, connection, "icegatheringstatechange");
  }
  const response = await fetch(address(options, "offer"), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(connection.localDescription),
    signal: line.over.signal,
  });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  const answer = await response.json();
  await Promise.all([
    happens(line, channel, "open"),
    connection.setRemoteDescription(answer),
  ]);
}
