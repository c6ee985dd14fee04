//! Single cycles of the control planes, written out: what is executed, what it costs, and what goes wrong.

use std::sync::Arc;
use std::time::Duration;

use algorithms::control::lockstep::Lockstep;
use algorithms::control::message::Writer;
use algorithms::control::{
    self, ControlError, ControlPlane, DataType, Device, Effect, Event, Operation, ReduceOp, Report,
    Settings, StallCheck, Tensor, Tensors,
};
use algorithms::fusion::{Groups, Stop};
use algorithms::grouped::split;

const NEGOTIATING: [&str; 5] = ["coordinator", "tree:2", "tree:4", "point-to-point", "bitvector"];

fn tensor(index: usize, size: u64) -> Tensor {
    Tensor::new(format!("layer{index}.weight"), DataType::F32, ReduceOp::Average, &[size])
}

fn tensors(sizes: &[u64]) -> Vec<Tensor> {
    sizes.iter().enumerate().map(|(index, &size)| tensor(index, size)).collect()
}

fn plane(name: &str, list: &[Tensor], settings: &Settings) -> Box<dyn ControlPlane> {
    control::find(name, Arc::new(Tensors::new(list.to_vec()).unwrap()), settings).unwrap()
}

/// A world in which every rank registers its own list.
fn world_of(name: &str, lists: &[Vec<Tensor>], adapt: impl Fn(&mut Settings)) -> Lockstep {
    let planes = lists.iter().enumerate().map(|(rank, list)| {
        let mut settings = Settings::new(rank, lists.len());
        adapt(&mut settings);
        plane(name, list, &settings)
    });
    Lockstep::new(planes.collect())
}

fn world(name: &str, ranks: usize, list: &[Tensor]) -> Lockstep {
    world_of(name, &vec![list.to_vec(); ranks], |_| {})
}

/// These tensors become ready on all ranks, and there is a cycle: messages of rank 0, which are those of all.
fn cycle(world: &mut Lockstep, ranks: usize, ready: &[usize]) -> Vec<Vec<usize>> {
    (0..ranks).for_each(|rank| world.ready(rank, ready).unwrap());
    let executed = world.cycle(Duration::ZERO).unwrap();
    executed.iter().for_each(|other| assert_eq!(other, &executed[0]));
    executed[0].iter().map(|response| response.tensors.to_vec()).collect()
}

fn total(world: &mut Lockstep, ranks: usize) -> Report {
    let mut total = Report::default();
    (0..ranks).for_each(|rank| total += world.take_report(rank));
    total
}

#[test]
fn a_cached_cycle_is_one_and_without_messages() {
    let list = tensors(&[5; 161]);
    let all: Vec<usize> = (0..161).collect();
    for (name, first, second) in
        [("bitvector", (4, 6), (4, 0)), ("coordinator", (0, 6), (0, 6)), ("tree:2", (0, 6), (0, 6))]
    {
        let mut world = world(name, 4, &list);
        for expected in [first, second] {
            assert_eq!(cycle(&mut world, 4, &all), std::slice::from_ref(&all), "{name}");
            let report = total(&mut world, 4);
            assert_eq!((report.bitwise, report.messages_sent), expected, "{name}");
            assert_eq!(report.bytes_wire_sent, report.bytes_wire_received, "{name}");
        }
    }
}

