//! Chooses an algorithm by the size of the buffer, among candidates for a topology.
//!
//! The choice is among the candidates that no other one beats in every coefficient of [`Cost`]: on every
//! machine, one of them is the best. With alpha, beta and gamma given, the time of each is a linear
//! function of the size, so the choice is the lower envelope of a few straight lines. If there are
//! measurements, these decide instead.
//!
//! Cost: that of the chosen algorithm. Without a size it is that of the choice for large buffers.

use std::sync::Arc;

use crate::algorithm::{Algorithm, Choice, Unsupported, Volume};
use crate::cost::{Cost, Link, Machine};
use crate::schedule::Schedule;
use crate::topology::{Rank, Topology};

/// An algorithm among which to choose.
#[derive(Clone)]
pub struct Candidate {
    /// The name under which it is registered.
    pub name: String,
    /// The algorithm.
    pub algorithm: Arc<dyn Algorithm>,
}

/// Chooses by size.
pub struct Auto {
    by: By,
}

enum By {
    Cost {
        /// What to choose among on a topology.
        candidates: fn(&Topology) -> Vec<Candidate>,
        machine: Machine,
    },
    /// Each with the smallest size in bytes that it is for; ascending from 0.
    Measurement(Vec<(usize, Candidate)>),
}

/// A cluster of nodes with NVLink inside and InfiniBand between them, in round numbers: assumed where
/// nothing is measured.
pub const ASSUMED: Machine = Machine {
    inside: Link { alpha_s: 2e-6, beta_s: 1.0 / 50e9 },
    between: Link { alpha_s: 5e-6, beta_s: 1.0 / 10e9 },
    gamma_s: 1.0 / 200e9,
    overhead_s: 5e-7,
};

impl Auto {
    /// Chooses by cost on this machine among the candidates that there are on a topology.
    pub fn by_cost(candidates: fn(&Topology) -> Vec<Candidate>, machine: Machine) -> Auto {
        Auto { by: By::Cost { candidates, machine } }
    }

    /// Chooses as measurements say: algorithms, each with the smallest size in bytes that it is for,
    /// ascending.
    ///
    /// # Panics
    /// When the first size is not 0.
    pub fn by_measurement(table: Vec<(usize, Candidate)>) -> Auto {
        assert_eq!(table.first().map(|(from_bytes, _)| *from_bytes), Some(0), "sizes start at 0");
        Auto { by: By::Measurement(table) }
    }

    fn table(&self, topology: &Topology) -> Vec<(usize, Candidate)> {
        match &self.by {
            By::Measurement(table) => table.clone(),
            By::Cost { candidates, machine } => {
                envelope(&pareto_front(candidates(topology), topology), machine)
            }
        }
    }

    fn for_large(&self, topology: &Topology) -> Arc<dyn Algorithm> {
        let table = self.table(topology);
        let (_, candidate) = table.last().expect("there is a choice for every size");
        candidate.algorithm.clone()
    }
}

impl Algorithm for Auto {
    fn name(&self) -> String {
        "auto".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        self.for_large(topology).schedule(topology)
    }

    fn steps(&self, topology: &Topology) -> usize {
        self.for_large(topology).steps(topology)
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        self.for_large(topology).volume(topology, rank)
    }

    fn choices(&self, topology: &Topology) -> Result<Vec<Choice>, Unsupported> {
        let choice = |(from_bytes, Candidate { name, algorithm })| {
            Ok(Choice { from_bytes, name, schedule: algorithm.schedule(topology)? })
        };
        self.table(topology).into_iter().map(choice).collect()
    }
}

/// The candidates that no other one beats in every coefficient of [`Cost`], with their cost.
pub fn pareto_front(candidates: Vec<Candidate>, topology: &Topology) -> Vec<(Candidate, Cost)> {
    let mut front: Vec<(Candidate, Cost)> = Vec::new();
    for candidate in candidates {
        let Ok(schedule) = candidate.algorithm.schedule(topology) else { continue };
        let cost = Cost::of(&*schedule, topology);
        let dominates = |a: &Cost, b: &Cost| a.is_at_most(b) && !b.is_at_most(a);
        if front.iter().all(|(_, other)| !dominates(other, &cost)) {
            front.retain(|(_, other)| !dominates(&cost, other));
            front.push((candidate, cost));
        }
    }
    front
}

