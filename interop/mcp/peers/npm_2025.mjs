// The client and the server of npm's `@modelcontextprotocol/sdk`: MCP 2025-11-25.
//   node npm_2025.mjs server                      on standard input and output
//   node npm_2025.mjs http [BYTES]                on a free port, with POSTs of at most so many bytes
//   node npm_2025.mjs client '{"command", "args", "calls": [{"up", "down"}]}'
//   node npm_2025.mjs client '{"url", "calls", "extras": {"parallel", "units", "folder"}}'

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  CreateMessageResultSchema,
  ElicitRequestSchema,
  ElicitResultSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { z } from "zod";
import {
  asked,
  CAN,
  exchange,
  fillIn,
  FORM,
  makeCalls,
  MAX_BUFFER,
  prompt,
  sample,
  waitUntilCancelled,
} from "./words.mjs";

function make() {
  const server = new McpServer({ name: "npm 2025", version: "0" });
  const inputSchema = { data: z.string(), down: z.number(), unit: z.string().optional() };
  server.registerTool("exchange", { inputSchema }, (args, { _meta, sendNotification }) =>
    exchange(args, async (progress, total) => {
      const progressToken = _meta?.progressToken;
      if (progressToken === undefined) return;
      await sendNotification({
        method: "notifications/progress",
        params: { progressToken, progress, total },
      });
    }),
  );
  server.registerTool("ask", { inputSchema: { units: z.number() } }, async ({ units }, { sendRequest }) => {
    const message = { method: "sampling/createMessage", params: prompt(units) };
    const sampled = await sendRequest(message, CreateMessageResultSchema);
    const form = { method: "elicitation/create", params: FORM };
    return asked(sampled, await sendRequest(form, ElicitResultSchema));
  });
  server.registerTool("wait", { inputSchema: { folder: z.string() } }, (args, { signal }) =>
    waitUntilCancelled(args, signal),
  );
  return server;
}

function serveHttp(maxRequestBodySize) {
  const sessions = new Map();
  const begin = async () => {
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      maxRequestBodySize,
      onsessioninitialized: (id) => void sessions.set(id, transport),
      onsessionclosed: (id) => void sessions.delete(id),
    });
    await make().connect(transport);
    return transport;
  };
  const http = createServer(async (request, response) => {
    const id = request.headers["mcp-session-id"];
    if (id !== undefined && !sessions.has(id)) return response.writeHead(404).end();
    const transport = sessions.get(id) ?? (await begin());
    await transport.handleRequest(request, response);
  });
  http.listen(0, "127.0.0.1", () => {
    console.log(`listening on http://127.0.0.1:${http.address().port}/mcp`);
  });
}

async function runClient({ url, command, args, ...plan }) {
  const transport = url
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command, args, maxBufferSize: plan.maxBuffer ?? MAX_BUFFER });
  let version;
  const setVersion = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (agreed) => (setVersion?.(agreed), (version = agreed));
  const client = new Client({ name: "npm 2025", version: "0" }, { capabilities: CAN });
  client.setRequestHandler(CreateMessageRequestSchema, sample);
  client.setRequestHandler(ElicitRequestSchema, fillIn);
  await client.connect(transport);
  await makeCalls(plan, version, (name, args, options) =>
    client.callTool({ name, arguments: args }, undefined, options),
  );
  await transport.terminateSession?.();
  await client.close();
}

const [mode, argument] = process.argv.slice(2);
if (mode === "server") {
  await make().connect(new StdioServerTransport(undefined, undefined, { maxBufferSize: MAX_BUFFER }));
} else if (mode === "http") {
  serveHttp(argument && Number(argument));
} else {
  await runClient(JSON.parse(argument));
}
