//! Staging on threads, which a schedule does not contain: two ranks that exchange the same chunks cannot read each
//! other's while writing their own, so they stage what they receive.

use algorithms::schedule::{Action, Move, Part, Schedule};
use algorithms::topology::Rank;

/// The schedule with staging: before each step, a step in which a rank copies, from itself, the data that it is
/// about to receive into chunks that it sends at the same time.
pub struct Staging<'s>(pub &'s dyn Schedule);

impl Staging<'_> {
    /// Whether any step is staged.
    pub fn stages(&self) -> bool {
        let puts_aside = |rank, step| {
            let mut part = Part::default();
            self.part(rank, step, &mut part);
            !part.sends.is_empty()
        };
        (0..self.ranks()).any(|rank| (0..self.0.steps()).any(|step| puts_aside(rank, 2 * step)))
    }
}

impl Schedule for Staging<'_> {
    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    fn chunks(&self) -> usize {
        self.0.chunks()
    }

    fn steps(&self) -> usize {
        2 * self.0.steps()
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        if step % 2 == 1 {
            return self.0.part(rank, step / 2, part);
        }
        let mut next = Part::default();
        self.0.part(rank, step / 2, &mut next);
        let overlap = |a: &Move, b: &Move| a.first < b.end && b.first < a.end;
        for receive in &next.receives {
            if next.sends.iter().any(|send| overlap(send, receive)) {
                let aside = Move::new(rank, receive.chunks(), Action::Copy);
                part.sends.push(aside);
                part.receives.push(aside);
            }
        }
    }

    fn contributes(&self, rank: Rank) -> bool {
        self.0.contributes(rank)
    }

    fn rotation(&self) -> usize {
        self.0.rotation()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use algorithms::registry::find;
    use algorithms::simulate::machine::{Machine, Reduction};
    use algorithms::simulate::rounds::simulate;
    use algorithms::topology::Topology;

    /// Recursive doubling stages whole buffers, a ring nothing.
    #[test]
    fn exchanges_are_copied_once_more() {
        let machine =
            Machine { reduction: Reduction::alike(3e-10, 2e-10), ..Machine::flat(0.0, 0.0, 0.0) };
        for (name, ranks, expected_s) in [
            ("recursive-doubling", 2, 5e-4),
            ("recursive-doubling", 4, 10e-4),
            ("ring", 2, 2.5e-4),
            ("ring", 4, 3.75e-4),
        ] {
            let schedule = find(name).unwrap().schedule(&Topology::flat(ranks)).unwrap();
            assert_eq!(Staging(&*schedule).stages(), name != "ring");
            let outcome = simulate(&Staging(&*schedule), &machine, 1e6, &[]).unwrap();
            assert!((outcome.end.at_s / expected_s - 1.0).abs() < 1e-9, "{name}: {outcome:?}");
        }
    }
}
