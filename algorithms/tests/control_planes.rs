//! Both control planes under shuffled readiness and delivery: every tensor exactly once per step,
//! in the same messages and the same order on all ranks.

use std::collections::VecDeque;
use std::sync::Arc;

use algorithms::control::{
    self, ControlPlane, DataType, Effect, Event, ReduceOp, Response, Settings, Tensor, Tensors,
};
use algorithms::grouped::split;
use proptest::prelude::*;

/// A world of control planes and what is under way between them.
struct World {
    planes: Vec<Box<dyn ControlPlane>>,
    /// Messages in flight, per pair of ranks in order.
    mail: Vec<(usize, usize, VecDeque<Vec<u8>>)>,
    /// Bits that ranks have asked to be ANDed.
    bits: Vec<Option<Vec<u64>>>,
    executed: Vec<Vec<Response>>,
    in_cycle: Vec<bool>,
    /// Words ANDed, and messages sent, over all ranks.
    ands: usize,
    sent: usize,
}

impl World {
    fn new(plane: &str, ranks: usize, list: &[Tensor], threshold: usize, capacity: usize) -> World {
        // Every rank registers the same tensors in another order, as its own numbers.
        let planes = (0..ranks).map(|rank| {
            let mut list = list.to_vec();
            let turn = rank % list.len();
            list.rotate_left(turn);
            let tensors = Arc::new(Tensors::new(list).unwrap());
            let settings = Settings {
                rank,
                ranks,
                fusion_threshold_bytes: threshold,
                cache_capacity: capacity,
            };
            control::find(plane, tensors, &settings).unwrap()
        });
        World {
            planes: planes.collect(),
            mail: Vec::new(),
            bits: vec![None; ranks],
            executed: vec![Vec::new(); ranks],
            in_cycle: vec![false; ranks],
            ands: 0,
            sent: 0,
        }
    }

    /// Gives one event to one rank and carries out what it wants.
    fn give(&mut self, rank: usize, event: Event) {
        let mut out = Vec::new();
        self.planes[rank].on(event, &mut out).unwrap();
        for effect in out {
            assert!(self.in_cycle[rank], "rank {rank} acts outside a cycle");
            match effect {
                Effect::Send { to, message } => self.post(rank, to, message),
                Effect::Broadcast(message) => {
                    let others = (0..self.planes.len()).filter(|&to| to != rank);
                    for to in others.collect::<Vec<_>>() {
                        self.post(rank, to, message.to_vec());
                    }
                }
                Effect::AllAnd(words) => {
                    self.ands += 1;
                    assert!(self.bits[rank].replace(words).is_none());
                }
                Effect::Execute(response) => self.executed[rank].push(response),
                Effect::EndCycle => self.in_cycle[rank] = false,
            }
        }
    }

    fn post(&mut self, from: usize, to: usize, message: Vec<u8>) {
        self.sent += 1;
        match self.mail.iter_mut().find(|(a, b, _)| (*a, *b) == (from, to)) {
            Some((_, _, queue)) => queue.push_back(message),
            None => self.mail.push((from, to, VecDeque::from([message]))),
        }
    }

    /// One cycle on every rank, begun and delivered in the order that `choose` decides.
    fn cycle(&mut self, choose: &mut impl FnMut(usize) -> usize) {
        let ranks = self.planes.len();
        let mut waiting: Vec<usize> = (0..ranks).collect();
        loop {
            let pairs: Vec<usize> =
                (0..self.mail.len()).filter(|&pair| !self.mail[pair].2.is_empty()).collect();
            let anded = self.bits.iter().all(Option::is_some);
            let choices = waiting.len() + pairs.len() + usize::from(anded);
            if choices == 0 {
                break;
            }
            let choice = choose(choices);
            if choice < waiting.len() {
                let rank = waiting.swap_remove(choice);
                self.in_cycle[rank] = true;
                self.give(rank, Event::Cycle);
            } else if let Some(&pair) = pairs.get(choice - waiting.len()) {
                let (from, to, queue) = &mut self.mail[pair];
                let (from, to) = (*from, *to);
                let message = queue.pop_front().unwrap();
                self.give(to, Event::Arrived { from, message: &message });
            } else {
                let bits: Vec<_> = self.bits.iter_mut().map(|bits| bits.take().unwrap()).collect();
                let and = |a: Vec<u64>, b: &Vec<u64>| a.iter().zip(b).map(|(a, b)| a & b).collect();
                let anded = bits[1..].iter().fold(bits[0].clone(), and);
                (0..ranks).for_each(|rank| self.give(rank, Event::AllAnded(&anded)));
            }
        }
        assert!(self.in_cycle.iter().all(|busy| !busy), "a cycle did not end");
    }
}

