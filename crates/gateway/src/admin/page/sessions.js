// The list of sessions.

import { at, cell, element, setText, showItems } from "./dom.js";
import { age, bytes, count, rate } from "./format.js";

/** More rows than these are not shown: a browser shows thousands slowly, and nobody reads them. */
const ROWS = 200;

/** More transfers of one session than these are only counted. */
const TRANSFERS = 3;

const ORDERS = {
  newest: (one, other) => other.since - one.since,
  oldest: (one, other) => one.since - other.since,
  busiest: (one, other, rates) => busy(rates, other) - busy(rates, one),
  queued: (one, other) => queued(other).bytes - queued(one).bytes,
};

function busy(rates, session) {
  const perSecond = rates.session(session.id);
  return perSecond.in + perSecond.out;
}

/** What waits in all lanes of a session. */
export function queued(session) {
  const lanes = session.lanes ?? [];
  return {
    messages: lanes.reduce((sum, lane) => sum + lane.queued_messages, 0),
    bytes: lanes.reduce((sum, lane) => sum + lane.queued_bytes, 0),
  };
}

export function showSessions(state, rates, open) {
  const words = at("find").value.trim().toLowerCase();
  const order = ORDERS[at("sort").value];
  const found = state.sessions
    .filter((session) => text(session).includes(words))
    .sort((one, other) => order(one, other, rates) || (one.id < other.id ? -1 : 1));
  const make = (session) => makeRow(session, open);
  showItems(at("session-rows"), found.slice(0, ROWS), (session) => session.id, make, (row, session) =>
    updateRow(row, session, state.now, rates.session(session.id)),
  );
  setText(at("session-more"), hint(found.length, state.sessions.length, state.more_sessions ?? 0));
}

function hint(found, listed, unlisted) {
  if (listed === 0) return "No session is open.";
  const left = [];
  if (found > ROWS) left.push(`${count(found - ROWS)} more are not shown; find one by a part of its name.`);
  if (unlisted > 0) left.push(`The gateway lists its oldest ${count(listed)} sessions; it has ${count(unlisted)} more.`);
  if (found === 0) left.unshift("No session matches the search.");
  return left.join(" ");
}

function text({ id, peer, route, listen, to }) {
  return [id, peer, route, listen, to].join(" ").toLowerCase();
}

function makeRow({ id }, open) {
  const row = element("tr");
  row.setAttribute("role", "row");
  row.id = `session-${id}`;
  const button = element("button", "link", id);
  button.type = "button";
  button.setAttribute("aria-haspopup", "dialog");
  button.addEventListener("click", () => open(id));
  const line = element("span", "badge", "lost");
  line.dataset.state = "lost";
  const cells = {
    id: cell("Session"),
    peer: cell("Peer", "peer"),
    age: cell("Age", "number"),
    in: cell("To the target", "number"),
    out: cell("To the client", "number"),
    open: cell("Open", "number"),
    queued: cell("Queued", "number"),
    transfers: cell("Transfers", "transfers"),
  };
  cells.id.append(button, " ", line);
  const peer = element("span", "who");
  const way = element("span", "hint");
  cells.peer.append(peer, way);
  for (const direction of ["in", "out"]) {
    cells[direction].append(element("span", "rate"), element("span", "hint"));
  }
  row.append(...Object.values(cells));
  row.parts = { line, peer, way, cells };
  return row;
}

function updateRow(row, session, now, perSecond) {
  const { line, peer, way, cells } = row.parts;
  line.hidden = session.line !== "lost";
  setText(peer, session.peer);
  setText(way, `${session.route}: ${session.listen} → ${session.to}`);
  setText(cells.age, age(now - session.since));
  for (const direction of ["in", "out"]) {
    const [now, sum] = cells[direction].children;
    setText(now, rate(perSecond[direction]));
    now.classList.toggle("idle", perSecond[direction] === 0);
    const { messages, bytes: size } = session[direction];
    setText(sum, `${bytes(size)}, ${count(messages)} messages`);
  }
  setText(cells.open, count(session.open_requests));
  const waiting = queued(session);
  setText(cells.queued, waiting.messages === 0 ? "0" : `${count(waiting.messages)}, ${bytes(waiting.bytes)}`);
  showTransfers(cells.transfers, session.transfers ?? [], TRANSFERS);
}

/** Shows at most so many transfers as bars, and how many more there are. */
export function showTransfers(parent, transfers, most) {
  parent.list ??= parent.appendChild(element("div", "transfer-list"));
  parent.more ??= parent.appendChild(element("span", "hint"));
  const keyOf = (transfer) => `${transfer.side} ${transfer.direction} ${transfer.key}`;
  showItems(parent.list, transfers.slice(0, most), keyOf, makeTransfer, updateTransfer);
  setText(parent.more, transfers.length > most ? `and ${count(transfers.length - most)} more` : "");
}

function makeTransfer(transfer) {
  const item = element("div", "transfer");
  const bar = element("progress", transfer.direction);
  bar.setAttribute("aria-label", `Transfer ${transfer.key}`);
  const figures = element("span");
  const key = element("span", "key", transfer.key);
  item.append(bar, figures, " ", key);
  item.title = `${transfer.side}, ${transfer.direction}`;
  item.parts = { bar, figures };
  return item;
}

function updateTransfer(item, { direction, done, total }) {
  const { bar, figures } = item.parts;
  const arrow = direction === "in" ? "→" : "←";
  if (total > 0) {
    bar.max = total;
    bar.value = done;
    setText(figures, `${arrow} ${bytes(done)} of ${bytes(total)}`);
  } else {
    // Some formats do not tell the size before the end.
    bar.removeAttribute("value");
    setText(figures, `${arrow} ${bytes(done)}`);
  }
}
