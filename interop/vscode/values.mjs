// Values that JSON has no words for, written in JSON: how a test names an argument, and how the
// peer tells what it got.
//
//   { "$undefined": true }               undefined
//   { "$buffer": { "size", "seed" } }    bytes from a seed; told as { "size", "sha256" }
//   { "$buffer": { "hex" } }             these bytes
//   { "$withBuffers": VALUE }            an object with buffers inside
//   { "$uri": "file:///a" }              a URI
//   { "$error": { name, message, … } }   told only: an error, with `stack: true` if it has one

import { createHash } from "node:crypto";
import { SerializableObjectWithBuffers, URI, VSBuffer } from "./original.mjs";

// A linear congruential generator, four bytes a step, little end first: both sides can make the
// same 64 MB without sending them twice.
export function bytes(size, seed) {
  const words = new Uint32Array(Math.ceil(size / 4));
  let state = seed >>> 0;
  for (let at = 0; at < words.length; at++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    words[at] = state;
  }
  return VSBuffer.wrap(Buffer.from(words.buffer, 0, size));
}

export function digest(buffer) {
  const sha256 = createHash("sha256").update(buffer.buffer).digest("hex");
  return { size: buffer.byteLength, sha256 };
}

// From the words of a test to a value.
export function make(said) {
  if (said === null || typeof said !== "object") {
    return said;
  }
  if (Array.isArray(said)) {
    return said.map(make);
  }
  if (said.$undefined) {
    return undefined;
  }
  if (said.$buffer) {
    const { hex, size, seed } = said.$buffer;
    return hex === undefined ? bytes(size, seed) : VSBuffer.wrap(Buffer.from(hex, "hex"));
  }
  if ("$withBuffers" in said) {
    return new SerializableObjectWithBuffers(make(said.$withBuffers));
  }
  if (said.$uri) {
    return URI.parse(said.$uri);
  }
  return Object.fromEntries(Object.entries(said).map(([key, value]) => [key, make(value)]));
}

// From a value to words for a test.
export function tell(value) {
  if (value === undefined) {
    return { $undefined: true };
  }
  if (value === null || typeof value !== "object") {
    return value;
  }
  if (value instanceof VSBuffer) {
    return { $buffer: digest(value) };
  }
  if (value instanceof SerializableObjectWithBuffers) {
    return { $withBuffers: tell(value.value) };
  }
  if (value instanceof Error) {
    return { $error: tellError(value) };
  }
  if (Array.isArray(value)) {
    // Holes, which `map` would skip, are undefined too.
    return Array.from(value, tell);
  }
  if (value instanceof URI || value.$mid === 1) {
    return { $uri: URI.revive(value).toString(true) };
  }
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, tell(inner)]));
}

// Stacks differ from run to run: whether there is one is all that is told.
function tellError(error) {
  const { name, message, code, cause } = error;
  const told = { name, message, stack: typeof error.stack === "string" && error.stack !== "" };
  if (code !== undefined) {
    told.code = tell(code);
  }
  if (cause !== undefined) {
    told.cause = tell(cause);
  }
  return told;
}
