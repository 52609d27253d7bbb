// Frames in transport payloads: whole, or cut and put together again.

import { concat } from "./cbor.js";

const WHOLE = 0;
const HEADER = 1;
const DATA = 2;
const PREFIX = 13;

/** The payloads of one frame. The threshold does not count the prefix; 0 never cuts. */
export function cut(frame, threshold, id = crypto.getRandomValues(new Uint8Array(8))) {
  if (threshold === 0 || frame.length <= threshold) return [concat([Uint8Array.of(WHOLE), frame])];
  const count = Math.ceil(frame.length / threshold);
  const payloads = [concat([Uint8Array.of(HEADER), id, words(count, frame.length)])];
  for (let index = 0; index < count; index++) {
    const piece = frame.subarray(index * threshold, (index + 1) * threshold);
    payloads.push(concat([Uint8Array.of(DATA), id, words(index), piece]));
  }
  return payloads;
}

function words(...numbers) {
  const view = new DataView(new ArrayBuffer(4 * numbers.length));
  numbers.forEach((number, index) => view.setUint32(4 * index, number));
  return new Uint8Array(view.buffer);
}

/** Puts frames together. Throws at what breaks the rules; the other batches live on. */
export class Reassembler {
  constructor({ timeout = 10_000, batches = 32, bytes = 50 << 20 } = {}) {
    this.limits = { timeout, batches, bytes };
    this.batches = new Map();
  }

  /** The frame that this payload completes, or nothing. */
  take(payload, now = performance.now()) {
    for (const [key, batch] of this.batches) {
      if (now - batch.since > this.limits.timeout) this.batches.delete(key);
    }
    if (payload.length === 0) throw new Error("an empty payload");
    if (payload[0] === WHOLE) return payload.subarray(1);
    if (payload[0] !== HEADER && payload[0] !== DATA) throw new Error(`prefix ${payload[0]}`);
    if (payload.length < (payload[0] === HEADER ? 17 : PREFIX + 1)) throw new Error("a short payload");
    const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
    const key = view.getBigUint64(1);
    if (payload[0] === DATA) return this.piece(key, view.getUint32(9), payload.subarray(PREFIX));
    if (view.getUint32(9) === 0) throw new Error("a batch of no fragments");
    if (!this.batches.has(key)) this.begin(key, view.getUint32(9), view.getUint32(13), now);
  }

  begin(key, count, size, since) {
    if (this.batches.size >= this.limits.batches) this.evictOldest();
    this.batches.set(key, { count, size, since, received: 0, pieces: new Map() });
  }

  piece(key, index, bytes) {
    const batch = this.batches.get(key);
    if (!batch) return undefined;
    if (index >= batch.count) throw new Error(`index ${index} of ${batch.count}`);
    if (batch.pieces.has(index)) throw new Error(`index ${index} twice`);
    // Maps keep the order of insertion, so the first is the oldest.
    while (this.received() + bytes.length > this.limits.bytes && this.batches.size > 0) {
      this.evictOldest();
      if (!this.batches.has(key)) throw new Error("the batch was evicted");
    }
    batch.pieces.set(index, bytes);
    batch.received += bytes.length;
    if (batch.pieces.size < batch.count) return undefined;
    this.batches.delete(key);
    if (batch.received !== batch.size) {
      throw new Error(`${batch.received} bytes instead of ${batch.size}`);
    }
    return concat(Array.from({ length: batch.count }, (_, at) => batch.pieces.get(at)));
  }

  received() {
    let sum = 0;
    for (const batch of this.batches.values()) sum += batch.received;
    return sum;
  }

  evictOldest() {
    const [oldest] = this.batches.keys();
    this.batches.delete(oldest);
  }
}
