//! Whether processes that are to have a GPU each do: looked at before anything is measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::devices::{Found, peers};
use super::{CudaError, version};

/// What one process sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Its number in the world.
    pub rank: usize,
    /// Its host's name.
    pub host: String,
    /// Its number on that host, and of the GPU that it takes among those that it sees.
    pub local_rank: usize,
    /// The GPUs that it sees, in the driver's order.
    pub gpus: Vec<Gpu>,
    /// The CUDA version that the driver is for.
    pub driver: String,
    /// The version of NCCL, if it is found.
    pub nccl: Option<String>,
    /// Which GPU's kernels can read which one's memory.
    pub peers: Vec<Vec<bool>>,
}

/// A GPU, as a process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
}

impl Facts {
    /// What this process sees of a driver's GPUs.
    ///
    /// # Errors
    /// When the driver does not say who reaches whom.
    pub fn here(
        (rank, local_rank): (usize, usize),
        host: String,
        found: &Found,
        nccl: Option<String>,
    ) -> Result<Facts, CudaError> {
        let gpu = |device: &super::devices::Device| Gpu {
            uuid: device.uuid.clone(),
            name: device.name.clone(),
            capability: device.capability,
        };
        Ok(Facts {
            rank,
            host,
            local_rank,
            gpus: found.devices.iter().map(gpu).collect(),
            driver: version(found.version),
            nccl,
            peers: peers(found.devices.len())?,
        })
    }

    /// The GPU that it takes.
    fn taken(&self) -> Option<&Gpu> {
        self.gpus.get(self.local_rank)
    }
}

/// What is wrong with the GPUs of a world's processes: a sentence each, with what to do; none if all is well.
pub fn wrong(world: &[Facts]) -> Vec<String> {
    let mut hosts: BTreeMap<&str, Vec<&Facts>> = BTreeMap::new();
    for facts in world {
        hosts.entry(&facts.host).or_default().push(facts);
    }
    let mut wrong: Vec<String> =
        hosts.iter().filter_map(|(host, here)| without(host, here)).collect();
    wrong.extend(twice(world));
    wrong.extend(unlike(world));
    wrong.extend(hosts.iter().filter_map(|(host, here)| apart(host, here)));
    wrong
}

/// Ranks of a host that have no GPU.
fn without(host: &str, here: &[&Facts]) -> Option<String> {
    let lacking: Vec<_> = here.iter().filter(|facts| facts.taken().is_none()).collect();
    if lacking.is_empty() {
        return None;
    }
    let ranks = numbered("local rank", lacking.iter().map(|facts| facts.local_rank));
    let count = here.len();
    let mut seen: Vec<&str> =
        here.iter().flat_map(|facts| &facts.gpus).map(|gpu| gpu.uuid.as_str()).collect();
    seen.sort_unstable();
    seen.dedup();
    let alone = here.iter().all(|facts| facts.gpus.len() == 1);
    let (why, advice) = if alone && seen.len() == count {
        (
            "each process sees one GPU, its own, so that none could reach its neighbours' memory"
                .into(),
            format!(
                "leave out --gpus-per-task and --gpu-bind of other kinds, and give \
                 --gpus-per-node={count} --gpu-bind=none"
            ),
        )
    } else if seen.is_empty() {
        (
            format!("{count} processes see no GPU"),
            format!(
                "ask for --gpus-per-node={count}, and look at CUDA_VISIBLE_DEVICES and nvidia-smi"
            ),
        )
    } else {
        let gpus = if seen.len() == 1 { "GPU" } else { "GPUs" };
        (
            format!("{count} processes see {} {gpus} ({})", seen.len(), seen.join(", ")),
            format!(
                "ask for --gpus-per-node={count}, or start {} on a node",
                if seen.len() == 1 {
                    "one process".into()
                } else {
                    format!("{} processes", seen.len())
                }
            ),
        )
    };
    let verb = if lacking.len() == 1 { "has" } else { "have" };
    Some(format!("{host}: {ranks} {verb} no GPU: {why}; {advice}"))
}

