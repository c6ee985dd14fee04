//! The engines agree wherever what they assume is the same, on machines, algorithms and sizes at random.

use algorithms::algorithm::Volume;
use algorithms::combinators::Pipelined;
use algorithms::cost::Cost;
use algorithms::listed::Listed;
use algorithms::registry;
use algorithms::schedule::{Action, Move, Part, Schedule};
use algorithms::simulate::machine::{Link, Machine, Protocol, Rates, Reduction, Shared};
use algorithms::simulate::{Outcome, events, rounds};
use algorithms::topology::{Rank, Topology};
use algorithms::verify;
use proptest::prelude::*;

fn link() -> impl Strategy<Value = Link> {
    let per_byte = prop_oneof![Just(0.0), 0.0..1e-9];
    let per_partner = prop_oneof![Just(0.0), 0.0..1.0];
    let protocol = (1e-7..5e-5, per_byte, 1e-12..1e-9, 0.0..5e-6, per_partner).prop_map(
        |(alpha_s, alpha_per_byte_s, beta_s, kappa_s, per_partner)| Protocol {
            alpha_s,
            alpha_per_byte_s,
            beta_s,
            per_partner,
            kappa_s,
            behind_data: 0.0,
            announced_from_bytes: 0.0,
        },
    );
    prop::collection::vec(protocol, 1..4).prop_map(Link)
}

fn rates() -> impl Strategy<Value = Rates> {
    (0.0..1e-9, 0.0..1e-10).prop_map(|(gamma_s, copy_s)| Rates { gamma_s, copy_s })
}

fn reduction() -> impl Strategy<Value = Reduction> {
    (rates(), rates()).prop_map(|(sending, silent)| Reduction { sending, silent })
}

fn reduction_by_buffer() -> impl Strategy<Value = Vec<(f64, Reduction)>> {
    prop::collection::btree_map(1..1_000_000_000u64, reduction(), 0..4)
        .prop_map(|all| all.into_iter().map(|(bytes, of)| (bytes as f64, of)).collect())
}

/// Any machine in which no two ranks share anything.
fn unshared() -> impl Strategy<Value = Machine> {
    let times = (reduction(), reduction_by_buffer(), prop_oneof![Just(0.0), 0.0..2e-6]);
    ((1..7usize, 1..4usize), link(), link(), link(), times).prop_map(
        |(
            (local_size, sockets),
            socket,
            bus,
            network,
            (reduction, reduction_by_buffer, overhead_s),
        )| {
            Machine {
                local_size,
                socket_size: local_size.div_ceil(sockets),
                socket,
                bus,
                network,
                shared: Shared::default(),
                reduction,
                reduction_by_buffer,
                overhead_s,
            }
        },
    )
}

fn algorithm() -> impl Strategy<Value = &'static str> {
    prop::sample::select(registry::ALL.iter().map(|entry| entry.name).collect::<Vec<_>>())
}

/// Everybody's copy goes around a ring in random order, chunk by chunk.
struct RandomRing {
    order: Vec<Rank>,
}

impl Schedule for RandomRing {
    fn ranks(&self) -> usize {
        self.order.len()
    }

    fn chunks(&self) -> usize {
        self.order.len()
    }

    fn steps(&self) -> usize {
        2 * (self.order.len() - 1)
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        let n = self.order.len();
        let place = self.order.iter().position(|&other| other == rank).unwrap();
        let action = if step < n - 1 { Action::Reduce } else { Action::Copy };
        let (to, from) = (self.order[(place + 1) % n], self.order[(place + n - 1) % n]);
        let chunk = |rank: Rank| {
            let place = self.order.iter().position(|&other| other == rank).unwrap();
            let chunk = (place + 2 * n - step) % n;
            chunk..chunk + 1
        };
        part.pass(rank, to, from, action, chunk);
    }
}

/// Up and down a random tree, in which every rank's parent has a lower number.
fn random_tree(parents: &[usize]) -> Listed {
    let ranks = parents.len() + 1;
    let mut height = vec![0; ranks];
    for child in (1..ranks).rev() {
        let parent = parents[child - 1] % child;
        height[parent] = height[parent].max(height[child] + 1);
    }
    let steps = 2 * height[0];
    let mut listed = Listed { ranks, chunks: 1, steps: vec![vec![Part::default(); ranks]; steps] };
    for child in 1..ranks {
        let parent = parents[child - 1] % child;
        let (up, down) = (height[child], steps - 1 - height[child]);
        let mut meet = |step: usize, from: Rank, to: Rank, action| {
            let one = |peer| Move::new(peer, 0..1, action);
            listed.steps[step][from].sends.push(one(to));
            listed.steps[step][to].receives.push(one(from));
        };
        meet(up, child, parent, Action::Reduce);
        meet(down, parent, child, Action::Copy);
    }
    listed
}

/// It is an allreduce, whatever it moves.
fn proved(schedule: &dyn Schedule) {
    let mut part = Part::default();
    let volume = |rank| {
        part.clear();
        (0..schedule.steps()).for_each(|step| schedule.part(rank, step, &mut part));
        let count = |moves: &[Move]| moves.iter().map(|entry| entry.chunks().len()).sum();
        Volume { sent: count(&part.sends), received: count(&part.receives) }
    };
    let volumes: Vec<Volume> = (0..schedule.ranks()).map(volume).collect();
    verify::schedule_moves(schedule, &volumes).unwrap();
}

