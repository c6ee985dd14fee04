//! Findings about the GPUs of a job: what makes figures on them doubtful, though every rank has one.

use std::collections::BTreeMap;

use algorithms::topology::Rank;
use cluster::preflight::Finding;

use super::assignment::{Assignment, may_share};
use super::facts::Facts;
use super::ranks_in_words;
use crate::cuda::devices::Gpu;
use crate::cuda::version;

/// A rank with the GPU that it takes.
struct Taken<'a> {
    rank: Rank,
    facts: &'a Facts,
    gpu: &'a Gpu,
}

/// Findings about the GPUs that ranks take; none if all is well. `facts` and `assignments` are those of all ranks.
pub fn findings(facts: &[Facts], assignments: &[Assignment]) -> Vec<Finding> {
    let all = facts.iter().zip(assignments).enumerate();
    let world: Vec<Taken> = all
        .map(|(rank, (facts, assignment))| Taken {
            rank,
            facts,
            gpu: &facts.gpus[assignment.ordinal],
        })
        .collect();
    let mut findings = Vec::new();
    if !may_share(facts) {
        findings.extend(twice(&world));
    }
    findings.extend(unlike(&world));
    findings.extend(grouped(&world, |taken| taken.facts.host.clone()).iter().filter_map(apart));
    findings
}

/// Ranks with a value in common, by the values.
fn grouped<'w, 'a>(
    world: &'w [Taken<'a>],
    value: impl Fn(&Taken) -> String,
) -> BTreeMap<String, Vec<&'w Taken<'a>>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    world.iter().for_each(|taken| groups.entry(value(taken)).or_default().push(taken));
    groups
}

fn ranks(taken: &[&Taken]) -> String {
    ranks_in_words(&taken.iter().map(|taken| taken.rank).collect::<Vec<_>>())
}

/// GPUs that several ranks take, which may not: one machine can have several names, as containers do.
fn twice(world: &[Taken]) -> Vec<Finding> {
    let takers = grouped(world, |taken| taken.gpu.uuid.clone());
    let finding = |(uuid, takers): (&String, &Vec<&Taken>)| {
        let mut hosts: Vec<&str> = takers.iter().map(|taken| taken.facts.host.as_str()).collect();
        hosts.dedup();
        Finding::refusal(format!(
            "{} use the same GPU, {uuid}, on hosts that are one machine ({})",
            ranks(takers),
            hosts.join(", ")
        ))
        .advice("NCCL needs one GPU per rank: start fewer processes, or provide more GPUs")
    };
    takers.iter().filter(|(_, takers)| takers.len() > 1).map(finding).collect()
}

/// What ranks are to have in common, and have not.
fn unlike(world: &[Taken]) -> Vec<Finding> {
    let model = |taken: &Taken| {
        let Gpu { name, capability: (major, minor), .. } = taken.gpu;
        format!("{name}, compute capability {major}.{minor}")
    };
    let models = (
        "GPUs are of different models",
        grouped(world, model),
        "every rank waits for the slowest GPU; request one kind (--constraint)",
    );
    let drivers = (
        "drivers are for different CUDA versions",
        grouped(world, |taken| version(taken.facts.driver)),
        "exclude the nodes that differ (--exclude)",
    );
    let differ = [models, drivers].into_iter().filter(|(_, values, _)| values.len() > 1);
    let finding = |(what, values, advice): (&str, BTreeMap<String, Vec<&Taken>>, &str)| {
        let each = values.iter().map(|(value, taken)| format!("{value} ({})", ranks(taken)));
        Finding::refusal(format!("{what}: {}", each.collect::<Vec<_>>().join("; "))).advice(advice)
    };
    differ.map(finding).collect()
}

