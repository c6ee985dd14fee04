//! A cycle of the control planes, all ranks of a small world in one thread and without I/O.

use std::sync::Arc;

use algorithms::control::{
    self, ControlPlane, DataType, Effect, Event, ReduceOp, Settings, Tensor, Tensors,
};
use criterion::{BenchmarkId, Criterion, Throughput};

const RANKS: usize = 4;

struct World {
    planes: Vec<Box<dyn ControlPlane>>,
    effects: Vec<Effect>,
}

impl World {
    fn new(plane: &str, tensors: usize) -> World {
        let tensor = |id: usize| {
            let name = format!("layer{}.{}.conv{}.weight", id / 40, id / 4, id % 4);
            Tensor::new(name, DataType::F32, ReduceOp::Average, &[64, 64, 3, 3])
        };
        let tensors = Arc::new(Tensors::new((0..tensors).map(tensor).collect()).unwrap());
        let plane = |rank| {
            let settings = Settings {
                rank,
                ranks: RANKS,
                fusion_threshold_bytes: 128 << 20,
                cache_capacity: 1024,
            };
            control::find(plane, tensors.clone(), &settings).unwrap()
        };
        World { planes: (0..RANKS).map(plane).collect(), effects: Vec::new() }
    }

    /// Everything is ready on every rank, and is negotiated; returns the number of messages.
    fn cycle(&mut self, tensors: usize) -> usize {
        let mut bits: Vec<Vec<u64>> = Vec::new();
        let mut mail: Vec<(usize, Arc<[u8]>)> = Vec::new();
        for rank in 0..RANKS {
            for id in 0..tensors {
                self.planes[rank].on(Event::Ready(id), &mut self.effects).unwrap();
            }
            self.planes[rank].on(Event::Cycle, &mut self.effects).unwrap();
            for effect in self.effects.drain(..) {
                match effect {
                    Effect::AllAnd(words) => bits.push(words),
                    Effect::Send { message, .. } => mail.push((rank, message.into())),
                    _ => unreachable!("rank 0 waits for the others"),
                }
            }
        }
        if !bits.is_empty() {
            let and = |a: Vec<u64>, b: &Vec<u64>| a.iter().zip(b).map(|(a, b)| a & b).collect();
            let anded = bits[1..].iter().fold(bits[0].clone(), and);
            for rank in 0..RANKS {
                self.planes[rank].on(Event::AllAnded(&anded), &mut self.effects).unwrap();
                self.effects.retain(|effect| match effect {
                    Effect::Send { message, .. } => {
                        mail.push((rank, message.clone().into()));
                        false
                    }
                    _ => true,
                });
            }
        }
        for (from, message) in mail {
            self.planes[0]
                .on(Event::Arrived { from, message: &message }, &mut self.effects)
                .unwrap();
        }
        let answer = self.effects.iter().find_map(|effect| match effect {
            Effect::Broadcast(message) => Some(message.clone()),
            _ => None,
        });
        for rank in 1..RANKS {
            if let Some(message) = &answer {
                let arrived = Event::Arrived { from: 0, message };
                self.planes[rank].on(arrived, &mut self.effects).unwrap();
            }
        }
        let is_message = |effect: &&Effect| matches!(effect, Effect::Execute(_));
        let messages = self.effects.iter().filter(is_message).count();
        self.effects.clear();
        messages / RANKS
    }
}

fn cycles(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("control plane, cycle of 4 ranks, per rank");
    group.throughput(Throughput::Elements(RANKS as u64));
    for plane in control::NAMES {
        for tensors in [161, 1000] {
            let mut world = World::new(plane, tensors);
            assert!(world.cycle(tensors) > 0, "the first cycle fills the cache");
            let id = BenchmarkId::new(plane, format!("{tensors} tensors"));
            group.bench_function(id, |bencher| bencher.iter(|| world.cycle(tensors)));
        }
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    cycles(&mut criterion);
    criterion.final_summary();
}
