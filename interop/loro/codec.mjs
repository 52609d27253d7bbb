// The page's own codec against the recorded bytes; `node codec.mjs VECTORS`.

import { strict as assert } from "node:assert";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { VersionVector } from "loro-crdt";
import { concat } from "./page/cbor.js";
import { cut, Reassembler } from "./page/fragments.js";
import { decodeFrame, encodeFrame, encodeVersion, fromJson } from "./page/wire.js";

const folder = process.argv[2];
const load = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (text) => new Uint8Array(Buffer.from(text, "hex"));
const counts = {};
const counted = (what) => (counts[what] = (counts[what] ?? 0) + 1);

/** A recorded message as the page has it. */
function revive(value) {
  if (Array.isArray(value)) return value.map(revive);
  if (value === null || typeof value !== "object") return value;
  if ("$hex" in value) return bytes(value.$hex);
  if ("$undefined" in value) return undefined;
  const entries = Object.entries(value).map(([key, inner]) => [key, revive(inner)]);
  const revived = Object.fromEntries(entries);
  if (typeof revived.type === "string") revived.type = revived.type.replace("channel/", "");
  return revived;
}

/** Absent and undefined are the same here, and views the same as arrays. */
const plain = (value) =>
  JSON.parse(JSON.stringify(value, (_, inner) => (inner instanceof Uint8Array ? hex(inner) : inner)));

for (const { name, message, frame, decoded, json_text } of load("messages.json")) {
  assert.equal(hex(encodeFrame(revive(message))), frame, name);
  assert.deepEqual(plain(decodeFrame(bytes(frame))), plain(revive(decoded)), name);
  // JSON leaves out what is empty, and tells versions sorted.
  const json = plain(fromJson(JSON.parse(json_text)));
  const expected = plain(revive(message));
  for (const told of [json, expected]) {
    if (told.ephemeral?.length === 0) delete told.ephemeral;
    for (const part of [told, told.transmission ?? {}]) {
      for (const key of ["version", "requesterDocVersion"]) {
        if (part[key]) part[key] = VersionVector.decode(bytes(part[key])).toJSON();
      }
    }
  }
  assert.deepEqual(json, expected, name);
  counted("messages");
}

for (const { name, frame, decoded } of load("batch_frames.json")) {
  assert.deepEqual(plain(decodeFrame(bytes(frame))), plain(revive(decoded)), name);
  counted("batch frames");
}

for (const { name, frame, ok } of load("decode_errors.json")) {
  // What the original reads may still be refused; what it refuses must be. Versions are loro's to read.
  if (ok || name.startsWith("sync_request_v_")) continue;
  assert.throws(() => decodeFrame(bytes(frame)), name);
  counted("bad frames");
}

for (const { json, hex: expected } of load("version_vectors.json")) {
  const [ours, theirs] = [encodeVersion(json), bytes(expected)].map((vv) => VersionVector.decode(vv));
  assert.deepEqual(ours.toJSON(), theirs.toJSON());
  counted("version vectors");
}

for (const { threshold, payload, adapter_payloads } of load("fragments.json")) {
  const id = bytes("0102030405060708");
  assert.deepEqual(cut(bytes(payload), threshold, id).map(hex), adapter_payloads);
  counted("fragments");
}

for (const { threshold, payload_len, count, sha256_of_concatenation } of load("fragments_large.json")) {
  const payload = Uint8Array.from({ length: payload_len }, (_, i) => (i * 7 + 3) & 255);
  const payloads = cut(payload, threshold, bytes("a1b2c3d4e5f60708"));
  assert.equal(payloads.length, count);
  const hash = createHash("sha256").update(concat(payloads)).digest("hex");
  assert.equal(hash, sha256_of_concatenation);
  counted("large fragments");
}

for (const { name, threshold, frame, payloads } of load("framed_fragments.json")) {
  assert.deepEqual(cut(bytes(frame), threshold, bytes("a1b2c3d4e5f60708")).map(hex), payloads, name);
  counted("framed fragments");
}

for (const { name, config, steps } of load("reassembler.json").scripts) {
  const { maxConcurrentBatches: batches, maxTotalReassemblyBytes: most } = config ?? {};
  const reassembler = new Reassembler({ batches, bytes: most });
  for (const { in: payload, result, pending_batches, pending_bytes } of steps ?? []) {
    const take = () => reassembler.take(bytes(payload));
    if (result.status === "error") assert.throws(take, name);
    else assert.equal(hex(take() ?? []), result.data?.$hex ?? "", name);
    assert.equal(reassembler.batches.size, pending_batches, name);
    assert.equal(reassembler.received(), pending_bytes, name);
    counted("reassembler steps");
  }
}

console.log(JSON.stringify(counts));
