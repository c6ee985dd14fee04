//! A schedule in the GOAL language of LogGOPSim (Hoefler, Siebert and Lumsdaine 2009): what each rank sends,
//! receives and computes, with dependencies.
//!
//! The sends of a step depend on the receives and reductions of the step before, as in [`super::rounds`]. A
//! reduction is a `calc` in nanoseconds. Chunks have the lengths that they have in a real buffer, and empty
//! ones are left out. Lines are not indented: LogGOPSim's `txt2bin` refuses a blank before a label.

use std::fmt;

use crate::program::Bounds;
use crate::schedule::{Action, Part, Schedule};

/// Displays as GOAL text.
pub struct Goal<'s> {
    /// The schedule.
    pub schedule: &'s dyn Schedule,
    /// Elements of the buffer of each rank.
    pub elements: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Nanoseconds to reduce a byte.
    pub gamma_ns: f64,
}

impl fmt::Display for Goal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = self.schedule.ranks();
        writeln!(f, "num_ranks {ranks}")?;
        (0..ranks).try_for_each(|rank| {
            writeln!(f, "\nrank {rank} {{")?;
            self.rank(rank, f)?;
            writeln!(f, "}}")
        })
    }
}

impl Goal<'_> {
    fn rank(&self, rank: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bounds = Bounds::new(self.elements, self.schedule.chunks());
        let (mut part, mut label) = (Part::default(), 0);
        // Labels of what the next step has to wait for.
        let mut before: Vec<usize> = Vec::new();
        for step in 0..self.schedule.steps() {
            part.clear();
            self.schedule.part(rank, step, &mut part);
            let bytes = |entry| bounds.elements(entry).len() * self.element_bytes;
            let mut after = Vec::new();
            let mut line = |f: &mut fmt::Formatter<'_>, text: String, requires: &[usize]| {
                label += 1;
                writeln!(f, "l{label}: {text}")?;
                for other in requires {
                    writeln!(f, "l{label} requires l{other}")?;
                }
                Ok(label)
            };
            for send in part.sends.iter().filter(|send| bytes(send) > 0) {
                line(f, format!("send {}b to {} tag {step}", bytes(send), send.peer), &before)?;
            }
            for receive in part.receives.iter().filter(|receive| bytes(receive) > 0) {
                let size = bytes(receive);
                let text = format!("recv {size}b from {} tag {step}", receive.peer);
                let mut last = line(f, text, &before)?;
                if receive.action == Action::Reduce && self.gamma_ns > 0.0 {
                    let nanoseconds = (size as f64 * self.gamma_ns).round().max(1.0);
                    last = line(f, format!("calc {nanoseconds}"), &[last])?;
                }
                after.push(last);
            }
            if !after.is_empty() {
                before = after;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use crate::topology::Topology;

    #[test]
    fn two_ranks_exchange_and_add() {
        let schedule = registry::find("ring").unwrap().schedule(&Topology::flat(2)).unwrap();
        let goal = Goal { schedule: &*schedule, elements: 3, element_bytes: 4, gamma_ns: 0.5 };
        let text = goal.to_string();
        let rank_0 = text.split("\nrank ").nth(1).unwrap();
        assert!(text.starts_with("num_ranks 2\n"));
        assert_eq!(
            rank_0,
            "0 {\nl1: send 4b to 1 tag 0\nl2: recv 8b from 1 tag 0\nl3: calc 4\nl3 requires l2\n\
             l4: send 8b to 1 tag 1\nl4 requires l3\nl5: recv 4b from 1 tag 1\nl5 requires l3\n}\n"
        );
    }

    /// Takes a whole number that fits into the type that `txt2bin` has for it.
    fn whole<T: std::str::FromStr>(word: &str) -> bool {
        word.bytes().all(|byte| byte.is_ascii_digit()) && word.parse::<T>().is_ok()
    }

    /// `[a-zA-Z][a-zA-Z0-9_]*`, and no keyword at the beginning of a line.
    fn label(word: &str) -> bool {
        let first = word.starts_with(|c: char| c.is_ascii_alphabetic());
        let keywords = ["send", "recv", "calc", "rank", "num_ranks"];
        let rest = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        first && rest && !keywords.contains(&word)
    }

    /// Whether a line is one of `txt2bin`'s: the grammar of `txt2bin.re` without its comments and without `nic` and `cpu`,
    /// which are not written here.
    fn is_line(line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [""] | ["}"] => true,
            ["num_ranks", ranks] => whole::<u32>(ranks),
            ["rank", rank, "{"] => whole::<u32>(rank),
            [own, "requires", other] => label(own) && label(other),
            [own, "calc", ns] => own.strip_suffix(':').is_some_and(label) && whole::<u64>(ns),
            [own, verb, size, towards, peer, "tag", tag] => {
                own.strip_suffix(':').is_some_and(label)
                    && matches!((verb, towards), ("send", "to") | ("recv", "from"))
                    && size.strip_suffix('b').is_some_and(whole::<u64>)
                    && whole::<u32>(peer)
                    && whole::<u32>(tag)
            }
            _ => false,
        }
    }

    #[test]
    fn every_export_is_in_the_grammar_of_txt2bin() {
        for line in [
            "  l1: calc 3",
            "l1 : calc 3",
            "l1: calc 3.5",
            "l1: send 4 to 1 tag 0",
            "rank 0",
            "1: calc 3",
        ] {
            assert!(!is_line(line), "{line} is not in the grammar");
        }
        for entry in registry::ALL {
            let Ok(algorithm) = registry::find(entry.name) else { continue };
            for topology in [Topology::flat(2), Topology::flat(7), Topology::uniform(2, 4)] {
                let Ok(schedule) = algorithm.schedule(&topology) else { continue };
                for gamma_ns in [0.0, 0.3] {
                    let (schedule, element_bytes) = (&*schedule, 4);
                    for elements in [3, 1 << 20] {
                        let text = Goal { schedule, elements, element_bytes, gamma_ns }.to_string();
                        let wrong = text.lines().find(|line| !is_line(line));
                        assert_eq!(wrong, None, "{} on {topology}", entry.name);
                        assert!(text.ends_with("}\n"));
                    }
                }
            }
        }
    }

    #[test]
    fn every_message_has_two_ends_and_every_label_comes_first() {
        for entry in registry::ALL {
            let Ok(algorithm) = registry::find(entry.name) else { continue };
            let Ok(schedule) = algorithm.schedule(&Topology::uniform(3, 2)) else { continue };
            let goal =
                Goal { schedule: &*schedule, elements: 1000, element_bytes: 4, gamma_ns: 0.1 };
            let text = goal.to_string();
            let (mut sends, mut receives, mut rank) = (Vec::new(), Vec::new(), String::new());
            let mut labels = 0;
            for line in text.lines().map(str::trim) {
                let words: Vec<&str> = line.split([' ', ':']).filter(|w| !w.is_empty()).collect();
                match words[..] {
                    ["rank", found, "{"] => (rank, labels) = (found.to_string(), 0),
                    [_, "send", size, "to", to, "tag", tag] => {
                        labels += 1;
                        sends.push([&rank, to, size, tag].join(" "));
                    }
                    [_, "recv", size, "from", from, "tag", tag] => {
                        labels += 1;
                        receives.push([from, &rank, size, tag].join(" "));
                    }
                    [_, "calc", _] => labels += 1,
                    [own, "requires", other] => {
                        let number = |label: &str| label[1..].parse::<usize>().unwrap();
                        assert!(number(other) < number(own) && number(own) == labels, "{line}");
                    }
                    _ => {}
                }
            }
            sends.sort();
            receives.sort();
            assert!(!sends.is_empty() && sends == receives, "{}", entry.name);
        }
    }
}
