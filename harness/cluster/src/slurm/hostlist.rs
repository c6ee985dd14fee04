//! Node lists as Slurm writes them: `n[001-003,7],m[1-2]x[0-1]`.

use std::fmt::Write;

use thiserror::Error;

/// A list of more nodes is taken for a mistake.
pub const MOST_NODES: usize = 65_536;

/// Numbers in names with more digits are text.
const MOST_DIGITS: usize = 18;

/// Why a node list is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("node list \"{list}\": {problem}")]
pub struct HostlistError {
    /// The list.
    pub list: String,
    /// The value found, and the value expected.
    #[source]
    pub problem: HostlistProblem,
}

/// An error in a node list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostlistProblem {
    /// Two commas follow each other, or a comma ends the list.
    #[error("a name is empty; write names separated by single commas")]
    EmptyName,
    /// A bracket is unmatched.
    #[error("'{bracket}' at character {place} is unmatched")]
    Bracket {
        /// The bracket.
        bracket: char,
        /// Its place, from 1.
        place: usize,
    },
    /// A bracket is open at the end of the list.
    #[error("a '[' is not closed")]
    Open,
    /// The text between brackets is not a range.
    #[error("\"{range}\" is not a range; write a number (7) or two (001-003)")]
    Range {
        /// The text found.
        range: String,
    },
    /// A range ends before it begins.
    #[error("the range \"{range}\" runs backwards; write the smaller number first")]
    Backwards {
        /// The range.
        range: String,
    },
    /// There are more than [`MOST_NODES`].
    #[error("it names more than {MOST_NODES} nodes")]
    TooMany,
}

/// The names of a list, in order. Zeros that pad a range's first number pad the whole range.
///
/// # Errors
/// When brackets, ranges or names are malformed, or there are more than [`MOST_NODES`].
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    let refuse = |problem| HostlistError { list: list.into(), problem };
    let mut names = Vec::new();
    if list.is_empty() {
        return Ok(names);
    }
    for item in split(list).map_err(refuse)? {
        if item.is_empty() {
            return Err(refuse(HostlistProblem::EmptyName));
        }
        names.extend(expand_item(item, MOST_NODES - names.len()).map_err(refuse)?);
    }
    Ok(names)
}

/// Cuts at the commas outside of brackets.
fn split(list: &str) -> Result<Vec<&str>, HostlistProblem> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match (character, inside) {
            ('[', false) => inside = true,
            (']', true) => inside = false,
            ('[', true) | (']', false) => {
                return Err(HostlistProblem::Bracket { bracket: character, place: at + 1 });
            }
            (',', false) => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[start..]);
    if inside { Err(HostlistProblem::Open) } else { Ok(items) }
}

/// The names of `m[1-2]x[0-1]`: the last bracket changes fastest.
fn expand_item(item: &str, most: usize) -> Result<Vec<String>, HostlistProblem> {
    let (mut names, mut rest) = (vec![String::new()], item);
    while let Some((text, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']').expect("brackets were paired");
        let numbers = expand_ranges(ranges, most / names.len())?;
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{text}{number}")))
            .collect();
        rest = after;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    if names.len() > most { Err(HostlistProblem::TooMany) } else { Ok(names) }
}

/// The numbers of `001-003,7`.
fn expand_ranges(ranges: &str, most: usize) -> Result<Vec<String>, HostlistProblem> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let wrong = || HostlistProblem::Range { range: range.into() };
        let (from, to) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
        if to < from {
            return Err(HostlistProblem::Backwards { range: range.into() });
        }
        if to - from >= (most - numbers.len().min(most)) as u64 {
            return Err(HostlistProblem::TooMany);
        }
        numbers.extend((from..=to).map(|value| format!("{value:0width$}", width = first.len())));
    }
    Ok(numbers)
}

fn number(digits: &str) -> Option<u64> {
    let whole = (1..=MOST_DIGITS).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| whole)
}

/// The list of these names, in their order, as short as neighbours allow: [`expand`] gives them back.
pub fn compress<Name: AsRef<str>>(names: &[Name]) -> String {
    let (mut list, mut open) = (String::new(), None::<Open>);
    for name in names {
        let (prefix, digits) = cut(name.as_ref());
        match &mut open {
            Some(open) if open.takes(prefix, digits) => open.push(digits),
            _ => {
                close(&mut list, open.take());
                open = Some(Open { prefix, ranges: vec![(digits, digits)] });
            }
        }
    }
    close(&mut list, open);
    list
}

/// A name's last number, empty if it does not end with one, and the text before it.
fn cut(name: &str) -> (&str, &str) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    if (1..=MOST_DIGITS).contains(&digits) {
        name.split_at(name.len() - digits)
    } else {
        (name, "")
    }
}

/// Names with one prefix that follow one another.
struct Open<'a> {
    prefix: &'a str,
    ranges: Vec<(&'a str, &'a str)>,
}

