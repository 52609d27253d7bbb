//! The states of containers in a snapshot, as `loro` writes them: a value, a list of peers, and tables that
//! say who made which part of the value. `loro` decodes a state when a change first needs it, and then
//! allocates every row of its tables, so that 30 bytes could end the process.

use super::columns::{Values, check_positions, open_table, rows};
use super::{Left, Oversized, take, take_bytes, take_number};

/// About how many bytes `loro` allocates for each.
const VALUE: u64 = 16;
const ENTRY: u64 = 96;
const LIST_ROW: u64 = 96;
const MOVABLE_ROW: u64 = 160;
const SPAN: u64 = 112;
const MARK: u64 = 160;
const NODE: u64 = 320;

/// The kinds of containers.
const MAP: u8 = 0;
const LIST: u8 = 1;
const TEXT: u8 = 2;
const TREE: u8 = 3;
const MOVABLE_LIST: u8 = 4;

/// Checks the state of one container.
pub(super) fn check(state: &[u8], left: &mut Left) -> Result<(), Oversized> {
    let mut rest = state;
    if rest.is_empty() {
        return Ok(());
    }
    let kind = take(&mut rest, 1)?[0];
    // The depth of its nesting.
    take_number(&mut rest)?;
    if take(&mut rest, 1)?[0] != 0 {
        take_container(&mut rest)?;
    }
    match kind {
        MAP => check_map(&mut rest, left),
        LIST => check_list(&mut rest, left),
        TEXT => check_text(&mut rest, left),
        TREE => check_tree(&mut rest, left),
        MOVABLE_LIST => check_movable_list(&mut rest, left),
        // A number, or a kind that this version of `loro` does not read.
        _ => Ok(()),
    }
}

fn check_map(rest: &mut &[u8], left: &mut Left) -> Result<(), Oversized> {
    check_collection(rest, true, left)?;
    // The keys without a value; only numbers follow them.
    check_strings(rest, left)
}

fn check_list(rest: &mut &[u8], left: &mut Left) -> Result<(), Oversized> {
    let count = check_collection(rest, false, left)?;
    take_peers(rest)?;
    take_fields(rest, 1)?;
    let ids = rows(&open_table(rest, 3)?, &[Values::Numbers; 3])?;
    if ids != count {
        return Err(Oversized::Malformed);
    }
    left.take(ids, LIST_ROW)
}

fn check_movable_list(rest: &mut &[u8], left: &mut Left) -> Result<(), Oversized> {
    use Values::{Flags, Numbers};
    let count = check_collection(rest, false, left)?;
    take_peers(rest)?;
    take_fields(rest, 4)?;
    // One for each value, and one before the first.
    let items = rows(&open_table(rest, 3)?, &[Numbers, Flags, Flags])?;
    if items > count.saturating_add(1) {
        return Err(Oversized::Malformed);
    }
    // A position from which a value was moved away has an id too, and nothing else.
    let mut ids = rows(&open_table(rest, 3)?, &[Numbers; 3])?;
    for _ in 0..2 {
        ids = ids.saturating_add(rows(&open_table(rest, 2)?, &[Numbers; 2])?);
    }
    left.take(ids, MOVABLE_ROW)
}

fn check_text(rest: &mut &[u8], left: &mut Left) -> Result<(), Oversized> {
    let text = take_bytes(rest)?.len() as u64;
    take_peers(rest)?;
    take_fields(rest, 3)?;
    let spans = rows(&open_table(rest, 4)?, &[Values::Numbers; 4])?;
    check_strings(rest, left)?;
    let marks = take_number(rest)?;
    // Each span has a character, or begins or ends a mark.
    if marks > rest.len() as u64 || spans > text + 2 * marks {
        return Err(Oversized::Malformed);
    }
    left.take(spans, SPAN)?;
    left.take(marks, MARK)?;
    // For each span `loro` counts the characters of all spans after it.
    left.work(spans.saturating_mul(text) / 2)?;
    for _ in 0..marks {
        take_fields(rest, 3)?;
        take_number(rest)?;
        check_value(rest, left)?;
        take(rest, 1)?;
    }
    Ok(())
}

fn check_tree(rest: &mut &[u8], left: &mut Left) -> Result<(), Oversized> {
    use Values::{Numbers, Plain};
    take_peers(rest)?;
    take_fields(rest, 4)?;
    let ids = rows(&open_table(rest, 2)?, &[Numbers; 2])?;
    let columns = open_table(rest, 5)?;
    let nodes = rows(&columns, &[Numbers, Numbers, Numbers, Numbers, Plain])?;
    // The position of each node among its siblings has at least one byte.
    if ids != nodes || nodes != rows(&columns[4..], &[Plain])? {
        return Err(Oversized::Malformed);
    }
    left.take(nodes, NODE)?;
    check_positions(take_bytes(rest)?, left)
}

