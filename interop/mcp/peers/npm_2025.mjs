// The client and the server of npm's `@modelcontextprotocol/sdk`: MCP 2025-11-25.
//   node npm_2025.mjs server
//   node npm_2025.mjs client '{"command", "args", "calls": [{"up", "down"}]}'

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";
import { exchange, makeCalls, MAX_BUFFER } from "./words.mjs";

if (process.argv[2] === "server") {
  const server = new McpServer({ name: "npm 2025", version: "0" });
  const inputSchema = { data: z.string(), down: z.number() };
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
  await server.connect(new StdioServerTransport(undefined, undefined, { maxBufferSize: MAX_BUFFER }));
} else {
  const { command, args, calls } = JSON.parse(process.argv[3]);
  const transport = new StdioClientTransport({ command, args, maxBufferSize: MAX_BUFFER });
  let version;
  transport.setProtocolVersion = (agreed) => (version = agreed);
  const client = new Client({ name: "npm 2025", version: "0" });
  await client.connect(transport);
  await makeCalls({ calls }, version, (args, onprogress) =>
    client.callTool({ name: "exchange", arguments: args }, undefined, { onprogress }),
  );
  await client.close();
}
