// What the programs of this folder share: their texts, and how a client tells what came of its calls.

import { createHash } from "node:crypto";

/** Texts are so many of it: letters of each length in UTF-8, and those that JSON escapes. */
export const UNIT = 'a "quoted" \\ é 漢 🚢\n';

/** The client's and the server's own limit of a message is 10 MiB unless they are told otherwise. */
export const MAX_BUFFER = 64 << 20;

/** Values of progress that the tool tells, with their total. */
export const PROGRESS = [[0, 3], [1, 3], [3, 3]];

export const about = (text) => ({
  bytes: Buffer.byteLength(text),
  sha256: createHash("sha256").update(text).digest("hex"),
});

const tell = (line) => console.log(JSON.stringify(line));

/** Makes the calls of a plan with `call(args, onprogress)`, and tells a line for each. */
export async function makeCalls(plan, version, call) {
  tell({ version });
  for (const { up, down } of plan.calls) {
    const progress = [];
    const heard = ({ progress: value, total }) => progress.push([value, total]);
    try {
      const { content } = await call({ data: UNIT.repeat(up), down }, heard);
      tell({ text: about(content[0].text), heard: JSON.parse(content[1].text), progress });
    } catch (error) {
      tell({ error: { code: error.code, message: error.message } });
    }
  }
}

/** The result of the tool `exchange`. `progress(value, total)` tells the client. */
export async function exchange({ data, down }, progress) {
  for (const [value, total] of PROGRESS) await progress(value, total);
  const texts = [UNIT.repeat(down), JSON.stringify(about(data))];
  return { content: texts.map((text) => ({ type: "text", text })) };
}
