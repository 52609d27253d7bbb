//! Comparing version vectors.

use std::collections::BTreeMap;

use breakbulk_message::loro::VersionVector;

/// Whether `having` knows all that `wanted` names.
pub fn covers(having: &VersionVector, wanted: &VersionVector) -> bool {
    let have: BTreeMap<u64, i32> = having.entries().iter().copied().collect();
    let mut wanted = wanted.entries().iter();
    wanted.all(|(peer, counter)| *counter <= have.get(peer).copied().unwrap_or(0))
}

/// Whether it knows nothing: an entry of 0 says no more than none.
pub fn is_nothing(version: &VersionVector) -> bool {
    version.entries().iter().all(|(_, counter)| *counter <= 0)
}