/// GPUs that ranks of a host take, and that cannot read each other's memory.
fn apart((host, here): (&String, &Vec<&Taken>)) -> Option<Finding> {
    // A process that sees all GPUs knows how they are connected; one that sees its own GPU does not.
    let knows = here.iter().map(|taken| taken.facts).max_by_key(|facts| facts.gpus.len())?;
    let ordinal = |taken: &&Taken| knows.gpus.iter().position(|gpu| gpu.uuid == taken.gpu.uuid);
    let mut taken: Vec<usize> = here.iter().filter_map(ordinal).collect();
    taken.sort_unstable();
    taken.dedup();
    let reaches = |a: usize, b: usize| knows.peers[a][b];
    let mut pairs = Vec::new();
    for (at, &a) in taken.iter().enumerate() {
        let apart = taken[at + 1..].iter().filter(|&&b| !(reaches(a, b) && reaches(b, a)));
        pairs.extend(apart.map(|b| format!("{a} and {b}")));
    }
    (!pairs.is_empty()).then(|| {
        Finding::refusal(format!(
            "GPUs {} cannot read each other's memory, so data pass through host memory",
            pairs.join(", ")
        ))
        .on(host)
        .advice("look at the topology in `kolo info`, and at IOMMU and ACS of the machine")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::assignment::assign;

    /// Hosts with so many processes and GPUs each, all of which reach each other.
    fn world(hosts: &[(&str, usize, usize)]) -> Vec<Facts> {
        let gpu = |host: &str, at| Gpu {
            uuid: format!("GPU-{host}-{at}"),
            name: "Made-up 100".into(),
            capability: (9, 0),
            ..Gpu::default()
        };
        let facts = |&(host, _, gpus): &(&str, usize, usize)| Facts {
            host: host.into(),
            gpus: (0..gpus).map(|at| gpu(host, at)).collect(),
            peers: vec![vec![true; gpus]; gpus],
            driver: 12_040,
            nccl: 22_703,
            ..Facts::default()
        };
        hosts.iter().flat_map(|host| vec![facts(host); host.1]).collect()
    }

    /// What is found once every rank has a GPU.
    fn reported(world: &[Facts]) -> Vec<String> {
        findings(world, &assign(world).unwrap()).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_gpu_for_each_is_well() {
        assert_eq!(reported(&world(&[("a", 4, 4), ("b", 2, 4), ("c", 1, 1)])), [""; 0]);
    }

    #[test]
    fn one_gpu_under_two_names_of_a_machine_is_for_one_rank() {
        let mut world = world(&[("a", 1, 1), ("b", 1, 1)]);
        world[1].gpus[0].uuid = "GPU-a-0".into();
        assert_eq!(
            reported(&world),
            [
                "ranks 0 and 1 use the same GPU, GPU-a-0, on hosts that are one machine (a, b); NCCL needs one \
                 GPU per rank: start fewer processes, or provide more GPUs"
            ]
        );
        for facts in &mut world {
            (facts.nccl, facts.may_share) = (23_003, true);
        }
        assert_eq!(reported(&world), [""; 0], "they share it on purpose");
    }

    #[test]
    fn models_and_drivers_are_to_be_the_same() {
        let mut world = world(&[("a", 2, 3), ("b", 2, 2)]);
        // What nobody takes does not count.
        world.iter_mut().take(2).for_each(|facts| facts.gpus[2].name = "Display".into());
        assert_eq!(reported(&world), [""; 0]);
        let other = &mut world[3].gpus[1];
        (other.name, other.capability) = ("Made-up 80".into(), (8, 0));
        world[2].driver = 12_020;
        assert_eq!(
            reported(&world),
            [
                "GPUs are of different models: Made-up 100, compute capability 9.0 (ranks 0, 1 and 2); Made-up \
                 80, compute capability 8.0 (rank 3); every rank waits for the slowest GPU; request one kind \
                 (--constraint)",
                "drivers are for different CUDA versions: 12.2 (rank 2); 12.4 (ranks 0, 1 and 3); exclude \
                 the nodes that differ (--exclude)",
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
        let expected = "a: GPUs 0 and 2 cannot read each other's memory, so data pass through host memory; look \
                        at the topology in `kolo info`, and at IOMMU and ACS of the machine";
        assert_eq!(reported(&world), [expected]);
        // A process that sees its own alone calls it 0, and does not know; the others do.
        let own = world[2].gpus[2].clone();
        (world[2].gpus, world[2].peers) = (vec![own], vec![vec![true]]);
        assert_eq!(reported(&world), [expected]);
    }
}
