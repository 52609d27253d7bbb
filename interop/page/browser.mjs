// A headless Chromium with one page. Commands come in as lines of JSON, one after another, each with one
// member:
//   {"open": {"url": "http://…", "size": [390, 844], "dark": true, "still": true}}
//   {"wait": {"for": "selector", "count": 3}}      until so many of them are visible; without a count, any
//   {"texts": "selector"}                          the texts of all of them
//   {"property": {"of": "selector", "name": "value"}}
//   {"click": "selector"}, {"fill": {"into": "selector", "text": "…"}}, {"press": "Escape"}
//   {"screenshot": {"path": "one.png", "whole": true}}
// and each is answered by {"ok"} or {"error"}. What goes wrong in the page without being asked for, and
// what it asks of another host, is told as {"uncaught"}. The end of the input ends all.

import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const PATIENCE = 30_000;

const tell = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const places = process.env.PATH.split(delimiter).map((folder) => join(folder, "chromium"));
const browser = await chromium.launch({
  executablePath: places.find(existsSync),
  args: ["--no-sandbox"],
});
tell({ browser: browser.version() });

let page;

async function open({ url, size = [1280, 800], dark = false, still = false }) {
  await page?.context().close();
  const context = await browser.newContext({
    viewport: { width: size[0], height: size[1] },
    deviceScaleFactor: 2,
    colorScheme: dark ? "dark" : "light",
    reducedMotion: still ? "reduce" : "no-preference",
  });
  page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.on("pageerror", (error) => tell({ uncaught: String(error.stack ?? error) }));
  page.on("crash", () => tell({ uncaught: "the page crashed" }));
  page.on("dialog", (dialog) => {
    tell({ uncaught: `a dialog of the browser: ${dialog.message()}` });
    dialog.dismiss();
  });
  page.on("console", (message) => {
    const text = message.text();
    // An answer of 401 or 404 that the page expects.
    const isAnswer = text.startsWith("Failed to load resource");
    if (message.type() === "error" && !isAnswer) tell({ uncaught: text });
  });
  page.on("request", (request) => {
    if (new URL(request.url()).host !== new URL(url).host) tell({ uncaught: request.url() });
  });
  await page.goto(url);
}

async function wait({ for: selector, count }) {
  const found = page.locator(selector).filter({ visible: true });
  const until = Date.now() + PATIENCE;
  for (;;) {
    const seen = await found.count();
    if (count === undefined ? seen > 0 : seen === count) return;
    if (Date.now() > until) throw new Error(`${seen} of ${selector} and not ${count ?? "any"}`);
    await page.waitForTimeout(50);
  }
}

const COMMANDS = {
  open,
  wait,
  texts: (selector) => page.locator(selector).allTextContents(),
  property: ({ of, name }) => page.locator(of).first().evaluate((node, name) => node[name], name),
  click: (selector) => page.locator(selector).first().click(),
  fill: ({ into, text }) => page.locator(into).first().fill(text),
  press: (key) => page.keyboard.press(key),
  screenshot: ({ path, whole = false }) => page.screenshot({ path, fullPage: whole }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [[name, argument]] = Object.entries(JSON.parse(line));
  try {
    const ok = await COMMANDS[name](argument);
    tell({ ok: Buffer.isBuffer(ok) ? null : (ok ?? null) });
  } catch (error) {
    tell({ error: String(error.message ?? error) });
  }
}
await browser.close();
