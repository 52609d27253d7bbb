//! Comparing version vectors, and the snapshot of a document without changes.

use std::collections::BTreeMap;

use breakbulk_message::loro::VersionVector;

/// What `loro` exports as the snapshot of a document without changes; the same 81 bytes each time.
pub const EMPTY_SNAPSHOT: &[u8] = b"loro\0\0\0\0\0\0\0\0\0\0\0\0S.\x0c\xfc\0\x03\
      /\0\0\0LORO\0\0\0\x02\0vv\0\0\0\x01\0\x02\0\xe7b\xc9l\x01\0\0\0\
      \x05\0\0\0\x02\0fr\0\x02\0vv\xdb\xd8\xc9\xc8\x16\0\0\0\0\0\0\0\0\0\0\0";

/// Whether version `having` includes all of version `wanted`.
pub fn covers(having: &VersionVector, wanted: &VersionVector) -> bool {
    let have: BTreeMap<u64, i32> = having.entries().iter().copied().collect();
    let mut wanted = wanted.entries().iter();
    wanted.all(|(peer, counter)| *counter <= have.get(peer).copied().unwrap_or(0))
}

/// Whether the version is empty; entries of 0 count as none.
pub fn is_nothing(version: &VersionVector) -> bool {
    version.entries().iter().all(|(_, counter)| *counter <= 0)
}
