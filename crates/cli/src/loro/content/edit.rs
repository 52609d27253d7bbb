//! Edits a container until it has the content of a JSON value. Containers keep their kind, and what is
//! there already is not touched.

use std::fmt;

use breakbulk::loro::crdt::{
    Container, ContainerTrait, LoroError, LoroList, LoroMap, LoroMapValue, LoroMovableList,
    LoroResult, LoroValue, ValueOrContainer,
};
use serde_json::{Map, Value};

use super::kind_name;
use super::same::same;

/// Items among which moved ones are looked for; of more, changed items are replaced.
const MOVES_MAX: usize = 1000;

/// Why a value cannot be set, and where.
#[derive(Debug)]
pub(super) struct Refused {
    /// The members and items on the way to it, the innermost first.
    path: Vec<String>,
    why: String,
}

impl Refused {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self {
            path: Vec::new(),
            why: why.into(),
        }
    }

    /// Adds the name by which the container around it knows the value.
    pub(super) fn within(mut self, name: impl fmt::Debug) -> Self {
        self.path.push(format!("{name:?}"));
        self
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: Vec<&str> = self.path.iter().rev().map(String::as_str).collect();
        write!(f, "{}: {}", path.join(" / "), self.why)
    }
}

impl From<LoroError> for Refused {
    fn from(error: LoroError) -> Self {
        Self::new(error.to_string())
    }
}

pub(super) type Set = Result<(), Refused>;

/// Gives a container the content of a JSON value. `current` is its content, with that of all containers
/// in it.
pub(super) fn set(container: &Container, current: &LoroValue, wanted: &Value) -> Set {
    if same(current, wanted) {
        return Ok(());
    }
    match (container, current, wanted) {
        (Container::Map(map), LoroValue::Map(current), Value::Object(members)) => {
            set_map(map, current, members)
        }
        (Container::List(list), LoroValue::List(current), Value::Array(items)) => {
            set_items(list, current, items)
        }
        (Container::MovableList(list), LoroValue::List(current), Value::Array(items)) => {
            let mut current = current.to_vec();
            move_items(list, &mut current, items)?;
            set_items(list, &current, items)
        }
        (Container::Text(text), _, Value::String(wanted)) => super::text::set(text, wanted),
        (Container::Counter(counter), _, Value::Number(number)) => {
            let wanted = number.as_f64().unwrap_or_default();
            Ok(counter.increment(wanted - counter.get_value())?)
        }
        _ => Err(unfit(container, wanted)),
    }
}

/// Fills a new container.
pub(super) fn fill(container: &Container, wanted: &Value) -> Set {
    let nothing = match container {
        Container::Map(_) => LoroValue::Map(Default::default()),
        Container::Text(_) => LoroValue::String(Default::default()),
        _ => LoroValue::List(Default::default()),
    };
    set(container, &nothing, wanted)
}

/// Whether a container can have the content of this JSON value.
fn fits(container: &Container, wanted: &Value) -> bool {
    matches!(
        (container, wanted),
        (Container::Map(_), Value::Object(_))
            | (
                Container::List(_) | Container::MovableList(_),
                Value::Array(_)
            )
            | (Container::Text(_), Value::String(_))
            | (Container::Counter(_), Value::Number(_))
    )
}

