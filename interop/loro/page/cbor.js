// The part of CBOR that the wire format needs: definite lengths, minimal arguments, text keys.

/** Encodes objects (in the order of their keys), arrays, texts, bytes, numbers, booleans, undefined. */
export function encode(value) {
  const parts = [];
  write(parts, value);
  return concat(parts);
}

function write(parts, value) {
  if (value === undefined) parts.push(Uint8Array.of(0xf7));
  else if (value === null) parts.push(Uint8Array.of(0xf6));
  else if (typeof value === "boolean") parts.push(Uint8Array.of(value ? 0xf5 : 0xf4));
  else if (typeof value === "number") number(parts, value);
  else if (typeof value === "string") {
    const bytes = new TextEncoder().encode(value);
    head(parts, 3, bytes.length);
    parts.push(bytes);
  } else if (value instanceof Uint8Array) {
    head(parts, 2, value.length);
    parts.push(value);
  } else if (Array.isArray(value)) {
    head(parts, 4, value.length);
    for (const item of value) write(parts, item);
  } else {
    const entries = Object.entries(value);
    head(parts, 5, entries.length);
    for (const [key, inner] of entries) {
      write(parts, key);
      write(parts, inner);
    }
  }
}

function number(parts, value) {
  if (Number.isInteger(value) && Math.abs(value) <= 0xffffffff) {
    head(parts, value < 0 ? 1 : 0, value < 0 ? -1 - value : value);
    return;
  }
  // As narrow as it can be without loss.
  const narrow = Math.fround(value) === value;
  const view = new DataView(new ArrayBuffer(narrow ? 5 : 9));
  view.setUint8(0, narrow ? 0xfa : 0xfb);
  narrow ? view.setFloat32(1, value) : view.setFloat64(1, value);
  parts.push(new Uint8Array(view.buffer));
}

function head(parts, major, argument) {
  const first = major << 5;
  if (argument < 24) parts.push(Uint8Array.of(first | argument));
  else if (argument < 0x100) parts.push(Uint8Array.of(first | 24, argument));
  else if (argument < 0x10000) parts.push(Uint8Array.of(first | 25, argument >> 8, argument & 255));
  else {
    const view = new DataView(new ArrayBuffer(5));
    view.setUint8(0, first | 26);
    view.setUint32(1, argument);
    parts.push(new Uint8Array(view.buffer));
  }
}

/** One array of all. */
export function concat(parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Decodes one value, which must be all of `bytes`. Byte strings are views. */
export function decode(bytes) {
  const reader = new Reader(bytes);
  const value = reader.value();
  if (reader.at !== bytes.length) throw new Error("bytes after the CBOR value");
  return value;
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.at = 0;
  }

  take(length) {
    if (length > this.bytes.length - this.at) throw new Error("the CBOR ends too early");
    const taken = this.bytes.subarray(this.at, this.at + length);
    this.at += length;
    return taken;
  }

  argument(low) {
    if (low < 24) return low;
    const width = [1, 2, 4][low - 24];
    if (!width) throw new Error(`a CBOR argument of kind ${low}`);
    const argument = this.take(width).reduce((sum, byte) => sum * 256 + byte, 0);
    // As the original's library has it: more bytes than the smallest form must be worth it.
    if (argument < 24) throw new Error(`a CBOR argument of ${argument} in ${width} bytes`);
    return argument;
  }

  value() {
    const first = this.take(1)[0];
    const [major, low] = [first >> 5, first & 31];
    if (major === 7) return this.simple(low);
    const argument = this.argument(low);
    if (major === 0) return argument;
    if (major === 1) return -1 - argument;
    if (major === 2) return this.take(argument);
    if (major === 3) return new TextDecoder("utf-8", { fatal: true }).decode(this.take(argument));
    if (major === 4) return Array.from(this.counted(argument), () => this.value());
    if (major === 5) {
      // No prototype: a key may have any name.
      const map = Object.create(null);
      for (const _ of this.counted(argument)) {
        const key = this.value();
        if (typeof key !== "string" || key in map) throw new Error("a CBOR key that is no new text");
        map[key] = this.value();
      }
      return map;
    }
    throw new Error(`CBOR of major type ${major}`);
  }

  /** Every item takes a byte at least, so no more of them are made than there are bytes. */
  *counted(count) {
    if (count > this.bytes.length - this.at) throw new Error("the CBOR ends too early");
    for (let index = 0; index < count; index++) yield index;
  }

  simple(low) {
    const at = this.at;
    if (low === 20 || low === 21) return low === 21;
    if (low === 22) return null;
    if (low === 23) return undefined;
    if (low === 26) return this.take(4) && this.view.getFloat32(at);
    if (low === 27) return this.take(8) && this.view.getFloat64(at);
    throw new Error(`CBOR of simple kind ${low}`);
  }
}
