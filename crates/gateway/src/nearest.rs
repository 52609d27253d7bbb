//! The nearest right spelling of a wrong word.

use strsim::damerau_levenshtein;

/// The longest word that is compared: no longer one is near to one of ours.
const LONGEST: usize = 64;

/// The word of a list that a person probably meant: at most one letter in three is wrong, or it is only
/// the beginning.
pub fn nearest<'a>(word: &str, words: &[&'a str]) -> Option<&'a str> {
    let word: String = word
        .chars()
        .take(LONGEST)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    if word.len() > 2
        && let Some(whole) = words.iter().find(|whole| whole.starts_with(&word))
    {
        return Some(whole);
    }
    let distance = |other: &str| damerau_levenshtein(&word, other);
    let nearest = words.iter().min_by_key(|other| distance(other))?;
    let (found, longest) = (distance(nearest), word.len().max(nearest.len()));
    // A parameter of one letter is a name of its own: `?a=1` does not mean `ca`.
    let is_near = found <= longest.div_ceil(3) && found < word.len();
    is_near.then_some(*nearest)
}

/// The word of a list that was probably meant by one that may be right as it is: at most one letter in four
/// is wrong, or it is only the beginning.
pub(crate) fn misspelt<'a>(word: &str, words: &[&'a str]) -> Option<&'a str> {
    let found = nearest(word, words).filter(|_| word.len() <= LONGEST)?;
    let word = word.to_ascii_lowercase();
    let wrong = damerau_levenshtein(&word, found);
    let is_near = wrong <= word.len().max(found.len()) / 4;
    (is_near || found.starts_with(&word)).then_some(found)
}

/// `; did you mean …?`, or nothing.
pub(crate) fn suggestion(meant: Option<&str>) -> String {
    meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_near() {
        let options = ["framing", "max-frame", "max-message", "ca", "key"].as_slice();
        let names = ["aws-api-gateway", "azure-web-pubsub", "kong"].as_slice();
        for (words, word, expected) in [
            (options, "framing", Some("framing")),
            (options, "fraiming", Some("framing")),
            (options, "max-fram", Some("max-frame")),
            (options, "maxmessage", Some("max-message")),
            (options, "max_message", Some("max-message")),
            (options, "KEY", Some("key")),
            (options, "cat", Some("ca")),
            (options, "max-m", Some("max-message")),
            (options, "colour", None),
            (options, "x", None),
            (options, "a", None),
            (options, "", None),
            (names, "aws-api-gatway", Some("aws-api-gateway")),
            (names, "AWS-API-Gateway", Some("aws-api-gateway")),
            (names, "azure", Some("azure-web-pubsub")),
            (names, "kogn", Some("kong")),
            (names, "nginx", None),
        ] {
            assert_eq!(nearest(word, words), expected, "{word}");
        }
    }
}