/// The lower envelope of the candidates' times over size.
fn envelope(candidates: &[(Candidate, Cost)], machine: &Machine) -> Vec<(usize, Candidate)> {
    let line = |cost: &Cost| (cost.latency(machine), cost.seconds_per_byte(machine));
    let lines: Vec<_> =
        candidates.iter().map(|(candidate, cost)| (line(cost), candidate)).collect();
    // The least latency; of those the fewest seconds per byte.
    let first = lines.iter().min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let (mut current, candidate) = *first.expect("some algorithm supports every world");
    let mut table = vec![(0, candidate.clone())];
    // The flatter line that crosses the current one first is the best from there on.
    let next = |(latency, slope): (f64, f64)| {
        let flatter = lines.iter().filter(move |((_, other), _)| *other < slope * (1.0 - 1e-9));
        let crossings = flatter
            .map(move |(line, candidate)| ((line.0 - latency) / (slope - line.1), line, candidate));
        crossings.min_by(|(a, la, _), (b, lb, _)| a.total_cmp(b).then(la.1.total_cmp(&lb.1)))
    };
    while let Some((size_bytes, &line, candidate)) = next(current) {
        current = line;
        table.push((size_bytes.ceil() as usize, (*candidate).clone()));
    }
    // Of choices for the same size the last one is the better.
    let begins = |table: &[(usize, Candidate)], at: usize| table.get(at + 1).map(|next| next.0);
    let kept = |&at: &usize| begins(&table, at) != Some(table[at].0);
    (0..table.len()).filter(kept).map(|at| table[at].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{registry, verify};

    fn best(topology: &Topology, size_bytes: usize, machine: &Machine) -> f64 {
        let times = registry::eligible(topology).into_iter().filter_map(|candidate| {
            let schedule = candidate.algorithm.schedule(topology).ok()?;
            Some(Cost::of(&*schedule, topology).time(size_bytes, machine))
        });
        times.fold(f64::INFINITY, f64::min)
    }

    /// On machines of all kinds no registered algorithm would be faster than the choice.
    #[test]
    fn the_choice_is_the_best_of_all() {
        let link = |alpha_s, beta_s| Link { alpha_s, beta_s };
        let fast_nodes = Machine {
            inside: link(1e-7, 1e-12),
            between: link(1e-4, 1e-8),
            gamma_s: 1e-12,
            overhead_s: 0.0,
        };
        let slow_adding = Machine {
            inside: link(1e-6, 1e-10),
            between: link(1e-6, 1e-10),
            gamma_s: 1e-8,
            overhead_s: 1e-6,
        };
        for machine in [ASSUMED, fast_nodes, slow_adding] {
            for world in [
                Topology::flat(1),
                Topology::flat(2),
                Topology::flat(7),
                Topology::flat(64),
                Topology::uniform(4, 6),
                Topology::uniform(1, 8),
                Topology::new(&[3, 1, 2]),
            ] {
                let auto = registry::auto_by_cost(machine);
                let choices = auto.choices(&world).unwrap();
                assert!(choices[0].from_bytes == 0);
                assert!(choices.is_sorted_by(|a, b| a.from_bytes < b.from_bytes));
                for size_bytes in (0..31).map(|bits| (1_usize << bits) - 1) {
                    let choice = choices.iter().rfind(|choice| choice.from_bytes <= size_bytes);
                    let cost = Cost::of(&*choice.unwrap().schedule, &world);
                    let (time, best) =
                        (cost.time(size_bytes, &machine), best(&world, size_bytes, &machine));
                    assert!(time <= best * (1.0 + 1e-9), "{world}, {size_bytes} B");
                }
                for choice in choices {
                    let algorithm = registry::find(&choice.name).unwrap();
                    verify::algorithm(&*algorithm, &world).unwrap();
                }
            }
        }
    }

    #[test]
    fn small_buffers_get_few_steps_and_large_ones_few_bytes() {
        let names = |world: &Topology| {
            let choices = registry::auto_by_cost(ASSUMED).choices(world).unwrap();
            choices.into_iter().map(|choice| choice.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&Topology::flat(8)), ["one-shot", "two-shot"]);
        let summit = names(&Topology::uniform(100, 6));
        assert!(summit.iter().all(|name| name.contains(':')), "{summit:?}");
        assert!(summit.len() > 1, "{summit:?}");
    }

    #[test]
    fn measurements_overrule_the_model() {
        let auto = registry::auto_by_measurement(vec![(0, "tree".into()), (1024, "ring".into())]);
        let choices = auto.choices(&Topology::flat(4)).unwrap();
        let found: Vec<_> = choices.iter().map(|c| (c.from_bytes, &*c.name)).collect();
        assert_eq!(found, [(0, "tree"), (1024, "ring")]);
        assert_eq!(auto.schedule(&Topology::flat(4)).unwrap().steps(), 6);
    }
}
