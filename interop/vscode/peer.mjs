// A peer that is VS Code's own: its RPCProtocol, an actor, and a caller that is told what to call.
//
//   node peer.mjs --listen|--connect HOST:PORT|unix:PATH --carrier CARRIER
//     [--own 1] [--other 2]      the numbers of its actor and of the other side's
//     [--transformer AUTHORITY]  URIs go through the stock transformer
//
// It takes commands as lines of JSON and tells what comes of them in the same form (values.mjs):
//
//   { "id": 1, "call": "$echo", "args": […], "token": "live" | "cancelled" }
//                                    → { "id": 1, "ok": … } or { "id": 1, "error": … }
//   { "cancel": 1 }                  that call's token
//   { "id": 2, "many": 10000 }       so many calls of $add at once
//                                    → { "id": 2, "right": 10000, "seconds": … }
//   { "cut": true }                  the socket ends without a word
//   { "dispose": true }              the RPCProtocol is disposed
//
// By itself it tells { "listening": "HOST:PORT" }, { "opened": true }, { "reconnected": true },
// { "responsive": false | true } and { "closed": reason }. It ends when its standard input does.

import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { Actor } from "./actor.mjs";
import { CARRIERS, open } from "./carriers.mjs";
import {
  CancellationToken,
  CancellationTokenSource,
  createProxyIdentifier,
  createURITransformer,
  ResponsiveState,
  RPCProtocol,
  setUnexpectedErrorHandler,
} from "./original.mjs";
import { make, tell } from "./values.mjs";

const { values: options } = parseArgs({
  options: {
    listen: { type: "string" },
    connect: { type: "string" },
    carrier: { type: "string" },
    own: { type: "string", default: "1" },
    other: { type: "string", default: "2" },
    transformer: { type: "string" },
  },
});
const [host, port] = (options.listen ?? options.connect ?? "").split(":");
if (!port || !CARRIERS.includes(options.carrier)) {
  console.error(`--listen or --connect HOST:PORT or unix:PATH, and --carrier ${CARRIERS.join(" | ")}`);
  process.exit(2);
}

const say = (line) => console.log(JSON.stringify(line));
setUnexpectedErrorHandler((error) => console.error("unexpected:", error));

// Identifiers number themselves in the order in which they are made.
const identifiers = [1, 2].map((number) => createProxyIdentifier(`Actor${number}`));
const identifier = (number) => identifiers[number - 1];

let rpc;
let other;
const session = open(
  {
    carrier: options.carrier,
    listen: options.listen !== undefined,
    host,
    port: host === "unix" ? port : Number(port),
  },
  {
    listening: (address) => say({ listening: address }),
    opened(protocol) {
      const transformer = options.transformer ? createURITransformer(options.transformer) : null;
      rpc = new RPCProtocol(protocol, null, transformer);
      other = rpc.getProxy(identifier(options.other));
      rpc.set(identifier(options.own), new Actor(other));
      rpc.onDidChangeResponsiveState((state) =>
        say({ responsive: state === ResponsiveState.Responsive }),
      );
      say({ opened: true });
    },
    reconnected: () => say({ reconnected: true }),
    closed(reason) {
      rpc?.dispose();
      say({ closed: reason });
    },
  },
);

const tokens = new Map();

function call({ id, call: method, args = [], token }) {
  const made = args.map(make);
  if (token === "cancelled") {
    made.push(CancellationToken.Cancelled);
  } else if (token === "live") {
    const source = new CancellationTokenSource();
    tokens.set(id, source);
    made.push(source.token);
  }
  other[method](...made).then(
    (value) => say({ id, ok: tell(value) }),
    (error) => say({ id, error: tell(error) }),
  );
}

async function many({ id, many: count }) {
  const start = performance.now();
  const calls = Array.from({ length: count }, (_, number) => other.$add(number, 1));
  const sums = await Promise.all(calls);
  const right = sums.filter((sum, number) => sum === number + 1).length;
  say({ id, right, seconds: (performance.now() - start) / 1000 });
}

const commands = createInterface({ input: process.stdin });
commands.on("line", (line) => {
  const command = JSON.parse(line);
  if (command.call) {
    call(command);
  } else if (command.many) {
    many(command);
  } else if (command.cancel) {
    tokens.get(command.cancel).cancel();
  } else if (command.cut) {
    session.cut();
  } else if (command.dispose) {
    rpc.dispose();
  } else {
    throw new Error(`no such command: ${line}`);
  }
});
commands.on("close", () => {
  session.end();
  process.exit(0);
});