/// GPUs that several ranks take.
fn twice(world: &[Facts]) -> Vec<String> {
    let mut takers: BTreeMap<&str, Vec<&Facts>> = BTreeMap::new();
    for facts in world {
        if let Some(gpu) = facts.taken() {
            takers.entry(&gpu.uuid).or_default().push(facts);
        }
    }
    let several = takers.into_iter().filter(|(_, takers)| takers.len() > 1);
    let sentence = |(uuid, takers): (&str, Vec<&Facts>)| {
        format!(
            "{} on {} is taken by {}; NCCL wants a GPU for each: start fewer processes, or look at \
             CUDA_VISIBLE_DEVICES and at how local ranks are counted",
            uuid,
            takers[0].host,
            numbered("rank", takers.iter().map(|facts| facts.rank))
        )
    };
    several.map(sentence).collect()
}

/// Something that ranks are to have in common, in words.
type Value = fn(&Facts) -> Option<String>;

/// What ranks differ in.
fn unlike(world: &[Facts]) -> Vec<String> {
    let model: Value = |facts| {
        let Gpu { name, capability: (major, minor), .. } = facts.taken()?;
        Some(format!("{name}, compute capability {major}.{minor}"))
    };
    let driver: Value = |facts| Some(facts.driver.clone());
    let nccl: Value = |facts| Some(facts.nccl.clone().unwrap_or("not found".into()));
    let kinds: [(&str, Value, &str); 3] = [
        (
            "GPUs are of different models",
            model,
            "all go as fast as the slowest; choose nodes of one kind, as with --constraint",
        ),
        (
            "drivers are for different CUDA versions",
            driver,
            "leave out the nodes that differ, as with --exclude",
        ),
        (
            "NCCL is not the same everywhere",
            nccl,
            "give all nodes one library, by LD_LIBRARY_PATH or KOLO_NCCL_LIB",
        ),
    ];
    let mut wrong = Vec::new();
    for (what, value, advice) in kinds {
        let mut values: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for facts in world {
            if let Some(value) = value(facts) {
                values.entry(value).or_default().push(facts.rank);
            }
        }
        if values.len() > 1 {
            let each = |(value, ranks): (&String, &Vec<usize>)| {
                format!("{value} ({})", numbered("rank", ranks.iter().copied()))
            };
            let each: Vec<String> = values.iter().map(each).collect();
            wrong.push(format!("{what}: {}; {advice}", each.join("; ")));
        }
    }
    wrong
}

/// GPUs that ranks of a host take, and that cannot read each other's memory.
fn apart(host: &str, here: &[&Facts]) -> Option<String> {
    // Whoever sees all of them knows; whoever sees one knows nothing.
    let knows = here.iter().max_by_key(|facts| facts.gpus.len())?;
    let devices: Vec<usize> = knows.peers.iter().enumerate().map(|(device, _)| device).collect();
    let taken = |device: &&usize| here.iter().any(|facts| facts.local_rank == **device);
    let taken: Vec<usize> = devices.iter().filter(taken).copied().collect();
    let reaches = |a: usize, b: usize| knows.peers[a].get(b).copied().unwrap_or(false);
    let mut pairs = Vec::new();
    for (at, &a) in taken.iter().enumerate() {
        for &b in &taken[at + 1..] {
            if !(reaches(a, b) && reaches(b, a)) {
                pairs.push(format!("{a} and {b}"));
            }
        }
    }
    (!pairs.is_empty()).then(|| {
        format!(
            "{host}: GPUs {} cannot read each other's memory, so that data go through the host's; look at \
             the topology in `kolo info`, and at IOMMU and ACS of the machine",
            pairs.join(", ")
        )
    })
}