impl<'a> Open<'a> {
    fn takes(&self, prefix: &str, digits: &str) -> bool {
        self.prefix == prefix && !self.ranges[0].0.is_empty() && !digits.is_empty()
    }

    fn push(&mut self, digits: &'a str) {
        let (first, last) = self.ranges.last_mut().expect("it was made with one");
        let next = number(last).map(|value| format!("{:0width$}", value + 1, width = first.len()));
        if next.as_deref() == Some(digits) {
            *last = digits
        } else {
            self.ranges.push((digits, digits))
        }
    }
}

fn close(list: &mut String, open: Option<Open<'_>>) {
    let Some(Open { prefix, ranges }) = open else { return };
    if !list.is_empty() {
        list.push(',');
    }
    list.push_str(prefix);
    let text = |(first, last): &(&str, &str)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let inside = ranges.iter().map(text).collect::<Vec<_>>().join(",");
    let plain = ranges.len() == 1 && ranges[0].0 == ranges[0].1;
    let _ = if plain { write!(list, "{inside}") } else { write!(list, "[{inside}]") };
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn lists_are_expanded_as_slurm_does() {
        for (list, names) in [
            ("", ""),
            ("n1", "n1"),
            ("login", "login"),
            ("n[001-003,7],m[1-2]x[0-1]", "n001 n002 n003 n7 m1x0 m1x1 m2x0 m2x1"),
            ("n[8-11]", "n8 n9 n10 n11"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("r[1-2]-gpu[3]a,x", "r1-gpu3a r2-gpu3a x"),
            ("n[5,5,4]", "n5 n5 n4"),
            ("[1-2]", "1 2"),
        ] {
            let expected: Vec<_> = names.split_whitespace().collect();
            assert_eq!(expand(list).unwrap(), expected, "{list}");
        }
    }

    #[test]
    fn lists_are_compressed() {
        for (names, list) in [
            ("n1", "n1"),
            ("n1 n2 n3 n7", "n[1-3,7]"),
            ("n001 n002 n003 n7", "n[001-003,7]"),
            ("n08 n09 n10 n11", "n[08-11]"),
            ("n9 n10", "n[9-10]"),
            ("n09 n010", "n[09,010]"),
            ("n1 m1 n2", "n1,m1,n2"),
            ("m1x0 m1x1 m2x0", "m1x[0-1],m2x0"),
            ("a b n1", "a,b,n1"),
            ("n n1 n", "n,n1,n"),
        ] {
            let names: Vec<_> = names.split_whitespace().collect();
            assert_eq!(compress(&names), list);
            assert_eq!(expand(list).unwrap(), names);
        }
    }

    #[test]
    fn compressed_lists_expand_to_the_same_names_in_order() {
        for seed in 0..2000 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let names: Vec<String> = (0..random.random_range(0..12))
                .map(|_| {
                    let prefix = ["n", "gpu-", "m1x", "", "0a"][random.random_range(0..5)];
                    let width = random.random_range(1..5);
                    let value = random.random_range(0..13) + [0, 95][random.random_range(0..2)];
                    let suffix = ["", "", "", "-ib", "z"][random.random_range(0..5)];
                    match random.random_range(0..8) {
                        0 => format!("n{suffix}"),
                        _ => format!("{prefix}{value:0width$}{suffix}"),
                    }
                })
                .collect();
            assert_eq!(expand(&compress(&names)).unwrap(), names, "seed {seed}");
        }
    }

    #[test]
    fn a_number_too_long_to_count_is_text() {
        let names = ["n99999999999999999999", "n999999999999999999", "n99999999999999999998"];
        assert_eq!(expand(&compress(&names)).unwrap(), names);
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (list, problem) in [
            ("n[1-", "a '[' is not closed"),
            ("n1]", "']' at character 3 is unmatched"),
            ("n[1[2]]", "'[' at character 4 is unmatched"),
            ("n1,,n2", "a name is empty"),
            ("n1,", "a name is empty"),
            ("n[]", "\"\" is not a range"),
            ("n[a-b]", "\"a-b\" is not a range"),
            ("n[1-2-3]", "\"1-2-3\" is not a range"),
            ("n[-1]", "\"-1\" is not a range"),
            ("n[+1]", "\"+1\" is not a range"),
            ("n[3-1]", "the range \"3-1\" runs backwards"),
            ("n[0-99999999999]", "more than 65536 nodes"),
            ("n[1-65536],m", "more than 65536 nodes"),
            ("n[1-300]x[1-300]", "more than 65536 nodes"),
            ("n[1-99999999999999999999]", "is not a range"),
        ] {
            let error = expand(list).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}\nexpected {problem}");
            assert!(error.starts_with(&format!("node list \"{list}\": ")));
        }
        assert_eq!(expand("n[1-65536]").unwrap().len(), MOST_NODES);
    }
}
