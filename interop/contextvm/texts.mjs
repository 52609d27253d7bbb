// Texts that both sides make alike (src/text.rs), and what tells two of them apart.

import { createHash } from "node:crypto";

const UNITS = {
  ascii: "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 ",
  cjk: "运输大消息🚢請分成小塊🧊",
  backslashes: "\\".repeat(57),
};

/** At least so many bytes: numbered units, so that no piece of it is like another. */
export function text(kind, size) {
  const unit = UNITS[kind];
  const each = 7 + Buffer.byteLength(unit);
  const parts = [];
  for (let number = 0; number * each < size; number++) {
    parts.push(String(number).padStart(7, "0"), unit);
  }
  return parts.join("");
}

export const about = (text) => ({
  bytes: Buffer.byteLength(text),
  sha256: createHash("sha256").update(text).digest("hex"),
});