/// With n tensors ready and r responses: (n + 1)(P - 1) messages come to rank 0, (r + 1)(P - 1) leave it.
#[test]
fn point_to_point_sends_a_message_for_every_tensor_and_every_response() {
    const RANKS: usize = 5;
    for (threshold_bytes, responses) in [(0, 7), (56, 4), (1 << 20, 1)] {
        let mut world = world_of("point-to-point", &vec![tensors(&[7; 7]); RANKS], |settings| {
            settings.fusion_threshold_bytes = threshold_bytes;
        });
        let mut sent = Vec::new();
        for ready in [&[0, 1, 2, 3, 4, 5, 6][..], &[]] {
            let executed = cycle(&mut world, RANKS, ready).len();
            assert_eq!(executed, if ready.is_empty() { 0 } else { responses });
            let (rank_0, rank_1) = (world.take_report(0), world.take_report(1));
            assert_eq!(rank_0.messages_received, (ready.len() + 1) * (RANKS - 1));
            assert_eq!(rank_0.messages_sent, (executed + 1) * (RANKS - 1));
            assert_eq!((rank_1.messages_sent, rank_1.slow_cycles), (ready.len() + 1, 1));
            sent.push(rank_1.bytes_horovod_sent);
        }
        // 13 letters and a dimension each, in lists of one; the end is empty.
        assert_eq!(sent, [7 * (48 + 60 + 8 + 16 + 1), 0]);
    }
}

/// Who was answered first may ask again before the others were answered: that is for the next cycle.
#[test]
fn point_to_point_keeps_early_messages_for_the_next_cycle() {
    let list = tensors(&[1, 2]);
    let settings = |rank| Settings::new(rank, 3);
    let mut planes: Vec<_> =
        (0..3).map(|rank| plane("point-to-point", &list, &settings(rank))).collect();
    let asks = |planes: &mut Vec<Box<dyn ControlPlane>>, rank: usize, ready: &[usize]| {
        let mut out = Vec::new();
        planes[rank].on(Event::Ready(ready), &mut out).unwrap();
        planes[rank].on(Event::Cycle(Duration::ZERO), &mut out).unwrap();
        out
    };
    let deliver = |planes: &mut Vec<Box<dyn ControlPlane>>, from: usize, effects: Vec<Effect>| {
        let mut out = Vec::new();
        for effect in effects {
            let Effect::Send { to: 0, message } = effect else { panic!("{effect:?}") };
            planes[0].on(Event::Arrived { from, message: &message }, &mut out).unwrap();
        }
        out
    };
    let early = asks(&mut planes, 2, &[1, 0]);
    assert!(deliver(&mut planes, 2, early).is_empty());
    assert!(planes[0].waits_for().is_empty(), "its cycle has not begun");
    assert!(asks(&mut planes, 0, &[1]).is_empty());
    assert_eq!(planes[0].waits_for(), [1], "rank 2 has said all");
    let last = asks(&mut planes, 1, &[1]);
    let executed = deliver(&mut planes, 1, last);
    let responses: Vec<_> = executed
        .iter()
        .filter_map(|effect| match effect {
            Effect::Execute(response) => Some(response.tensors.to_vec()),
            _ => None,
        })
        .collect();
    assert_eq!(responses, [[1]]);
    // A request after the end of one's requests is refused.
    asks(&mut planes, 0, &[0]);
    let list = Writer::requests(false, 0).finish();
    planes[0].on(Event::Arrived { from: 1, message: &list }, &mut Vec::new()).unwrap();
    let again = planes[0].on(Event::Arrived { from: 1, message: &list }, &mut Vec::new());
    assert_eq!(
        again.unwrap_err().to_string(),
        "rank 0 received requests of the next cycle outside a cycle that expects it"
    );
}

#[test]
fn idle_cycles_cost_an_and_or_a_round_of_messages() {
    for (name, bitwise, sent) in
        [("bitvector", 3, 0), ("coordinator", 0, 4), ("point-to-point", 0, 4), ("ddp", 0, 0)]
    {
        let mut world = world(name, 3, &tensors(&[1]));
        assert!(cycle(&mut world, 3, &[]).is_empty());
        let report = total(&mut world, 3);
        assert_eq!((report.bitwise, report.messages_sent), (bitwise, sent), "{name}");
    }
}

