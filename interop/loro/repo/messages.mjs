// A Repo's messages in the frames of the page's codec and back, and in a few words for people.

import { VersionVector } from "loro-crdt";
import { cut, Reassembler } from "../page/fragments.js";
import { decodeFrame, encodeFrame } from "../page/wire.js";

const PREFIX = "channel/";

/** The payloads of one message; frames above the threshold are cut. */
export function toPayloads(message, threshold) {
  return cut(encodeFrame(toWire(message)), threshold);
}

/** Puts payloads of one connection together. */
export class Incoming {
  constructor() {
    this.reassembler = new Reassembler();
  }

  /** The messages that this payload completes; none if more of it has to come. */
  take(payload) {
    const frame = this.reassembler.take(payload);
    return frame && decodeFrame(frame).map(toRepo);
  }
}

const versions = (message, change) => {
  const changed = { ...message };
  if (message.requesterDocVersion) {
    changed.requesterDocVersion = change(message.requesterDocVersion);
  }
  if (message.transmission?.version) {
    const version = change(message.transmission.version);
    changed.transmission = { ...message.transmission, version };
  }
  return changed;
};

function toWire(message) {
  const wire = versions(message, (version) => version.encode());
  wire.type = message.type.slice(PREFIX.length);
  if (message.messages) wire.messages = message.messages.map(toWire);
  return wire;
}

function toRepo(wire) {
  const message = versions(wire, (bytes) => VersionVector.decode(bytes));
  message.type = PREFIX + wire.type;
  if (wire.messages) message.messages = wire.messages.map(toRepo);
  return message;
}

/** What a test prints of a message when something goes wrong. */
export function describe(message) {
  const { type, docId, docIds, transmission, requesterDocVersion: version } = message;
  const words = [type.slice(PREFIX.length)];
  if (docId !== undefined) words.push(docId);
  if (docIds !== undefined) words.push(docIds.join(","));
  if (version) words.push(`of ${version.length()} peers`);
  if (message.bidirectional) words.push("bidirectional");
  if (transmission) words.push(transmission.type, `${transmission.data?.length ?? 0} bytes`);
  for (const { peerId, namespace, data } of message.stores ?? message.ephemeral ?? []) {
    words.push(`${namespace} of ${peerId}: ${data.length} bytes`);
  }
  if (message.messages) words.push(`[${message.messages.map(describe).join("; ")}]`);
  return words.join(" ");
}
