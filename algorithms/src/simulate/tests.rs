use super::machine::{Link, Machine, Protocol, Reduction, Shared};
use super::{Outcome, events, rounds};
use crate::registry;
use crate::schedule::Schedule;
use crate::segments::in_segments;
use crate::topology::Topology;

const US: f64 = 1e-6;

fn both(algorithm: &str, machine: &Machine, ranks: usize, size_bytes: f64) -> [Outcome; 2] {
    let topology = machine.topology(ranks);
    let schedule = registry::find(algorithm).unwrap().schedule(&topology).unwrap();
    [rounds::simulate, events::simulate]
        .map(|engine| engine(&*schedule, machine, size_bytes, &[]).unwrap())
}

/// Nodes of `local_size` ranks that share a way to the network.
fn cluster(local_size: usize, shared: Shared) -> Machine {
    Machine {
        local_size,
        socket_size: local_size,
        socket: Link::plain(1.0 * US, 1e-11),
        bus: Link::plain(2.0 * US, 4e-11),
        network: Link::plain(5.0 * US, 1e-10),
        shared,
        ..Machine::flat(0.0, 0.0, 2e-12)
    }
}

#[test]
fn a_ring_is_the_textbooks() {
    let (n, size) = (8.0, 8e6);
    let machine = Machine::flat(2.0 * US, 1e-10, 1e-11);
    let expected = 2.0 * (n - 1.0) * (2.0 * US + size / n * 1e-10) + (n - 1.0) * size / n * 1e-11;
    for outcome in both("ring", &machine, 8, size) {
        assert!((outcome.end.at_s / expected - 1.0).abs() < 1e-12, "{outcome:?}");
        assert!((outcome.end.latency_s - 28.0 * US).abs() < 1e-12);
        assert!((outcome.end.reduction_s - 7e-5 * 1.0).abs() < 1e-9);
    }
}

#[test]
fn a_ring_of_nodes_grows_by_the_mean_hop() {
    // 600 ranks on nodes of 6: five hops inside, one between, 2 x 599 steps (mean-hop law).
    let machine = cluster(6, Shared::default());
    let size = 64e6;
    let chunk = size / 600.0;
    let (inside, between) = (1.0 * US + chunk * 1e-11, 5.0 * US + chunk * 1e-10);
    let mean = (5.0 * inside + between) / 6.0;
    let port = chunk * 1e-10;
    let per_step = mean.max(port);
    let outcome = &both("ring", &machine, 600, size)[0];
    let without_reduction = outcome.end.at_s - outcome.end.reduction_s;
    assert!((without_reduction / (1198.0 * per_step) - 1.0).abs() < 0.02, "{outcome:?}");
}

#[test]
fn ranks_that_do_the_same_are_looked_at_once() {
    let machine = cluster(6, Shared { node: Some(2e10), ..Shared::default() });
    let topology = machine.topology(600);
    let schedule = registry::find("ring").unwrap().schedule(&topology).unwrap();
    let some = rounds::simulate(&*schedule, &machine, 1e6, &[]).unwrap();
    let all = rounds::simulate(&*schedule, &machine, 1e6, &vec![0.0; 600]).unwrap();
    assert_eq!((some.ends_s.len(), all.ends_s.len()), (6, 600));
    assert_eq!(some.end, all.end);
    assert_eq!(some.transfers * 100, all.transfers);
}

#[test]
fn ranks_that_share_a_card_wait() {
    // Four ranks of a node send to four of another: a quarter of the card each.
    let shared = Shared { nics: 1, nic: Some(1e10), ..Shared::default() };
    for (shared, times) in [(shared, 4.0), (Shared { nics: 4, ..shared }, 1.0)] {
        let machine = Machine { reduction: Reduction::default(), ..cluster(4, shared) };
        let [fair, in_turn] = both("halving-doubling", &machine, 8, 8e6);
        // Of the 6 steps 2 go between nodes, each with an eighth of the buffer per rank.
        let alone = 1e6 * 1e-10 * 2.0;
        let found = fair.end.contention_s;
        assert!((found - alone * (times - 1.0)).abs() < 1e-9, "{times}: {fair:?}");
        assert!((in_turn.end.at_s / fair.end.at_s - 1.0).abs() < 0.01, "{in_turn:?}");
    }
}

#[test]
fn a_late_rank_delays_a_ring_bound_by_latency() {
    let machine = Machine::flat(5.0 * US, 1e-12, 0.0);
    let schedule = registry::find("ring").unwrap().schedule(&Topology::flat(16)).unwrap();
    let mut starts_s = vec![0.0; 16];
    let in_time = rounds::simulate(&*schedule, &machine, 1e3, &starts_s).unwrap().end.at_s;
    starts_s[5] = 500.0 * US;
    for engine in [rounds::simulate, events::simulate] {
        let late = engine(&*schedule, &machine, 1e3, &starts_s).unwrap().end.at_s;
        assert!((late - in_time - 500.0 * US).abs() < 6.0 * US, "{late} after {in_time}");
    }
}

