//! Words of the TOML reader's messages in those of TOML.
//!
//! serde describes expected values by Rust's types, and only as text. The tests read a document for each of its
//! messages, so that they fail when a new version of serde or toml changes them.

/// serde's descriptions of expected values, and their TOML equivalents.
const KINDS: [(&[&str], &str); 5] = [
    (&["f64", "f32"], "a number"),
    (&["usize", "u64", "u32", "u16", "u8"], "a whole number from 0"),
    (&["isize", "i64", "i32", "i16", "i8"], "a whole number"),
    (&["a boolean"], "true or false"),
    (&["a sequence"], "a list"),
];

/// A message of the TOML reader, without names of Rust's types.
pub fn in_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message.into() };
    let kind = KINDS.iter().find(|(types, _)| types.contains(&expected)).map(|&(_, kind)| kind);
    let is_table = expected.starts_with("struct ") || expected == "a map";
    let elements = expected.strip_prefix("a tuple of size ");
    let expected = match (kind, elements) {
        (Some(kind), _) => kind.to_string(),
        _ if is_table => "a table".into(),
        (_, Some(count)) => format!("a list of {count} elements"),
        _ => expected.into(),
    };
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[allow(dead_code, reason = "only errors are read")]
    enum Law {
        Normal,
        Gumbel,
        Empirical,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only errors are read")]
    struct Inner {
        steps: u64,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged, expecting = "a number or a name")]
    #[allow(dead_code, reason = "only errors are read")]
    enum Either {
        Number(u64),
        Name(String),
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    #[allow(dead_code, reason = "only errors are read")]
    struct Document {
        number: Option<f64>,
        count: usize,
        small: u8,
        whole: i64,
        switch: bool,
        text: String,
        list: Vec<f64>,
        pair: Option<(u32, u32)>,
        table: Option<Inner>,
        map: BTreeMap<String, String>,
        law: Option<Law>,
        either: Option<Either>,
    }

    #[test]
    fn every_message_of_the_reader_is_worded_for_those_who_write_toml() {
        for (text, expected) in [
            ("number = \"4MiB\"", "invalid type: string \"4MiB\", expected a number"),
            ("list = [true]", "invalid type: boolean `true`, expected a number"),
            ("count = -1", "invalid value: integer `-1`, expected a whole number from 0"),
            ("count = 1.5", "invalid type: floating point `1.5`, expected a whole number from 0"),
            ("small = 300", "invalid value: integer `300`, expected a whole number from 0"),
            ("whole = 1.5", "invalid type: floating point `1.5`, expected a whole number"),
            ("switch = 1", "invalid type: integer `1`, expected true or false"),
            ("text = 1", "invalid type: integer `1`, expected a string"),
            ("list = 1", "invalid type: integer `1`, expected a list"),
            ("pair = [1]", "invalid length 1, expected a list of 2 elements"),
            ("pair = 1", "invalid type: integer `1`, expected a list of 2 elements"),
            ("table = 1", "invalid type: integer `1`, expected a table"),
            ("map = 1", "invalid type: integer `1`, expected a table"),
            ("[table]\nsteps = \"\"", "invalid type: string \"\", expected a whole number from 0"),
            ("[table]", "missing field `steps`"),
            ("[table]\nstep = 1", "unknown field `step`, expected `steps`"),
            ("law = \"x\"", "unknown variant `x`, expected one of `normal`, `gumbel`, `empirical`"),
            ("either = 1.5", "a number or a name"),
            ("count = 1\ncount = 2", "duplicate key"),
        ] {
            let error = toml::from_str::<Document>(text).unwrap_err();
            assert_eq!(in_words(error.message()), expected, "{text}");
        }
        for text in ["count = ", "count", "[table", "text = \"a", "number = 1..5"] {
            let error = toml::from_str::<Document>(text).unwrap_err();
            assert_eq!(in_words(error.message()), error.message(), "{text}");
        }
    }
}