fn tensors(sizes: &[u64], mixed: bool) -> Vec<Tensor> {
    let tensor = |(index, &size): (usize, &u64)| {
        let dtype = if mixed && index % 3 == 0 { DataType::F16 } else { DataType::F32 };
        Tensor::new(format!("layer{index}.weight"), dtype, ReduceOp::Average, &[size])
    };
    sizes.iter().enumerate().map(tensor).collect()
}

/// Names executed by each rank, message by message.
fn messages(world: &World, list: &[Tensor]) -> Vec<Vec<Vec<String>>> {
    let name = |rank: usize, id: usize| list[(id + rank % list.len()) % list.len()].name.clone();
    (world.executed.iter().enumerate())
        .map(|(rank, responses)| {
            let names = |response: &Response| {
                assert_eq!(response.error, None);
                response.tensors.iter().map(|&id| name(rank, id)).collect()
            };
            responses.iter().map(names).collect()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_tensor_once_and_in_one_order(
        plane in proptest::sample::select(control::NAMES.to_vec()),
        ranks in 1_usize..7,
        sizes in proptest::collection::vec(0_u64..300, 1..24),
        mixed in any::<bool>(),
        threshold in prop_oneof![Just(0_usize), 1_usize..4000, Just(1 << 30)],
        capacity in prop_oneof![Just(0_usize), 1_usize..30, Just(1024)],
        steps in 1_usize..5,
        seed in any::<u64>(),
    ) {
        let list = tensors(&sizes, mixed);
        let mut world = World::new(plane, ranks, &list, threshold, capacity);
        let mut state = seed | 1;
        let mut choose = move |choices: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % choices
        };
        for step in 1..=steps {
            // What each rank has yet to make ready, in its own order.
            let mut left: Vec<Vec<usize>> = (0..ranks).map(|_| (0..list.len()).collect()).collect();
            let mut cycles = 0;
            while world.executed[0].iter().map(|r| r.tensors.len()).sum::<usize>() < step * list.len() {
                for (rank, left) in left.iter_mut().enumerate() {
                    for _ in 0..choose(left.len() + 1) {
                        let id = left.swap_remove(choose(left.len()));
                        world.give(rank, Event::Ready(id));
                    }
                }
                world.cycle(&mut choose);
                cycles += 1;
                prop_assert!(cycles < 10_000, "no progress");
            }
            let messages = messages(&world, &list);
            for rank in 1..ranks {
                prop_assert_eq!(&messages[rank], &messages[0], "rank {}", rank);
            }
            let mut names: Vec<_> = messages[0].concat();
            names.sort();
            let mut expected: Vec<_> = list.iter().map(|tensor| tensor.name.clone()).collect();
            expected = (0..step).flat_map(|_| expected.clone()).collect();
            expected.sort();
            prop_assert_eq!(names, expected);
        }
        for response in &world.executed[0] {
            let bytes: usize = response.tensors.iter().map(|&id| list[id].size_bytes()).sum();
            prop_assert!(response.tensors.len() == 1 || bytes <= threshold);
        }
    }
}

/// A world in which all tensors are ready at once, every step.
fn run(plane: &str, ranks: usize, list: &[Tensor], steps: usize) -> World {
    let mut world = World::new(plane, ranks, list, 1 << 30, 1024);
    for _ in 0..steps {
        for rank in 0..ranks {
            (0..list.len()).for_each(|id| world.give(rank, Event::Ready(id)));
        }
        world.cycle(&mut |_| 0);
    }
    world
}

#[test]
fn a_cached_cycle_is_one_and_without_messages() {
    let list = tensors(&[5; 161], false);
    let first = run(control::bitvector::NAME, 4, &list, 1);
    let both = run(control::bitvector::NAME, 4, &list, 2);
    assert_eq!((first.ands, first.sent), (4, 6), "3 lists of requests, 3 answers");
    assert_eq!((both.ands, both.sent), (8, 6), "the second step needs no message");
    let both = run(control::coordinator::NAME, 4, &list, 2);
    assert_eq!((both.ands, both.sent), (0, 12), "the coordinator is asked every time");
}

#[test]
fn idle_cycles_cost_an_and_or_a_round_of_messages() {
    for (plane, ands, sent) in [("bitvector", 3, 0), ("coordinator", 0, 4)] {
        let mut world = World::new(plane, 3, &tensors(&[1], false), 1, 8);
        world.cycle(&mut |_| 0);
        assert_eq!((world.ands, world.sent), (ands, sent), "{plane}");
        assert!(world.executed.iter().all(Vec::is_empty));
    }
}

#[test]
fn cached_tensors_come_in_bit_order_whatever_the_order_of_readiness() {
    let list = tensors(&[1, 2, 3], false);
    let mut world = run(control::bitvector::NAME, 2, &list, 1);
    for rank in 0..2 {
        [2, 0, 1].iter().for_each(|&id| world.give(rank, Event::Ready(id)));
    }
    world.cycle(&mut |_| 0);
    assert_eq!(world.executed[0][1].tensors, world.executed[0][0].tensors);
}

#[test]
fn a_mismatch_is_an_error_on_every_rank_and_the_rest_goes_on() {
    for plane in control::NAMES {
        let mut list = tensors(&[4, 4], false);
        let mut world = World::new(plane, 3, &list, 1 << 20, 8);
        list[0].shape = vec![2, 2];
        let settings =
            Settings { rank: 2, ranks: 3, fusion_threshold_bytes: 1 << 20, cache_capacity: 8 };
        let tensors = Arc::new(Tensors::new(list).unwrap());
        world.planes[2] = control::find(plane, tensors, &settings).unwrap();
        for rank in 0..3 {
            (0..2).for_each(|id| world.give(rank, Event::Ready(id)));
        }
        world.cycle(&mut |_| 0);
        for rank in 0..3 {
            let errors: Vec<_> =
                world.executed[rank].iter().filter_map(|response| response.error.clone()).collect();
            assert_eq!(
                errors,
                ["Mismatched shapes for tensor \"layer0.weight\": rank 0 has [4], but rank 2 has \
                  [2, 2]."],
            );
            assert_eq!(world.executed[rank].len(), 2, "the other tensor was reduced");
        }
    }
}

/// Horovod checks all ranks' types before it looks at shapes.
#[test]
fn the_earliest_check_that_fails_is_reported() {
    let list = tensors(&[4], false);
    let mut world = World::new("coordinator", 3, &list, 0, 0);
    for (rank, change) in [
        (1, Tensor { shape: vec![2, 2], ..list[0].clone() }),
        (2, Tensor { dtype: DataType::F16, ..list[0].clone() }),
    ] {
        let settings = Settings { rank, ranks: 3, fusion_threshold_bytes: 0, cache_capacity: 0 };
        let tensors = Arc::new(Tensors::new(vec![change]).unwrap());
        world.planes[rank] = control::find("coordinator", tensors, &settings).unwrap();
    }
    (0..3).for_each(|rank| world.give(rank, Event::Ready(0)));
    world.cycle(&mut |_| 0);
    let error = world.executed[1][0].error.clone().unwrap();
    assert!(
        error.starts_with("Mismatched data types") && error.contains("rank 2 has f16"),
        "{error}"
    );
}

/// A cycle with something new goes to rank 0 on all ranks; what is cached and common comes first, in
/// the order of its bits, then what is new.
#[test]
fn cached_tensors_come_before_new_ones() {
    let list = tensors(&[1, 2, 3, 4], false);
    let mut world = World::new("bitvector", 2, &list, 0, 8);
    let ready = |world: &mut World, names: &[usize]| {
        for rank in 0..2 {
            names.iter().for_each(|&name| world.give(rank, Event::Ready((name + 4 - rank) % 4)));
        }
    };
    ready(&mut world, &[2, 1]);
    world.cycle(&mut |_| 0);
    ready(&mut world, &[3, 1, 0, 2]);
    world.cycle(&mut |_| 0);
    let order: Vec<_> = messages(&world, &list)[1].concat();
    let expected = [2, 1, 2, 1, 3, 0].map(|name| list[name].name.clone());
    assert_eq!(order, expected);
}

/// What only some ranks have ready waits, and a rank's own tensors are not asked for again.
#[test]
fn a_hit_that_is_not_common_waits_for_the_others() {
    let list = tensors(&[1, 2], false);
    let mut world = run("bitvector", 2, &list, 1);
    let sent = world.sent;
    world.give(0, Event::Ready(0));
    world.give(0, Event::Ready(1));
    // Rank 1 numbers the same tensors the other way round.
    world.give(1, Event::Ready(0));
    world.cycle(&mut |_| 0);
    assert_eq!(messages(&world, &list)[0].last().unwrap(), &[list[1].name.clone()]);
    world.cycle(&mut |_| 0);
    assert_eq!(world.executed[0].len(), 2, "an idle cycle: rank 1 still lacks the other");
    world.give(1, Event::Ready(1));
    world.cycle(&mut |_| 0);
    assert_eq!(messages(&world, &list)[1].last().unwrap(), &[list[0].name.clone()]);
    assert_eq!(world.sent, sent, "no message in any of these cycles");
}

#[test]
fn a_tensor_ready_twice_and_foreign_messages_are_errors() {
    for plane in control::NAMES {
        let mut world = World::new(plane, 2, &tensors(&[1], false), 1, 8);
        let mut out = Vec::new();
        world.planes[1].on(Event::Ready(0), &mut out).unwrap();
        let error = world.planes[1].on(Event::Ready(0), &mut out).unwrap_err();
        assert!(error.to_string().contains("\"layer0.weight\" became ready again"), "{error}");
        let noise = Event::Arrived { from: 1, message: b"noise" };
        let error = world.planes[0].on(noise, &mut out).unwrap_err();
        assert!(error.to_string().starts_with("message from rank 1: byte 0: expected"), "{error}");
    }
}

/// What `grouped` changes: tensors of a group are released together, so that there are as many
/// messages as groups, while a plain ring sends what happens to be ready in each cycle.
#[test]
fn groups_make_other_messages_than_plain_readiness() {
    let list = tensors(&[100; 12], false);
    let groups = split(list.len(), 3);
    // Two tensors become ready per cycle, from the last to the first, as in a backward pass.
    let ready: Vec<usize> = (0..12).rev().collect();
    let run = |grouped: bool| {
        let mut world = World::new(control::bitvector::NAME, 2, &list, 1 << 20, 1024);
        for done in (2..=12).step_by(2) {
            let now = |upto: usize| -> Vec<usize> {
                let is_ready = |id: &usize| ready[..upto].contains(id);
                match grouped {
                    false => ready[..upto].to_vec(),
                    true => groups
                        .iter()
                        .filter(|group| (*group).clone().all(|id| is_ready(&id)))
                        .flat_map(|group| group.clone())
                        .collect(),
                }
            };
            for rank in 0..2 {
                let before = now(done - 2);
                let number = |id: usize| (id + 12 - rank) % 12;
                let new = now(done).into_iter().filter(|id| !before.contains(id));
                new.for_each(|id| world.give(rank, Event::Ready(number(id))));
            }
            world.cycle(&mut |_| 0);
        }
        messages(&world, &list)[0].iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(run(false), [2; 6], "one message of two tensors per cycle");
    assert_eq!(run(true), [4; 3], "one message per group");
}