/// The vector of ResNet-50's 161 tensors is 24 bytes, as in Horovod.
#[test]
fn a_report_counts_bytes_as_we_and_as_horovod_send_them() {
    let mut world = world("bitvector", 2, &tensors(&[5; 161]));
    let all: Vec<usize> = (0..161).collect();
    cycle(&mut world, 2, &all);
    let first = total(&mut world, 2);
    cycle(&mut world, 2, &all);
    let second = total(&mut world, 2);
    assert_eq!(second.bitwise_bytes, 2 * 24);
    assert_eq!((first.misses, first.hits, second.misses, second.hits), (322, 0, 0, 322));
    assert_eq!((first.slow_cycles, second.slow_cycles), (2, 0));
    // 13 to 15 letters, one dimension: 60 + 8 + 16 bytes; a header, a length, and the byte after the end.
    let requests = 48 + 161 * (60 + 8 + 16) + 4 + 1;
    let names: usize =
        (0..161_usize).map(|i| 12 + 4 * (format!("layer{i}.weight").len() + 5).div_ceil(4)).sum();
    let responses = 24 + 124 + 4 * 2 + names + 4 + 1;
    assert_eq!(first.bytes_horovod_sent, requests + responses);
    assert!(first.bytes_wire_sent < first.bytes_horovod_sent / 2);
}

#[test]
fn cached_tensors_come_in_bit_order_and_before_new_ones() {
    let mut world = world_of("bitvector", &vec![tensors(&[1, 2, 3, 4]); 2], |settings| {
        settings.fusion_threshold_bytes = 0;
    });
    assert_eq!(cycle(&mut world, 2, &[2, 1]), [[2], [1]]);
    assert_eq!(cycle(&mut world, 2, &[3, 1, 0, 2]), [[2], [1], [3], [0]]);
    assert_eq!(cycle(&mut world, 2, &[0, 1, 2, 3]), [[2], [1], [3], [0]]);
}

#[test]
fn a_hit_that_is_not_common_waits_for_the_others() {
    let mut world = world("bitvector", 2, &tensors(&[1, 2]));
    cycle(&mut world, 2, &[0, 1]);
    total(&mut world, 2);
    world.ready(0, &[0, 1]).unwrap();
    world.ready(1, &[1]).unwrap();
    assert_eq!(cycle(&mut world, 2, &[]), [[1]]);
    assert!(cycle(&mut world, 2, &[]).is_empty());
    world.ready(1, &[0]).unwrap();
    assert_eq!(cycle(&mut world, 2, &[]), [[0]]);
    assert_eq!(total(&mut world, 2).messages_sent, 0);
}

/// Every category of Horovod's validation, in its order, on every plane that negotiates: new and cached. The
/// error names both values and both ranks, and what else is ready goes on.
#[test]
fn a_mismatch_is_an_error_on_every_rank_and_the_rest_goes_on() {
    let base = Tensor { shape: vec![4, 6], ..tensor(0, 24) };
    let changes: [(&str, &str, &str, Tensor); 6] = [
        ("data types", "f32", "f16", Tensor { dtype: DataType::F16, ..base.clone() }),
        (
            "operations",
            "allreduce",
            "allgather",
            Tensor { operation: Operation::AllGather, ..base.clone() },
        ),
        ("shapes", "[4, 6]", "[6, 4]", Tensor { shape: vec![6, 4], ..base.clone() }),
        (
            "prescale or postscale factors",
            "1 and 1",
            "0.5 and 1",
            Tensor { prescale: 0.5, ..base.clone() },
        ),
        ("reduction operations", "average", "max", Tensor { op: ReduceOp::Max, ..base.clone() }),
        ("devices", "CPU", "GPU", Tensor { device: Device::Gpu, ..base.clone() }),
    ];
    for name in NEGOTIATING {
        for (what, mine, other, change) in &changes {
            for cached in [false, true] {
                let list = vec![base.clone(), tensor(1, 8), change.clone()];
                let mut world = world(name, 5, &list);
                if cached {
                    cycle(&mut world, 5, &[0, 1]);
                }
                for rank in 0..5 {
                    world.ready(rank, &[if rank == 3 { 2 } else { 0 }, 1]).unwrap();
                }
                let executed = world.cycle(Duration::ZERO).unwrap().to_vec();
                let first = if name == "tree:2" { 1 } else { 0 };
                let expected = format!(
                    "Mismatched {what} for tensor \"layer0.weight\": rank {first} has {mine}, but \
                     rank 3 has {other}."
                );
                for responses in &executed {
                    let errors: Vec<_> =
                        responses.iter().filter_map(|r| r.error.as_deref()).collect();
                    assert_eq!(errors, [expected.as_str()], "{name}, cached: {cached}");
                    assert_eq!(responses.len(), 2, "the other tensor was reduced");
                }
                assert_eq!(cycle(&mut world, 5, &[0]), [[0]], "and it goes on");
            }
        }
    }
}

