//! Tensors that become ready in each step of a case: the same ones, or some with new names or other shapes.

use std::sync::Arc;

use algorithms::control::{ControlError, DataType, ReduceOp, Tensor, TensorId, Tensors};
use algorithms::topology::Rank;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::config::{Case, ReadyOrder};
use workloads::workload::Workload;

/// A model's tensors in the order in which they become ready.
pub fn of_workload(workload: &Workload) -> Vec<Tensor> {
    let tensors = workload.tensors(DataType::F32, ReduceOp::Average);
    workload.ready_order.iter().map(|&index| tensors[index].clone()).collect()
}

/// `count` tensors with names of typical length, as in a deep network of blocks of four.
pub fn synthetic(count: usize) -> Vec<Tensor> {
    let tensor = |id: usize| {
        let name = format!("module.layer{}.{}.conv{}.weight", id / 64, id / 4 % 16, id % 4);
        Tensor::new(name, DataType::F32, ReduceOp::Average, &[128, 128, 3, 3])
    };
    (0..count).rev().map(tensor).collect()
}

/// The tensors of all steps of a case, registered beforehand.
///
/// ```text
/// numbers   0 .. n                  the list itself
///           n ..                    in another shape: those that are invalid in every step
///           ... by step             with a new name
/// ```
pub struct Steps {
    /// All tensors.
    pub tensors: Arc<Tensors>,
    /// How many become ready in a step.
    pub count: usize,
    /// Positions in the list whose shape changes from step to step.
    invalid: Vec<usize>,
    /// Positions in the list whose name is new in every step.
    misses: Vec<usize>,
    order: ReadyOrder,
    seed: u64,
}

impl Steps {
    /// Registers the tensors of all steps of a case.
    ///
    /// # Errors
    /// When a name occurs twice.
    pub fn new(
        list: &[Tensor],
        case: &Case,
        steps: usize,
        seed: u64,
    ) -> Result<Steps, ControlError> {
        let count = list.len();
        let invalid = places(case.invalid_share, count);
        let misses = places(case.miss_share, count).min(count - invalid);
        // Spread over the list.
        let mut places = (0..invalid + misses).map(|place| place * count / (invalid + misses));
        let invalid: Vec<usize> = places.by_ref().take(invalid).collect();
        let misses: Vec<usize> = places.collect();
        let mut all = list.to_vec();
        all.extend(invalid.iter().map(|&place| reshaped(&list[place])));
        for step in 0..steps {
            let renamed = |&place: &usize| {
                let name = format!("{}#{step}", list[place].name);
                Tensor { name, ..list[place].clone() }
            };
            all.extend(misses.iter().map(renamed));
        }
        let tensors = Arc::new(Tensors::new(all)?);
        Ok(Steps { tensors, count, invalid, misses, order: case.ready_order, seed })
    }

    /// Tensors that become ready in a step, in the order of the list.
    pub fn of(&self, step: usize) -> Vec<TensorId> {
        let mut ids: Vec<TensorId> = (0..self.count).collect();
        for (at, &place) in self.invalid.iter().enumerate().filter(|_| step % 2 == 1) {
            ids[place] = self.count + at;
        }
        for (at, &place) in self.misses.iter().enumerate() {
            ids[place] = self.count + self.invalid.len() + step * self.misses.len() + at;
        }
        ids
    }

    /// The same in the order in which it becomes ready on a rank.
    pub fn on(&self, rank: Rank, step: usize, ids: &[TensorId]) -> Vec<TensorId> {
        let mut ids = ids.to_vec();
        if self.order == ReadyOrder::Shuffled {
            let mut random = ChaCha8Rng::seed_from_u64(self.seed);
            random.set_stream(((step as u64) << 32) | rank as u64);
            ids.shuffle(&mut random);
        }
        ids
    }
}

/// The number of elements of a share, at least one if the share is above 0.
fn places(share: f64, count: usize) -> usize {
    let places = (share * count as f64).round() as usize;
    if share > 0.0 { places.clamp(1, count) } else { 0 }
}

/// The same name with another shape.
fn reshaped(tensor: &Tensor) -> Tensor {
    let mut shape = tensor.shape.clone();
    match shape.first_mut() {
        Some(first) => *first += 1,
        None => shape.push(2),
    }
    Tensor { shape, ..tensor.clone() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::control_sweep::config::Source;
    use crate::control_sweep::transport::Transport;

    fn case(miss_share: f64, invalid_share: f64, ready_order: ReadyOrder) -> Case {
        Case {
            transport: Transport::Lockstep,
            ranks: 4,
            plane: "bitvector".into(),
            source: Source::Synthetic(100),
            ready_order,
            cache_capacity: 1024,
            miss_share,
            invalid_share,
        }
    }

    #[test]
    fn shares_of_every_step_are_new_or_changed() {
        for (miss_share, invalid_share) in
            [(0.0, 0.0), (0.1, 0.0), (0.0, 0.02), (0.3, 0.25), (1.0, 0.0), (0.0, 1.0), (0.001, 0.0)]
        {
            let case = case(miss_share, invalid_share, ReadyOrder::Same);
            let steps = Steps::new(&synthetic(100), &case, 5, 1).unwrap();
            let names = |step| -> BTreeSet<usize> {
                steps.of(step).iter().map(|&id| steps.tensors.name_of(id)).collect()
            };
            let share = |share: f64| (share * 100.0).round().max((share > 0.0).into());
            for step in 1..5 {
                assert_eq!(names(step).len(), 100, "each name once");
                let before: BTreeSet<_> = (0..step).flat_map(names).collect();
                let new = names(step).difference(&before).count();
                assert_eq!(new as f64, share(miss_share));
                let (ids, last) = (steps.of(step), steps.of(step - 1));
                let changed = ids.iter().zip(&last).filter(|&(&id, &other)| {
                    id != other && steps.tensors.name_of(id) == steps.tensors.name_of(other)
                });
                assert_eq!(changed.count() as f64, share(invalid_share));
            }
        }
    }

    #[test]
    fn orders_are_shuffled_by_seed_rank_and_step() {
        let list = synthetic(100);
        let steps = |order, seed| Steps::new(&list, &case(0.0, 0.0, order), 3, seed).unwrap();
        let same = steps(ReadyOrder::Same, 1);
        assert_eq!(same.on(3, 1, &same.of(1)), (0..100).collect::<Vec<_>>());
        let on = |seed, rank, step| {
            let shuffled = steps(ReadyOrder::Shuffled, seed);
            shuffled.on(rank, step, &shuffled.of(step))
        };
        assert_eq!(on(1, 2, 1), on(1, 2, 1));
        for other in [on(2, 2, 1), on(1, 3, 1), on(1, 2, 2)] {
            assert_ne!(on(1, 2, 1), other);
            assert_eq!(other.iter().collect::<BTreeSet<_>>().len(), 100);
        }
    }

    #[test]
    fn synthetic_names_are_unique_and_of_typical_length() {
        let steps = Steps::new(&synthetic(5000), &case(0.0, 0.0, ReadyOrder::Same), 1, 1).unwrap();
        assert_eq!(steps.tensors.names(), 5000);
        let lengths = (0..1000).map(|id| steps.tensors.get(id).name.len());
        assert!(lengths.into_iter().all(|length| (25..35).contains(&length)));
    }
}
