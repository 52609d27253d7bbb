//! Documents of apps stay what they are when they are pulled, edited and pushed.

use breakbulk::loro::crdt::{
    ContainerType, LoroCounter, LoroList, LoroMap, LoroMovableList, LoroText, LoroTree,
};
use serde_json::json;

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
    for (json, word) in [(json!([1]), "no object"), (json!({"n": true}), "\"n\"")] {
        let error = check_json(&json).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    check_json(&json!({"n": 5, "s": "", "a": [], "o": {}})).unwrap();
    assert!(merge(&doc, b"{}").unwrap_err().contains(".json"));
    assert!(doc.oplog_vv().is_empty());
}

/// A document with every kind of container and value, as apps have them.
fn app() -> LoroDoc {
    let doc = LoroDoc::new();
    let cards = doc.get_movable_list("cards");
    for name in ["a", "b", "c"] {
        let card = cards.push_container(LoroMap::new()).unwrap();
        card.insert("name", name).unwrap();
        let text = card.insert_container("text", LoroText::new()).unwrap();
        text.insert(0, "what to do").unwrap();
    }
    let tree = doc.get_tree("tree");
    let top = tree.create(None).unwrap();
    tree.get_meta(top).unwrap().insert("name", "top").unwrap();
    tree.create(top).unwrap();
    doc.get_counter("count").increment(5.0).unwrap();
    doc.get_text("text").insert(0, "bold and plain").unwrap();
    doc.get_text("text").mark(0..4, "bold", true).unwrap();
    doc.get_list("list").push("x").unwrap();
    let map = doc.get_map("map");
    map.insert("bytes", vec![1_u8, 2, 255]).unwrap();
    map.insert("float", 5.0).unwrap();
    map.insert("plain", LoroValue::from(json!({"list": [1, {"x": null}]})))
        .unwrap();
    map.insert("nothing", f64::NAN).unwrap();
    let inner = map.insert_container("tree", LoroTree::new()).unwrap();
    inner.create(None).unwrap();
    let count = map.insert_container("count", LoroCounter::new()).unwrap();
    count.increment(1.5).unwrap();
    let list = map
        .insert_container("movable", LoroMovableList::new())
        .unwrap();
    list.push(1).unwrap();
    let todos = map.insert_container("todos", LoroList::new()).unwrap();
    let todo = todos.push_container(LoroMap::new()).unwrap();
    todo.insert_container("text", LoroText::new()).unwrap();
    doc.commit();
    doc
}

/// The kinds of all containers that the document has, by their names or by what they are in.
fn kinds(doc: &LoroDoc) -> Vec<(String, ContainerType)> {
    fn look(value: &LoroValue, path: &str, found: &mut Vec<(String, ContainerType)>) {
        let LoroValue::Map(members) = value else {
            if let LoroValue::List(items) = value {
                for (at, item) in items.iter().enumerate() {
                    look(item, &format!("{path}/{at}"), found);
                }
            }
            return;
        };
        if let Some(LoroValue::String(id)) = members.get("cid") {
            let id: breakbulk::loro::crdt::ContainerID = id.as_str().try_into().unwrap();
            found.push((path.to_owned(), id.container_type()));
        }
        for (name, value) in members.iter() {
            let path = match name.as_str() {
                "value" => path.to_owned(),
                name => format!("{path}/{name}"),
            };
            look(value, &path, found);
        }
    }
    let mut found = Vec::new();
    look(&doc.get_deep_value_with_id(), "", &mut found);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// As JavaScript writes the JSON of another program: 5.0 as 5.
fn reformatted(json: &Value) -> Value {
    match json {
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 => json!(float as i64),
            _ => json.clone(),
        },
        Value::Array(items) => items.iter().map(reformatted).collect(),
        Value::Object(members) => {
            let members = members.iter();
            Value::Object(members.map(|(k, v)| (k.clone(), reformatted(v))).collect())
        }
        other => other.clone(),
    }
}

// LORO-31
#[test]
fn an_apps_document_that_comes_back_unchanged_is_not_touched() {
    let doc = app();
    let before = doc.oplog_vv();
    let json = to_json(&doc).unwrap();
    for json in [&json, &reformatted(&json)] {
        set_json(&doc, json).unwrap();
        assert_eq!(doc.oplog_vv(), before);
    }
}