/// Horovod checks all ranks' types before it looks at shapes.
#[test]
fn the_earliest_check_that_fails_is_reported() {
    let list = vec![
        tensor(0, 4),
        Tensor { shape: vec![2, 2], ..tensor(0, 4) },
        Tensor { dtype: DataType::F16, ..tensor(0, 4) },
    ];
    let mut world = world("coordinator", 3, &list);
    (0..3).for_each(|rank| world.ready(rank, &[rank]).unwrap());
    let error = world.cycle(Duration::ZERO).unwrap()[1][0].error.clone().unwrap();
    assert!(
        error.starts_with("Mismatched data types") && error.contains("rank 2 has f16"),
        "{error}"
    );
}

/// Ranks may gather different numbers of rows, but not different rows.
#[test]
fn ranks_gather_any_number_of_rows() {
    let gather = |shape: &[u64]| Tensor {
        operation: Operation::AllGather,
        shape: shape.to_vec(),
        ..tensor(0, 1)
    };
    let list = vec![gather(&[3, 8]), gather(&[5, 8]), gather(&[5, 9])];
    let mut world = world("coordinator", 2, &list);
    world.ready(0, &[0]).unwrap();
    world.ready(1, &[1]).unwrap();
    assert_eq!(world.cycle(Duration::ZERO).unwrap()[0][0].error, None);
    world.ready(0, &[0]).unwrap();
    world.ready(1, &[2]).unwrap();
    assert!(world.cycle(Duration::ZERO).unwrap()[0][0].error.is_some());
}

#[test]
fn a_tensor_ready_twice_is_an_error_that_changes_nothing() {
    for name in ["coordinator", "bitvector", "ddp", "packs", "tree:2", "point-to-point"] {
        let mut world = world(name, 1, &tensors(&[1, 1, 1]));
        world.ready(0, &[1]).unwrap();
        let error = world.ready(0, &[0, 1, 2]).unwrap_err();
        assert!(error.to_string().contains("\"layer1.weight\" became ready again"), "{error}");
        assert!(world.ready(0, &[0, 2]).is_ok(), "{name}: none of the three was taken");
    }
}

/// Messages of another build, cut off or changed: an error that names the sender, and never a panic.
#[test]
fn malformed_messages_are_refused() {
    let list = tensors(&[5, 6]);
    for name in ["coordinator", "tree:2", "point-to-point", "bitvector", "ddp"] {
        for me in 0..2 {
            let caught = messages_to(name, me, &list);
            for message in caught {
                for cut in 0..message.len() {
                    let mut plane = in_cycle(name, me, &list);
                    let event = Event::Arrived { from: 1 - me, message: &message[..cut] };
                    let error = plane.on(event, &mut Vec::new()).unwrap_err();
                    let from = format!("message from rank {}: byte ", 1 - me);
                    assert!(error.to_string().starts_with(&from), "{name}: {error}");
                }
                for at in 0..message.len() {
                    for bit in 0..8 {
                        let mut changed = message.clone();
                        changed[at] ^= 1 << bit;
                        let mut plane = in_cycle(name, me, &list);
                        let event = Event::Arrived { from: 1 - me, message: &changed };
                        let _ = plane.on(event, &mut Vec::new());
                    }
                }
            }
        }
    }
}