/// The values of a list or map, without its kind; returns how many there are.
fn check_collection(rest: &mut &[u8], is_map: bool, left: &mut Left) -> Result<u64, Oversized> {
    let count = take_number(rest)?;
    check_nested(rest, open(count, is_map, rest, left)?, left)?;
    Ok(count)
}

/// A list or map whose values follow.
struct Open {
    left: u64,
    is_map: bool,
}

fn open(count: u64, is_map: bool, rest: &[u8], left: &mut Left) -> Result<Open, Oversized> {
    // Each value has at least one byte.
    if count > rest.len() as u64 {
        return Err(Oversized::Malformed);
    }
    left.take(count, if is_map { ENTRY } else { VALUE })?;
    Ok(Open {
        left: count,
        is_map,
    })
}

fn check_nested(rest: &mut &[u8], first: Open, left: &mut Left) -> Result<(), Oversized> {
    let mut nested = vec![first];
    while let Some(last) = nested.last_mut() {
        if last.left == 0 {
            nested.pop();
            continue;
        }
        last.left -= 1;
        if last.is_map {
            take_bytes(rest)?;
        }
        nested.extend(take_value(rest, left)?);
    }
    Ok(())
}

fn check_value(rest: &mut &[u8], left: &mut Left) -> Result<(), Oversized> {
    match take_value(rest, left)? {
        Some(collection) => check_nested(rest, collection, left),
        None => Ok(()),
    }
}

/// A value with its kind before it; of a list or map only its length.
fn take_value(rest: &mut &[u8], left: &mut Left) -> Result<Option<Open>, Oversized> {
    match take(rest, 1)?[0] {
        0 => {}
        1 => drop(take(rest, 1)?),
        2 => drop(take(rest, 8)?),
        3 => drop(take_number(rest)?),
        4 | 8 => drop(take_bytes(rest)?),
        kind @ (5 | 6) => {
            let count = take_number(rest)?;
            return open(count, kind == 6, rest, left).map(Some);
        }
        7 => take_container(rest)?,
        _ => return Err(Oversized::Malformed),
    }
    Ok(None)
}

/// The name of a root container, or who created another one and when.
fn take_container(rest: &mut &[u8]) -> Result<(), Oversized> {
    match take(rest, 1)?[0] {
        0 => drop(take_bytes(rest)?),
        1 => {
            take_number(rest)?;
            take_number(rest)?;
        }
        _ => return Err(Oversized::Malformed),
    }
    take(rest, 1).map(drop)
}

fn check_strings(rest: &mut &[u8], left: &mut Left) -> Result<(), Oversized> {
    let count = take_number(rest)?;
    if count > rest.len() as u64 {
        return Err(Oversized::Malformed);
    }
    left.take(count, ENTRY)?;
    for _ in 0..count {
        take_bytes(rest)?;
    }
    Ok(())
}

fn take_peers(rest: &mut &[u8]) -> Result<(), Oversized> {
    let peers = usize::try_from(take_number(rest)?).ok();
    let bytes = peers.and_then(|peers| peers.checked_mul(8));
    take(rest, bytes.ok_or(Oversized::Malformed)?).map(drop)
}

