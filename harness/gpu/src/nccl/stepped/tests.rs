use std::collections::{BTreeSet, VecDeque};

use algorithms::combinators::Pipelined;
use algorithms::registry::{self, ALL};
use algorithms::schedule::{Move, Part, Schedule};
use algorithms::topology::Topology;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// Sums of powers of three encode how often each rank's part is included.
type Number = i64;

const ELEMENT_BYTES: usize = size_of::<Number>();

/// All ranks' lists, carried out as NCCL does: a group is over when all its sends and receives are, which
/// match in their order for each pair of ranks, and move their bytes at any moment.
struct World<'w> {
    lists: &'w [Stepped],
    data: Vec<Vec<Number>>,
    aside: Vec<Vec<Number>>,
    /// For each rank: the next task, and the remaining transfers of its group; none if it has not started.
    next: Vec<(usize, Option<usize>)>,
    /// For each pair of ranks: started and unmatched sends, and receives.
    begun: Vec<[VecDeque<Transfer>; 2]>,
}

impl World<'_> {
    fn new(lists: &[Stepped], elements: usize) -> World<'_> {
        let ranks = lists.len();
        let part =
            |rank| (0..elements).map(|at| 3_i64.pow(rank as u32) + at as Number % 7).collect();
        let aside =
            |list: &Stepped| vec![Number::MIN / 4; list.aside_bytes.div_ceil(ELEMENT_BYTES)];
        World {
            lists,
            data: (0..ranks).map(part).collect(),
            aside: lists.iter().map(aside).collect(),
            next: vec![(0, None); ranks],
            begun: vec![Default::default(); ranks * ranks],
        }
    }

    fn memory(&mut self, rank: Rank, at: At, elements: usize) -> &mut [Number] {
        let memory = match at.place {
            Place::Tensor(_) => &mut self.data[rank],
            Place::Aside => &mut self.aside[rank],
        };
        assert!(at.offset_bytes.is_multiple_of(ELEMENT_BYTES));
        &mut memory[at.offset_bytes / ELEMENT_BYTES..][..elements]
    }

    /// Advances a rank's list; false if it waits for its group or has finished.
    fn advance(&mut self, rank: Rank) -> bool {
        let ranks = self.lists.len();
        let (at, left) = self.next[rank];
        match (self.lists[rank].tasks.get(at), left) {
            (None, _) => return false,
            (Some(Task::Group { .. }), Some(0)) => (),
            (Some(Task::Group { .. }), Some(_)) => return false,
            (Some(Task::Group { sends, receives }), None) => {
                for send in sends {
                    self.begun[rank * ranks + send.peer][0].push_back(*send);
                }
                for receive in receives {
                    self.begun[receive.peer * ranks + rank][1].push_back(*receive);
                }
                self.next[rank].1 = Some(sends.len() + receives.len());
                return true;
            }
            (Some(Task::Copy { from, into, elements }), _) => {
                let vector = self.memory(rank, *from, *elements).to_vec();
                self.memory(rank, *into, *elements).copy_from_slice(&vector);
            }
            (Some(Task::Reduce { vectors, elements }), _) => {
                let mut sum = vec![0; *elements];
                for vector in vectors {
                    let read = self.memory(rank, *vector, *elements);
                    sum.iter_mut().zip(read).for_each(|(sum, number)| *sum += *number);
                }
                self.memory(rank, vectors[0], *elements).copy_from_slice(&sum);
            }
        }
        self.next[rank] = (at + 1, None);
        true
    }

    /// Executes a matched transfer of a pair of ranks; false if there is none.
    fn transfer(&mut self, pair: usize) -> bool {
        let (from, to) = (pair / self.lists.len(), pair % self.lists.len());
        let [sends, receives] = &mut self.begun[pair];
        if sends.is_empty() || receives.is_empty() {
            return false;
        }
        let (send, receive) = (sends.pop_front().unwrap(), receives.pop_front().unwrap());
        assert_eq!(send.elements, receive.elements, "from rank {from} to rank {to}");
        let vector = self.memory(from, send.at, send.elements).to_vec();
        self.memory(to, receive.at, receive.elements).copy_from_slice(&vector);
        for rank in [from, to] {
            *self.next[rank].1.as_mut().unwrap() -= 1;
        }
        true
    }

    /// The ranks' data in the end, in an order by lot.
    fn run(mut self, random: &mut ChaCha8Rng) -> Result<Vec<Vec<Number>>, String> {
        let ranks = self.lists.len();
        let moves = ranks + ranks * ranks;
        loop {
            let first = random.random_range(0..moves);
            let moved = (0..moves).map(|turn| (first + turn) % moves).any(|which| {
                match which.checked_sub(ranks) {
                    Some(pair) => self.transfer(pair),
                    None => self.advance(which),
                }
            });
            if !moved {
                break;
            }
        }
        let is_through = |rank: &Rank| self.next[*rank].0 == self.lists[*rank].tasks.len();
        match (0..ranks).find(|rank| !is_through(rank)) {
            Some(rank) => Err(format!("rank {rank} waits for ever")),
            None => Ok(self.data),
        }
    }
}

fn expected(ranks: usize, elements: usize) -> Vec<Number> {
    let all: Number = (0..ranks).map(|rank| 3_i64.pow(rank as u32)).sum();
    (0..elements).map(|at| all + ranks as Number * (at as Number % 7)).collect()
}

