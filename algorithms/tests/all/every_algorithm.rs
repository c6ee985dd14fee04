//! Properties of every registered algorithm on worlds of many sizes and shapes: every size up to 64 ranks
//! with `KOLO_ALL_WORLDS=1`, small and awkward ones without.

use algorithms::combinators::Pipelined;
use algorithms::listed::Listed;
use algorithms::program::{Kind, Program};
use algorithms::registry::{ALL, find};
use algorithms::schedule::{Action, Move, Part, Schedule};
use algorithms::topology::Topology;
use algorithms::verify;
use proptest::prelude::*;

use crate::worlds;

/// Every name, every algorithm that takes an inner one over every other that can be one, and some
/// numbers. Groups change no schedule, so one of them is enough. `auto` has no schedule of its own.
fn names() -> Vec<String> {
    let all = || ALL.iter().filter(|entry| !entry.chooses());
    let mut names: Vec<String> = all().map(|entry| entry.name.to_string()).collect();
    let groups = |name: &str| find(name).unwrap().grouping().is_some();
    for outer in all().filter(|entry| entry.takes_inner() && !groups(entry.name)) {
        names.extend(all().map(|inner| format!("{}:{}", outer.name, inner.name)));
    }
    names.extend(["parameter-server:3", "hierarchical:parameter-server:2"].map(String::from));
    names.retain(|name| find(name).is_ok());
    names
}

/// Every way to put `ranks` on nodes of one size, and one ragged way.
fn shapes(ranks: usize) -> Vec<Topology> {
    let sizes = (1..=ranks).filter(|size| ranks.is_multiple_of(*size));
    let mut shapes: Vec<_> = sizes.map(|size| Topology::uniform(ranks / size, size)).collect();
    if ranks > 2 {
        shapes.push(Topology::new(&[ranks / 2 + 1, ranks - ranks / 2 - 1]));
    }
    shapes
}

#[test]
fn every_rank_ends_with_every_part_on_every_shape() {
    let mut proved = 0;
    // Primes, squares, and the neighbours of powers of two; 64 is the last size with one word per set.
    let awkward = [23, 24, 25, 31, 32, 33, 36, 48, 63, 64];
    for ranks in worlds(1..=64, (1..=17).chain(awkward)) {
        for world in shapes(ranks) {
            for name in names() {
                match verify::algorithm(&*find(&name).unwrap(), &world) {
                    Ok(_) => proved += 1,
                    Err(verify::Violation::Unsupported(why)) => {
                        let (why, ragged) = (why.to_string(), world.local_size().is_none());
                        let few = name.contains("server:") && why.contains("ranks to serve");
                        assert!(
                            few || ragged && why.contains("nodes of one size"),
                            "{name}: {why}"
                        );
                    }
                    Err(why) => panic!("{name} on {world}: {why}"),
                }
            }
        }
    }
    assert!(proved > 2000, "{proved} proofs");
}

/// Chunks, steps, and chunks sent by the busiest rank, of a proved schedule.
fn counted(name: &str, world: &Topology) -> (usize, usize, usize) {
    let algorithm = find(name).unwrap();
    let proof = verify::algorithm(&*algorithm, world).unwrap();
    (algorithm.schedule(world).unwrap().chunks(), proof.steps, proof.sent_most)
}

