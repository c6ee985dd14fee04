//! One allreduce of 64 MB in virtual time: on all of Summit's 4,600 nodes of 6 by rounds, and message by
//! message.

use algorithms::combinators::Pipelined;
use algorithms::registry::{ALL, find};
use algorithms::simulate::machine::{Link, Machine, Shared};
use algorithms::simulate::{events, rounds};
use criterion::{Criterion, Throughput};

fn machine() -> Machine {
    Machine {
        local_size: 6,
        socket_size: 3,
        socket: Link::plain(3.4e-6, 1.0 / 45e9),
        bus: Link::plain(4.5e-6, 1.0 / 25e9),
        network: Link::plain(14e-6, 1.0 / 12e9),
        shared: Shared { bus: Some(32e9), nics: 2, nic: Some(12.5e9), node: Some(23e9) },
        ..Machine::flat(0.0, 0.0, 3.0 / 900e9)
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let machine = machine();
    let mut group = criterion.benchmark_group("27,600 ranks by rounds");
    let segmented = ["ring", "double-tree", "hierarchical:halving-doubling"].map(|name| (name, 64));
    for (name, segments) in ALL.iter().map(|entry| (entry.name, 1)).chain(segmented) {
        let Ok(schedule) = find(name).unwrap().schedule(&machine.topology(27_600)) else {
            continue;
        };
        let schedule = Pipelined::new(schedule, segments);
        let label = if segments > 1 { format!("{name}, {segments} segments") } else { name.into() };
        group.bench_function(label, |bencher| {
            bencher.iter(|| rounds::simulate(&schedule, &machine, 64e6, &[]).unwrap().end);
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("per message, message by message");
    let shares_nothing = Machine { shared: Shared::default(), ..machine.clone() };
    for (machine, name, ranks, segments) in [
        (&shares_nothing, "ring", 1536, 1),
        (&shares_nothing, "halving-doubling", 16_384 / 6 * 6, 1),
        (&shares_nothing, "double-tree", 27_600, 16),
        (&machine, "ring", 1536, 1),
        (&machine, "double-tree", 27_600, 16),
        (&machine, "hierarchical:halving-doubling", 27_600, 16),
    ] {
        let schedule = find(name).unwrap().schedule(&machine.topology(ranks)).unwrap();
        let schedule = Pipelined::new(schedule, segments);
        let transfers = events::simulate(&schedule, machine, 64e6, &[]).unwrap().transfers;
        group.throughput(Throughput::Elements(transfers as u64));
        let shared = if machine.shared.node.is_some() { "cards shared" } else { "nothing shared" };
        group.bench_function(
            format!("{name}, {ranks} ranks, {segments} segments, {shared}"),
            |bencher| {
                bencher.iter(|| events::simulate(&schedule, machine, 64e6, &[]).unwrap().end);
            },
        );
    }
    group.finish();
    criterion.final_summary();
}
