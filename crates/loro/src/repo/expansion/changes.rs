//! The changes of one peer, as `loro` writes them: numbers, then eight byte strings, most of which are
//! columns. A column is a list of runs, so that five bytes may stand for a thousand million rows, all of
//! which `loro` allocates.

use super::columns::{Runs, Values, check_positions, open_only_table, rows};
use super::values;
use super::{Left, Oversized, take, take_bytes, take_number};

/// About how many bytes `loro` allocates for each.
const CHANGE: u64 = 256;
const DEPENDENCY: u64 = 48;
const OPERATION: u64 = 128;
const DELETION: u64 = 96;

pub(super) fn check(block: &[u8], left: &mut Left) -> Result<(), Oversized> {
    let mut rest = block;
    for _ in 0..4 {
        take_number(&mut rest)?;
    }
    let changes = take_number(&mut rest)?;
    let header = take_bytes(&mut rest)?;
    // Each change but the last has at least one byte in the header: `loro` allocates before it checks.
    if changes == 0 || changes - 1 > header.len() as u64 {
        return Err(Oversized::Malformed);
    }
    left.take(changes, CHANGE)?;
    left.take(dependencies(header, changes)?, DEPENDENCY)?;
    let [
        _meta,
        _containers,
        keys,
        positions,
        operations,
        deletions,
        values,
    ] = take_strings(&mut rest)?;
    check_positions(positions, left)?;
    use Values::{Bytes, Numbers};
    let columns = [Numbers, Numbers, Bytes, Numbers];
    left.take(rows_of(operations, &columns)?, OPERATION)?;
    left.take(rows_of(deletions, &[Numbers; 3])?, DELETION)?;
    check_values(operations, keys, values, left)
}

/// The peer of a block's changes, the counter of the first one and that behind the last one.
pub(super) fn span(block: &[u8]) -> Result<(u64, u64, u64), Oversized> {
    let mut rest = block;
    let start = take_number(&mut rest)?;
    let end = take_number(&mut rest)?.saturating_add(start);
    for _ in 0..3 {
        take_number(&mut rest)?;
    }
    // The peers that the block names, its own one first.
    let mut header = take_bytes(&mut rest)?;
    take_number(&mut header)?;
    let peer = take(&mut header, 8)?.first_chunk();
    let peer = peer.ok_or(Oversized::Malformed)?;
    Ok((u64::from_le_bytes(*peer), start, end))
}

/// Checks the values of the operations, by the column of their kinds.
fn check_values(
    operations: &[u8],
    keys: &[u8],
    values: &[u8],
    left: &mut Left,
) -> Result<(), Oversized> {
    if operations.is_empty() {
        return Ok(());
    }
    let columns = open_only_table(operations, 4)?;
    let mut kinds = Runs::new(columns[2], Values::Bytes);
    let mut values = values::Values::new(values, keys)?;
    while let Some((count, kind)) = kinds.next()? {
        values.read(count, kind as u8, left)?;
    }
    Ok(())
}

/// The rows of a table, which is left out if it has none.
fn rows_of(table: &[u8], columns: &[Values]) -> Result<u64, Oversized> {
    if table.is_empty() {
        return Ok(0);
    }
    rows(&open_only_table(table, columns.len())?, columns)
}

fn take_strings<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<[&'a [u8]; N], Oversized> {
    let mut strings: [&[u8]; N] = [&[]; N];
    for string in &mut strings {
        *string = take_bytes(rest)?;
    }
    Ok(strings)
}