/// `rank 3`, or `ranks 0, 1 and 4`.
fn numbered(noun: &str, numbers: impl Iterator<Item = usize>) -> String {
    let words: Vec<String> = numbers.map(|number| number.to_string()).collect();
    match words.split_last() {
        Some((last, [])) => format!("{noun} {last}"),
        Some((last, others)) => format!("{noun}s {} and {last}", others.join(", ")),
        None => format!("no {noun}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts with so many processes and GPUs each, all of which reach each other.
    fn world(hosts: &[(&str, usize, usize)]) -> Vec<Facts> {
        let mut world = Vec::new();
        for &(host, processes, gpus) in hosts {
            for local_rank in 0..processes {
                let gpu = |at| Gpu {
                    uuid: format!("GPU-{host}-{at}"),
                    name: "Made-up 100".into(),
                    capability: (9, 0),
                };
                world.push(Facts {
                    rank: world.len(),
                    host: host.into(),
                    local_rank,
                    gpus: (0..gpus).map(gpu).collect(),
                    driver: "12.4".into(),
                    nccl: Some("2.27.3".into()),
                    peers: vec![vec![true; gpus]; gpus],
                });
            }
        }
        world
    }

    #[test]
    fn a_gpu_for_each_is_well() {
        assert_eq!(wrong(&world(&[("a", 4, 4), ("b", 2, 4), ("c", 1, 1)])), Vec::<String>::new());
        assert_eq!(wrong(&[]), Vec::<String>::new());
    }

    #[test]
    fn ranks_without_a_gpu_are_named_with_their_host() {
        assert_eq!(
            wrong(&world(&[("a", 4, 2), ("b", 2, 2)])),
            [
                "a: local ranks 2 and 3 have no GPU: 4 processes see 2 GPUs (GPU-a-0, GPU-a-1); ask for \
              --gpus-per-node=4, or start 2 processes on a node"
            ]
        );
        assert_eq!(
            wrong(&world(&[("a", 2, 1)])),
            [
                "a: local rank 1 has no GPU: 2 processes see 1 GPU (GPU-a-0); ask for --gpus-per-node=2, or \
              start one process on a node"
            ]
        );
        assert_eq!(
            wrong(&world(&[("a", 2, 0)])),
            [
                "a: local ranks 0 and 1 have no GPU: 2 processes see no GPU; ask for --gpus-per-node=2, and \
              look at CUDA_VISIBLE_DEVICES and nvidia-smi"
            ]
        );
    }

    #[test]
    fn tasks_that_see_only_their_own_gpu_are_told_what_to_change() {
        let mut world = world(&[("a", 3, 1)]);
        for facts in &mut world {
            facts.gpus[0].uuid = format!("GPU-{}", facts.rank);
        }
        assert_eq!(
            wrong(&world),
            [
                "a: local ranks 1 and 2 have no GPU: each process sees one GPU, its own, so that none could \
              reach its neighbours' memory; leave out --gpus-per-task and --gpu-bind of other kinds, and give \
              --gpus-per-node=3 --gpu-bind=none"
            ]
        );
    }

    #[test]
    fn one_gpu_is_for_one_rank() {
        let mut world = world(&[("a", 2, 2), ("b", 1, 1)]);
        world[1].gpus[1].uuid = "GPU-a-0".into();
        assert_eq!(
            wrong(&world),
            [
                "GPU-a-0 on a is taken by ranks 0 and 1; NCCL wants a GPU for each: start fewer processes, or \
              look at CUDA_VISIBLE_DEVICES and at how local ranks are counted"
            ]
        );
    }

    #[test]
    fn models_drivers_and_libraries_are_to_be_the_same() {
        let mut world = world(&[("a", 2, 2), ("b", 2, 2)]);
        // What nobody takes does not count.
        world[0].gpus[1].name = "Display".into();
        assert_eq!(wrong(&world), Vec::<String>::new());
        world[3].gpus[1] =
            Gpu { name: "Made-up 80".into(), capability: (8, 0), ..world[3].gpus[1].clone() };
        world[2].driver = "12.2".into();
        world[0].nccl = None;
        assert_eq!(
            wrong(&world),
            [
                "GPUs are of different models: Made-up 100, compute capability 9.0 (ranks 0, 1 and 2); Made-up \
                 80, compute capability 8.0 (rank 3); all go as fast as the slowest; choose nodes of one kind, \
                 as with --constraint",
                "drivers are for different CUDA versions: 12.2 (rank 2); 12.4 (ranks 0, 1 and 3); leave out \
                 the nodes that differ, as with --exclude",
                "NCCL is not the same everywhere: 2.27.3 (ranks 1, 2 and 3); not found (rank 0); give all \
                 nodes one library, by LD_LIBRARY_PATH or KOLO_NCCL_LIB",
            ]
        );
    }

    #[test]
    fn gpus_of_a_node_are_to_reach_each_other() {
        let mut world = world(&[("a", 3, 4)]);
        for facts in &mut world {
            facts.peers[0][2] = false;
            // Nobody takes that one.
            facts.peers[3] = vec![false; 4];
        }
        assert_eq!(
            wrong(&world),
            [
                "a: GPUs 0 and 2 cannot read each other's memory, so that data go through the host's; look at \
              the topology in `kolo info`, and at IOMMU and ACS of the machine"
            ]
        );
    }
}
