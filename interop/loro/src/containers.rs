//! One edit in each kind of container that loro has, as `repo/containers.mjs` makes them.

use anyhow::Result;
use loro::{LoroDoc, LoroMap, LoroValue, TreeParentId};

/// Edits that callers with different names make do not conflict.
pub fn edit(doc: &LoroDoc, name: &str) -> Result<()> {
    doc.get_text("text").insert(0, &format!("{name} 漢🦀 "))?;
    let map = doc.get_map("map");
    map.insert(name, value(name))?;
    doc.get_list("list").push(name)?;
    let movable = doc.get_movable_list("movable");
    movable.push(name)?;
    movable.push("moved")?;
    movable.mov(movable.len() - 1, 0)?;
    movable.set(0, format!("set by {name}"))?;
    let tree = doc.get_tree("tree");
    let root = tree.create(TreeParentId::Root)?;
    tree.get_meta(root)?.insert("name", name)?;
    let below = tree.create(TreeParentId::Node(root))?;
    tree.get_meta(below)?
        .insert("name", format!("below {name}"))?;
    doc.get_counter("counter").increment(2.5)?;
    let inner = map.insert_container(&format!("inner {name}"), LoroMap::new())?;
    inner.insert("deep", name)?;
    doc.commit();
    Ok(())
}

fn value(name: &str) -> LoroValue {
    serde_json::json!({"by": name, "numbers": [1, 2.5, -3], "none": null, "yes": true}).into()
}
