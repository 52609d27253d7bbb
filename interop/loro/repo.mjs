// npm's own Repo, as a client or as a server:
//   node repo.mjs '{"name": "one", "peerId": "1", "way": "ws" | "sse" | "poll", "url": "http://…"}'
//   node repo.mjs '{"name": "hub", "peerId": "1", "port": 0}'
// It tells {"ready": true} or {"ready": PORT}, and takes commands as lines of JSON:
//   {"id": 1, "call": "waitForSync", "args": ["doc", {"timeout": 5000}]}
// Each calls a method of `lab` below, and is answered by {"id", "ok"} or {"id", "error"}. An error has the
// last messages that passed; with REPO_LOG=1 in the environment all of them go to the standard error. The
// end of the input ends the Repo in good order.

import { createInterface } from "node:readline";
import { Repo, Shape } from "@loro-extended/repo";
import { VersionVector } from "loro-crdt";
import { digest, fill } from "./page/content.js";
import { ClientAdapter } from "./repo/client.mjs";
import { edit } from "./repo/containers.mjs";
import { describe } from "./repo/messages.mjs";
import { ServerAdapter } from "./repo/server.mjs";

/** How many of the last messages an error has. */
const REMEMBERED = 60;

const { name, peerId, way, url, port } = JSON.parse(process.argv[2]);
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const passed = [];
function log(direction, what) {
  const line = `${direction} ${typeof what === "string" ? what : describe(what)}`;
  if (process.env.REPO_LOG) console.error(`${name} ${line}`);
  passed.push(line);
  passed.splice(0, passed.length - REMEMBERED);
}

const serves = port !== undefined;
const adapter = serves ? new ServerAdapter({ port, log }) : new ClientAdapter({ way, url, log });
const repo = new Repo({
  identity: { name, peerId, type: serves ? "service" : "user" },
  // No storage: a Repo with one (5.4.2) answers a request for a document that it does not know without
  // asking back, so that it never gets what a client edited before it came, whoever's client it is.
  adapters: [adapter],
});

const SHAPE = Shape.doc({});
const EPHEMERAL = { presence: Shape.plain.any() };
const handles = new Map();

function open(docId) {
  if (!handles.has(docId)) handles.set(docId, repo.get(docId, SHAPE, EPHEMERAL));
  return handles.get(docId);
}

/** Resolves once `condition` holds; it is looked at whenever `subscribe` tells of something. */
function until(subscribe, condition) {
  return new Promise((resolve) => {
    let stop;
    const look = () => {
      if (!condition()) return;
      stop?.();
      resolve();
    };
    stop = subscribe(look);
    look();
  });
}

const lab = {
  async waitForSync(docId, options) {
    await open(docId).waitForSync(options);
    return open(docId).loroDoc.opCount();
  },

  /** Digest and version of a document. */
  async state(docId) {
    const doc = open(docId).loroDoc;
    return { ...(await digest(doc)), version: Object.fromEntries(doc.oplogVersion().toJSON()) };
  },

  json(docId) {
    return open(docId).loroDoc.toJSON();
  },

  /** Resolves when a document has all of this version. */
  async until(docId, version) {
    const doc = open(docId).loroDoc;
    const wanted = new VersionVector(new Map(Object.entries(version)));
    const come = () => [0, 1].includes(doc.oplogVersion().compare(wanted));
    await until((look) => doc.subscribe(look), come);
    return lab.state(docId);
  },

  fill(docId, options) {
    fill(open(docId).loroDoc, options);
    return lab.state(docId);
  },

  /** Changes something in each kind of container. */
  edit(docId, name) {
    edit(open(docId).loroDoc, name);
    return lab.state(docId);
  },

  /** Tells those who have the document that this peer is there. */
  appear(docId, value) {
    open(docId).presence.setSelf(value);
  },

  /** Resolves when exactly these peers have told that they are there. */
  async untilPresent(docId, peers) {
    const { presence } = open(docId);
    const wanted = JSON.stringify([...peers].sort());
    const present = () => JSON.stringify([...presence.getAll().keys()].sort()) === wanted;
    await until((look) => presence.subscribe(look), present);
  },

  present(docId) {
    return Object.fromEntries(open(docId).presence.getAll());
  },

  passed() {
    return passed;
  },
};

await adapter.listening;
say({ ready: serves ? await adapter.listening : true });
const commands = createInterface({ input: process.stdin });
commands.on("line", async (line) => {
  const { id, call, args, within } = JSON.parse(line);
  let late;
  try {
    const hangs = new Promise((_, reject) => {
      late = setTimeout(() => reject(new Error(`nothing within ${within} ms`)), within);
    });
    say({ id, ok: (await Promise.race([lab[call](...args), hangs])) ?? null });
  } catch (error) {
    say({ id, error: `${error.message}; presence ${JSON.stringify(args[0] && lab.present(args[0]))}`, passed });
  } finally {
    clearTimeout(late);
  }
});
commands.on("close", async () => {
  await adapter._stop();
  process.exit(0);
});
