//! Chooses the protocol version.

/// The highest offered version that is compatible with one of ours, as the client wrote it.
///
/// Compatible as with a caret: the same first number that is not zero, and no older than ours.
pub(super) fn choose<T: AsRef<str>>(
    offered: impl IntoIterator<Item = T>,
    ours: &[String],
) -> Option<T> {
    let bases: Vec<_> = ours.iter().filter_map(|version| parse(version)).collect();
    offered
        .into_iter()
        .filter_map(|version| Some((parse(version.as_ref())?, version)))
        .filter(|(version, _)| bases.iter().any(|base| is_compatible(*version, *base)))
        // Of two equal ones the first: `max_by` would take the last.
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, version)| version)
}

type Version = (u64, u64, u64);

fn is_compatible(version: Version, base: Version) -> bool {
    let same = match base {
        (0, 0, _) => version == base,
        (0, minor, _) => (version.0, version.1) == (0, minor),
        (major, ..) => version.0 == major,
    };
    same && version >= base
}

fn parse(version: &str) -> Option<Version> {
    let mut parts = version.split('.').map(|part| {
        let plain = part.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = part == "0" || !part.starts_with('0');
        (plain && canonical).then(|| part.parse::<u64>().ok())?
    });
    let version = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_compatible_one_wins() {
        let ours = ["1.0.0", "0.9.0"].map(str::to_owned);
        for (offered, chosen) in [
            (&["1.0.0", "0.9.0"][..], Some("1.0.0")),
            (&["0.9.0", "1.0.0"], Some("1.0.0")),
            (&["1.2.3", "1.10.0", "2.0.0"], Some("1.10.0")),
            (&["0.9.7"], Some("0.9.7")),
            (&["0.10.0", "0.8.9", "2.0.0"], None),
            (
                &["01.0.0", "1.0", "1.0.0.0", "1.0.x", "", "..", "-1.0.0"],
                None,
            ),
            (&["99999999999999999999.0.0", "1.0.0"], Some("1.0.0")),
            (&[], None),
        ] {
            assert_eq!(choose(offered, &ours), chosen.as_ref(), "{offered:?}");
        }
        let exact = ["0.0.3".to_owned()];
        assert_eq!(choose(["0.0.4", "0.0.3"], &exact), Some("0.0.3"));
    }
}
