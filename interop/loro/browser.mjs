// A headless Chromium with the pages of this folder. Commands come in as lines of JSON:
//   {"id": 1, "page": "one", "open": true}                  opens a page
//   {"id": 2, "page": "one", "call": "fill", "args": [...]} calls a method of its `window.lab`
//   {"id": 3, "page": "one", "screenshot": "one.png"}
// and each is answered by {"id", "ok"} or {"id", "error"}. What goes wrong in a page without being asked
// for is told as {"page", "uncaught"}. The end of the input ends all.

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const ROOTS = { "": "page/", "loro-crdt": "node_modules/loro-crdt/web/" };
const TYPES = { html: "text/html", js: "text/javascript", wasm: "application/wasm" };

const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const server = createServer(async (request, response) => {
  try {
    const [, folder, name] = /^\/(?:([a-z-]+)\/)?([a-z_]+\.(?:html|js|wasm))$/.exec(request.url);
    const file = new URL(ROOTS[folder ?? ""] + name, import.meta.url);
    const body = await readFile(file);
    response.writeHead(200, { "content-type": TYPES[name.split(".").pop()] }).end(body);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const origin = `http://127.0.0.1:${server.address().port}`;

const places = process.env.PATH.split(delimiter).map((folder) => join(folder, "chromium"));
const browser = await chromium.launch({
  executablePath: places.find(existsSync),
  // Data channels on a machine without a network.
  args: ["--no-sandbox", "--allow-loopback-in-peer-connection"],
});
tell({ browser: browser.version(), origin });

const pages = new Map();

async function open(name) {
  const page = await browser.newPage();
  page.on("pageerror", (error) => tell({ page: name, uncaught: String(error.stack ?? error) }));
  page.on("crash", () => tell({ page: name, uncaught: "the page crashed" }));
  await page.goto(`${origin}/index.html`);
  await page.waitForFunction(() => window.lab);
  pages.set(name, page);
}

async function run({ page: name, open: opens, call, args, screenshot }) {
  if (opens) return open(name);
  const page = pages.get(name);
  if (!page) throw new Error(`no page ${name}`);
  if (screenshot) {
    await page.screenshot({ path: screenshot, fullPage: true });
    return undefined;
  }
  return page.evaluate(({ call, args }) => window.lab[call](...args), { call, args: args ?? [] });
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  // Commands do not wait for one another: one may last until another has its effect.
  run(command).then(
    (ok) => tell({ id: command.id, ok: ok ?? null }),
    (error) => tell({ id: command.id, error: String(error.message ?? error) }),
  );
}
await browser.close();
server.close();
server.closeAllConnections();
