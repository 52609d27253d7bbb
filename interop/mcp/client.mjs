// The unmodified MCP client: starts a command as its server, calls tools, and tells a line of JSON
// for each. What it shall do is the JSON in its one argument:
//   { command, args, calls: [{ tool, arguments, contentFrom? }] }

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

// The client's own limit of a message is 10 MiB unless it is told otherwise.
const MAX_BUFFER = 64 * 1024 * 1024;

const tell = (line) => console.log(JSON.stringify(line));
const about = (text) => ({
  bytes: Buffer.byteLength(text),
  sha256: createHash("sha256").update(text).digest("hex"),
});

const plan = JSON.parse(process.argv[2]);
const transport = new StdioClientTransport({
  command: plan.command,
  args: plan.args,
  maxBufferSize: MAX_BUFFER,
  stderr: "pipe",
});
let said = "";
const saidAll = new Promise((resolve) => transport.stderr.once("close", resolve));
transport.stderr.setEncoding("utf8").on("data", (text) => (said += text));

const client = new Client({ name: "breakbulk-interop", version: "0" });
client.onerror = (error) => console.error(`client: ${error}`);
await client.connect(transport);
tell({ server: client.getServerVersion().name });
const { tools } = await client.listTools();
tell({ tools: tools.map((tool) => tool.name) });

for (const call of plan.calls) {
  const args = { ...call.arguments };
  if (call.contentFrom) {
    args.content = readFileSync(call.contentFrom, "utf8");
  }
  const start = performance.now();
  try {
    const result = await client.callTool({ name: call.tool, arguments: args });
    tell({
      seconds: (performance.now() - start) / 1000,
      failed: result.isError ?? false,
      text: about(result.content[0].text),
      // The server says the same once more for programs.
      structured: about(result.structuredContent?.content ?? ""),
    });
  } catch (error) {
    tell({
      seconds: (performance.now() - start) / 1000,
      error: { code: error.code, message: error.message, data: error.data },
    });
  }
}
await client.close();
await saidAll;
tell({ said });
