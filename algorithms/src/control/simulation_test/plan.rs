//! The small world that a seed stands for: planes, tensors, training steps, and what goes wrong.

use std::time::Duration;

use super::super::mutation::Mutations;
use super::super::settings::Settings;
use super::super::stall::StallCheck;
use super::super::tensor::{DataType, Device, Operation, ReduceOp, Tensor, TensorId};
use super::super::tensors::Tensors;
use super::random::Random;
use crate::fusion::Groups;
use crate::topology::Rank;

/// The fault that is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// In this step a rank has another version of this name than the others.
    Mismatch {
        /// The step.
        step: usize,
        /// The name's number.
        name: usize,
        /// The rank.
        rank: Rank,
    },
    /// In this step this name never becomes ready on a rank, so all ranks shut down.
    Stall {
        /// The step.
        step: usize,
        /// The name's number.
        name: usize,
        /// The rank.
        rank: Rank,
    },
    /// A rank wants all ranks to shut down after a number of its events.
    ShutDown {
        /// The rank.
        rank: Rank,
        /// The number of its events before.
        after: usize,
    },
    /// A rank dies after a number of its events.
    Death {
        /// The rank.
        rank: Rank,
        /// The number of its events before.
        after: usize,
    },
}

/// What happens in a world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Control plane.
    pub plane: String,
    /// World size.
    pub ranks: usize,
    /// Every version of every name, by the number of the name.
    pub versions: Vec<Vec<Tensor>>,
    /// For each step: names and the version that is reduced, in the order of definition.
    pub steps: Vec<Vec<(usize, usize)>>,
    /// Groups of names.
    pub groups: Option<Vec<Vec<usize>>>,
    /// Whether every rank sees gradients in an order of its own.
    pub shuffled: bool,
    /// As in [`Settings`].
    pub fusion_threshold_bytes: usize,
    /// As in [`Settings`].
    pub cache_capacity: usize,
    /// The fault that is injected.
    pub fault: Fault,
    /// The largest delay of a message; at times it is much larger.
    pub delay: usize,
}

/// Control planes; more complex ones occur more often.
const PLANES: [&str; 13] = [
    "bitvector",
    "bitvector",
    "bitvector",
    "bitvector",
    "bitvector",
    "coordinator",
    "tree:2",
    "tree:3",
    "point-to-point",
    "ddp",
    "ddp:1",
    "packs",
    "packs:1",
];

impl Plan {
    /// The world of a seed.
    pub fn new(random: &mut Random) -> Plan {
        let plane = random.pick(&PLANES).to_string();
        let is_static = plane.starts_with("ddp") || plane.starts_with("packs");
        let ranks = random.within(1..8);
        let names = random.within(1..14);
        let versions: Vec<_> = (0..names).map(|name| versions(random, name, is_static)).collect();
        let fusion_threshold_bytes = match random.below(4) {
            0 => 0,
            1 => 1 << 30,
            _ => random.below(4000),
        };
        let cache_capacity = match random.below(4) {
            0 => random.below(3),
            1 => 1024,
            _ => random.within(1..names + 2),
        };
        let count = random.within(1..5);
        let steps: Vec<Vec<_>> = (0..count).map(|_| step(random, &versions, is_static)).collect();
        let groups = (!is_static && random.once_in(5)).then(|| split(random, names));
        let at = random.below(count);
        let (name, _) = random.pick(&steps[at]);
        let rank = random.below(ranks);
        let after = random.below(20 * count);
        let fault = match random.below(8) {
            0 if ranks > 1 && !is_static && versions[name].len() > 1 => {
                Fault::Mismatch { step: at, name, rank }
            }
            1 if ranks > 1 && !is_static => Fault::Stall { step: at, name, rank },
            2 if !is_static => Fault::ShutDown { rank, after },
            3 if ranks > 1 => Fault::Death { rank, after },
            _ => Fault::None,
        };
        Plan {
            plane,
            ranks,
            versions,
            steps,
            groups,
            shuffled: random.once_in(2),
            fusion_threshold_bytes,
            cache_capacity,
            fault,
            delay: random.pick(&[1, 20, 300]),
        }
    }