/// What the oracle `check_schedules.py` counts on flat worlds; the double tree's steps are the depth
/// of its dependencies, and PAT is its all-gather behind the same backwards.
#[test]
#[rustfmt::skip]
fn steps_and_bytes_agree_with_the_oracle() {
    const RANKS: [usize; 7] = [2, 3, 4, 6, 8, 12, 16];
    for (name, expected) in [
        ("ring", [(2, 2, 2), (3, 4, 4), (4, 6, 6), (6, 10, 10), (8, 14, 14), (12, 22, 22), (16, 30, 30)]),
        ("tree", [(1, 2, 1), (1, 4, 2), (1, 4, 2), (1, 6, 3), (1, 6, 3), (1, 8, 4), (1, 8, 4)]),
        ("double-tree", [(2, 2, 2), (2, 4, 3), (2, 4, 4), (2, 6, 4), (2, 6, 4), (2, 8, 4), (2, 8, 4)]),
        ("recursive-doubling", [(1, 1, 1), (1, 3, 2), (1, 2, 2), (1, 4, 3), (1, 3, 3), (1, 5, 4), (1, 4, 4)]),
        ("halving-doubling", [(2, 2, 2), (2, 4, 4), (4, 4, 6), (4, 6, 10), (8, 6, 14), (8, 8, 22), (16, 8, 30)]),
        ("swing-latency", [(1, 1, 1), (1, 3, 2), (1, 2, 2), (1, 4, 3), (1, 3, 3), (1, 5, 4), (1, 4, 4)]),
        ("swing", [(2, 2, 2), (2, 4, 4), (4, 4, 6), (4, 6, 10), (8, 6, 14), (8, 8, 22), (16, 8, 30)]),
        ("bine", [(2, 2, 2), (2, 4, 4), (4, 4, 6), (4, 6, 10), (8, 6, 14), (8, 8, 22), (16, 8, 30)]),
        ("torus", [(2, 2, 2), (3, 4, 4), (4, 4, 6), (6, 6, 10), (8, 8, 14), (12, 10, 22), (16, 12, 30)]),
        ("pat", [(2, 2, 2), (3, 4, 4), (4, 4, 6), (6, 6, 10), (8, 6, 14), (12, 8, 22), (16, 8, 30)]),
        ("two-shot", [(2, 2, 2), (3, 2, 4), (4, 2, 6), (6, 2, 10), (8, 2, 14), (12, 2, 22), (16, 2, 30)]),
    ] {
        for (ranks, expected) in RANKS.into_iter().zip(expected) {
            assert_eq!(counted(name, &Topology::flat(ranks)), expected, "{name} on {ranks}");
        }
    }
}

/// The same on nodes of some ranks each, and on larger worlds.
#[test]
#[rustfmt::skip]
fn steps_and_bytes_on_nodes_agree_with_the_oracle() {
    const WORLDS: [(usize, usize); 6] = [(2, 2), (2, 3), (4, 2), (3, 4), (4, 6), (8, 4)];
    for (name, expected) in [
        ("hierarchical", [(4, 4, 6), (6, 6, 10), (8, 8, 14), (12, 10, 22), (24, 16, 46), (32, 20, 62)]),
        ("hierarchical:halving-doubling", [(4, 4, 6), (6, 6, 10), (8, 6, 14), (8, 10, 16), (24, 14, 46), (32, 12, 62)]),
        ("hierarchical:double-tree", [(4, 4, 6), (6, 6, 10), (4, 6, 8), (8, 10, 15), (12, 14, 24), (8, 12, 16)]),
        ("hierarchical:tree", [(2, 4, 3), (3, 6, 5), (2, 6, 4), (4, 10, 8), (6, 14, 12), (4, 12, 9)]),
        ("leader", [(2, 4, 4), (2, 4, 6), (4, 8, 10), (3, 6, 13), (4, 8, 26), (8, 16, 38)]),
        ("leader:halving-doubling", [(2, 4, 4), (2, 4, 6), (4, 6, 10), (2, 6, 10), (4, 6, 26), (8, 8, 38)]),
        ("leader:double-tree", [(2, 4, 4), (2, 4, 6), (2, 6, 6), (2, 6, 9), (2, 6, 14), (2, 8, 10)]),
        ("leader:tree", [(1, 4, 2), (1, 4, 3), (1, 6, 3), (1, 6, 5), (1, 6, 7), (1, 8, 6)]),
    ] {
        for ((nodes, local_size), expected) in WORLDS.into_iter().zip(expected) {
            let world = Topology::uniform(nodes, local_size);
            assert_eq!(counted(name, &world), expected, "{name} on {world}");
        }
    }
    for (name, ranks, expected) in [
        ("ring", 31, (31, 60, 60)),
        ("ring", 64, (64, 126, 126)),
        ("tree", 31, (1, 10, 5)),
        ("tree", 64, (1, 12, 6)),
    ] {
        assert_eq!(counted(name, &Topology::flat(ranks)), expected, "{name} on {ranks}");
    }
}

/// `rotation` is a claim: rank r + d does in every step what rank r does, d ranks further on.
#[test]
fn turning_the_world_by_the_rotation_changes_only_chunk_names() {
    for world in (1..=24).flat_map(shapes) {
        for name in names() {
            let Ok(schedule) = find(&name).unwrap().schedule(&world) else {
                continue;
            };
            let (ranks, turn) = (schedule.ranks(), schedule.rotation());
            assert!(turn > 0 && ranks.is_multiple_of(turn), "{name} on {world}: {turn}");
            let shape = |rank: usize, step: usize, turned_by: usize| {
                let mut part = Part::default();
                schedule.part(rank, step, &mut part);
                let show = |moves: &[Move]| -> Vec<_> {
                    let peer = |peer: usize| (peer + ranks - turned_by) % ranks;
                    moves.iter().map(|m| (peer(m.peer()), m.chunks().len(), m.action)).collect()
                };
                (show(&part.sends), show(&part.receives))
            };
            for step in 0..schedule.steps() {
                for rank in 0..ranks {
                    let turned = shape((rank + turn) % ranks, step, turn);
                    assert_eq!(shape(rank, step, 0), turned, "{name} on {world}, step {step}");
                }
            }
        }
    }
}

