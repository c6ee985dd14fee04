//! Properties of every registered algorithm, over every world up to 64 ranks and many shapes.

use algorithms::listed::Listed;
use algorithms::program::{Kind, Program};
use algorithms::registry::{ALL, find};
use algorithms::rehearsal::rehearse;
use algorithms::schedule::{Action, Move, Part};
use algorithms::topology::Topology;
use algorithms::verify;

/// Each name, each that takes an inner algorithm over each other that can be one, and some numbers;
/// groups change no schedule, so one of them will do.
fn names() -> Vec<String> {
    let mut names: Vec<String> = ALL.iter().map(|entry| entry.name.to_string()).collect();
    let groups = |name: &str| find(name).unwrap().grouping().is_some();
    for outer in ALL.iter().filter(|entry| entry.takes_inner() && !groups(entry.name)) {
        names.extend(ALL.iter().map(|inner| format!("{}:{}", outer.name, inner.name)));
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
    for ranks in 1..=64 {
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

/// What the oracle `check_schedules.py` prints: chunks, steps, chunks sent by the busiest rank.
#[test]
fn steps_and_bytes_agree_with_the_oracle() {
    for (name, nodes, local_size, expected) in [
        ("ring", 2, 1, (2, 2, 2)),
        ("ring", 3, 1, (3, 4, 4)),
        ("ring", 6, 1, (6, 10, 10)),
        ("ring", 8, 1, (8, 14, 14)),
        ("ring", 12, 1, (12, 22, 22)),
        ("ring", 16, 1, (16, 30, 30)),
        ("ring", 31, 1, (31, 60, 60)),
        ("ring", 64, 1, (64, 126, 126)),
        ("tree", 2, 1, (1, 2, 1)),
        ("tree", 3, 1, (1, 4, 2)),
        ("tree", 6, 1, (1, 6, 3)),
        ("tree", 8, 1, (1, 6, 3)),
        ("tree", 12, 1, (1, 8, 4)),
        ("tree", 16, 1, (1, 8, 4)),
        ("tree", 31, 1, (1, 10, 5)),
        ("tree", 64, 1, (1, 12, 6)),
        ("double-tree", 2, 1, (2, 2, 2)),
        ("double-tree", 3, 1, (2, 4, 3)),
        ("double-tree", 6, 1, (2, 6, 4)),
        ("double-tree", 8, 1, (2, 6, 4)),
        ("double-tree", 12, 1, (2, 8, 4)),
        ("double-tree", 16, 1, (2, 8, 4)),
        ("recursive-doubling", 2, 1, (1, 1, 1)),
        ("recursive-doubling", 3, 1, (1, 3, 2)),
        ("recursive-doubling", 6, 1, (1, 4, 3)),
        ("recursive-doubling", 8, 1, (1, 3, 3)),
        ("recursive-doubling", 12, 1, (1, 5, 4)),
        ("recursive-doubling", 16, 1, (1, 4, 4)),
        ("halving-doubling", 2, 1, (2, 2, 2)),
        ("halving-doubling", 3, 1, (2, 4, 4)),
        ("halving-doubling", 6, 1, (4, 6, 10)),
        ("halving-doubling", 8, 1, (8, 6, 14)),
        ("halving-doubling", 12, 1, (8, 8, 22)),
        ("halving-doubling", 16, 1, (16, 8, 30)),
        ("swing-latency", 2, 1, (1, 1, 1)),
        ("swing-latency", 3, 1, (1, 3, 2)),
        ("swing-latency", 6, 1, (1, 4, 3)),
        ("swing-latency", 8, 1, (1, 3, 3)),
        ("swing-latency", 12, 1, (1, 5, 4)),
        ("swing-latency", 16, 1, (1, 4, 4)),
        ("swing", 2, 1, (2, 2, 2)),
        ("swing", 3, 1, (2, 4, 4)),
        ("swing", 6, 1, (4, 6, 10)),
        ("swing", 8, 1, (8, 6, 14)),
        ("swing", 12, 1, (8, 8, 22)),
        ("swing", 16, 1, (16, 8, 30)),
        ("bine", 2, 1, (2, 2, 2)),
        ("bine", 3, 1, (2, 4, 4)),
        ("bine", 6, 1, (4, 6, 10)),
        ("bine", 8, 1, (8, 6, 14)),
        ("bine", 12, 1, (8, 8, 22)),
        ("bine", 16, 1, (16, 8, 30)),
        ("two-shot", 2, 1, (2, 2, 2)),
        ("two-shot", 3, 1, (3, 2, 4)),
        ("two-shot", 6, 1, (6, 2, 10)),
        ("two-shot", 8, 1, (8, 2, 14)),
        ("two-shot", 12, 1, (12, 2, 22)),
        ("two-shot", 16, 1, (16, 2, 30)),
        ("hierarchical", 2, 2, (4, 4, 6)),
        ("hierarchical:tree", 2, 2, (2, 4, 3)),
        ("hierarchical", 2, 3, (6, 6, 10)),
        ("hierarchical:tree", 2, 3, (3, 6, 5)),
        ("hierarchical", 4, 2, (8, 8, 14)),
        ("hierarchical:tree", 4, 2, (2, 6, 4)),
        ("hierarchical", 3, 4, (12, 10, 22)),
        ("hierarchical:tree", 3, 4, (4, 10, 8)),
        ("hierarchical", 4, 6, (24, 16, 46)),
        ("hierarchical:tree", 4, 6, (6, 14, 12)),
        ("hierarchical", 8, 4, (32, 20, 62)),
        ("hierarchical:tree", 8, 4, (4, 12, 9)),
    ] {
        let world = Topology::uniform(nodes, local_size);
        let algorithm = find(name).unwrap();
        let proof = verify::algorithm(&*algorithm, &world).unwrap();
        let chunks = algorithm.schedule(&world).unwrap().chunks();
        assert_eq!((chunks, proof.steps, proof.sent_most), expected, "{name} on {world}");
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

/// In segments every algorithm is the same allreduce, of as many bytes, in a few steps more.
#[test]
fn pipelined_in_segments_it_is_the_same_allreduce() {
    for world in (1..=12).flat_map(shapes) {
        for name in names() {
            let algorithm = find(&name).unwrap();
            for segments in [2, 3, 7] {
                match verify::pipelined(&*algorithm, &world, segments) {
                    Ok(_) | Err(verify::Violation::Unsupported(_)) => {}
                    Err(why) => panic!("{name} on {world} in {segments} segments: {why}"),
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
            rehearse(&programs).unwrap_or_else(|why| panic!("{ranks} ranks: {why}"));
        }
    }
}

fn every_op(program: &mut Program) -> impl Iterator<Item = &mut algorithms::program::Op> {
    program.ops.iter_mut().chain(&mut program.receives)
}

/// The rehearsal finds out a program that waits for too little, or for too much.
#[test]
fn programs_that_wait_wrongly_are_refused() {
    let ring = find("ring").unwrap().schedule(&Topology::flat(5)).unwrap();
    let sound: Vec<_> = (0..5).map(|rank| Program::compile(&*ring, rank)).collect();
    rehearse(&sound).unwrap();
    let spoil = |change: fn(&mut algorithms::program::Op)| {
        let mut programs = sound.clone();
        programs.iter_mut().flat_map(every_op).for_each(change);
        rehearse(&programs).expect_err("a spoilt program passed").to_string()
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
    rehearse(&programs).unwrap();
    let puts = programs.iter().flat_map(|program| &program.receives).filter(|op| op.put);
    assert_eq!(puts.count(), 0, "nothing may be put here");
    programs.iter_mut().flat_map(every_op).for_each(|op| op.put = op.entry.action == copy);
    let why = rehearse(&programs).expect_err("a put into a chunk that is still read passed");
    assert!(why.to_string().contains("may still be reading"), "{why}");
    // In a ring of four nobody hands anything back, so that nothing may be put.
    let mut hasty = sound.clone();
    hasty.iter_mut().flat_map(every_op).for_each(|op| op.put = op.entry.action == copy);
    let why = rehearse(&hasty).expect_err("a put into a rank that never sent its address passed");
    assert!(why.to_string().contains("has not sent it the chunk"), "{why}");
    // What was put is handed over once it has been taken, and not before.
    let halves = find("halving-doubling-halves").unwrap().schedule(&Topology::flat(3)).unwrap();
    let mut programs = Program::compile_world(&*halves);
    rehearse(&programs).unwrap();
    assert!(programs[0].ops.iter().any(|op| op.put && op.kind == Kind::Send));
    every_op(&mut programs[1]).filter(|op| op.put).for_each(|op| op.after_receives = 1);
    let why = rehearse(&programs).expect_err("a put before the put that hands over passed");
    assert!(why.to_string().contains("has not sent it the chunk"), "{why}");
    // A race between equal sets is a race all the same: rank 1 copies back what rank 0 has already.
    let steps = vec![
        vec![part(none(), both_from()), part(to(0, add), none()), part(to(0, add), none())],
        vec![part(both_to(copy), none()), part(none(), to(0, copy)), part(none(), to(0, copy))],
        vec![part(none(), to(1, copy)), part(to(0, copy), none()), part(none(), none())],
    ];
    let back = Listed { ranks: 3, chunks: 1, steps };
    let mut programs: Vec<_> = (0..3).map(|rank| Program::compile(&back, rank)).collect();
    rehearse(&programs).unwrap();
    programs.iter_mut().flat_map(every_op).for_each(|op| op.after_sends = 0);
    let why = rehearse(&programs).expect_err("a race between equal sets passed");
    assert!(why.to_string().contains("may still be reading"), "{why}");
    let hasty = find("recursive-doubling").unwrap().schedule(&Topology::flat(4)).unwrap();
    let mut programs: Vec<_> = (0..4).map(|rank| Program::compile(&*hasty, rank)).collect();
    programs.iter_mut().flat_map(every_op).for_each(|op| {
        op.staged = false;
        op.after_sends = 0;
    });
    rehearse(&programs).expect_err("an exchange without staging passed");
}
