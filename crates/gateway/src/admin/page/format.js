// Figures as people read them.

/** A size: 0 B, 12.3 KB, 456 MB. */
export function bytes(size) {
  return scaled(size, 1000, ["B", "KB", "MB", "GB", "TB"]);
}

/** An amount of memory, which is given in powers of two: 96.0 MiB, 1.0 GiB. */
export function memory(size) {
  return scaled(size, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

function scaled(size, step, units) {
  let unit = 0;
  let value = size;
  while (value >= step - 0.5 && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

/** Bytes a second. */
export function rate(perSecond) {
  return `${bytes(Math.round(perSecond))}/s`;
}

/** A number with its thousands apart. */
export function count(number) {
  return number.toLocaleString("en");
}

/** How long something takes or took: 0.4 ms, 40 ms, 3.2 s, 5 min, 2 h 10 min, 3 d 4 h. */
export function duration(milliseconds) {
  if (milliseconds > 0 && milliseconds < 9.95) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** An age: like a duration, without parts of a second. */
export function age(milliseconds) {
  return milliseconds < 10_000
    ? `${Math.max(0, Math.floor(milliseconds / 1000))} s`
    : duration(milliseconds);
}

/** A time of day, with the date if it was not today. */
export function clock(milliseconds, now) {
  const date = new Date(milliseconds);
  const time = date.toLocaleTimeString("en", { hour12: false });
  return date.toDateString() === new Date(now).toDateString()
    ? time
    : `${date.toLocaleDateString("en-CA")} ${time}`;
}