#[test]
fn small_messages_take_the_protocol_that_is_quick_for_them() {
    let mut link = Link::plain(1.0 * US, 4e-10);
    link.0.push(Link::plain(10.0 * US, 1e-10).0[0]);
    assert_eq!(link.protocol(1e3).alpha_s, 1.0 * US);
    assert_eq!(link.protocol(1e6).alpha_s, 10.0 * US);
}

/// One rank sends four segments, and the other returns each. Answers wait for segments that are still to be sent, so
/// that nothing comes back before all have gone.
#[test]
fn an_answer_waits_behind_the_data_of_the_same_pair() {
    let world = Topology::flat(2);
    let tree = registry::find("tree").unwrap().schedule(&world).unwrap();
    let end_from_s = |schedule: &dyn Schedule, behind_data: f64, announced_from_bytes: f64| {
        let mut machine = Machine::flat(3e-6, 1.0, 0.0);
        machine.network.0[0].behind_data = behind_data;
        machine.network.0[0].announced_from_bytes = announced_from_bytes;
        let size_bytes = 4.0;
        events::simulate(schedule, &machine, size_bytes, &[]).unwrap().end.at_s
    };
    let end_s = |schedule: &dyn Schedule, share| end_from_s(schedule, share, 0.0);
    let tree = in_segments(&*tree, 4, false);
    let [none, half, all] = [0.0, 0.5, 1.0].map(|share| end_s(&tree, share));
    assert!((none - 5.0).abs() < 1e-5 && (all - 8.0).abs() < 1e-5, "{none} and {all}");
    assert!(none < half && half < all, "{half}");
    // Segments of a byte are announced, or too short for that.
    assert_eq!([1.0, 1.1].map(|from| end_from_s(&tree, 1.0, from)), [all, none]);
    // Both ranks send at once, so that announcements and answers cross.
    let both = registry::find("ring").unwrap().schedule(&world).unwrap();
    let both = in_segments(&*both, 4, false);
    assert!((end_s(&both, 1.0) / end_s(&both, 0.0) - 1.0).abs() < 1e-5);
    // A ring of four has no data in the opposite direction.
    let ring = registry::find("ring").unwrap().schedule(&Topology::flat(4)).unwrap();
    let ring = in_segments(&*ring, 4, false);
    assert!((end_s(&ring, 1.0) / end_s(&ring, 0.0) - 1.0).abs() < 1e-5);
}

#[test]
fn the_error_of_a_deadlocked_schedule_names_the_waiting_ranks() {
    let schedule = registry::find("ring").unwrap().schedule(&Topology::flat(4)).unwrap();
    let mut listed = crate::listed::Listed::of(&*schedule);
    listed.steps[2][1].sends.clear();
    let machine = Machine::flat(1.0, 0.0, 0.0);
    for engine in [rounds::simulate, events::simulate] {
        let text = engine(&listed, &machine, 1e3, &[]).unwrap_err().to_string();
        let begins = "the schedule never ends: rank 2 expects 1 in step 2 and gets 0";
        // The event engine also knows who waits for rank 2 in turn.
        assert!(text.contains("rank 2 expects 1 in step 2 and gets 0"), "{text}");
        assert!(text.starts_with(&begins[..24]), "{text}");
    }
}

#[test]
fn one_rank_needs_no_time() {
    for outcome in both("ring", &Machine::flat(1.0, 1.0, 1.0), 1, 1e9) {
        assert_eq!((outcome.end.at_s, outcome.transfers), (0.0, 0));
    }
}

#[test]
fn what_arrives_at_the_same_moment_is_taken_alike_on_all_nodes() {
    // In segments, where messages of several steps of the algorithm meet; found at random.
    let protocol = |alpha_s, beta_s, kappa_s| {
        let plain = Link::plain(alpha_s, beta_s).0[0];
        Link(vec![Protocol { kappa_s, ..plain }])
    };
    let machine = Machine {
        local_size: 2,
        socket_size: 2,
        socket: protocol(44.9 * US, 3.99e-10, 4.98 * US),
        network: protocol(0.1 * US, 4.07e-10, 1.33 * US),
        ..Machine::flat(0.0, 0.0, 8.6e-10)
    };
    let schedule = registry::find("two-shot").unwrap().schedule(&machine.topology(8)).unwrap();
    let schedule = crate::combinators::Pipelined::new(schedule, 4);
    let one_turn = rounds::simulate(&schedule, &machine, 6.2e8, &[]).unwrap();
    let all = events::simulate(&schedule, &machine, 6.2e8, &[]).unwrap();
    for (rank, end_s) in all.ends_s.iter().enumerate() {
        assert!((end_s / one_turn.ends_s[rank % 2] - 1.0).abs() < 1e-12, "rank {rank}");
    }
}