/// Whether every rank ends with every part, in some orders.
fn is_right(
    puts_aside: bool,
    programs: &[Program],
    elements: usize,
    seed: u64,
) -> Result<(), String> {
    let list = |program| Stepped::with(puts_aside, program, elements, ELEMENT_BYTES);
    let lists: Vec<_> = programs.iter().map(list).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..3 {
        let got = World::new(&lists, elements).run(&mut random)?;
        let expected = expected(programs.len(), elements);
        if let Some(rank) = got.iter().position(|data| *data != expected) {
            return Err(format!("rank {rank} has a wrong result"));
        }
    }
    Ok(())
}

fn compiled(schedule: &dyn Schedule) -> Vec<Program> {
    (0..schedule.ranks()).map(|rank| Program::compile(schedule, rank)).collect()
}

/// The programs of every registered algorithm that has any in that world, whole and in segments.
fn every_program(ranks: usize) -> Vec<(String, Vec<Program>)> {
    let mut worlds = vec![Topology::flat(ranks)];
    if ranks > 2 && ranks.is_multiple_of(2) {
        worlds.extend([Topology::uniform(2, ranks / 2), Topology::uniform(ranks / 2, 2)]);
    }
    let mut all = Vec::new();
    for entry in ALL {
        let algorithm = registry::find(entry.name).unwrap();
        for world in &worlds {
            for choice in algorithm.choices(world).into_iter().flatten() {
                let name = format!("{} on {world}", entry.name);
                all.push((name.clone(), compiled(&*choice.schedule)));
                let pipelined = Pipelined::with_lag(&*choice.schedule, 3, 4);
                all.push((format!("{name} in 3 segments"), compiled(&pipelined)));
            }
        }
    }
    all
}

#[test]
fn every_algorithm_is_right_on_grouped_sends_and_receives() {
    let mut names = BTreeSet::new();
    for ranks in 1..=8 {
        for (seed, (name, programs)) in every_program(ranks).into_iter().enumerate() {
            for elements in [0, 1, 3, 7, 64, 333] {
                let ended = is_right(true, &programs, elements, seed as u64);
                assert_eq!(ended, Ok(()), "{name}, {elements} elements");
            }
            names.insert(name.split(' ').next().unwrap().to_string());
        }
    }
    assert_eq!(names.len(), ALL.len(), "{names:?}");
}

/// A step has one group at most, and kernels read no more vectors than they can.
#[test]
fn there_is_one_group_for_each_step() {
    for (name, programs) in every_program(8) {
        for program in &programs {
            let stepped = Stepped::new(program, 1000, ELEMENT_BYTES);
            let steps: BTreeSet<_> = program.ops.iter().map(|op| op.step).collect();
            assert!(stepped.groups() <= steps.len(), "{name}");
            let most = stepped.tasks.iter().filter_map(|task| match task {
                Task::Reduce { vectors, .. } => Some(vectors.len()),
                _ => None,
            });
            assert!(most.max().is_none_or(|most| most <= MOST_SOURCES), "{name}");
        }
    }
}

/// Two ranks: each hands its half over, then both swap their halves and swap them back. The second step overwrites
/// data that are being sent.
struct Swaps;

impl Schedule for Swaps {
    fn ranks(&self) -> usize {
        2
    }

    fn chunks(&self) -> usize {
        2
    }

    fn steps(&self) -> usize {
        4
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let peer = 1 - rank;
        let (sent, received, action) = match step {
            0 => (peer, rank, Action::Reduce),
            3 => (rank, peer, Action::Copy),
            // The complete half of each rank goes to and fro, in the place of the other's.
            _ => (0, 0, Action::Copy),
        };
        if step == 0 || step == 3 {
            part.sends.push(Move::new(peer, sent..sent + 1, action));
            part.receives.push(Move::new(peer, received..received + 1, action));
        } else {
            part.sends.push(Move::new(peer, 0..2, action));
            part.receives.push(Move::new(peer, 0..2, action));
        }
    }
}

/// An exchange of copies without staging gives wrong results in some order.
#[test]
fn copies_without_staging_give_wrong_results() {
    let programs = compiled(&Swaps);
    assert!(programs.iter().all(|program| program.receives.iter().any(|op| op.staged)));
    let mut found = 0;
    for seed in 0..20 {
        assert_eq!(is_right(true, &programs, 100, seed), Ok(()));
        found += usize::from(is_right(false, &programs, 100, seed).is_err());
    }
    assert!(found > 0, "no order has shown it");
}

/// Two ranks' ring, drawn.
#[test]
fn a_ring_of_two_becomes_two_groups_and_a_kernel() {
    let ring = registry::find("ring").unwrap().schedule(&Topology::flat(2)).unwrap();
    let stepped = Stepped::new(&Program::compile(&*ring, 0), 8, 4);
    let data = |offset_bytes| At { place: Place::Tensor(0), offset_bytes };
    let aside = At { place: Place::Aside, offset_bytes: 0 };
    let transfer = |at| Transfer { peer: 1, at, elements: 4 };
    let group = |send, receive| Task::Group {
        sends: vec![transfer(send)],
        receives: vec![transfer(receive)],
    };
    let expected = [
        group(data(16), aside),
        Task::Reduce { vectors: [data(0), aside].into_iter().collect(), elements: 4 },
        group(data(0), data(16)),
    ];
    assert_eq!((stepped.tasks, stepped.aside_bytes), (expected.to_vec(), 16));
}