fn unfit(container: &Container, wanted: &Value) -> Refused {
    let kind = kind_name(container.id().container_type());
    if matches!(container, Container::Tree(_) | Container::Unknown(_)) {
        return Refused::new(format!(
            "it is a {kind}, which JSON cannot change: leave it as it is, or push a snapshot"
        ));
    }
    let found = match wanted {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    Refused::new(format!(
        "it is a {kind}, and the JSON has {found}: a root keeps its kind; use another name"
    ))
}

/// What has to be done so that a member or an item has the content of a JSON value.
enum Change {
    Nothing,
    /// Edit the container that is there.
    Inside(Container),
    /// Put a plain value there.
    Plain(LoroValue),
    /// Put a map there.
    Map,
    /// Put a list there.
    List,
}

/// `current` is what is there, and its content.
fn change(
    current: Option<(&ValueOrContainer, &LoroValue)>,
    wanted: &Value,
) -> Result<Change, Refused> {
    if current.is_some_and(|(_, content)| same(content, wanted)) {
        return Ok(Change::Nothing);
    }
    match current.map(|(current, _)| current) {
        Some(ValueOrContainer::Container(inner)) if fits(inner, wanted) => {
            return Ok(Change::Inside(inner.clone()));
        }
        Some(ValueOrContainer::Container(inner @ Container::Tree(_))) if wanted.is_array() => {
            return Err(unfit(inner, wanted));
        }
        Some(ValueOrContainer::Container(inner @ Container::Unknown(_))) => {
            return Err(unfit(inner, wanted));
        }
        // Apps that keep plain values read plain values.
        Some(ValueOrContainer::Value(
            value @ (LoroValue::Map(_) | LoroValue::List(_) | LoroValue::Binary(_)),
        )) => return plain(value, wanted).map(Change::Plain),
        _ => {}
    }
    Ok(match wanted {
        Value::Object(_) => Change::Map,
        Value::Array(_) => Change::List,
        plain => Change::Plain(LoroValue::from(plain.clone())),
    })
}

/// The JSON as a plain value; its parts that are as they were stay so, bytes and numbers too.
fn plain(current: &LoroValue, wanted: &Value) -> Result<LoroValue, Refused> {
    if same(current, wanted) {
        return Ok(current.clone());
    }
    Ok(match (current, wanted) {
        (LoroValue::Binary(_), Value::Array(_)) => {
            let why =
                "it is binary, which JSON cannot change: leave it as it is, or push a snapshot";
            return Err(Refused::new(why));
        }
        (LoroValue::Map(members), Value::Object(wanted)) => {
            let mut map = Vec::with_capacity(wanted.len());
            for (name, wanted) in wanted {
                let member = plain(members.get(name).unwrap_or(&LoroValue::Null), wanted);
                map.push((name.clone(), member.map_err(|error| error.within(name))?));
            }
            LoroValue::Map(map.into())
        }
        (LoroValue::List(items), Value::Array(wanted)) => {
            let mut list = Vec::with_capacity(wanted.len());
            for (at, wanted) in wanted.iter().enumerate() {
                let item = plain(items.get(at).unwrap_or(&LoroValue::Null), wanted);
                list.push(item.map_err(|error| error.within(at))?);
            }
            LoroValue::List(list.into())
        }
        (_, wanted) => LoroValue::from(wanted.clone()),
    })
}

fn set_map(map: &LoroMap, current: &LoroMapValue, members: &Map<String, Value>) -> Set {
    for key in current.keys().filter(|key| !members.contains_key(*key)) {
        map.delete(key)?;
    }
    for (key, wanted) in members {
        let content = current.get(key);
        set_member(map, key, content, wanted).map_err(|error| error.within(key))?;
    }
    Ok(())
}

fn set_member(map: &LoroMap, key: &str, content: Option<&LoroValue>, wanted: &Value) -> Set {
    let current = map.get(key);
    let current = current.as_ref().zip(content);
    match (change(current, wanted)?, current) {
        (Change::Inside(inner), Some((_, content))) => set(&inner, content, wanted),
        (Change::Nothing | Change::Inside(_), _) => Ok(()),
        (Change::Plain(value), _) => Ok(map.insert(key, value)?),
        (Change::Map, _) => {
            let new = map.insert_container(key, LoroMap::new())?;
            fill(&new.to_container(), wanted)
        }
        (Change::List, _) => {
            let new = map.insert_container(key, LoroList::new())?;
            fill(&new.to_container(), wanted)
        }
    }
}

/// What a list and a movable list have in common.
trait Items {
    fn get(&self, at: usize) -> Option<ValueOrContainer>;
    fn delete(&self, at: usize, count: usize) -> LoroResult<()>;
    fn insert(&self, at: usize, value: LoroValue) -> LoroResult<()>;
    fn insert_container<C: ContainerTrait>(&self, at: usize, new: C) -> LoroResult<C>;
    fn replace(&self, at: usize, value: LoroValue) -> LoroResult<()>;
    fn replace_container<C: ContainerTrait>(&self, at: usize, new: C) -> LoroResult<C>;
}

impl Items for LoroList {
    fn get(&self, at: usize) -> Option<ValueOrContainer> {
        self.get(at)
    }

    fn delete(&self, at: usize, count: usize) -> LoroResult<()> {
        self.delete(at, count)
    }

    fn insert(&self, at: usize, value: LoroValue) -> LoroResult<()> {
        self.insert(at, value)
    }

    fn insert_container<C: ContainerTrait>(&self, at: usize, new: C) -> LoroResult<C> {
        self.insert_container(at, new)
    }

    fn replace(&self, at: usize, value: LoroValue) -> LoroResult<()> {
        self.delete(at, 1)?;
        self.insert(at, value)
    }

    fn replace_container<C: ContainerTrait>(&self, at: usize, new: C) -> LoroResult<C> {
        self.delete(at, 1)?;
        self.insert_container(at, new)
    }
}

impl Items for LoroMovableList {
    fn get(&self, at: usize) -> Option<ValueOrContainer> {
        self.get(at)
    }

    fn delete(&self, at: usize, count: usize) -> LoroResult<()> {
        self.delete(at, count)
    }

    fn insert(&self, at: usize, value: LoroValue) -> LoroResult<()> {
        self.insert(at, value)
    }

    fn insert_container<C: ContainerTrait>(&self, at: usize, new: C) -> LoroResult<C> {
        self.insert_container(at, new)
    }

    fn replace(&self, at: usize, value: LoroValue) -> LoroResult<()> {
        self.set(at, value)
    }

    fn replace_container<C: ContainerTrait>(&self, at: usize, new: C) -> LoroResult<C> {
        self.set_container(at, new)
    }
}

/// How many items are the same at the beginning and at the end.
fn same_ends(current: &[LoroValue], items: &[Value]) -> (usize, usize) {
    let pairs = current.iter().zip(items);
    let head = pairs.take_while(|(value, item)| same(value, item)).count();
    let pairs = current[head..].iter().rev().zip(items[head..].iter().rev());
    let tail = pairs.take_while(|(value, item)| same(value, item)).count();
    (head, tail)
}

/// Moves items to where the JSON has them, so that they stay the same items.
fn move_items(list: &LoroMovableList, current: &mut [LoroValue], items: &[Value]) -> Set {
    let (head, tail) = same_ends(current, items);
    let end = current.len() - tail;
    let current = &mut current[head..end];
    let wanted = &items[head..items.len() - tail];
    if current.len().max(wanted.len()) > MOVES_MAX {
        return Ok(());
    }
    for (to, item) in wanted.iter().enumerate() {
        if current.get(to).is_none_or(|current| same(current, item)) {
            continue;
        }
        let stays = |at: usize| wanted.get(at).is_some_and(|item| same(&current[at], item));
        let mut later = to + 1..current.len();
        if let Some(from) = later.find(|at| same(&current[*at], item) && !stays(*at)) {
            list.mov(head + from, head + to)?;
            current[to..=from].rotate_right(1);
        }
    }
    Ok(())
}

/// Keeps the items that are the same at both ends, edits those between in their places, and inserts or
/// deletes the rest.
fn set_items(list: &impl Items, current: &[LoroValue], items: &[Value]) -> Set {
    let (head, tail) = same_ends(current, items);
    let (old, new) = (current.len() - head - tail, items.len() - head - tail);
    for (at, wanted) in items.iter().enumerate().skip(head).take(new) {
        let set = match at < head + old {
            true => set_item(list, at, &current[at], wanted),
            false => insert_item(list, at, wanted),
        };
        set.map_err(|error| error.within(at))?;
    }
    if old > new {
        list.delete(head + new, old - new)?;
    }
    Ok(())
}

fn set_item(list: &impl Items, at: usize, content: &LoroValue, wanted: &Value) -> Set {
    let current = list.get(at);
    match change(current.as_ref().map(|current| (current, content)), wanted)? {
        Change::Nothing => Ok(()),
        Change::Inside(inner) => set(&inner, content, wanted),
        Change::Plain(value) => Ok(list.replace(at, value)?),
        Change::Map => {
            let new = list.replace_container(at, LoroMap::new())?;
            fill(&new.to_container(), wanted)
        }
        Change::List => {
            let new = list.replace_container(at, LoroList::new())?;
            fill(&new.to_container(), wanted)
        }
    }
}

fn insert_item(list: &impl Items, at: usize, wanted: &Value) -> Set {
    match wanted {
        Value::Object(_) => {
            let new = list.insert_container(at, LoroMap::new())?;
            fill(&new.to_container(), wanted)
        }
        Value::Array(_) => {
            let new = list.insert_container(at, LoroList::new())?;
            fill(&new.to_container(), wanted)
        }
        plain => Ok(list.insert(at, LoroValue::from(plain.clone()))?),
    }
}
