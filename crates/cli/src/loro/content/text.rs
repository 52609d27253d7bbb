//! Edits a text until it is another one, with few edits and in a time that grows with its size.

use breakbulk::loro::crdt::{LoroText, UpdateOptions};

use super::edit::Set;

/// Up to this many differing bytes are compared character by character, however many lines they are.
const SHORT: usize = 8 << 10;

/// How long to look for the least edits, among lines, or among characters where there is one line. The time
/// for that grows with the square of what differs: two different texts of 400 KB would take minutes.
const LOOK_MS: f64 = 500.0;

/// Changes the text. What is the same at its beginning and its end is not touched.
pub(super) fn set(text: &LoroText, wanted: &str) -> Set {
    let current = text.to_string();
    let (_, old, new) = differing(&current, wanted);
    if !old.is_empty() && !new.is_empty() && least_edits(text, wanted, (old, new)) {
        return Ok(());
    }
    // A search that took too long may have changed a part of it already.
    let current = text.to_string();
    let (head, old, new) = differing(&current, wanted);
    let (old_length, new_length) = (old.chars().count(), new.chars().count());
    if old_length > 0 {
        text.delete(head, old_length)?;
    }
    if new_length > 0 {
        text.insert(head, new)?;
    }
    Ok(())
}

/// Changes the text by the least edits between what differs; false if they are not found in time, and then a part of
/// them may be done.
fn least_edits(text: &LoroText, wanted: &str, (old, new): (&str, &str)) -> bool {
    let options = || UpdateOptions {
        timeout_ms: Some(LOOK_MS),
        ..UpdateOptions::default()
    };
    let is_short = old.len() + new.len() <= SHORT;
    match is_short || !old.contains('\n') || !new.contains('\n') {
        true => text.update(wanted, options()).is_ok(),
        false => text.update_by_line(wanted, options()).is_ok(),
    }
}

/// How many characters are the same at the beginning, and what lies between them and those that are the same at the
/// end.
fn differing<'a>(current: &'a str, wanted: &'a str) -> (usize, &'a str, &'a str) {
    let pairs = current.chars().zip(wanted.chars());
    let same = pairs.take_while(|(now, then)| now == then);
    let (head, bytes) = same.fold((0, 0), |(count, bytes), (it, _)| {
        (count + 1, bytes + it.len_utf8())
    });
    let (old, new) = (&current[bytes..], &wanted[bytes..]);
    let pairs = old.chars().rev().zip(new.chars().rev());
    let same = pairs.take_while(|(now, then)| now == then);
    let tail: usize = same.map(|(it, _)| it.len_utf8()).sum();
    (head, &old[..old.len() - tail], &new[..new.len() - tail])
}

#[cfg(test)]
mod tests {
    use breakbulk::loro::crdt::LoroDoc;

    use super::*;

    /// Prose without an end that no part of equals another.
    fn prose(seed: u32, length: usize, line: usize) -> String {
        let mut state = seed;
        (0..length)
            .map(|at| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                match at % line == line - 1 {
                    true => '\n',
                    false => char::from(b'a' + u8::try_from((state >> 24) % 26).unwrap()),
                }
            })
            .collect()
    }

    /// The texts with millions of characters would take hours where their least edits were looked for.
    #[test]
    fn texts_of_any_size_are_set_without_touching_what_is_the_same() {
        let million = |seed| prose(seed, 1_000_000, usize::MAX);
        let lines = |seed| prose(seed, 1_000_000, 60);
        let (one, two, of_lines) = (million(1), million(2), lines(3));
        let edited = of_lines.replacen('\n', " an edit\n", 1) + "and one at the end";
        // The text, what it becomes, and the most characters that others get for that.
        let table = [
            ("", "", 0),
            ("", &*one, 1_000_000),
            (&*one, "", 0),
            (&*one, &*two, 1_000_000),
            (&*of_lines, &*lines(4), 1_000_000),
            (&*of_lines, &*edited, 200),
            (&*one, &*format!("{one}."), 1),
            (&*one, &*format!(".{one}"), 1),
            ("Grüße 🚢 an alle", "Grüße an alle, 🚢", 4),
            // One letter that stays is not worth two more edits.
            ("abc", "xbz", 3),
        ];
        for (number, (from, to, most)) in table.into_iter().enumerate() {
            let doc = LoroDoc::new();
            let text = doc.get_text("text");
            text.insert(0, from).unwrap();
            doc.commit();
            let before = doc.oplog_vv();
            set(&text, to).unwrap();
            doc.commit();
            assert!(text.to_string() == to, "case {number}");
            let inserted: usize = doc
                .export_json_updates(&before, &doc.oplog_vv())
                .unwrap()
                .changes
                .iter()
                .flat_map(|change| &change.ops)
                .map(|op| {
                    let json = serde_json::to_value(&op.content).unwrap();
                    json["text"].as_str().map_or(0, |text| text.chars().count())
                })
                .sum();
            assert!(inserted <= most, "case {number}: {inserted}");
        }
    }
}