/// A plane that waits for a message of its peer.
fn in_cycle(name: &str, me: usize, list: &[Tensor]) -> Box<dyn ControlPlane> {
    let mut plane = plane(name, list, &Settings::new(me, 2));
    let mut out = Vec::new();
    plane.on(Event::Ready(&[0, 1]), &mut out).unwrap();
    plane.on(Event::Cycle(Duration::ZERO), &mut out).unwrap();
    if let Some(Effect::Bitwise(_, words)) = out.first() {
        plane.on(Event::Combined(&words.clone()), &mut out).unwrap();
    }
    plane
}

/// What a rank of two gets from the other when both have two new tensors.
fn messages_to(name: &str, me: usize, list: &[Tensor]) -> Vec<Vec<u8>> {
    let mut planes = [in_cycle(name, 0, list), in_cycle(name, 1, list)];
    let mut messages: [Vec<Vec<u8>>; 2] = Default::default();
    // Rank 1's requests, seen by making it begin again.
    let mut out = Vec::new();
    let mut fresh = plane(name, list, &Settings::new(1, 2));
    fresh.on(Event::Ready(&[0, 1]), &mut out).unwrap();
    fresh.on(Event::Cycle(Duration::ZERO), &mut out).unwrap();
    if let Some(Effect::Bitwise(_, words)) = out.first() {
        fresh.on(Event::Combined(&words.clone()), &mut out).unwrap();
    }
    for effect in out {
        if let Effect::Send { to: 0, message } = effect {
            let mut answer = Vec::new();
            planes[0].on(Event::Arrived { from: 1, message: &message }, &mut answer).unwrap();
            messages[0].push(message.to_vec());
            for effect in answer {
                if let Effect::Broadcast(message) | Effect::Send { message, .. } = effect {
                    messages[1].push(message.to_vec());
                }
            }
        }
    }
    messages[me].clone()
}

#[test]
fn different_settings_of_ranks_are_an_error() {
    let list = tensors(&[1]);
    for (what, capacities, thresholds) in [
        ("cache capacity of 1024", [1024, 512, 1024], [7; 3]),
        ("fusion threshold in bytes of 7", [64; 3], [7, 7, 8]),
    ] {
        let mut world = world_of("bitvector", &vec![list.clone(); 3], |settings| {
            settings.cache_capacity = capacities[settings.rank];
            settings.fusion_threshold_bytes = thresholds[settings.rank];
        });
        let error = world.cycle(Duration::ZERO).unwrap_err().to_string();
        assert!(error.starts_with(&format!("rank 0 has a {what}, and some other rank")), "{error}");
    }
}

#[test]
fn a_response_about_a_tensor_that_is_not_ready_is_refused() {
    let lists = [tensors(&[1, 2]), tensors(&[1])];
    let mut world = world_of("coordinator", &lists, |_| {});
    world.ready(0, &[0]).unwrap();
    world.ready(1, &[0]).unwrap();
    world.cycle(Duration::ZERO).unwrap();
    let mut plane = plane("coordinator", &tensors(&[1]), &Settings::new(1, 2));
    let mut out = Vec::new();
    plane.on(Event::Cycle(Duration::ZERO), &mut out).unwrap();
    let mut message = Writer::responses(false, 1);
    message.response(["other"].into_iter(), None, Stop::Empty);
    let message = &message.finish();
    let error = plane.on(Event::Arrived { from: 0, message }, &mut out).unwrap_err();
    assert!(matches!(error, ControlError::NotReady { is_registered: false, .. }), "{error}");
}

#[test]
fn more_tensors_than_the_cache_holds() {
    let list = tensors(&[4; 5]);
    let mut world = world_of("bitvector", &vec![list; 3], |s| s.cache_capacity = 3);
    let all: Vec<usize> = (0..5).collect();
    for step in 0..4 {
        assert_eq!(cycle(&mut world, 3, &all).concat().len(), 5, "step {step}");
    }
    let report = world.take_report(0);
    assert!(report.evictions > 5 && report.slow_cycles == 4, "{report:?}");
}

