// Rates, from the counters of one state and the next.

/** How many points a chart has. */
const POINTS = 120;

export class Rates {
  #before = new Map();
  #at = 0;
  #perSecond = new Map();
  /** Sums over all sessions, the newest last. */
  history = { in: [], out: [] };

  /** Takes the counters of a state. */
  add(state) {
    const seconds = (state.now - this.#at) / 1000;
    // The same state may come twice: by an event and by a poll.
    if (seconds <= 0.2) return;
    const now = new Map();
    const perSecond = new Map();
    // The counters of routes go on when sessions end.
    for (const [key, item] of [
      ...state.routes.map((route) => [`route ${route.id}`, route]),
      ...state.sessions.map((session) => [`session ${session.id}`, session]),
    ]) {
      const before = this.#before.get(key);
      // Bytes of frames: those of messages count only once a message is whole.
      const bytes = { in: item.in.frame_bytes, out: item.out.frame_bytes };
      now.set(key, bytes);
      perSecond.set(key, {
        in: before ? Math.max(0, bytes.in - before.in) / seconds : 0,
        out: before ? Math.max(0, bytes.out - before.out) / seconds : 0,
      });
    }
    const isFirst = this.#at === 0;
    this.#before = now;
    this.#perSecond = perSecond;
    this.#at = state.now;
    if (isFirst) return;
    for (const direction of ["in", "out"]) {
      const sum = state.routes.reduce((sum, route) => sum + this.route(route.id)[direction], 0);
      const points = this.history[direction];
      points.push(sum);
      if (points.length > POINTS) points.shift();
    }
  }

  route(id) {
    return this.#perSecond.get(`route ${id}`) ?? { in: 0, out: 0 };
  }

  session(id) {
    return this.#perSecond.get(`session ${id}`) ?? { in: 0, out: 0 };
  }

  /** The sum now. */
  total(direction) {
    return this.history[direction].at(-1) ?? 0;
  }
}

const SVG = "http://www.w3.org/2000/svg";

/** Draws a history as an area, the newest at the right edge; `most` is the height of the chart. */
export function draw(svg, points, most) {
  if (!svg.firstChild) svg.append(document.createElementNS(SVG, "polygon"));
  const x = (index) => POINTS - (points.length - 1 - index) * (POINTS / (POINTS - 1));
  const y = (value) => 31 - (most > 0 ? (value / most) * 29 : 0);
  const line = points.map((value, index) => `${x(index).toFixed(2)},${y(value).toFixed(2)}`);
  const area = points.length === 0 ? "" : `${x(0).toFixed(2)},32 ${line.join(" ")} ${POINTS},32`;
  svg.firstChild.setAttribute("points", area);
}
