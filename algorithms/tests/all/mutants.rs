//! The verifier refuses every small mutation of every registered algorithm.

use algorithms::algorithm::{Algorithm, Unsupported, Volume};
use algorithms::listed::Listed;
use algorithms::registry::{ALL, find};
use algorithms::schedule::{Part, Schedule};
use algorithms::topology::{Rank, Topology};
use algorithms::verify::{self, Violation, schedule_moves};

/// Runs `mutate` on every transfer of every algorithm on some worlds; every mutant must be refused.
/// Returns the refusals.
fn refusals(mutate: impl Fn(&Listed, usize) -> Vec<Listed>) -> Vec<Violation> {
    let mut refusals = Vec::new();
    let worlds = [(2, 1), (3, 1), (5, 1), (8, 1), (1, 4), (2, 2), (3, 2), (2, 4), (4, 3)];
    for (nodes, local_size) in worlds {
        let world = Topology::uniform(nodes, local_size);
        for name in ALL.iter().map(|entry| entry.name).chain(["hierarchical:tree"]) {
            let algorithm = find(name).unwrap();
            let sound = Listed::of(&*algorithm.schedule(&world).unwrap());
            let volumes: Vec<Volume> =
                (0..world.ranks()).map(|rank| algorithm.volume(&world, rank)).collect();
            schedule_moves(&sound, &volumes).unwrap();
            for index in 0..sound.transfers().len() {
                for mutant in mutate(&sound, index) {
                    match schedule_moves(&mutant, &volumes) {
                        Err(violation) => refusals.push(violation),
                        Ok(_) => panic!("{name} on {world}: mutant of transfer {index} passed"),
                    }
                }
            }
        }
    }
    assert!(refusals.len() > 1000);
    refusals
}

fn says_step_rank_and_chunk(violation: &Violation) {
    let text = violation.to_string();
    if !matches!(violation, Violation::Volume { .. }) {
        assert!(["step", "rank", "chunk"].iter().all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn a_dropped_transfer_is_refused() {
    let refusals = refusals(|sound, index| {
        let (step, from, send, to, receive) = sound.transfers()[index];
        let mut mutant = sound.clone();
        mutant.steps[step][from].sends.remove(send);
        mutant.steps[step][to].receives.remove(receive);
        vec![mutant]
    });
    refusals.iter().for_each(says_step_rank_and_chunk);
    assert!(refusals.iter().any(|why| matches!(why, Violation::MissingPart { .. })));
}

#[test]
fn a_doubled_transfer_is_refused() {
    let refusals = refusals(|sound, index| {
        let (step, from, send, to, receive) = sound.transfers()[index];
        let mut mutant = sound.clone();
        let part = &mut mutant.steps[step];
        let entry = part[from].sends[send];
        part[from].sends.push(entry);
        let entry = part[to].receives[receive];
        part[to].receives.push(entry);
        vec![mutant]
    });
    refusals.iter().for_each(says_step_rank_and_chunk);
    assert!(refusals.iter().any(|why| matches!(why, Violation::ReducedTwice { .. })));
    assert!(refusals.iter().any(|why| matches!(why, Violation::WrittenTwice { .. })));
}

#[test]
fn a_transfer_misdirected_at_one_end_is_refused() {
    let refusals = refusals(|sound, index| {
        let (step, from, send, to, receive) = sound.transfers()[index];
        // Every wrong rank, itself and one that does not exist included.
        (0..=sound.ranks)
            .flat_map(|wrong| {
                let (mut sender, mut receiver) = (sound.clone(), sound.clone());
                sender.steps[step][from].sends[send].peer = wrong as u32;
                receiver.steps[step][to].receives[receive].peer = wrong as u32;
                let sender = (wrong != to).then_some(sender);
                sender.into_iter().chain((wrong != from).then_some(receiver))
            })
            .collect()
    });
    refusals.iter().for_each(says_step_rank_and_chunk);
}

#[test]
fn a_transfer_of_other_chunks_at_one_end_is_refused() {
    refusals(|sound, index| {
        let (step, from, send, _, _) = sound.transfers()[index];
        let mut mutant = sound.clone();
        let entry = &mut mutant.steps[step][from].sends[send];
        (entry.first, entry.end) = (entry.first + 1, entry.end + 1);
        vec![mutant]
    })
    .iter()
    .for_each(says_step_rank_and_chunk);
}

#[test]
fn a_transfer_misdirected_at_both_ends_is_refused_or_caught_by_the_promised_volume() {
    let refusals = refusals(|sound, index| {
        let (step, from, send, to, receive) = sound.transfers()[index];
        let others = (0..sound.ranks).filter(|&other| other != from && other != to);
        let mutants = others.map(|other| {
            let mut mutant = sound.clone();
            let part = &mut mutant.steps[step];
            part[from].sends[send].peer = other as u32;
            let moved = part[to].receives.remove(receive);
            part[other].receives.push(moved);
            mutant
        });
        mutants.collect()
    });
    refusals.iter().for_each(says_step_rank_and_chunk);
}

/// A step in which nothing happens changes no result and no volume.
#[test]
fn another_number_of_steps_is_refused() {
    struct Lazy(std::sync::Arc<dyn Algorithm>);
    impl Algorithm for Lazy {
        fn name(&self) -> String {
            self.0.name()
        }
        fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
            let mut lazy = Listed::of(&*self.0.schedule(topology)?);
            lazy.steps.insert(1, vec![Part::default(); lazy.ranks]);
            Ok(Box::new(lazy))
        }
        fn steps(&self, topology: &Topology) -> usize {
            self.0.steps(topology)
        }
        fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
            self.0.volume(topology, rank)
        }
    }
    let why = verify::algorithm(&Lazy(find("tree").unwrap()), &Topology::flat(5)).unwrap_err();
    assert_eq!(why.to_string(), "it takes 7 steps, but the algorithm promises 6");
}

/// A detour that still is an allreduce is caught by what the header promises, per rank.
#[test]
fn a_sound_allreduce_at_another_cost_is_refused() {
    let world = Topology::flat(3);
    let tree = find("tree").unwrap();
    let mut detour = Listed::of(&*tree.schedule(&world).unwrap());
    // In the last step rank 1, not rank 2, used to hear from rank 0; let rank 2 pass it on instead.
    let last = detour.steps.len() - 1;
    assert_eq!(detour.steps[last][0].sends.len(), 1);
    let mut entry = detour.steps[last][0].sends.remove(0);
    entry.peer = 1;
    detour.steps[last][2].sends.push(entry);
    detour.steps[last][1].receives[0].peer = 2;
    let volumes: Vec<_> = (0..3).map(|rank| tree.volume(&world, rank)).collect();
    let why = schedule_moves(&detour, &volumes).unwrap_err();
    assert!(matches!(why, Violation::Volume { rank: 0, .. }), "{why}");
}