#[test]
fn groups_that_are_not_fused_travel_alone() {
    for name in ["coordinator", "tree:2", "point-to-point", "bitvector"] {
        let groups = Arc::new(Groups::new(vec![vec![3, 1], vec![0, 4]]));
        let mut world = world_of(name, &vec![tensors(&[4; 6]); 2], |settings| {
            settings.groups = Some(groups.clone());
        });
        for _ in 0..2 {
            let messages = cycle(&mut world, 2, &[5, 3, 1, 0, 4, 2]);
            let sorted = |mut messages: Vec<Vec<usize>>| {
                messages.sort();
                messages
            };
            assert_eq!(sorted(messages), [vec![0, 4], vec![2], vec![3, 1], vec![5]], "{name}");
        }
    }
}

/// What `grouped` changes: tensors of a group are released together, so that there are as many
/// messages as groups, while a plain ring sends what happens to be ready in each cycle.
#[test]
fn groups_make_other_messages_than_plain_readiness() {
    // Two tensors become ready per cycle, from the last to the first, as in a backward pass.
    let run = |groups: &[std::ops::Range<usize>]| {
        let mut world = world("bitvector", 2, &tensors(&[100; 12]));
        let mut lengths = Vec::new();
        for first in (0..12).step_by(2).rev() {
            let complete = groups.iter().filter(|group| (first..first + 2).contains(&group.start));
            let ready: Vec<usize> = complete.flat_map(|group| group.clone()).collect();
            lengths.extend(cycle(&mut world, 2, &ready).iter().map(Vec::len));
        }
        lengths
    };
    assert_eq!(run(&split(12, 12)), [2; 6], "one message of two tensors per cycle");
    assert_eq!(run(&split(12, 3)), [4; 3], "one message per group");
}

#[test]
fn fusion_reports_why_it_stopped() {
    let mut list = tensors(&[10, 10, 10, 1]);
    list[3].dtype = DataType::F64;
    let mut world = world_of("coordinator", &[list], |s| s.fusion_threshold_bytes = 88);
    world.ready(0, &[0, 1, 2, 3]).unwrap();
    let responses = world.cycle(Duration::ZERO).unwrap()[0].clone();
    let stops: Vec<_> = responses.iter().map(|r| (r.tensors.to_vec(), r.stop)).collect();
    let expected = [(vec![0, 1], Stop::Threshold), (vec![2], Stop::Unlike), (vec![3], Stop::Empty)];
    assert_eq!(stops, expected);
    assert_eq!(world.take_report(0).stops, [1, 1, 1, 0, 0]);
}

#[test]
fn a_shutdown_executes_ready_tensors_and_reports_the_others() {
    for name in NEGOTIATING {
        for cached in [false, true] {
            let mut world = world(name, 4, &tensors(&[1, 1, 1]));
            if cached {
                cycle(&mut world, 4, &[0, 1, 2]);
            }
            (0..4).for_each(|rank| world.ready(rank, &[0]).unwrap());
            world.ready(2, &[1]).unwrap();
            world.shut_down(3).unwrap();
            let executed = world.cycle(Duration::ZERO).unwrap();
            assert!(executed.iter().all(|responses| responses.len() == 1), "{name}");
            assert!(world.has_stopped(), "{name}");
            let error = world.cycle(Duration::ZERO).unwrap_err();
            assert_eq!(error, ControlError::ShutDown { rank: 0 });
        }
    }
}

