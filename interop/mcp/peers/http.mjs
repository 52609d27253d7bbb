// Serves a server of npm's `@modelcontextprotocol/server` over Streamable HTTP: MCP 2026-07-28 without sessions,
// and the revisions before it with sessions, on one URL.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import {
  localhostHostValidation,
  localhostOriginValidation,
  toNodeHandler,
} from "@modelcontextprotocol/node";
import {
  createMcpHandler,
  isLegacyRequest,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";

/** How many events of one session can be replayed. */
const KEPT_EVENTS = 1000;

/** How long a client waits before it comes again for a stream that was closed. */
const RETRY_MS = 100;

/** The last events of a session, for clients that come again with `Last-Event-ID`. */
class Events {
  #events = [];
  #count = 0;

  async storeEvent(streamId, message) {
    const eventId = `${streamId}_${(this.#count += 1)}`;
    this.#events.push({ eventId, streamId, message });
    if (this.#events.length > KEPT_EVENTS) this.#events.shift();
    return eventId;
  }

  async getStreamIdForEventId(eventId) {
    return this.#events.find((event) => event.eventId === eventId)?.streamId;
  }

  async replayEventsAfter(lastEventId, { send }) {
    const last = this.#events.findIndex((event) => event.eventId === lastEventId);
    if (last < 0) throw new Error(`no event ${lastEventId} is kept`);
    const { streamId } = this.#events[last];
    for (const event of this.#events.slice(last + 1)) {
      // The first event of a stream only tells its id.
      const empty = Object.keys(event.message).length === 0;
      if (event.streamId === streamId && !empty) await send(event.eventId, event.message);
    }
    return streamId;
  }
}

/** Serves the sessions of older revisions. */
function sessions(make, maxRequestBodySize, onerror) {
  const open = new Map();
  const begin = async () => {
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      eventStore: new Events(),
      retryInterval: RETRY_MS,
      maxRequestBodySize,
      onsessioninitialized: (id) => void open.set(id, transport),
      onsessionclosed: (id) => void open.delete(id),
    });
    transport.onerror = onerror;
    await make().connect(transport);
    return transport;
  };
  return async (request) => {
    const id = request.headers.get("mcp-session-id");
    if (id !== null && !open.has(id)) {
      const error = { code: -32001, message: "Session not found" };
      return Response.json({ jsonrpc: "2.0", error, id: null }, { status: 404 });
    }
    return (open.get(id) ?? (await begin())).handleRequest(request);
  };
}

/**
 * Listens on a free port and tells its URL. `make(notify)` makes a server; `notify` tells all streams of
 * `subscriptions/listen` of a change.
 */
export function serveHttp(make, { maxRequestBodySize } = {}) {
  const onerror = (error) => console.error(`server: ${error}`);
  let modern;
  const build = () => make(modern.notify);
  modern = createMcpHandler(build, { legacy: "reject", maxRequestBodySize, onerror });
  const legacy = sessions(build, maxRequestBodySize, onerror);
  const fetch = async (request, options) => {
    const isLegacy = await isLegacyRequest(request, undefined, { maxRequestBodySize });
    return isLegacy ? legacy(request) : modern.fetch(request, options);
  };
  const handle = toNodeHandler({ fetch }, { maxRequestBodySize, onerror });
  const [hostIsLocal, originIsLocal] = [localhostHostValidation(), localhostOriginValidation()];
  const http = createServer((request, response) => {
    if (request.url !== "/mcp") return response.writeHead(404).end();
    if (hostIsLocal(request, response) && originIsLocal(request, response)) handle(request, response);
  });
  http.listen(0, "127.0.0.1", () => {
    console.log(`listening on http://127.0.0.1:${http.address().port}/mcp`);
  });
}
