// A sync peer: documents of loro, synced with one server by whichever transport, again and again.

import { LoroDoc, VersionVector } from "loro-crdt";
import { Counts } from "./counts.js";
import { open } from "./transports.js";

/** Milliseconds between calls: the first, and the longest. */
const BACKOFF = { base: 100, cap: 2000 };

export class Peer extends EventTarget {
  /** `transport`: ws, sse, poll or webrtc. `url`: where the server's paths begin. */
  constructor({ peerId, name, transport, url }) {
    super();
    this.identity = { peerId, name, type: "user" };
    this.options = { kind: transport, url, peerId };
    this.status = "idle";
    this.counts = new Counts();
    this.reasons = [];
    this.docs = new Map();
    /** Updates that came before the answer that they build on: loro keeps them until then. */
    this.early = 0;
    /** Updates without those they build on, though all was answered: something was lost. */
    this.gaps = 0;
  }

  /** A document, made if there is none. */
  open(docId) {
    const entry = this.entry(docId);
    if (!entry.asked && this.status === "established") this.ask(entry, true);
    return entry.doc;
  }

  entry(docId) {
    let entry = this.docs.get(docId);
    if (!entry) {
      const doc = new LoroDoc();
      entry = { docId, doc, asked: false, awaiting: false, wanted: false };
      doc.subscribeLocalUpdates((data) => this.edited(entry, data));
      this.docs.set(docId, entry);
    }
    return entry;
  }

  /** Calls the server, and again whenever the line ends. */
  async connect() {
    let failures = 0;
    while (this.status !== "stopped") {
      this.tell("connecting");
      try {
        // Messages may come before the opener returns.
        const early = [];
        let hear = (message) => early.push(message);
        const options = { ...this.options, counts: this.counts, hear: (message) => hear(message) };
        const line = await open(options);
        if (this.status === "stopped") return line.close();
        this.begin(line);
        hear = (message) => this.take(line, message);
        early.forEach(hear);
        this.reasons.push(await line.closed);
        if (this.status === "established") failures = 0;
      } catch (error) {
        this.reasons.push(String(error.message ?? error));
      }
      this.line = undefined;
      if (this.status === "stopped") return;
      this.tell("waiting");
      const delay = Math.min(BACKOFF.base * 2 ** failures++, BACKOFF.cap);
      await new Promise((resolve) => setTimeout(resolve, delay));
    }
  }

  begin(line) {
    this.line = line;
    this.counts.opened += 1;
    this.tell("connected");
    for (const entry of this.docs.values()) {
      entry.asked = entry.awaiting = entry.wanted = false;
    }
    line.send({ type: "establish-request", identity: this.identity });
  }

  stop() {
    this.tell("stopped");
    this.line?.close();
  }

  /** Ends the line as if the way had broken. */
  cut() {
    this.line?.cut();
  }

  tell(status) {
    if (this.status === "stopped") return;
    this.status = status;
    this.changed();
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }

  /** Resolves once `condition` holds; it is looked at after every change. */
  until(condition) {
    return new Promise((resolve) => {
      const look = () => {
        if (!condition()) return;
        this.removeEventListener("change", look);
        resolve();
      };
      this.addEventListener("change", look);
      look();
    });
  }

  edited(entry, data) {
    if (entry.wanted) {
      const transmission = { type: "update", data, version: version(entry.doc) };
      this.line?.send({ type: "update", docId: entry.docId, transmission });
    }
    this.changed();
  }

  request(entry, bidirectional) {
    entry.asked = entry.awaiting = true;
    const requesterDocVersion = version(entry.doc);
    return { type: "sync-request", docId: entry.docId, requesterDocVersion, bidirectional };
  }

  ask(entry, bidirectional) {
    this.line?.send(this.request(entry, bidirectional));
  }

  take(line, message) {
    if (line !== this.line) return;
    const { docId } = message;
    switch (message.type) {
      case "establish-request":
        line.send({ type: "establish-response", identity: this.identity });
        return this.established();
      case "establish-response":
        return this.established();
      case "batch":
        return message.messages.forEach((inner) => this.take(line, inner));
      case "sync-request":
        return line.send(this.answer(this.entry(docId), message));
      case "sync-response":
        this.entry(docId).awaiting = false;
        return this.import(docId, message.transmission);
      case "update":
        return this.import(docId, message.transmission);
      case "new-doc":
        return message.docIds.forEach((docId) => this.ask(this.entry(docId), true));
      case "directory-request": {
        const wanted = (docId) => message.docIds?.includes(docId) ?? true;
        const docIds = [...this.docs.keys()].filter(wanted);
        return line.send({ type: "directory-response", docIds });
      }
      case "delete-request":
        return line.send({ type: "delete-response", docId, status: "ignored" });
    }
  }

  /** Both sides of a data channel ask, so it may happen twice. */
  established() {
    if (this.status === "established") return;
    this.tell("established");
    for (const entry of this.docs.values()) if (!entry.asked) this.ask(entry, true);
  }

  answer(entry, { requesterDocVersion, bidirectional }) {
    const { docId, doc } = entry;
    // From now on the server is told of every edit.
    entry.wanted = true;
    const response = { type: "sync-response", docId, transmission: since(doc, requesterDocVersion) };
    if (!bidirectional || entry.asked) return response;
    return { type: "batch", messages: [response, this.request(entry, false)] };
  }

  import(docId, { type, data }) {
    const entry = this.docs.get(docId);
    if (data === undefined) {
      if (type === "unavailable") this.reasons.push(`${docId} is unavailable`);
      return;
    }
    if (!entry) throw new Error(`${docId} came unasked`);
    const { pending } = entry.doc.import(data);
    if (pending?.size > 0 && entry.awaiting) this.early += 1;
    else if (pending?.size > 0) {
      this.gaps += 1;
      this.ask(entry, false);
    }
    this.changed();
  }
}

function version(doc) {
  return doc.oplogVersion().encode();
}

/** What the other side lacks. */
function since(doc, theirs) {
  const [ours, known] = [doc.oplogVersion(), VersionVector.decode(theirs)];
  const order = ours.compare(known);
  if (order === 0 || order === -1) return { type: "up-to-date", version: ours.encode() };
  if (known.length() === 0) {
    return { type: "snapshot", data: doc.export({ mode: "snapshot" }), version: ours.encode() };
  }
  const data = doc.export({ mode: "update", from: known });
  return { type: "update", data, version: ours.encode() };
}
