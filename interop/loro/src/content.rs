//! Documents for the tests, as `content.js` has them: large ones, and edits that can be told apart.

use anyhow::Result;
use loro::LoroDoc;

/// Letters that are inserted in one operation.
const CHUNK: usize = 40_000;

/// 64 letters, two of which take several bytes in UTF-8: text of them does not compress well.
const LETTERS: [char; 64] = {
    let mut letters = ['é'; 64];
    let mut at = 0;
    while at < 62 {
        let byte = match at {
            0..26 => b'A' + at as u8,
            26..52 => b'a' + (at - 26) as u8,
            _ => b'0' + (at - 52) as u8,
        };
        letters[at] = byte as char;
        at += 1;
    }
    letters[62] = '漢';
    letters[63] = '🦀';
    letters
};

/// Random numbers that a seed reproduces.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        // SplitMix64: small, and good enough for tests.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) as usize % limit.max(1)
    }
}

/// Fills a document with at least this many bytes of text, and some entries besides.
pub fn fill(doc: &LoroDoc, bytes: usize, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let text = doc.get_text("text");
    let mut left = bytes;
    while left > 0 {
        let letters = (0..CHUNK.min(left)).map(|_| LETTERS[random.below(LETTERS.len())]);
        let chunk: String = letters.collect();
        let at = if random.below(2) == 0 {
            0
        } else {
            text.len_unicode()
        };
        text.insert(at, &chunk)?;
        left = left.saturating_sub(chunk.len());
    }
    for number in 0..100 {
        doc.get_list("list").push(format!("entry {number}"))?;
        let value = i64::try_from(random.below(1 << 32))?;
        doc.get_map("map").insert(&format!("key {number}"), value)?;
    }
    doc.commit();
    Ok(())
}

/// Makes one edit that differs from every other: an entry in a list and in a map, and a letter in a text.
pub fn edit(doc: &LoroDoc, name: &str, number: u64, random: &mut Random) -> Result<()> {
    let entry = format!("{name} {number}");
    let (list, text) = (doc.get_list("list"), doc.get_text("text"));
    list.insert(random.below(list.len() + 1), entry.as_str())?;
    doc.get_map("map").insert(&entry, i64::try_from(number)?)?;
    let letter = LETTERS[random.below(52)];
    text.insert(random.below(text.len_unicode() + 1), &letter.to_string())?;
    doc.commit();
    Ok(())
}
