// npm's `@modelcontextprotocol/client` and `@modelcontextprotocol/server`: MCP 2026-07-28, and the older
// one with whoever does not know it.
//   node npm_2026.mjs server
//   node npm_2026.mjs client '{"command", "args", "calls": [{"up", "down"}]}'

import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio, StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";
import { exchange, makeCalls, MAX_BUFFER } from "./words.mjs";

if (process.argv[2] === "server") {
  const make = () => {
    const server = new McpServer({ name: "npm 2026", version: "0" });
    const inputSchema = z.object({ data: z.string(), down: z.number() });
    server.registerTool("exchange", { inputSchema }, (args, { mcpReq }) =>
      exchange(args, async (progress, total) => {
        const progressToken = mcpReq._meta?.progressToken;
        if (progressToken === undefined) return;
        await mcpReq.notify({
          method: "notifications/progress",
          params: { progressToken, progress, total },
        });
      }),
    );
    return server;
  };
  const transport = new StdioServerTransport(undefined, undefined, { maxBufferSize: MAX_BUFFER });
  serveStdio(make, { transport, onerror: (error) => console.error(`server: ${error}`) });
} else {
  const { command, args, calls } = JSON.parse(process.argv[3]);
  const transport = new StdioClientTransport({ command, args, maxBufferSize: MAX_BUFFER });
  const client = new Client(
    { name: "npm 2026", version: "0" },
    { versionNegotiation: { mode: "auto" } },
  );
  await client.connect(transport);
  await makeCalls({ calls }, client.getNegotiatedProtocolVersion(), (args, onprogress) =>
    client.callTool({ name: "exchange", arguments: args }, { onprogress }),
  );
  await client.close();
}
