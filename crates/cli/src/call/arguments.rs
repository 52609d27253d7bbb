//! Converts command-line arguments of a call to JSON.

use serde_json::value::RawValue;

use crate::failure::Failure;

/// A JSON array of words: each as JSON, or as a string if it is not JSON.
pub(super) fn array(words: &[String]) -> String {
    let values: Vec<_> = words.iter().map(|word| value(word)).collect();
    format!("[{}]", values.join(","))
}

/// A JSON object of `name=value` words; `None` if there are none.
pub(super) fn object(words: &[String]) -> Result<Option<String>, Failure> {
    if words.is_empty() {
        return Ok(None);
    }
    let mut members = Vec::with_capacity(words.len());
    for word in words {
        let Some((name, given)) = word.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Failure::Usage(format!(
                "--kwarg {word}: write --kwarg NAME=VALUE"
            )));
        };
        let is_known = |member: &String| member.starts_with(&format!("{}:", string(name)));
        if members.iter().any(is_known) {
            return Err(Failure::Usage(format!("--kwarg {name} is given twice")));
        }
        members.push(format!("{}:{}", string(name), value(given)));
    }
    Ok(Some(format!("{{{}}}", members.join(","))))
}

fn value(word: &str) -> String {
    match serde_json::from_str::<&RawValue>(word) {
        Ok(json) => json.get().to_owned(),
        Err(_) => string(word),
    }
}

fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    // PROG-13
    #[test]
    fn json_where_it_parses_else_a_string() {
        for (words, json) in [
            (&[][..], "[]"),
            (&["2"][..], "[2]"),
            (&["-0.50", "1e3"], "[-0.50,1e3]"),
            (&["hello", "\"hello\""], r#"["hello","hello"]"#),
            (
                &["[1, 2]", "{\"a\":null}", "true"],
                r#"[[1, 2],{"a":null},true]"#,
            ),
            (&["01", "a\"b\n", ""], r#"["01","a\"b\n",""]"#),
        ] {
            let words: Vec<_> = words.iter().map(|word| word.to_string()).collect();
            assert_eq!(array(&words), json);
        }
    }

    #[test]
    fn named_ones_become_an_object() {
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|word| word.to_string())
                .collect::<Vec<_>>()
        };
        assert!(matches!(object(&[]), Ok(None)));
        let object_of = |given: &[&str]| object(&words(given)).ok().flatten();
        assert_eq!(
            object_of(&["sep=, ", "n=3", "eq=a=b"]).as_deref(),
            Some(r#"{"sep":", ","n":3,"eq":"a=b"}"#)
        );
        for wrong in ["novalue", "=1"] {
            assert!(object(&words(&[wrong])).is_err(), "{wrong}");
        }
    }
}
