// npm's `@modelcontextprotocol/client` and `@modelcontextprotocol/server`: MCP 2026-07-28, and the older
// one with whoever does not know it.
//   node npm_2026.mjs server                      on standard input and output
//   node npm_2026.mjs http [BYTES]                on a free port, with POSTs of at most so many bytes
//   node npm_2026.mjs client '{"command", "args", "calls": [{"up", "down"}]}'
//   node npm_2026.mjs client '{"url", "calls", "extras": {"parallel", "units", "folder"}}'

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { inputRequired, inputResponse, McpServer } from "@modelcontextprotocol/server";
import { serveStdio, StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";
import { serveHttp } from "./http.mjs";
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
  const server = new McpServer({ name: "npm 2026", version: "0" });
  const tool = (name, shape, call) =>
    server.registerTool(name, { inputSchema: z.object(shape) }, (args, { mcpReq }) => call(args, mcpReq));
  const texts = { data: z.string(), down: z.number(), unit: z.string().optional() };
  tool("exchange", texts, (args, request) =>
    exchange(args, async (progress, total) => {
      const progressToken = request._meta?.progressToken;
      if (progressToken === undefined) return;
      await request.notify({
        method: "notifications/progress",
        params: { progressToken, progress, total },
      });
    }),
  );
  tool("ask", { units: z.number() }, ({ units }, { inputResponses }) => {
    const [sampled, form] = ["sampled", "form"].map((key) => inputResponse(inputResponses, key));
    if (sampled.kind === "sampling" && form.kind === "elicit") return asked(sampled.result, form);
    const inputRequests = {
      sampled: inputRequired.createMessage(prompt(units)),
      form: inputRequired.elicit(FORM),
    };
    return inputRequired({ inputRequests });
  });
  tool("wait", { folder: z.string() }, (args, { signal }) => waitUntilCancelled(args, signal));
  return server;
}

async function runClient({ url, command, args, ...plan }) {
  const transport = url
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command, args, maxBufferSize: plan.maxBuffer ?? MAX_BUFFER });
  const client = new Client(
    { name: "npm 2026", version: "0" },
    { capabilities: CAN, versionNegotiation: { mode: "auto" } },
  );
  client.setRequestHandler("sampling/createMessage", sample);
  client.setRequestHandler("elicitation/create", fillIn);
  await client.connect(transport);
  await makeCalls(plan, client.getNegotiatedProtocolVersion(), (name, args, options) =>
    client.callTool({ name, arguments: args }, options),
  );
  await transport.terminateSession?.();
  await client.close();
}

const [mode, argument] = process.argv.slice(2);
if (mode === "server") {
  const transport = new StdioServerTransport(undefined, undefined, { maxBufferSize: MAX_BUFFER });
  serveStdio(make, { transport, onerror: (error) => console.error(`server: ${error}`) });
} else if (mode === "http") {
  serveHttp(make, { maxRequestBodySize: argument && Number(argument) });
} else {
  await runClient(JSON.parse(argument));
}
