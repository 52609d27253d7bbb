//! Converts a document to JSON or a snapshot, and applies JSON or a snapshot to a document.

use breakbulk::loro::crdt::{
    Container, ExportMode, LoroDoc, LoroList, LoroMap, LoroText, LoroValue, ValueOrContainer,
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
            "it is no snapshot of a loro document ({error}); JSON goes by a name that ends in .json"
        )
    })
}

/// Changes a document to the content of this JSON, with as few edits as possible. Roots that the JSON
/// does not name stay as they are.
pub(super) fn set_json(doc: &LoroDoc, json: &Value) -> Result<(), String> {
    let Value::Object(roots) = json else {
        return Err("the JSON is no object; its members are the roots of the document".to_owned());
    };
    // Check all roots before anything is changed.
    for (name, value) in roots {
        if !matches!(value, Value::Object(_) | Value::Array(_) | Value::String(_)) {
            return Err(format!(
                "root {name:?} is {value}; a root is a map, a list or a text: an object, an array or a string"
            ));
        }
    }
    for (name, value) in roots {
        let set = match value {
            Value::Object(members) => set_map(&doc.get_map(name.as_str()), members),
            Value::Array(items) => set_list(&doc.get_list(name.as_str()), items),
            Value::String(text) => set_text(&doc.get_text(name.as_str()), text),
            _ => Ok(()),
        };
        set.map_err(|error| format!("root {name:?}: {error}"))?;
    }
    Ok(())
}

type Set = Result<(), String>;

fn set_map(map: &LoroMap, members: &Map<String, Value>) -> Set {
    let gone: Vec<_> = map
        .keys()
        .filter(|key| !members.contains_key(key.as_str()))
        .collect();
    for key in gone {
        map.delete(&key).map_err(to_text)?;
    }
    for (key, value) in members {
        if let Some(current) = map.get(key)
            && equals(&current, value)
        {
            continue;
        }
        match (map.get(key), value) {
            (Some(ValueOrContainer::Container(Container::Map(inner))), Value::Object(members)) => {
                set_map(&inner, members)?;
            }
            (Some(ValueOrContainer::Container(Container::List(inner))), Value::Array(items)) => {
                set_list(&inner, items)?;
            }
            (Some(ValueOrContainer::Container(Container::Text(inner))), Value::String(text)) => {
                set_text(&inner, text)?;
            }
            (_, Value::Object(members)) => {
                let inner = map.insert_container(key, LoroMap::new()).map_err(to_text)?;
                set_map(&inner, members)?;
            }
            (_, Value::Array(items)) => {
                let inner = map
                    .insert_container(key, LoroList::new())
                    .map_err(to_text)?;
                set_list(&inner, items)?;
            }
            (_, plain) => map
                .insert(key, LoroValue::from(plain.clone()))
                .map_err(to_text)?,
        }
    }
    Ok(())
}

/// Keeps the equal items at both ends, and replaces those between.
fn set_list(list: &LoroList, items: &[Value]) -> Set {
    let same = |at: usize, item: &Value| list.get(at).is_some_and(|current| equals(&current, item));
    let old = list.len();
    let most = old.min(items.len());
    let head = (0..most).take_while(|at| same(*at, &items[*at])).count();
    let tail = (1..=most - head)
        .take_while(|back| same(old - back, &items[items.len() - back]))
        .count();
    list.delete(head, old - head - tail).map_err(to_text)?;
    for (index, item) in items[head..items.len() - tail].iter().enumerate() {
        let at = head + index;
        match item {
            Value::Object(members) => {
                let inner = list.insert_container(at, LoroMap::new()).map_err(to_text)?;
                set_map(&inner, members)?;
            }
            Value::Array(items) => {
                let inner = list
                    .insert_container(at, LoroList::new())
                    .map_err(to_text)?;
                set_list(&inner, items)?;
            }
            plain => list
                .insert(at, LoroValue::from(plain.clone()))
                .map_err(to_text)?,
        }
    }
    Ok(())
}

fn set_text(text: &LoroText, wanted: &str) -> Set {
    text.update(wanted, Default::default())
        .map_err(|error| format!("{error:?}"))
}

fn equals(current: &ValueOrContainer, value: &Value) -> bool {
    serde_json::to_value(current.get_deep_value()).is_ok_and(|current| current == *value)
}

fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_comes_back_as_it_went_in_and_changes_are_small() {
        let doc = LoroDoc::new();
        for text in [
            r#"{"text":"héllo","map":{"a":1,"b":[1,2,{"c":null}],"d":"x"},"list":[1.5,true,"é"]}"#,
            r#"{"text":"hello wörld","map":{"b":[1,2,3,{"c":null}],"d":{"e":[]}},"list":[]}"#,
            r#"{"text":"","map":{},"list":[[["deep"]]]}"#,
        ] {
            let json: Value = serde_json::from_str(text).unwrap();
            set_json(&doc, &json).unwrap();
            assert_eq!(to_json(&doc).unwrap(), json);
            let before = doc.oplog_vv();
            set_json(&doc, &json).unwrap();
            doc.commit();
            assert_eq!(doc.oplog_vv(), before, "what is there already is no change");
        }
        let copy = LoroDoc::new();
        merge(&copy, &to_snapshot(&doc).unwrap()).unwrap();
        assert_eq!(to_json(&copy).unwrap(), to_json(&doc).unwrap());
    }

    #[test]
    fn what_is_no_document_changes_nothing() {
        let doc = LoroDoc::new();
        for (text, word) in [("[1]", "no object"), (r#"{"a":"x","n":5}"#, "\"n\"")] {
            let json: Value = serde_json::from_str(text).unwrap();
            let error = set_json(&doc, &json).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(merge(&doc, b"{}").unwrap_err().contains(".json"));
        assert!(doc.oplog_vv().is_empty());
    }
}
