//! Small changes of words.

/// With a capital letter.
pub fn capital(words: &str) -> String {
    let (first, rest) = words.split_at(words.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}", first.to_uppercase())
}

/// A sentence: with a capital letter and a full stop.
pub fn sentence(words: &str) -> String {
    let stop = if words.ends_with(['.', '!', '?']) || words.is_empty() { "" } else { "." };
    format!("{}{stop}", capital(words))
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn sentences_begin_with_a_capital_and_end_with_a_stop() {
        for (words, expected) in [
            ("nodes are emulated", "Nodes are emulated."),
            ("Keep it.", "Keep it."),
            ("ärger", "Ärger."),
            ("", ""),
        ] {
            assert_eq!(sentence(words), expected);
        }
    }
}