/// In C segments every algorithm is the same allreduce, in C - 1 steps more, with C chunks for each.
#[test]
fn pipelined_in_segments_it_is_the_same_allreduce() {
    for world in worlds(1..=12, [1, 2, 3, 4, 5, 6, 7, 8, 12]).into_iter().flat_map(shapes) {
        for name in names() {
            let algorithm = find(&name).unwrap();
            let Ok(schedule) = algorithm.schedule(&world) else {
                continue;
            };
            let volumes = (0..world.ranks()).map(|rank| algorithm.volume(&world, rank).sent);
            let (steps, most) = (schedule.steps(), volumes.max().unwrap());
            for (segments, lag) in [(2, 1), (3, 1), (7, 1), (7, 4), (3, 5)] {
                let proof = verify::pipelined(&*algorithm, &world, segments, lag)
                    .unwrap_or_else(|why| panic!("{name} on {world} in {segments}: {why}"));
                let expected = if steps == 0 { 0 } else { (steps - 1) * lag + segments };
                assert_eq!((proof.steps, proof.sent_most), (expected, most * segments), "{name}");
            }
        }
    }
}

/// What a rank sends depends on no receive of the last `lag` steps, so an executor may begin it that early.
#[test]
fn a_schedule_depends_on_nothing_within_its_lag() {
    for world in worlds(2..=9, [2, 3, 4, 8]).into_iter().flat_map(shapes) {
        for name in names() {
            let Ok(schedule) = find(&name).unwrap().schedule(&world) else {
                continue;
            };
            for (segments, lag) in [(1, 1), (3, 1), (7, 4), (3, 5)] {
                let schedule = Pipelined::with_lag(&*schedule, segments, lag);
                assert_eq!(schedule.lag(), lag, "{name}");
                let program = Program::compile(&schedule, world.ranks() / 2);
                for op in &program.ops {
                    let Some(last) = (op.after_receives as usize).checked_sub(1) else { continue };
                    let received = program.receives[last].step as usize;
                    assert!(received + lag <= op.step as usize, "{name} on {world}: {op:?}");
                }
            }
        }
    }
}

/// Exchanges, which need staging, end in every order as well.
#[test]
fn exchanges_are_staged_and_do_not_deadlock() {
    for ranks in [2, 4, 8, 16] {
        for name in ["recursive-doubling", "swing-latency", "one-shot"] {
            let schedule = find(name).unwrap().schedule(&Topology::flat(ranks)).unwrap();
            let programs: Vec<_> =
                (0..ranks).map(|rank| Program::compile(&*schedule, rank)).collect();
            assert!(programs[0].ops.iter().any(|op| op.staged));
            verify::programs(&programs).unwrap_or_else(|why| panic!("{ranks} ranks: {why}"));
        }
    }
}

fn every_op(program: &mut Program) -> impl Iterator<Item = &mut algorithms::program::Op> {
    program.ops.iter_mut().chain(&mut program.receives)
}