/// Warned about once per minute, with who is missing; cached tensors, too; then all shut down.
#[test]
fn stalls_are_reported_and_can_end_the_job() {
    const SECOND: Duration = Duration::from_secs(1);
    for name in NEGOTIATING {
        for cached in [false, true] {
            let mut world = world_of(name, &vec![tensors(&[1, 1]); 4], |settings| {
                settings.stall_check = Some(StallCheck {
                    warn_after: 60 * SECOND,
                    shut_down_after: Some(200 * SECOND),
                });
            });
            if cached {
                cycle(&mut world, 4, &[0, 1]);
            }
            [0, 1, 2].iter().for_each(|&rank| world.ready(rank, &[1]).unwrap());
            let mut warnings = Vec::new();
            for second in 0..400 {
                world.cycle(second * SECOND).unwrap();
                warnings.extend(world.take_warnings());
                if world.has_stopped() {
                    break;
                }
            }
            let missing = if name == "tree:2" { vec![1] } else { vec![3] };
            assert!(
                warnings.iter().all(|stalled| stalled.missing == missing),
                "{name} {warnings:?}"
            );
            let (last, first) = warnings.split_last().unwrap();
            assert!((2..4).contains(&first.len()), "{name}: {warnings:?}");
            assert!(last.shuts_down && last.waited > 200 * SECOND && world.has_stopped(), "{name}");
            let text = first[0].to_string();
            assert!(text.starts_with("tensor \"layer1.weight\" has been waiting for 6"), "{text}");
        }
    }
}

#[test]
fn ddp_rebuilds_its_buckets_in_the_order_of_rank_0() {
    const MIB: u64 = 1 << 18;
    let list = tensors(&[30 * MIB, MIB / 2, MIB, 20 * MIB, 6 * MIB, MIB]);
    let mut world = world("ddp", 2, &list);
    let step = |world: &mut Lockstep, orders: [[usize; 6]; 2]| {
        let mut messages = Vec::new();
        for (mine, other) in orders[0].iter().zip(&orders[1]) {
            world.ready(0, &[*mine]).unwrap();
            world.ready(1, &[*other]).unwrap();
            let executed = world.cycle(Duration::ZERO).unwrap();
            messages.extend(executed[0].iter().map(|response| response.tensors.to_vec()));
        }
        messages
    };
    let (backward, other) = ([5, 4, 3, 2, 1, 0], [4, 5, 3, 2, 1, 0]);
    assert_eq!(step(&mut world, [backward, other]), [[0, 1, 2, 3, 4, 5]], "step 1: one bucket");
    // 1 MiB closes the first at once; 6 + 20 reach 25 MiB; 1 + 0.5 + 30 again.
    let expected = [vec![5], vec![4, 3], vec![2, 1, 0]];
    assert_eq!(step(&mut world, [other, backward]), expected);
    assert_eq!(world.take_report(0).messages_sent, 1, "the order, once");
}

#[test]
fn buckets_and_packs_take_a_size() {
    const MIB: u64 = 1 << 18;
    let list = tensors(&[MIB; 7]);
    let all: Vec<usize> = (0..7).collect();
    let messages = |name: &str| {
        let mut world = world(name, 2, &list);
        cycle(&mut world, 2, &all);
        cycle(&mut world, 2, &all)
    };
    assert_eq!(messages("ddp:3"), [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
    assert_eq!(messages("packs"), [[6, 5, 4, 3, 2, 1, 0]]);
    assert_eq!(messages("packs:2"), [vec![6, 5, 4], vec![3, 2, 1], vec![0]]);
}

#[test]
fn names_are_known_by_one_spelling() {
    for (name, spelling) in [
        ("bitvector", Some("bitvector")),
        ("tree", Some("tree:4")),
        ("tree:16", Some("tree:16")),
        ("point-to-point", Some("point-to-point")),
        ("point-to-point:2", None),
        ("ddp:25", Some("ddp:25")),
        ("tree:1", None),
        ("ddp:0", None),
        ("coordinator:3", None),
        ("horovod", None),
        ("tree:x", None),
    ] {
        assert_eq!(control::spelling(name).as_deref(), spelling, "{name}");
    }
}
