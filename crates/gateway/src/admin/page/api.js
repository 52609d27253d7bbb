// The admin port's API: the token, questions, and following the state.

/** How often the state is asked for where the stream of events does not come through. */
const POLL = 2_000;

/** A stream that is silent for longer does not come through. */
const SILENT = 6_000;

/** Events are tried again after so long. */
const STREAM_AGAIN = 30_000;

const TOKEN = "breakbulk-admin-token";

/** An answer other than success; `status` 0 means that there was none. */
export class Failed extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Keeps the token for this tab. It is not a cookie, which every other port of this host would get, too. */
export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

async function ask(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, "The gateway does not answer.");
  }
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Failed(response.status, told.error ?? `The gateway answered ${response.status}.`);
  }
  return response;
}

export async function getState(signal) {
  return (await ask("api/state", { signal })).json();
}

export async function getSession(id, signal) {
  return (await ask(`api/sessions/${encodeURIComponent(id)}`, { signal })).json();
}

export async function closeSession(id) {
  await ask(`api/sessions/${encodeURIComponent(id)}/close`, { method: "POST" });
}

/**
 * Follows the state until `signal` aborts it or a token is needed (which is thrown). Calls `show` with each
 * state, and `tell` with "live", "polling" or "lost".
 */
export async function follow(signal, show, tell) {
  let streamAt = 0;
  while (!signal.aborted) {
    try {
      if (Date.now() >= streamAt) {
        await readEvents(signal, (state) => {
          tell("live");
          show(state);
        });
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      if (error instanceof Silent) streamAt = Date.now() + STREAM_AGAIN;
    }
    if (signal.aborted) return;
    try {
      show(await getState(signal));
      tell("polling");
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
      tell("lost");
    }
    await pause(POLL, signal);
  }
}

class Silent extends Error {}

/** Reads the stream of events to its end; EventSource could not send the token. */
async function readEvents(outer, show) {
  const inner = new AbortController();
  const stop = () => inner.abort();
  outer.addEventListener("abort", stop);
  let isSilent = false;
  const onSilence = () => {
    isSilent = true;
    inner.abort();
  };
  let watchdog = setTimeout(onSilence, SILENT);
  try {
    const response = await ask("api/events", { signal: inner.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(onSilence, SILENT);
      rest += value;
      const events = rest.split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const event of events) {
        const state = stateOf(event);
        if (state) show(state);
      }
    }
  } catch (error) {
    throw isSilent ? new Silent() : error;
  } finally {
    clearTimeout(watchdog);
    outer.removeEventListener("abort", stop);
  }
}

/** The state that an event brings; `undefined` for comments and other events. */
function stateOf(event) {
  let name = "message";
  const data = [];
  for (const line of event.split(/\r?\n/)) {
    const [, field, value] = /^([a-z]+): ?(.*)$/.exec(line) ?? [];
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
  return name === "state" && data.length > 0 ? JSON.parse(data.join("\n")) : undefined;
}

export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
