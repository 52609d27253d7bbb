// Messages, in CBOR frames and as JSON. A version vector is bytes here, as loro encodes it.

import { concat, decode, encode } from "./cbor.js";

const VERSION = 2;
const BATCH = 1;
const HEADER = 6;

const TYPES = {
  "establish-request": 0x01,
  "establish-response": 0x02,
  "sync-request": 0x10,
  "sync-response": 0x11,
  update: 0x12,
  "directory-request": 0x20,
  "directory-response": 0x21,
  "new-doc": 0x22,
  "delete-request": 0x30,
  "delete-response": 0x31,
  ephemeral: 0x40,
  batch: 0x50,
};
const NAMES = new Map(Object.entries(TYPES).map(([name, t]) => [t, name]));
const KINDS = ["up-to-date", "snapshot", "update", "unavailable"];

/** One message in one frame. */
export function encodeFrame(message) {
  const payload = encode(compact(message));
  const header = new Uint8Array(HEADER);
  header[0] = VERSION;
  new DataView(header.buffer).setUint32(2, payload.length);
  return concat([header, payload]);
}

/** The messages of one frame. */
export function decodeFrame(frame) {
  if (frame.length < HEADER) throw new Error(`a frame of ${frame.length} bytes`);
  if (frame[0] !== VERSION) throw new Error(`wire version ${frame[0]}`);
  const length = new DataView(frame.buffer, frame.byteOffset).getUint32(2);
  if (length > frame.length - HEADER) throw new Error(`a frame of ${frame.length} bytes, ${length} told`);
  const value = decode(frame.subarray(HEADER, HEADER + length));
  return frame[1] & BATCH ? value.map(expand) : [expand(value)];
}

const compactStores = (stores) =>
  stores?.map(({ peerId, data, namespace }) => ({ p: peerId, d: data, ns: namespace }));
const expandStores = (stores) =>
  stores?.map(({ p, d, ns }) => ({ peerId: p, data: d, namespace: ns }));

/** The fields by their short names, in the order in which they travel. */
function compact(message) {
  const t = TYPES[message.type];
  const { docId: doc, docIds: docs } = message;
  switch (message.type) {
    case "establish-request":
    case "establish-response": {
      const { peerId: id, name: n, type: y } = message.identity;
      return { t, id, n, y };
    }
    case "sync-request": {
      const { requesterDocVersion: v, ephemeral, bidirectional: bi } = message;
      return { t, doc, v, e: compactStores(ephemeral), bi };
    }
    case "sync-response": {
      const { transmission, ephemeral } = message;
      return { t, doc, tx: compactTransmission(transmission), e: compactStores(ephemeral) };
    }
    case "update":
      return { t, doc, tx: compactTransmission(message.transmission) };
    case "directory-request":
    case "directory-response":
    case "new-doc":
      return { t, docs };
    case "delete-request":
      return { t, doc };
    case "delete-response":
      return { t, doc, s: message.status };
    case "ephemeral":
      return { t, doc, h: message.hopsRemaining, st: compactStores(message.stores) };
    case "batch":
      return { t, m: message.messages.map(compact) };
    default:
      throw new Error(`no message is called ${message.type}`);
  }
}

function compactTransmission({ type, data, version }) {
  const k = KINDS.indexOf(type);
  if (type === "unavailable") return { k };
  return type === "up-to-date" ? { k, v: version } : { k, d: data, v: version };
}

function expand(fields) {
  const type = NAMES.get(fields.t);
  const { doc: docId, docs: docIds } = fields;
  switch (type) {
    case "establish-request":
    case "establish-response":
      return { type, identity: { peerId: fields.id, name: fields.n, type: fields.y } };
    case "sync-request": {
      const [version, ephemeral] = [fields.v, expandStores(fields.e)];
      return { type, docId, requesterDocVersion: version, ephemeral, bidirectional: fields.bi };
    }
    case "sync-response": {
      const transmission = expandTransmission(fields.tx);
      return { type, docId, transmission, ephemeral: expandStores(fields.e) };
    }
    case "update":
      return { type, docId, transmission: expandTransmission(fields.tx) };
    case "directory-request":
    case "directory-response":
    case "new-doc":
      return { type, docIds };
    case "delete-request":
      return { type, docId };
    case "delete-response":
      return { type, docId, status: fields.s };
    case "ephemeral":
      if (!fields.st) throw new Error("no stores");
      return { type, docId, hopsRemaining: fields.h, stores: expandStores(fields.st) };
    case "batch":
      return { type, messages: fields.m.map(expand) };
    default:
      throw new Error(`a message of type ${fields.t}`);
  }
}

function expandTransmission({ k, d, v }) {
  const type = KINDS[k];
  if (type === undefined) throw new Error(`a transmission of kind ${k}`);
  if (type === "unavailable") return { type };
  if (!(v instanceof Uint8Array)) throw new Error("a transmission without a version");
  if (type === "up-to-date") return { type, version: v };
  if (!(d instanceof Uint8Array)) throw new Error("a transmission without data");
  return { type, data: d, version: v };
}

/** A message from its JSON form. */
export function fromJson(json) {
  const message = { ...json, type: json.type.replace(/^channel\//, "") };
  const stores = (list) => list?.map((store) => ({ ...store, data: fromBase64(store.data) }));
  if (message.messages) message.messages = message.messages.map(fromJson);
  if (message.requesterDocVersion) {
    message.requesterDocVersion = encodeVersion(message.requesterDocVersion);
  }
  if (message.ephemeral) message.ephemeral = stores(message.ephemeral);
  if (message.stores) message.stores = stores(message.stores);
  if (message.transmission) {
    const { type, data, version } = message.transmission;
    message.transmission = { type };
    if (data !== undefined) message.transmission.data = fromBase64(data);
    if (version !== undefined) message.transmission.version = encodeVersion(version);
  }
  return message;
}

function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** Loro's bytes of a version vector that JSON tells as `{peer: counter}`. */
export function encodeVersion(version) {
  const entries = Object.entries(version);
  const bytes = [];
  const varint = (value) => {
    for (; value >= 0x80n; value >>= 7n) bytes.push(Number(value & 0x7fn) | 0x80);
    bytes.push(Number(value));
  };
  varint(BigInt(entries.length));
  for (const [peer, counter] of entries) {
    varint(BigInt(peer));
    varint(BigInt(counter) * 2n);
  }
  return Uint8Array.from(bytes);
}
