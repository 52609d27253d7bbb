// What a test can do in the page: the methods of `window.lab`.

import init, { VersionVector } from "loro-crdt";
import { digest, edit, fill, random } from "./content.js";
import { Peer } from "./peer.js";

let peer;
let editing;

const lab = {
  /** Makes the page's peer. */
  make(options) {
    peer = new Peer(options);
    peer.addEventListener("change", show);
    show();
  },

  /** Begins to call the server; resolves when both know each other. */
  async connect() {
    peer.connect();
    await peer.until(() => peer.status === "established");
  },

  open(docId) {
    peer.open(docId);
  },

  fill(docId, options) {
    fill(peer.open(docId), options);
    return this.state(docId);
  },

  /** Digest and version of a document. */
  async state(docId) {
    const doc = peer.open(docId);
    const version = Object.fromEntries(doc.oplogVersion().toJSON());
    const state = { ...(await digest(doc)), version };
    digests.set(docId, state.sha256);
    show();
    return state;
  },

  /** Resolves when a document has all of this version. */
  async until(docId, version) {
    const doc = peer.open(docId);
    const wanted = new VersionVector(new Map(Object.entries(version)));
    await peer.until(() => [0, 1].includes(doc.oplogVersion().compare(wanted)));
    return this.state(docId);
  },

  /** One edit; tells the state after it. */
  edit(docId, seed) {
    edit(peer.open(docId), "page", 0, random(seed));
    return this.state(docId);
  },

  /** Edits a document until it is told to stop. */
  beginEdits(docId, { name, every, seed }) {
    const doc = peer.open(docId);
    const next = random(seed);
    editing = { count: 0, doc };
    editing.timer = setInterval(() => edit(doc, name, editing.count++, next), every);
  },

  /** How many edits it made, and the version after them. */
  endEdits() {
    clearInterval(editing.timer);
    const { count, doc } = editing;
    return { count, version: Object.fromEntries(doc.oplogVersion().toJSON()) };
  },

  /** Breaks the way. */
  cut() {
    peer.cut();
  },

  counts() {
    const { counts, early, gaps, reasons, status } = peer;
    return { ...counts, early, gaps, reasons, status };
  },
};

const digests = new Map();
let shown = false;

/** Once per drawn picture, however much changes. */
function show() {
  if (shown) return;
  shown = true;
  requestAnimationFrame(() => {
    shown = false;
    const { identity, options, status, counts } = peer;
    const size = ({ messages, bytes, largest }) => `${messages} messages, ${bytes} bytes, largest ${largest}`;
    const rows = [
      ["peer", `${identity.name} (${identity.peerId})`],
      ["transport", `${options.kind} to ${options.url}`],
      ["status", `${status}, ${counts.opened} connections so far`],
      ["sent", size(counts.sent)],
      ["received", size(counts.received)],
      ...[...peer.docs].map(([docId, { doc }]) => [
        `document ${docId}`,
        `${doc.getText("text").length} letters, ${doc.getList("list").length} entries, ` +
          `${doc.opCount()} operations\nSHA-256 ${digests.get(docId) ?? "not asked for yet"}`,
      ]),
    ];
    document.querySelector("tbody").replaceChildren(...rows.map(row));
  });
}

function row(words) {
  const row = document.createElement("tr");
  for (const word of words) row.appendChild(document.createElement("td")).textContent = word;
  return row;
}

await init();
window.lab = lab;
