// What the programs of this folder share: their texts, what their tools do, and how a client tells what came of
// its calls.

import { createHash } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";

/** Texts are so many of it, unless a call names another: letters of each length in UTF-8, and those that JSON escapes. */
export const UNIT = 'a "quoted" \\ é 漢 🚢\n';

/** The client's and the server's own limit of a message is 10 MiB on stdio and 4 MiB in a POST unless they are told otherwise. */
export const MAX_BUFFER = 64 << 20;

/** Values of progress that the tool tells, with their total. */
export const PROGRESS = [[0, 3], [1, 3], [3, 3]];

/** What a client can do for a server: it answers a prompt with the prompt and this, and a form with this colour. */
export const CAN = { sampling: {}, elicitation: {} };
const ANSWER_END = "!";
const COLOUR = "blue";

/** How often is looked whether a file is there. */
const LOOK_MS = 10;

export const about = (text) => ({
  bytes: Buffer.byteLength(text),
  sha256: createHash("sha256").update(text).digest("hex"),
});

const tell = (line) => console.log(JSON.stringify(line));

/**
 * Makes the calls of a plan with `call(tool, args, { onprogress, signal })`, and tells a line for each. With
 * `extras` then: calls at once, a call whose server asks in turn, a call that is cancelled.
 */
export async function makeCalls({ calls, extras }, version, call) {
  tell({ version });
  const exchange = async ({ up, down, unit }) => {
    const progress = [];
    const data = (unit ?? UNIT).repeat(up);
    const onprogress = ({ progress: value, total }) => progress.push([value, total]);
    try {
      const { content } = await call("exchange", { data, down, unit }, { onprogress });
      return { text: about(content[0].text), heard: JSON.parse(content[1].text), progress };
    } catch (error) {
      return { error: { code: error.code, message: error.message, data: error.data } };
    }
  };
  for (const plan of calls) tell(await exchange(plan));
  if (extras === undefined) return;
  tell({ parallel: await Promise.all(extras.parallel.map(exchange)) });
  const { content } = await call("ask", { units: extras.units });
  tell({ sampled: JSON.parse(content[0].text), elicited: content[1].text });
  tell({ cancelled: await cancel(extras.folder, call) });
  // The session lives on.
  tell(await exchange({ up: 1, down: 1 }));
}

/** Cancels a call while its tool runs, and waits until the tool knows. */
async function cancel(folder, call) {
  const control = new AbortController();
  const answer = call("wait", { folder }, { signal: control.signal });
  const outcome = answer.then(() => "answered", () => "cancelled");
  await appears(join(folder, "started"));
  control.abort();
  const came = await outcome;
  await appears(join(folder, "cancelled"));
  return came;
}

async function appears(path) {
  while (!existsSync(path)) await wait(LOOK_MS);
}

/** The result of the tool `exchange`. `progress(value, total)` tells the client. */
export async function exchange({ data, down, unit }, progress) {
  for (const [value, total] of PROGRESS) await progress(value, total);
  return texts((unit ?? UNIT).repeat(down), JSON.stringify(about(data)));
}

/** The result of the tool `wait`, which ends when it is cancelled. It says in files how far it is. */
export async function waitUntilCancelled({ folder }, signal) {
  writeFileSync(join(folder, "started"), "");
  if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
  writeFileSync(join(folder, "cancelled"), "");
  return texts("cancelled");
}

/** What the tool `ask` asks for. */
export const prompt = (units) => ({
  messages: [{ role: "user", content: { type: "text", text: UNIT.repeat(units) } }],
  maxTokens: 100,
});
export const FORM = {
  message: "Which colour?",
  requestedSchema: { type: "object", properties: { colour: { type: "string" } }, required: ["colour"] },
};

/** The result of the tool `ask`, from what the client answered. */
export const asked = (sampled, form) =>
  texts(JSON.stringify(about(sampled.content.text)), form.content.colour);

/** How a client answers. */
export const sample = ({ params: { messages } }) => ({
  model: "none",
  role: "assistant",
  content: { type: "text", text: messages[0].content.text + ANSWER_END },
});
export const fillIn = () => ({ action: "accept", content: { colour: COLOUR } });

const texts = (...texts) => ({ content: texts.map((text) => ({ type: "text", text })) });
