//! The name that is probably meant by one that does not exist.

/// That of `names` which `found` differs from in the fewest letters, two that changed places counting as one;
/// none if there are more than `most` of them.
pub fn nearest<'n>(
    found: &str,
    names: impl IntoIterator<Item = &'n str>,
    most: usize,
) -> Option<&'n str> {
    let slips = |name: &str| strsim::damerau_levenshtein(name, found);
    let near = names.into_iter().map(|name| (slips(name), name)).min_by_key(|&(slips, _)| slips);
    near.filter(|&(slips, _)| slips <= most).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_forgiven_and_other_names_are_not() {
        let names = ["ring", "tree", "two-shot"];
        for (found, most, expected) in [
            ("rign", 1, Some("ring")),
            ("rng", 1, Some("ring")),
            ("tow-shot", 2, Some("two-shot")),
            ("rg", 1, None),
            ("both-way", 2, None),
            ("", 0, None),
        ] {
            assert_eq!(nearest(found, names, most), expected, "{found}");
        }
    }
}
