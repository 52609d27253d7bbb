// Documents for the tests: large ones, edits that can be told apart, and digests of what is in them.

/** Bytes of text that are inserted at once. */
const CHUNK = 40_000;
/** Two of them are longer in UTF-8; nothing that packs well. */
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789é漢";

/** Numbers below `2 ** 32` that a seed brings back. */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    // The low bits of such numbers have short periods.
    return (state ^ (state >>> 15)) >>> 0;
  };
}

/** Fills a document with so many bytes of text, and some entries beside. */
export function fill(doc, { bytes, seed }) {
  const next = random(seed);
  const text = doc.getText("text");
  let left = bytes;
  while (left > 0) {
    let chunk = "";
    let size = 0;
    while (size < Math.min(CHUNK, left)) {
      const letter = LETTERS[(next() >>> 7) & 63];
      chunk += letter;
      size += letter < "\x80" ? 1 : letter < "\u0800" ? 2 : 3;
    }
    text.insert(next() & 1024 ? 0 : text.length, chunk);
    left -= size;
  }
  for (let number = 0; number < 100; number++) {
    doc.getList("list").push(`entry ${number} 🦀`);
    doc.getMap("map").set(`key ${number}`, next());
  }
  doc.commit();
}

/** One edit that no other is like: an entry in a list and in a map, and a letter somewhere in a text. */
export function edit(doc, name, number, next) {
  const entry = `${name} ${number}`;
  const [list, text] = [doc.getList("list"), doc.getText("text")];
  list.insert(next() % (list.length + 1), entry);
  doc.getMap("map").set(entry, number);
  text.insert(next() % (text.length + 1), LETTERS[next() % 52]);
  doc.commit();
}

/** SHA-256 of the document's state as JSON with sorted keys. */
export async function digest(doc) {
  const json = new TextEncoder().encode(JSON.stringify(sorted(doc.toJSON())));
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", json));
  const hex = Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { bytes: json.length, sha256: hex };
}

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value === null || typeof value !== "object") return value;
  const keys = Object.keys(value).sort();
  return Object.fromEntries(keys.map((key) => [key, sorted(value[key])]));
}
