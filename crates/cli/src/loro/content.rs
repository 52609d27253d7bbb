//! Converts a document to JSON or a snapshot, and applies JSON or a snapshot to a document.

mod edit;
mod same;
mod text;

use breakbulk::loro::crdt::{
    Container, ContainerTrait, ContainerType, ExportMode, LoroDoc, LoroValue,
};
use serde_json::{Map, Value};

/// The roots of a document by name.
pub(super) fn to_json(doc: &LoroDoc) -> Result<Value, String> {
    serde_json::to_value(doc.get_deep_value()).map_err(|error| error.to_string())
}

/// A snapshot, with all history.
pub(super) fn to_snapshot(doc: &LoroDoc) -> Result<Vec<u8>, String> {
    doc.export(ExportMode::Snapshot)
        .map_err(|error| error.to_string())
}

/// Merges a snapshot, or updates, into a document.
pub(super) fn merge(doc: &LoroDoc, snapshot: &[u8]) -> Result<(), String> {
    doc.import(snapshot).map(drop).map_err(|error| {
        format!(
            "it is no snapshot of a loro document ({error}); if it is JSON, give it a name that ends in .json"
        )
    })
}

/// Whether the JSON can be the content of a document, as far as that can be told without it.
pub(super) fn check_json(json: &Value) -> Result<(), String> {
    let roots = roots(json)?;
    let wrong = |value: &Value| matches!(value, Value::Null | Value::Bool(_));
    match roots.iter().find(|(_, value)| wrong(value)) {
        Some((name, value)) => Err(no_root(name, value)),
        None => Ok(()),
    }
}

/// Changes a document to the content of this JSON, with as few edits as possible. Roots that the JSON
/// does not name stay as they are, and so does the kind of every container. Others see all edits at
/// once or, after an error, none.
pub(super) fn set_json(doc: &LoroDoc, json: &Value) -> Result<(), String> {
    // The document is shared with threads that commit it at any time, so that edits of it would be sent
    // one by one: a copy is edited instead.
    let copy = doc.fork();
    let before = copy.oplog_vv();
    edit_roots(&copy, roots(json)?)?;
    copy.commit();
    if copy.oplog_vv() == before {
        return Ok(());
    }
    let changes = copy.export(ExportMode::updates(&before));
    let changes = changes.map_err(|error| error.to_string())?;
    doc.import(&changes)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn roots(json: &Value) -> Result<&Map<String, Value>, String> {
    json.as_object().ok_or_else(|| {
        "the JSON is no object; write one whose members are the roots of the document".to_owned()
    })
}

fn edit_roots(doc: &LoroDoc, roots: &Map<String, Value>) -> Result<(), String> {
    let (LoroValue::Map(kinds), LoroValue::Map(contents)) = (doc.get_value(), doc.get_deep_value())
    else {
        return Err("the document has no roots".to_owned());
    };
    for (name, wanted) in roots {
        let known = match kinds.get(name) {
            Some(LoroValue::Container(id)) => doc.get_container(id.clone()),
            _ => None,
        };
        let set = match (known, contents.get(name)) {
            (Some(root), Some(content)) => edit::set(&root, content, wanted),
            _ => edit::fill(&new_root(doc, name, wanted)?, wanted),
        };
        set.map_err(|refused| format!("root {}", refused.within(name)))?;
    }
    Ok(())
}

fn new_root(doc: &LoroDoc, name: &str, wanted: &Value) -> Result<Container, String> {
    Ok(match wanted {
        Value::Object(_) => doc.get_map(name).to_container(),
        Value::Array(_) => doc.get_list(name).to_container(),
        Value::String(_) => doc.get_text(name).to_container(),
        _ => return Err(no_root(name, wanted)),
    })
}

fn no_root(name: &str, value: &Value) -> String {
    format!(
        "root {name:?} is {value}; a root is a map, a list or a text: an object, an array or a string"
    )
}

/// What a kind of container is called.
fn kind_name(kind: ContainerType) -> &'static str {
    match kind {
        ContainerType::Map => "map",
        ContainerType::List => "list",
        ContainerType::MovableList => "movable list",
        ContainerType::Text => "text",
        ContainerType::Tree => "tree",
        ContainerType::Counter => "counter",
        ContainerType::Unknown(_) => "container of a kind that this program does not know",
    }
}

#[cfg(test)]
mod tests;
