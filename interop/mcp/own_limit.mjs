// The unmodified MCP client with its own limit of 10 MiB, and an unmodified server that answers with a
// text of any size. As the client: own_limit.mjs COMMAND ENDPOINT, where the command is breakbulk and the
// endpoint what the client's gateway listens at. It tells a line of JSON for each call.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { STDIO_DEFAULT_MAX_BUFFER_SIZE } from "@modelcontextprotocol/sdk/shared/stdio.js";
import { z } from "zod";

const [command, listen] = process.argv.slice(2);

async function serve() {
  const server = new McpServer({ name: "own-limit", version: "0" });
  const text = (length) => ({ content: [{ type: "text", text: "x".repeat(length) }] });
  server.registerTool("text", { inputSchema: { length: z.number() } }, ({ length }) => text(length));
  await server.connect(new StdioServerTransport());
}

async function call() {
  const to = `exec:${process.execPath} ${import.meta.filename}`;
  const transport = new StdioClientTransport({
    command,
    args: ["gateway", "--quiet", "--listen", listen, "--to", to],
  });
  const client = new Client({ name: "own-limit", version: "0" });
  client.onerror = () => {};
  await client.connect(transport);
  const outcome = async (length) => {
    try {
      const result = await client.callTool({ name: "text", arguments: { length } });
      return { length: result.content[0].text.length };
    } catch (error) {
      return { code: error.code, message: error.message };
    }
  };
  // The second request of a session has this id; the line break counts.
  const empty = { result: { content: [{ type: "text", text: "" }] }, jsonrpc: "2.0", id: 1 };
  const most = STDIO_DEFAULT_MAX_BUFFER_SIZE - JSON.stringify(empty).length - 1;
  for (const length of [most, most + 1, 5]) {
    console.log(JSON.stringify({ asked: length - most, ...(await outcome(length)) }));
  }
  await client.close();
}

await (command ? call() : serve());