    /// The version of a name that a rank has in a step, if it takes part.
    pub fn version(&self, step: usize, name: usize, rank: Rank) -> Option<usize> {
        let &(_, version) = self.steps[step].iter().find(|(other, _)| *other == name)?;
        let differs = self.fault == Fault::Mismatch { step, name, rank };
        Some(if differs { (version + 1) % self.versions[name].len() } else { version })
    }

    /// True if ranks disagree about a name in a step.
    pub fn is_mismatched(&self, step: usize, name: usize) -> bool {
        matches!(self.fault, Fault::Mismatch { step: at, name: other, .. } if (at, other) == (step, name))
    }

    /// The registration of a rank: every rank numbers the same tensors differently, unless the plane needs the
    /// same order. Returns the tensors, and the name and version of each.
    pub fn tensors(&self, rank: Rank) -> (Tensors, Vec<(usize, usize)>) {
        let mut all: Vec<(usize, usize)> = (0..self.versions.len())
            .flat_map(|name| (0..self.versions[name].len()).map(move |version| (name, version)))
            .collect();
        if !(self.plane.starts_with("ddp") || self.plane.starts_with("packs")) {
            let turn = rank % all.len();
            all.rotate_left(turn);
        }
        let list = all.iter().map(|&(name, version)| self.versions[name][version].clone());
        (Tensors::new(list.collect()).expect("versions differ"), all)
    }

    /// The settings of a rank's plane, given its numbering.
    pub fn settings(
        &self,
        rank: Rank,
        numbering: &[(usize, usize)],
        mutations: Mutations,
    ) -> Settings {
        let ids = |names: &Vec<usize>| -> Vec<TensorId> {
            let versions = names.iter().flat_map(|&name| {
                (0..self.versions[name].len()).map(move |version| (name, version))
            });
            let id = |of: (usize, usize)| numbering.iter().position(|&other| other == of);
            versions.filter_map(id).collect()
        };
        let groups = self.groups.as_ref().map(|groups| groups.iter().map(ids).collect());
        let stall = matches!(self.fault, Fault::Stall { .. }).then_some(StallCheck {
            warn_after: Duration::from_micros(20_000),
            shut_down_after: Some(Duration::from_micros(60_000)),
        });
        Settings {
            fusion_threshold_bytes: self.fusion_threshold_bytes,
            cache_capacity: self.cache_capacity,
            groups: groups.map(|groups| Groups::new(groups).into()),
            stall_check: stall,
            mutations,
            ..Settings::new(rank, self.ranks)
        }
    }
}

/// The versions of one name.
fn versions(random: &mut Random, name: usize, is_static: bool) -> Vec<Tensor> {
    let count = if !is_static && random.once_in(3) { 2 } else { 1 };
    let dtype = random.pick(&[DataType::F32, DataType::F32, DataType::F16]);
    let shape = [random.below(400) as u64];
    let first = Tensor::new(format!("layer{name}.weight"), dtype, ReduceOp::Average, &shape);
    let mut second = first.clone();
    match random.below(6) {
        0 => second.dtype = DataType::F64,
        1 => second.shape = vec![1, shape[0]],
        2 => second.postscale = 0.5,
        3 => second.op = ReduceOp::Max,
        4 => second.device = Device::Gpu,
        _ => second.operation = Operation::AllGather,
    }
    [first, second].into_iter().take(count).collect()
}

/// The names of a step and their versions; mostly all of them, and mostly the first.
fn step(random: &mut Random, versions: &[Vec<Tensor>], is_static: bool) -> Vec<(usize, usize)> {
    let some = !is_static && random.once_in(3);
    let first = random.below(versions.len());
    let takes_part = |random: &mut Random, name| !some || name == first || random.once_in(2);
    let mut names: Vec<usize> = Vec::new();
    for name in 0..versions.len() {
        if takes_part(random, name) {
            names.push(name);
        }
    }
    let version =
        |name: usize| if random.once_in(4) { random.below(versions[name].len()) } else { 0 };
    let numbers: Vec<usize> = names.iter().copied().map(version).collect();
    names.into_iter().zip(numbers).collect()
}

fn split(random: &mut Random, names: usize) -> Vec<Vec<usize>> {
    let mut groups = vec![Vec::new()];
    for name in 0..names {
        if random.once_in(3) {
            groups.push(Vec::new());
        }
        groups.last_mut().expect("there is one").push(name);
    }
    groups.retain(|group| !group.is_empty());
    groups
}
