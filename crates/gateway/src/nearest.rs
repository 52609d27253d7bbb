//! The nearest right spelling of a wrong name.

/// The candidate that a person may have meant: the one that differs in the fewest letters, if that is at
/// most a third of them, or else the only one that begins with the name.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    // A name of any length is compared; only so much of it can be near to one of ours.
    let name: String = name.chars().take(64).flat_map(char::to_lowercase).collect();
    let distances = candidates.clone().map(|it| (distance(&name, it), it));
    if let Some((distance, candidate)) = distances.min_by_key(|(distance, _)| *distance)
        && distance * 3 <= candidate.len().max(3)
    {
        return Some(candidate);
    }
    let mut longer = candidates.filter(|it| !name.is_empty() && it.starts_with(&name));
    match (longer.next(), longer.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// How many letters must be added, removed, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1)
                .min(rows[i][j - 1] + 1)
                .min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_nothing_far_off() {
        let names = [
            "aws-api-gateway",
            "azure-web-pubsub",
            "kong",
            "kong-upstream",
        ];
        for (name, expected) in [
            ("aws-api-gatway", Some("aws-api-gateway")),
            ("aws_api_gateway", Some("aws-api-gateway")),
            ("AWS-API-Gateway", Some("aws-api-gateway")),
            ("azure", Some("azure-web-pubsub")),
            ("kogn", Some("kong")),
            ("nginx", None),
            ("a", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names.into_iter()), expected, "{name}");
        }
    }
}
