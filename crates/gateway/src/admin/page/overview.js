// The figures at the top, the routes and the faults.

import { at, element, setText, showItems } from "./dom.js";
import { age, bytes, clock, count, memory, rate } from "./format.js";
import { draw } from "./rates.js";

/** More faults than these are not shown. */
const FAULTS = 100;

/** What is shown of a route if there is any. */
const COUNTS = [
  ["resumes", "resumed"],
  ["ended_failed", "ended with an error"],
  ["lost", "messages lost"],
  ["unanswered", "requests unanswered"],
  ["incomplete", "messages cut off"],
];

export function showOverview(state, rates) {
  setText(at("version"), state.version);
  setText(at("uptime"), `up ${age(state.now - state.started)}`);
  const lost = state.sessions.filter((session) => session.line === "lost").length;
  setText(at("session-count"), count(state.sessions.length + (state.more_sessions ?? 0)));
  const accepted = state.routes.reduce((sum, route) => sum + route.accepted, 0);
  const waiting = lost > 0 ? `, ${lost} waiting for a new connection` : "";
  setText(at("session-hint"), `of ${count(accepted)} since the start${waiting}`);
  const most = Math.max(1, ...rates.history.in, ...rates.history.out);
  for (const direction of ["in", "out"]) {
    setText(at(`rate-${direction}`), rate(rates.total(direction)));
    draw(at(`chart-${direction}`), rates.history[direction], most);
  }
  showMemory(state.memory);
}

function showMemory({ budget, used, owners }) {
  const figure = `${memory(used)} of ${memory(budget)}`;
  setText(at("memory-figure"), figure);
  const bar = at("memory-bar");
  bar.setAttribute("aria-valuemax", String(budget));
  bar.setAttribute("aria-valuenow", String(used));
  bar.setAttribute("aria-valuetext", figure);
  bar.classList.toggle("full", used > 0.9 * budget);
  const shown = owners.map((owner, index) => ({ ...owner, index }));
  const nameOf = (owner) => owner.name;
  showItems(
    bar,
    shown,
    nameOf,
    (owner) => element("span", `owner-${owner.index % 4}`),
    (part, owner) => {
      part.style.width = `${budget > 0 ? Math.min(100, (owner.bytes / budget) * 100) : 0}%`;
    },
  );
  showItems(
    at("memory-owners"),
    shown,
    nameOf,
    (owner) => element("li", `owner-${owner.index % 4}`),
    (item, owner) => setText(item, `${owner.name} ${memory(owner.bytes)}`),
  );
}

export function showRoutes(routes, rates) {
  showItems(at("routes"), routes, (route) => String(route.id), makeRoute, (item, route) => {
    const { parts } = item;
    setText(parts.name, route.name);
    setText(parts.state, route.state);
    parts.state.dataset.state = route.state;
    setText(parts.ends, `${route.listen} → ${route.to}`);
    const { in: into, out } = rates.route(route.id);
    const refused = Object.entries(route.refused ?? {}).filter(([, times]) => times > 0);
    showItems(
      parts.facts,
      [
        ...(route.failure ? [["why it failed", route.failure]] : []),
        ["sessions", `${count(route.sessions)} now, ${count(route.accepted)} in all`],
        ["to the target", traffic(route.in, into)],
        ["to the client", traffic(route.out, out)],
        ...COUNTS.filter(([member]) => route[member] > 0).map(([member, name]) => [name, count(route[member])]),
        ...refused.map(([reason, times]) => [`refused: ${reason.replaceAll("_", " ")}`, count(times)]),
        ...(route.learned_caps ?? []).map((cap) => [`learned cap of ${cap.path}`, `${count(cap.frame)} bytes`]),
      ],
      ([name]) => name,
      makeFact,
      (fact, [, value]) => setText(fact.lastChild, value),
    );
  });
}

function traffic(counters, perSecond) {
  return `${count(counters.messages)} messages, ${bytes(counters.bytes)}, ${rate(perSecond)}`;
}

function makeRoute() {
  const item = element("li");
  const name = element("strong");
  const state = element("span", "badge");
  const ends = element("code");
  const facts = element("dl", "facts");
  const head = element("p");
  head.append(name, " ", state, " ", ends);
  item.append(head, facts);
  item.parts = { name, state, ends, facts };
  return item;
}

/** A name and a value, which changes. */
export function makeFact([name]) {
  const fact = element("div");
  fact.append(element("dt", "", name), element("dd"));
  return fact;
}

export function showFaults(faults, now, open) {
  at("no-faults").hidden = faults.length > 0;
  const newest = faults.slice(-FAULTS).reverse();
  // Two faults of one session may have one time and one text; their place tells them apart.
  const seen = new Map();
  const keyOf = (fact) => {
    const key = JSON.stringify([fact.at, fact.route, fact.session, fact.side, fact.what]);
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return `${key} ${seen.get(key)}`;
  };
  showItems(at("faults"), newest, keyOf, (fault) => makeFault(fault, now, open), () => {});
}

function makeFault(fault, now, open) {
  const item = element("li");
  const time = element("time", "", clock(fault.at, now));
  time.dateTime = new Date(fault.at).toISOString();
  item.append(time, " ");
  if (fault.session) {
    const session = element("button", "link", fault.session);
    session.type = "button";
    session.addEventListener("click", () => open(fault.session));
    item.append(session, " ");
  }
  const where = [fault.route, fault.side].filter(Boolean).join(", ");
  item.append(element("span", "where", where), " ", element("span", "what", fault.what));
  return item;
}
