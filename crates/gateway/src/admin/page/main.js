// The page: follows the gateway while somebody looks, and shows what it says.

import { Failed, follow, getState, setToken } from "./api.js";
import { Detail } from "./detail.js";
import { at, setText } from "./dom.js";
import { showFaults, showOverview, showRoutes } from "./overview.js";
import { Rates } from "./rates.js";
import { showSessions } from "./sessions.js";

const STATUS = {
  live: "live",
  polling: "live, every 2 s",
  lost: "the gateway does not answer; trying again",
  hidden: "paused while this tab is hidden",
  token: "a token is needed",
};

const rates = new Rates();
let state = null;
/** How far the gateway's clock is ahead of this one. */
let ahead = 0;
const detail = new Detail(
  () => needToken(),
  () => Date.now() + ahead,
);
let following = null;

function tell(status) {
  setText(at("status"), STATUS[status]);
  at("status").dataset.state = status;
  at("main").classList.toggle("stale", status === "lost");
}

function show(next) {
  state = next;
  ahead = state.now - Date.now();
  rates.add(state);
  at("login").hidden = true;
  at("main").hidden = false;
  showOverview(state, rates);
  showRoutes(state.routes, rates);
  showList();
  showFaults(state.faults, state.now, (id) => detail.open(id));
}

function showList() {
  if (state) showSessions(state, rates, (id) => detail.open(id));
}

async function start() {
  following?.abort();
  following = new AbortController();
  try {
    await follow(following.signal, show, tell);
  } catch (error) {
    if (error.status !== 401) throw error;
    needToken();
  }
}

function needToken() {
  following?.abort();
  tell("token");
  at("main").hidden = true;
  at("login").hidden = false;
  at("token").focus();
}

at("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  setToken(at("token").value);
  try {
    await getState();
  } catch (error) {
    if (!(error instanceof Failed)) throw error;
    setText(at("login-error"), error.status === 401 ? "This token is wrong." : error.message);
    setToken(null);
    at("token").select();
    return;
  }
  at("token").value = "";
  setText(at("login-error"), "");
  start();
});

for (const [id, event] of [
  ["find", "input"],
  ["sort", "change"],
]) {
  at(id).addEventListener(event, showList);
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "/" && !isTyping && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    at("find").focus();
  }
});

document.addEventListener("visibilitychange", () => {
  if (!at("login").hidden) return;
  if (document.hidden) {
    following?.abort();
    tell("hidden");
  } else {
    start();
  }
});

/** A link of a log line or a record: `#session=ID`. */
function openNamed() {
  const id = new URLSearchParams(location.hash.slice(1)).get("session");
  if (id) detail.open(id);
}

window.addEventListener("hashchange", openNamed);
openNamed();
start();