/// The number of fields of a record.
fn take_fields(rest: &mut &[u8], expected: u64) -> Result<(), Oversized> {
    match take_number(rest)? == expected {
        true => Ok(()),
        false => Err(Oversized::Malformed),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::super::{Left, Oversized};

    /// The limit in these tests.
    const LIMIT: u64 = 16 << 20;

    fn check(state: &[u8]) -> Result<(), Oversized> {
        super::check(state, &mut Left::new(LIMIT))
    }

    fn number(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    fn string(bytes: &[u8]) -> Vec<u8> {
        [&number(bytes.len() as u64), bytes].concat()
    }

    fn table(columns: &[&[u8]]) -> Vec<u8> {
        let columns: Vec<Vec<u8>> = columns.iter().map(|column| string(column)).collect();
        [&[columns.len() as u8][..], &columns.concat()].concat()
    }

    /// A run of this many equal values.
    fn run(count: u64) -> Vec<u8> {
        match count {
            0 => Vec::new(),
            _ => [number(count * 2), vec![0]].concat(),
        }
    }

    /// A root container: its kind, that it is not nested, and no parent.
    fn state(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
        [&[kind, 1, 0][..], &parts.concat()].concat()
    }

    fn list(values: &[u8], rows: u64) -> Vec<u8> {
        let ids = table(&[&run(rows), &run(rows), &run(rows)]);
        state(super::LIST, &[values, &[0], &[1], &ids])
    }

    fn text(text: &[u8], spans: u64) -> Vec<u8> {
        let (text, run) = (string(text), run(spans));
        let spans = table(&[&run, &run, &run, &run]);
        state(super::TEXT, &[&text, &[0], &[3], &spans, &[0], &[0]])
    }

    fn movable(items: u64, places: u64) -> Vec<u8> {
        let (item, place) = (run(items), run(places));
        let flags = number(items);
        let items = table(&[&item, &flags, &flags]);
        let places = table(&[&place, &place, &place]);
        let none = table(&[&[], &[]]);
        let parts: [&[u8]; 7] = [&[0], &[0], &[4], &items, &places, &none, &none];
        state(super::MOVABLE_LIST, &parts)
    }

    fn tree(ids: u64, nodes: u64, siblings: &[u8], positions: &[u8]) -> Vec<u8> {
        let (id, node) = (run(ids), run(nodes));
        let ids = table(&[&id, &id]);
        let nodes = table(&[&node, &node, &node, &node, siblings]);
        let parts: [&[u8]; 6] = [&[0], &[4], &ids, &nodes, &string(positions), &[0]];
        state(super::TREE, &parts)
    }

    // LORO-16
    #[test]
    fn few_bytes_of_a_state_that_stand_for_many_rows_are_refused() {
        const MANY: u64 = 1_000_000_000;
        let malformed = Err(Oversized::Malformed);
        let expands = Err(Oversized::Expands(LIMIT));
        // Nested lists, each of which claims to have very many values.
        let lists = [&[5][..], &number(1 << 28)].concat().repeat(100);
        let deep = [5, 1].repeat(100_000);
        let nulls = [&number(2 << 20)[..], &vec![0; 2 << 20]].concat();
        let maps = [&number(1 << 20)[..], &vec![0; 2 << 20], &[0]].concat();
        // Each position is the one before it plus a byte, so that their total length grows with the square.
        let prefixes: Vec<Vec<u8>> = (0..10_000).map(|n| [vec![2], number(n)].concat()).collect();
        let rests = [number(10_000), [1, b'x'].repeat(10_000)].concat();
        let positions = [&[1][..], &table(&[&prefixes.concat(), &rests])].concat();
        let cases = [
            ("an empty list", list(&[0], 0), Ok(())),
            ("a list", list(&[1, 0], 1), Ok(())),
            ("rows without values", list(&[0], MANY), malformed),
            ("lists", list(&[&[1][..], &lists].concat(), 1), malformed),
            ("deep", list(&[&[1][..], &deep, &[0]].concat(), 1), Ok(())),
            ("values", list(&nulls, 2 << 20), expands),
            ("entries", state(super::MAP, &[&maps]), expands),
            (
                "keys without a value",
                state(super::MAP, &[&[0], &number(1 << 40)]),
                malformed,
            ),
            ("a text", text(b"hello", 2), Ok(())),
            ("spans without text", text(b"hello", MANY), malformed),
            (
                "as many spans as characters",
                text(&vec![b'x'; 1 << 20], 1 << 20),
                expands,
            ),
            ("a movable list", movable(1, 3), Ok(())),
            ("items without values", movable(MANY, 0), malformed),
            ("places without values", movable(1, MANY), expands),
            ("a tree", tree(1, 1, &[1, 0], &[]), Ok(())),
            ("nodes", tree(MANY, MANY, &[1, 0], &[]), malformed),
            ("ids", tree(MANY, 1, &[1, 0], &[]), malformed),
            ("positions", tree(1, 1, &[1, 0], &positions), expands),
            ("a counter", state(5, &[&[0; 8]]), Ok(())),
        ];
        for (name, state, expected) in cases {
            assert_eq!(check(&state), expected, "{name}");
        }
    }

    // LORO-16
    #[test]
    fn a_text_in_so_many_spans_that_reading_it_takes_minutes_is_refused() {
        let state = text(&vec![b'x'; 8 << 20], 64 << 10);
        let mut left = Left::new(1 << 30);
        assert_eq!(super::check(&state, &mut left), Err(Oversized::Slow));
        let state = text(&vec![b'x'; 1 << 20], 64 << 10);
        assert_eq!(super::check(&state, &mut left), Ok(()));
    }
}
