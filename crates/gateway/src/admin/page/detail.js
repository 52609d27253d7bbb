// One session: its last messages, and how to close it.

import { Failed, closeSession, getSession, pause } from "./api.js";
import { at, cell, element, setText, showItems } from "./dom.js";
import { age, bytes, clock, count, duration } from "./format.js";
import { makeFact } from "./overview.js";
import { showTransfers } from "./sessions.js";

/** How often the messages are asked for. */
const PERIOD = 1_000;

const TRANSFERS = 20;

export class Detail {
  #id = null;
  #following = null;
  #needsToken;
  #clock;

  /** `needsToken` is called when the API asks for one; `clock` tells the gateway's time. */
  constructor(needsToken, clock) {
    this.#needsToken = needsToken;
    this.#clock = clock;
    at("detail-leave").addEventListener("click", () => at("detail").close());
    at("detail").addEventListener("close", () => this.#left());
    at("detail").addEventListener("click", (event) => {
      // A click beside it; its own edge is a part of it.
      const { left } = at("detail").getBoundingClientRect();
      if (event.target === at("detail") && event.clientX < left) at("detail").close();
    });
    at("detail-close-session").addEventListener("click", () => this.#ask());
    at("question").addEventListener("close", () => this.#answered());
  }

  /** Shows a session, and follows it until it is left. */
  open(id) {
    this.#following?.abort();
    this.#following = new AbortController();
    this.#id = id;
    setText(at("detail-title"), `Session ${id}`);
    setText(at("detail-note"), "");
    at("detail-close-session").disabled = false;
    showItems(at("message-rows"), [], String, element, () => {});
    showItems(at("detail-facts"), [], String, element, () => {});
    showTransfers(at("detail-transfers"), [], TRANSFERS);
    if (!at("detail").open) at("detail").showModal();
    history.replaceState(null, "", `#session=${encodeURIComponent(id)}`);
    this.#follow(id, this.#following.signal);
  }

  async #follow(id, signal) {
    while (!signal.aborted) {
      try {
        const session = await getSession(id, signal);
        if (!signal.aborted) this.#show(session);
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401) {
          at("detail").close();
          return this.#needsToken();
        }
        if (error.status === 404) return this.#ended();
        if (error instanceof Failed) setText(at("detail-note"), error.message);
        else throw error;
      }
      await pause(PERIOD, signal);
    }
  }

  #ended() {
    setText(at("detail-note"), "This session has ended.");
    at("detail-close-session").disabled = true;
    showTransfers(at("detail-transfers"), [], TRANSFERS);
  }

  #show(session) {
    const now = this.#clock();
    const traffic = ({ messages, bytes: size, frames }) =>
      `${count(messages)} messages, ${bytes(size)}, ${count(frames)} frames`;
    const lanes = (session.lanes ?? []).map((lane) => [
      `queued at ${lane.side}`,
      `${count(lane.queued_messages)} messages, ${bytes(lane.queued_bytes)}`,
    ]);
    showItems(
      at("detail-facts"),
      [
        ["peer", session.peer],
        ["route", `${session.route}: ${session.listen} → ${session.to}`],
        ["since", `${clock(session.since, now)} (${age(now - session.since)})`],
        ["connection", session.line],
        ["to the target", traffic(session.in)],
        ["to the client", traffic(session.out)],
        ["open requests", count(session.open_requests)],
        ...lanes,
      ],
      ([name]) => name,
      makeFact,
      (fact, [, value]) => setText(fact.lastChild, value),
    );
    showTransfers(at("detail-transfers"), session.transfers ?? [], TRANSFERS);
    this.#showMessages(session.messages ?? [], now);
  }

  #showMessages(messages, now) {
    at("no-messages").hidden = messages.length > 0;
    const seen = new Map();
    const keyOf = (message) => {
      const key = JSON.stringify([message.at, message.direction, message.method, message.id, message.bytes]);
      seen.set(key, (seen.get(key) ?? 0) + 1);
      return `${key} ${seen.get(key)}`;
    };
    const rows = at("message-rows");
    const make = (message) => makeMessage(message, now);
    showItems(rows, messages.slice().reverse(), keyOf, make, updateMessage);
  }

  #ask() {
    setText(at("question-title"), `Close session ${this.#id}?`);
    at("question").returnValue = "no";
    at("question").showModal();
  }

  async #answered() {
    if (at("question").returnValue !== "yes" || this.#id === null) return;
    try {
      await closeSession(this.#id);
      setText(at("detail-note"), "The session is being closed.");
      at("detail-close-session").disabled = true;
    } catch (error) {
      if (!(error instanceof Failed)) throw error;
      if (error.status === 404) this.#ended();
      else setText(at("detail-note"), error.message);
    }
  }

  #left() {
    this.#following?.abort();
    this.#following = null;
    this.#id = null;
    history.replaceState(null, "", location.pathname + location.search);
  }
}

function makeMessage(message, now) {
  const row = element("tr");
  row.setAttribute("role", "row");
  const direction = message.direction === "in" ? "target" : "client";
  const cells = [
    cell("Time"),
    cell("To", message.direction),
    cell("Method", "method"),
    cell("Id", "id"),
    cell("Size", "number"),
    cell("Frames", "number"),
    cell("Took", "number"),
  ];
  const [time, to, method, id, size, frames] = cells;
  setText(time, clock(message.at, now));
  setText(to, direction);
  setText(method, message.method ?? "(response)");
  setText(id, message.id == null ? "" : String(message.id));
  setText(size, bytes(message.bytes));
  if (typeof message.body === "string") {
    const details = element("details");
    details.append(element("summary", "", "body"), element("pre", "", message.body));
    method.append(details);
  }
  row.append(...cells);
  row.frames = frames;
  row.took = cells.at(-1);
  return row;
}

/** How long it took, and in how many frames it left, is known only once it is sent. */
function updateMessage(row, message) {
  setText(row.frames, count(message.frames));
  setText(row.took, message.ms == null ? "" : duration(message.ms));
}