/// `verify::programs` refuses a program that waits for too little, or for too much.
#[test]
fn programs_that_wait_wrongly_are_refused() {
    let ring = find("ring").unwrap().schedule(&Topology::flat(5)).unwrap();
    let sound: Vec<_> = (0..5).map(|rank| Program::compile(&*ring, rank)).collect();
    verify::programs(&sound).unwrap();
    let spoil = |change: fn(&mut algorithms::program::Op)| {
        let mut programs = sound.clone();
        programs.iter_mut().flat_map(every_op).for_each(change);
        verify::programs(&programs).expect_err("a spoilt program passed").to_string()
    };
    spoil(|op| op.after_receives = 0);
    let blocked = spoil(|op| op.after_receives = 1);
    assert!(blocked.contains("waits for ever for chunk"), "{blocked}");
    // Rank 0 has everything before rank 2 has read what rank 1 sent it, and must not put it there.
    let to = |peer, action| vec![Move::new(peer, 0..1, action)];
    let part = |sends, receives| Part { sends, receives };
    let (add, copy, none) = (Action::Reduce, Action::Copy, Vec::new);
    let both = |action| vec![Move::new(0, 0..1, action), Move::new(2, 0..1, action)];
    let both_to = |action| vec![Move::new(1, 0..1, action), Move::new(2, 0..1, action)];
    let both_from = || both_to(add);
    let steps = vec![
        vec![part(none(), to(2, add)), part(none(), none()), part(to(0, add), none())],
        vec![part(none(), to(1, add)), part(both(add), none()), part(none(), to(1, add))],
        vec![part(to(1, copy), none()), part(none(), to(0, copy)), part(none(), none())],
        vec![part(to(2, copy), none()), part(none(), none()), part(none(), to(0, copy))],
    ];
    let mut programs = Program::compile_world(&Listed { ranks: 3, chunks: 1, steps });
    verify::programs(&programs).unwrap();
    let puts = programs.iter().flat_map(|program| &program.receives).filter(|op| op.put);
    assert_eq!(puts.count(), 0, "nothing may be put here");
    programs.iter_mut().flat_map(every_op).for_each(|op| op.put = op.entry.action == copy);
    let why =
        verify::programs(&programs).expect_err("a put into a chunk that is still read passed");
    assert!(why.to_string().contains("may still be reading"), "{why}");
    // In a ring of four nobody hands anything back, so that nothing may be put.
    let mut hasty = sound.clone();
    hasty.iter_mut().flat_map(every_op).for_each(|op| op.put = op.entry.action == copy);
    let why =
        verify::programs(&hasty).expect_err("a put into a rank that never sent its address passed");
    assert!(why.to_string().contains("has not sent it the chunk"), "{why}");
    // What was put is handed over once it has been taken, and not before.
    let halves = find("halving-doubling-halves").unwrap().schedule(&Topology::flat(3)).unwrap();
    let mut programs = Program::compile_world(&*halves);
    verify::programs(&programs).unwrap();
    assert!(programs[0].ops.iter().any(|op| op.put && op.kind == Kind::Send));
    every_op(&mut programs[1]).filter(|op| op.put).for_each(|op| op.after_receives = 1);
    let why = verify::programs(&programs).expect_err("a put before the put that hands over passed");
    assert!(why.to_string().contains("has not sent it the chunk"), "{why}");
    // A race between equal sets is a race all the same: rank 1 copies back what rank 0 has already.
    let steps = vec![
        vec![part(none(), both_from()), part(to(0, add), none()), part(to(0, add), none())],
        vec![part(both_to(copy), none()), part(none(), to(0, copy)), part(none(), to(0, copy))],
        vec![part(none(), to(1, copy)), part(to(0, copy), none()), part(none(), none())],
    ];
    let back = Listed { ranks: 3, chunks: 1, steps };
    let mut programs: Vec<_> = (0..3).map(|rank| Program::compile(&back, rank)).collect();
    verify::programs(&programs).unwrap();
    programs.iter_mut().flat_map(every_op).for_each(|op| op.after_sends = 0);
    let why = verify::programs(&programs).expect_err("a race between equal sets passed");
    assert!(why.to_string().contains("may still be reading"), "{why}");
    let hasty = find("recursive-doubling").unwrap().schedule(&Topology::flat(4)).unwrap();
    let mut programs: Vec<_> = (0..4).map(|rank| Program::compile(&*hasty, rank)).collect();
    programs.iter_mut().flat_map(every_op).for_each(|op| {
        op.staged = false;
        op.after_sends = 0;
    });
    verify::programs(&programs).expect_err("an exchange without staging passed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Worlds of any size, on nodes of any size, in any number of segments, however far apart.
    #[test]
    fn larger_worlds(
        sizes in prop_oneof![
            (17..150_usize).prop_map(|ranks| vec![1; ranks]),
            (2..20_usize, 4..10_usize).prop_map(|(nodes, size)| vec![size; nodes]),
            prop::collection::vec(1..9_usize, 10..30),
        ],
        which in any::<prop::sample::Index>(),
        (segments, lag) in (1..4_usize, 1..5_usize),
    ) {
        let (world, names) = (Topology::new(&sizes), names());
        let name = which.get(&names);
        let algorithm = find(name).unwrap();
        match verify::pipelined(&*algorithm, &world, segments, lag) {
            // `verify` checks puts in smaller worlds only.
            Ok(_) if world.ranks() <= 64 => {
                let schedule = algorithm.schedule(&world).unwrap();
                let pipelined = Pipelined::with_lag(schedule, segments, lag);
                let proved = verify::programs(&Program::compile_world(&pipelined));
                prop_assert!(proved.is_ok(), "{name} on {world}: {proved:?}");
            }
            Ok(_) | Err(verify::Violation::Unsupported(_)) => {}
            Err(why) => prop_assert!(false, "{name} on {world}: {why}"),
        }
    }
}