fn ends(schedule: &dyn Schedule, machine: &Machine, size: f64, starts_s: &[f64]) -> [Outcome; 2] {
    [rounds::simulate, events::simulate]
        .map(|engine| engine(schedule, machine, size, starts_s).unwrap())
}

fn agree([rounds, events]: [Outcome; 2]) -> Result<(), TestCaseError> {
    let [a, b] = [rounds.end.at_s, events.end.at_s];
    prop_assert!((a - b).abs() <= 1e-9 * b, "{a} and {b}: {rounds:?}\n{events:?}");
    for outcome in [rounds, events] {
        let end = outcome.end;
        let parts = end.latency_s + end.bandwidth_s + end.contention_s + end.reduction_s;
        prop_assert!(parts <= end.at_s * (1.0 + 1e-9), "{end:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_algorithm_takes_as_long_by_rounds_as_by_events(
        machine in unshared(),
        name in algorithm(),
        nodes in 1..9usize,
        (size, segments, lag) in (1.0..1e9f64, 1..9usize, 1..5usize),
        late in prop::collection::vec(0.0..1e-2f64, 0..3),
    ) {
        let ranks = nodes * machine.local_size;
        let topology = machine.topology(ranks);
        let found = registry::find(name).ok().and_then(|found| found.schedule(&topology).ok());
        let Some(schedule) = found else { return Ok(()) };
        let schedule = Pipelined::with_lag(schedule, segments, lag);
        agree(ends(&schedule, &machine, size, &[]))?;
        // Ranks that begin late.
        let mut starts_s = vec![0.0; ranks];
        for (index, late) in late.iter().enumerate() {
            starts_s[(index * 7 + 3) % ranks] = *late;
        }
        agree(ends(&schedule, &machine, size, &starts_s))?;
    }

    #[test]
    fn random_trees_take_as_long_by_rounds_as_by_events(
        machine in unshared(),
        parents in prop::collection::vec(0..1000usize, 1..20),
        size in 1.0..1e9f64,
        seed in any::<u64>(),
    ) {
        let machine = Machine { local_size: machine.local_size.min(parents.len() + 1), ..machine };
        let ranks = (parents.len() + 1).next_multiple_of(machine.local_size);
        let machine = Machine { socket_size: machine.socket_size.min(machine.local_size), ..machine };
        let parents: Vec<usize> = (0..ranks - 1).map(|child| parents[child % parents.len()]).collect();
        let tree = random_tree(&parents);
        proved(&tree);
        agree(ends(&tree, &machine, size, &[]))?;
        let mut order: Vec<Rank> = (0..ranks).collect();
        order.sort_by_key(|&rank| (rank as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
        let ring = RandomRing { order };
        proved(&ring);
        agree(ends(&ring, &machine, size, &[]))?;
    }

    #[test]
    fn one_rank_to_a_node_shares_nothing(
        machine in unshared(),
        name in algorithm(),
        ranks in 1..40usize,
        size in 1.0..1e9f64,
        (node, nic) in (1e8..1e11f64, 1e8..1e11f64),
    ) {
        // Whatever its capacities: then they are one more limit of each link.
        let slowest = 1.0 / f64::min(node, nic);
        let network = Link(machine.network.0.iter().map(|protocol| Protocol {
            beta_s: protocol.beta_s.max(slowest),
            ..*protocol
        }).collect());
        let shared = Shared { nics: 1, nic: Some(nic), node: Some(node), bus: None };
        let machine = Machine { local_size: 1, socket_size: 1, network, shared, ..machine };
        let topology = Topology::flat(ranks);
        let found = registry::find(name).ok().and_then(|found| found.schedule(&topology).ok());
        let Some(schedule) = found else { return Ok(()) };
        agree(ends(&*schedule, &machine, size, &[]))?;
    }

    #[test]
    fn the_closed_form_bounds_single_messages_and_is_exact_where_all_ranks_do_the_same(
        (alpha_s, beta_s, gamma_s) in (1e-7..5e-5, 1e-12..1e-9, 0.0..1e-10),
        name in algorithm(),
        ranks in 1..65usize,
        size in 1.0..1e9f64,
    ) {
        let topology = Topology::flat(ranks);
        let found = registry::find(name).ok().and_then(|found| found.schedule(&topology).ok());
        let Some(schedule) = found else { return Ok(()) };
        let time = |gamma_s: f64| {
            let machine = Machine::flat(alpha_s, beta_s, gamma_s);
            let counted = Cost { exchanged: 0.0, ..Cost::of(&*schedule, &topology) };
            let formula = counted.time(1 << 20, &machine.closed_form(1.0)) - counted.time(0, &machine.closed_form(1.0));
            let formula = counted.time(0, &machine.closed_form(1.0)) + formula * size / f64::from(1 << 20);
            (formula, rounds::simulate(&*schedule, &machine, size, &[]).unwrap().end.at_s)
        };
        let (formula, simulated) = time(gamma_s);
        let mut part = Part::default();
        let is_single = (0..schedule.steps()).all(|step| (0..ranks).all(|rank| {
            part.clear();
            schedule.part(rank, step, &mut part);
            part.sends.len() < 2 && part.receives.len() < 2
        }));
        prop_assert!(!is_single || simulated <= formula * (1.0 + 1e-9), "{simulated} > {formula}");
        let (formula, simulated) = time(0.0);
        if schedule.rotation() == 1 && ranks > 1 {
            prop_assert!((simulated / formula - 1.0).abs() < 1e-9, "{simulated} for {formula}");
        }
    }
}
