// One edit in each kind of container that loro has, as `src/containers.rs` makes them.

import { LoroMap } from "loro-crdt";

/** Nothing that two callers do with different names excludes each other. */
export function edit(doc, name) {
  doc.getText("text").insert(0, `${name} 漢🦀 `);
  doc.getMap("map").set(name, { by: name, numbers: [1, 2.5, -3], none: null, yes: true });
  doc.getList("list").push(name);
  const movable = doc.getMovableList("movable");
  movable.push(name);
  movable.push("moved");
  movable.move(movable.length - 1, 0);
  movable.set(0, `set by ${name}`);
  const root = doc.getTree("tree").createNode();
  root.data.set("name", name);
  root.createNode().data.set("name", `below ${name}`);
  doc.getCounter("counter").increment(2.5);
  doc.getMap("map").setContainer(`inner ${name}`, new LoroMap()).set("deep", name);
  doc.commit();
}
