//! Generating schedules, per send or receive.

use algorithms::registry::find;
use algorithms::schedule::Part;
use algorithms::topology::Topology;
use criterion::{BenchmarkId, Criterion, Throughput};

/// One rank's part of every step; 27,600 ranks are Summit's 4,600 nodes of 6 GPUs.
fn generate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("schedule, per send or receive");
    for name in ["ring", "tree", "hierarchical", "hierarchical:tree"] {
        for world in [Topology::uniform(8, 8), Topology::uniform(4600, 6)] {
            let schedule = find(name).unwrap().schedule(&world).unwrap();
            let mut part = Part::default();
            let mut walk = || {
                (0..schedule.steps()).fold(0, |entries, step| {
                    part.clear();
                    schedule.part(0, step, &mut part);
                    entries + part.sends.len() + part.receives.len()
                })
            };
            group.throughput(Throughput::Elements(walk() as u64));
            let id = BenchmarkId::new(name, format!("{} ranks", world.ranks()));
            group.bench_function(id, |bencher| bencher.iter(&mut walk));
        }
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    generate(&mut criterion);
    criterion.final_summary();
}
