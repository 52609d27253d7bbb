// A peer that is the SDK's own: its transport below an MCP client or server of npm.
//
//   node peer.mjs client|server '{ "relay": URL, "key"?: HEX, "server"?: PUBKEY,
//     "encryption"?: "disabled" | "optional" | "required", "wraps"?: "persistent" | "ephemeral",
//     "chunk"?: BYTES, "stateless"?: true, "openStream"?: true, "modern"?: true }'
//
// What is not given is as the SDK has it. With "modern" it speaks MCP 2026-07-28, which the SDK's transports
// carry as well. It tells { "ready": PUBKEY, "version"?: … } and takes commands as lines of
// JSON. A client:
//
//   { "id": 1, "call": { "kind": "ascii", "up": 10, "down": 200000, … }, "timeout"?: MS }
//     → { "id": 1, "text": { bytes, sha256 }, "heard": { bytes, sha256 }, "seconds", "progress" }
//       or { "id": 1, "error": … }
//
// A server serves the tool `exchange`: it tells what it heard and returns as much text as it is asked
// for; with "stream" it first says something of CEP-41's. Both tell { "failed": … } of errors that no
// caller hears of. It ends when its standard input does.

import { createInterface } from "node:readline";
import { Client as ModernClient } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { CallToolRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { Server as ModernServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { ApplesauceRelayPool } from "@contextvm/sdk/relay";
import { NostrClientTransport, NostrServerTransport } from "@contextvm/sdk/transport";
import { PrivateKeySigner } from "@contextvm/sdk/signer";
import { about, text } from "./texts.mjs";

const [role, plan] = [process.argv[2], JSON.parse(process.argv[3])];
const say = (line) => console.log(JSON.stringify(line));
const failed = (error) => say({ failed: String(error?.message ?? error) });

const signer = new PrivateKeySigner(plan.key);
const pool = new ApplesauceRelayPool([plan.relay]);
const options = {
  signer,
  relayHandler: pool,
  logLevel: "silent",
  ...(plan.encryption && { encryptionMode: plan.encryption }),
  ...(plan.wraps && { giftWrapMode: plan.wraps }),
  ...(plan.chunk && { oversizedTransfer: { enabled: true, chunkSizeBytes: plan.chunk } }),
  ...(plan.openStream && { openStream: { enabled: true } }),
};

async function exchange(request, notify, progressToken) {
  const { kind, data, down, stream } = request.params.arguments;
  if (stream) {
    for (const [progress, frameType] of ["start", "chunk", "close"].entries()) {
      const cvm = { type: "open-stream", frameType, ...(frameType === "chunk" && { data: "x" }) };
      const params = { progressToken, progress: progress + 1, cvm };
      await notify({ method: "notifications/progress", params });
    }
  }
  const content = [text(kind, down), JSON.stringify(about(data))];
  return { content: content.map((text) => ({ type: "text", text })) };
}

async function serve() {
  const identity = [{ name: "real", version: "0" }, { capabilities: { tools: {} } }];
  // Nothing is told to relays elsewhere.
  const transport = new NostrServerTransport({ ...options, publishRelayList: false });
  let server;
  if (plan.modern) {
    const make = () => {
      const server = new ModernServer(...identity);
      server.setRequestHandler("tools/call", (request, { mcpReq }) =>
        exchange(request, mcpReq.notify, mcpReq._meta?.progressToken),
      );
      return server;
    };
    // It serves any transport, and one client.
    server = serveStdio(make, { transport, onerror: failed });
  } else {
    server = new Server(...identity);
    server.onerror = failed;
    server.setRequestHandler(CallToolRequestSchema, (request, { sendNotification, _meta }) =>
      exchange(request, sendNotification, _meta?.progressToken),
    );
    await server.connect(transport);
  }
  // It does not wait for its subscription: whoever asks before it stands is not heard. The relay takes
  // one after the other.
  const nothing = [{ ids: ["0".repeat(64)], limit: 1 }];
  await new Promise((stands) => pool.subscribe(nothing, () => {}, stands));
  return { end: () => server.close() };
}

async function ask() {
  const name = { name: "real", version: "0" };
  const client = plan.modern
    ? new ModernClient(name, { versionNegotiation: { mode: "auto" } })
    : new Client(name);
  client.onerror = (error) => {
    // The newer one also tells of progress that it reads after the answer, which is no failure.
    if (!plan.modern || !error.message.includes("unknown token")) failed(error);
  };
  const transport = new NostrClientTransport({
    ...options,
    serverPubkey: plan.server,
    isStateless: plan.stateless ?? false,
  });
  await client.connect(transport);
  return {
    version: client.getNegotiatedProtocolVersion?.(),
    end: () => client.close(),
    async take({ id, call, timeout = 120_000 }) {
      const { up, ...rest } = call;
      let progress = 0;
      const start = performance.now();
      try {
        const called = { name: "exchange", arguments: { ...rest, data: text(call.kind, up) } };
        // Without `onprogress` there is no token, and so nothing large.
        const wanted = { onprogress: () => (progress += 1), timeout };
        const { content } = await (plan.modern
          ? client.callTool(called, wanted)
          : client.callTool(called, undefined, wanted));
        const seconds = (performance.now() - start) / 1000;
        const heard = JSON.parse(content[1].text);
        say({ id, text: about(content[0].text), heard, seconds, progress });
      } catch (error) {
        say({ id, error: { code: error.code, message: error.message, data: error.data } });
      }
    },
  };
}

const peer = await (role === "server" ? serve() : ask());
say({ ready: await signer.getPublicKey(), version: peer.version });
const commands = createInterface({ input: process.stdin });
commands.on("line", (line) => peer.take(JSON.parse(line)));
commands.on("close", () => {
  peer.end().finally(() => process.exit(0));
});
