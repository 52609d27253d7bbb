//! Comparing version vectors.

use std::collections::BTreeMap;

use breakbulk_message::loro::VersionVector;

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
