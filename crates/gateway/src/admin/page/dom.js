// How the page is changed. Text of peers comes in by textContent alone, so that it never becomes markup, and
// without characters that hide or reorder what stands around them.

/** What `is_unsafe_to_show` of the crate breakbulk-net has, but line breaks and tabs. */
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

function visible(text) {
  return text.replace(INVISIBLE, "\ufffd");
}

/** An element with a class and a text. */
export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = visible(text);
  return made;
}

/** The element of the page with this id. */
export function at(id) {
  return document.getElementById(id);
}

/** Writes a text if it is another one: a reader's selection survives what did not change. */
export function setText(node, text) {
  const shown = visible(text);
  if (node.textContent !== shown) node.textContent = shown;
}

/** A cell of a table, with the name of its column for narrow screens. */
export function cell(label, className = "") {
  const made = element("td", className);
  made.setAttribute("role", "cell");
  made.dataset.label = label;
  return made;
}

/**
 * Makes the children of `parent` show `items`, in their order: a child for each key, which stays the same
 * element for as long as its key is there.
 */
export function showItems(parent, items, keyOf, make, update) {
  parent.shown ??= new Map();
  const gone = new Set(parent.shown.keys());
  let next = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    gone.delete(key);
    let node = parent.shown.get(key);
    if (!node) {
      node = make(item);
      parent.shown.set(key, node);
    }
    if (node === next) {
      next = next.nextSibling;
    } else {
      parent.insertBefore(node, next);
    }
    update(node, item);
  }
  for (const key of gone) {
    parent.shown.get(key).remove();
    parent.shown.delete(key);
  }
}