// LORO-31
#[test]
fn edits_keep_the_kind_of_every_container() {
    let edits: &[(&str, Value)] = &[
        ("/count", json!(-2.5)),
        ("/text", json!("bold and plainer")),
        ("/list", json!(["y", "x", {"new": 1}])),
        ("/cards/1/text", json!("what was done")),
        ("/cards/0/name", json!("z")),
        ("/map/count", json!(3)),
        ("/map/movable", json!([2, 1, 3])),
        ("/map/float", json!(6.25)),
        ("/map/plain/list/1/x", json!("now")),
        ("/map/plain/list/0", json!([])),
        ("/map/todos/0/text", json!("first")),
    ];
    let doc = app();
    let kinds_before = kinds(&doc);
    assert!(kinds_before.len() > 12, "{kinds_before:?}");
    for (at, new) in edits {
        let mut json = to_json(&doc).unwrap();
        *json.pointer_mut(at).unwrap() = new.clone();
        set_json(&doc, &json).unwrap_or_else(|error| panic!("{at}: {error}"));
        let now = to_json(&doc).unwrap();
        assert_eq!(reformatted(&now), reformatted(&json), "{at}");
    }
    let mut kinds_now = kinds(&doc);
    kinds_now.retain(|(path, _)| !path.starts_with("/list/"));
    assert_eq!(kinds_now, kinds_before);
    // Formatting stays where the text does.
    let delta = serde_json::to_string(&doc.get_text("text").get_richtext_value()).unwrap();
    assert!(delta.contains("bold\":true"), "{delta}");
    // Bytes stay bytes.
    let bytes = doc.get_map("map").get("bytes").unwrap().get_deep_value();
    assert!(matches!(bytes, LoroValue::Binary(_)), "{bytes:?}");
}

#[test]
fn moved_items_are_the_same_items() {
    let doc = app();
    let cards = doc.get_movable_list("cards");
    let id = |at| match cards.get(at).unwrap() {
        breakbulk::loro::crdt::ValueOrContainer::Container(card) => card.id(),
        value => panic!("{value:?}"),
    };
    let before = [id(0), id(1), id(2)];
    let mut json = to_json(&doc).unwrap();
    let items = json.pointer_mut("/cards").unwrap().as_array_mut().unwrap();
    items.rotate_right(1);
    set_json(&doc, &json).unwrap();
    assert_eq!(to_json(&doc).unwrap(), json);
    assert_eq!([id(1), id(2), id(0)], before);
}

// LORO-31
#[test]
fn what_json_cannot_express_is_refused_by_name_and_changes_nothing() {
    let doc = app();
    let before = doc.oplog_vv();
    let cases: &[(&str, Value, &str)] = &[
        (
            "/tree/0/meta/name",
            json!("other"),
            "root \"tree\": it is a tree",
        ),
        ("/tree", json!([]), "root \"tree\": it is a tree"),
        (
            "/map/tree",
            json!([]),
            "root \"map\" / \"tree\": it is a tree",
        ),
        (
            "/map/bytes/0",
            json!(7),
            "root \"map\" / \"bytes\": it is binary",
        ),
        (
            "/cards",
            json!({}),
            "root \"cards\": it is a movable list, and the JSON has an object",
        ),
        (
            "/count",
            json!("5"),
            "root \"count\": it is a counter, and the JSON has a string",
        ),
        (
            "/text",
            json!(["x"]),
            "root \"text\": it is a text, and the JSON has an array",
        ),
        (
            "/text",
            json!(null),
            "root \"text\": it is a text, and the JSON has null",
        ),
    ];
    for (at, new, told) in cases {
        let mut json = to_json(&doc).unwrap();
        // Another change, which comes first or last and is not made either.
        json["a"] = json!("new");
        json["z"] = json!("new");
        *json.pointer_mut(at).unwrap() = new.clone();
        let error = set_json(&doc, &json).unwrap_err();
        assert!(error.starts_with(told), "{at}: {error}");
        assert_eq!(doc.oplog_vv(), before, "{at}");
    }
}

// LORO-31
#[test]
fn a_push_is_seen_at_once_or_not_at_all() {
    use std::sync::{Arc, Mutex};

    let doc = LoroDoc::new();
    set_json(&doc, &json!({"a": "1", "b": "1", "c": {"d": 1}})).unwrap();
    let states = Arc::new(Mutex::new(Vec::new()));
    let (seen, of) = (states.clone(), doc.clone());
    let _subscription = doc.subscribe_root(Arc::new(move |_| {
        seen.lock().unwrap().push(to_json(&of).unwrap());
    }));
    // Whoever reads the document commits what is pending, as the threads of a node do.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let other = doc.clone();
    let reading = std::thread::spawn(move || {
        while stopped.try_recv().is_err() {
            other.commit();
        }
    });
    let mut wanted = Vec::new();
    for number in 2..100 {
        let text = number.to_string();
        let json = json!({"a": text, "b": text, "c": {"d": number}});
        set_json(&doc, &json).unwrap();
        wanted.push(json);
    }
    stop.send(()).unwrap();
    reading.join().unwrap();
    assert_eq!(*states.lock().unwrap(), wanted);
}
