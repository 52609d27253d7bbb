// The server that npm's `@modelcontextprotocol/conformance` is run against, on npm's `@modelcontextprotocol/server`:
//   node server.mjs
// tells `listening on http://127.0.0.1:<port>/mcp`.

import { randomBytes } from "node:crypto";
import { createRequestStateCodec, McpServer } from "@modelcontextprotocol/server";
import { serveHttp } from "../peers/http.mjs";
import { addContent } from "./content.mjs";
import { addRounds } from "./rounds.mjs";

const states = createRequestStateCodec({ key: randomBytes(32) });

serveHttp((notify) => {
  const capabilities = {
    logging: {},
    completions: {},
    tools: { listChanged: true },
    prompts: { listChanged: true },
    resources: { listChanged: true, subscribe: true },
  };
  const requestState = { verify: states.verify };
  const server = new McpServer({ name: "conformance", version: "0" }, { capabilities, requestState });
  addContent(server, notify);
  addRounds(server, states);
  return server;
});