/// How many dependencies on other peers the changes have.
fn dependencies(header: &[u8], changes: u64) -> Result<u64, Oversized> {
    let mut rest = header;
    let peers = take_number(&mut rest)?;
    let peers = usize::try_from(peers)
        .ok()
        .and_then(|peers| peers.checked_mul(8));
    take(&mut rest, peers.ok_or(Oversized::Malformed)?)?;
    for _ in 1..changes {
        take_number(&mut rest)?;
    }
    // Whether each change depends on the one before it: lengths of runs of no and yes.
    let mut known = 0;
    while known < changes {
        known = take_number(&mut rest)?.saturating_add(known);
    }
    let mut runs = Runs::new(rest, Values::Numbers);
    let (mut known, mut sum) = (0, 0_u64);
    while known < changes {
        let (count, value) = runs.next()?.ok_or(Oversized::Malformed)?;
        let count = count.min(changes - known);
        known += count;
        sum = sum.saturating_add(value.saturating_mul(count));
    }
    // Each dependency takes at least a bit of the header.
    if sum > header.len() as u64 * 8 {
        return Err(Oversized::Malformed);
    }
    Ok(sum)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may")]
mod tests {
    use super::super::{Oversized, check};
    use loro::{ExportMode, LoroDoc};

    /// The limit in these tests.
    const LIMIT: u64 = 16 << 20;

    /// A document with every kind of container, changed by two peers.
    fn document() -> LoroDoc {
        let (one, two) = (LoroDoc::new(), LoroDoc::new());
        for round in 0..50 {
            for (doc, other) in [(&one, &two), (&two, &one)] {
                let text = doc.get_text("text");
                text.insert(0, &format!("{round} hello")).unwrap();
                text.delete(2, 3).unwrap();
                doc.get_map("map")
                    .insert(&round.to_string(), round)
                    .unwrap();
                let list = doc.get_movable_list("list");
                list.push(round).unwrap();
                list.mov(0, list.len() - 1).unwrap();
                list.set(0, "set").unwrap();
                let deep: loro::LoroValue = vec![1, 2].into();
                let map = [("a".to_owned(), deep), ("b".to_owned(), true.into())];
                let map: std::collections::HashMap<String, loro::LoroValue> = map.into();
                doc.get_list("plain").push(map).unwrap();
                doc.get_list("plain").insert(0, 0.5).unwrap();
                doc.get_map("map").insert("bytes", vec![1_u8, 2]).unwrap();
                doc.get_map("map")
                    .insert("nothing", loro::LoroValue::Null)
                    .unwrap();
                text.mark(0..2, "bold", true).unwrap();
                doc.get_counter("counter").increment(1.0).unwrap();
                let inner = doc
                    .get_map("map")
                    .insert_container("in", loro::LoroList::new());
                inner.unwrap().push(round).unwrap();
                let tree = doc.get_tree("tree");
                tree.enable_fractional_index(0);
                let root = tree.create(None).unwrap();
                let child = tree.create(root).unwrap();
                tree.mov(child, None).unwrap();
                tree.delete(child).unwrap();
                doc.commit();
                let news = doc.export(ExportMode::all_updates()).unwrap();
                if round % 3 == 0 {
                    other.import(&news).unwrap();
                }
            }
        }
        let news = two.export(ExportMode::Snapshot).unwrap();
        one.import(&news).unwrap();
        one
    }

    // LORO-16
    #[test]
    fn what_loro_writes_passes() {
        let doc = document();
        let large = LoroDoc::new();
        large
            .get_text("text")
            .insert(0, &"large ".repeat(500_000))
            .unwrap();
        large.commit();
        let empty = LoroDoc::new();
        for (name, doc) in [("every kind", &doc), ("large", &large), ("empty", &empty)] {
            let frontiers = doc.oplog_frontiers();
            let modes = [
                ExportMode::Snapshot,
                ExportMode::all_updates(),
                ExportMode::shallow_snapshot(&frontiers),
                ExportMode::state_only(Some(&frontiers)),
            ];
            for mode in modes {
                let Ok(data) = doc.export(mode) else {
                    continue;
                };
                assert_eq!(check(&data, LIMIT), Ok(()), "{name}");
            }
        }
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
        [&[1, columns.len() as u8][..], &columns.concat()].concat()
    }

    /// A run of this many equal values.
    fn run(count: u64) -> Vec<u8> {
        [number(count * 2), vec![1]].concat()
    }

    /// An update of one block of changes.
    fn update(changes: u64, dependencies: &[u8], tables: [&[u8]; 3]) -> Vec<u8> {
        update_with(changes, dependencies, tables, [&[], &[]])
    }

    fn update_with(
        changes: u64,
        dependencies: &[u8],
        tables: [&[u8]; 3],
        [keys, values]: [&[u8]; 2],
    ) -> Vec<u8> {
        let header = [&[1][..], &[7; 8], &[1], dependencies, &[0; 16]].concat();
        let [positions, operations, deletions] = tables;
        let strings = [
            &header[..],
            &[],
            &[],
            keys,
            positions,
            operations,
            deletions,
            values,
        ];
        let strings: Vec<Vec<u8>> = strings.iter().map(|bytes| string(bytes)).collect();
        let block = [&[0, 1, 0, 1][..], &number(changes), &strings.concat()].concat();
        [&[0; 20][..], &[0, 4], &string(&block)].concat()
    }

    // LORO-16
    #[test]
    fn few_bytes_that_stand_for_many_are_refused() {
        let none = run(1);
        let many = run(1_000_000_000);
        let one = [&[2][..], &[0]].concat();
        let operations = table(&[&many, &many, &many, &many]);
        let deletions = table(&[&many, &many, &many]);
        // Each position is the one before it plus a byte, so that their total length grows with the square.
        let count = 10_000;
        let prefixes: Vec<Vec<u8>> = (0..count).map(|n| [vec![2], number(n)].concat()).collect();
        let rests = [number(count), [1, b'x'].repeat(count as usize)].concat();
        let positions = table(&[&prefixes.concat(), &rests]);
        let none_of_each: [&[u8]; 3] = [&[], &[], &[]];
        let set = table(&[&run(1), &run(1), &[2, 11], &run(1)]);
        let one_value: [&[u8]; 3] = [&[], &set, &[]];
        // Nested lists, each of which claims to have very many values.
        let lists = [&[7][..], &number(1 << 28)].concat().repeat(100);
        // A list of maps that all have the same long key.
        let key = string(&[b'k'; 100_000]);
        let maps = [&[7][..], &number(1000), &[8, 1, 0, 0].repeat(1000)].concat();
        let cases = [
            ("nothing", update(1, &one, none_of_each), Ok(())),
            (
                "changes",
                update(u64::from(u32::MAX), &none, none_of_each),
                Err(Oversized::Malformed),
            ),
            (
                "dependencies",
                update(1, &[&[2][..], &number(1 << 40)].concat(), none_of_each),
                Err(Oversized::Malformed),
            ),
            (
                "operations",
                update(1, &one, [&[], &operations, &[]]),
                Err(Oversized::Expands(LIMIT)),
            ),
            (
                "deletions",
                update(1, &one, [&[], &[], &deletions]),
                Err(Oversized::Expands(LIMIT)),
            ),
            (
                "positions",
                update(1, &one, [&positions, &[], &[]]),
                Err(Oversized::Expands(LIMIT)),
            ),
        ];
        let values = [
            (
                "one value",
                update_with(1, &one, one_value, [&[], &[0]]),
                Ok(()),
            ),
            (
                "lists",
                update_with(1, &one, one_value, [&[], &lists]),
                Err(Oversized::Malformed),
            ),
            (
                "keys",
                update_with(1, &one, one_value, [&key, &maps]),
                Err(Oversized::Expands(LIMIT)),
            ),
        ];
        for (name, data, expected) in cases.into_iter().chain(values) {
            assert_eq!(check(&data, LIMIT), expected, "{name}");
        }
    }
}
