//! Facts about each process and its node, and the findings about them.

use serde::{Deserialize, Serialize};

use super::{Finding, Severity};
use crate::launch::Launched;
use crate::nodes::{EMULATED, Node};
use results::provenance::Machine;

/// What one process reports of itself and its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// Its node.
    pub machine: Machine,
    /// The MPI library; empty without MPI.
    pub library: String,
    /// Cores that it may use, as the system numbers them.
    pub cores: Vec<usize>,
    /// Nodes are known to share a machine.
    pub is_emulated: bool,
    /// Nodes of the job step, if `srun` started it.
    pub step_nodes: Option<usize>,
}

impl ProcessFacts {
    /// This process, on `machine`.
    pub fn here(machine: Machine, library: String, cores: Vec<usize>) -> ProcessFacts {
        let step_nodes = step_nodes(|name| std::env::var(name).ok());
        let is_emulated = std::env::var_os(EMULATED).is_some();
        ProcessFacts { machine, library, cores, is_emulated, step_nodes }
    }
}

/// Nodes that Slurm allocated to the job step.
fn step_nodes(variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let launched = Launched::find(&variable)?;
    launched.by.starts_with("SLURM").then(|| variable("SLURM_STEP_NUM_NODES"))??.parse().ok()
}

/// Findings about the processes of a job and their nodes. `facts` are those of every process, in order; what the first
/// one says of the job counts. `crowded` says how bad it is that a node has fewer cores than processes.
pub fn findings(nodes: &[Node], facts: &[ProcessFacts], crowded: Severity) -> Vec<Finding> {
    let first = &facts[0];
    let mut findings = Vec::new();
    if let Some(allocated) = first.step_nodes.filter(|&allocated| allocated != nodes.len()) {
        findings.push(Finding::refusal(format!(
            "Slurm allocated {allocated} nodes, but the processes report {} (containers, or a wrong \
             placement)",
            nodes.len()
        )));
    }
    for node in nodes.iter().filter(|node| node.ranks.len() > node.cores && !first.is_emulated) {
        let what = format!(
            "{} processes share {} core(s) of {}, so times would measure the OS scheduler",
            node.ranks.len(),
            node.cores,
            facts[node.ranks[0]].machine.host
        );
        findings.push(Finding::new(crowded, what).advice("start fewer"));
    }
    let differs = |what: &str, of: fn(&ProcessFacts) -> &str| {
        let other = facts.iter().find(|other| of(other) != of(first))?;
        Some(Finding::refusal(format!(
            "{what} differs: {} on {}, {} on {}",
            of(first),
            first.machine.host,
            of(other),
            other.machine.host
        )))
    };
    findings.extend(differs("the MPI library", |facts| &facts.library));
    findings.extend(differs("the clock source", |facts| &facts.machine.clock_source));
    findings.extend(differs("the processor", |facts| &facts.machine.cpu));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(host: &str) -> ProcessFacts {
        let machine =
            Machine { host: host.into(), clock_source: "tsc".into(), ..Machine::default() };
        let library = "Open MPI v4.1.4".into();
        ProcessFacts { machine, library, step_nodes: Some(2), ..ProcessFacts::default() }
    }

    #[test]
    fn what_makes_figures_worthless_is_found() {
        let nodes = [vec![0, 1], vec![2, 3]].map(|ranks| Node { ranks, cores: 2 });
        let mut all = [facts("n1"), facts("n1"), facts("n2"), facts("n2")];
        assert_eq!(findings(&nodes, &all, Severity::Refusal), []);
        all[3].machine.clock_source = "hpet".into();
        all[2].library = "MPICH 4.0.2".into();
        let one = [vec![0, 1, 2, 3]].map(|ranks| Node { ranks, cores: 2 });
        let found = findings(&one, &all, Severity::Warning);
        assert_eq!(found.len(), 4, "{found:?}");
        let warnings = found.iter().map(|finding| finding.severity == Severity::Warning);
        assert_eq!(warnings.collect::<Vec<_>>(), [false, true, false, false]);
        let words: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert!(words[0].starts_with("Slurm allocated 2 nodes, but the processes report 1 ("));
        assert!(words[1].starts_with("4 processes share 2 core(s) of n1"));
        assert_eq!(words[2], "the MPI library differs: Open MPI v4.1.4 on n1, MPICH 4.0.2 on n2");
        assert_eq!(words[3], "the clock source differs: tsc on n1, hpet on n2");
        (all[0].is_emulated, all[0].step_nodes) = (true, None);
        assert_eq!(findings(&one, &all, Severity::Refusal).len(), 2, "emulated, by mpirun");
    }

    #[test]
    fn slurm_counts_the_nodes_of_what_srun_started() {
        let step =
            [("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_STEP_NUM_NODES", "2")];
        let mpirun = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let among = |set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(other, _)| *other == name);
            step_nodes(|name| value(name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(among(&step), Some(2));
        assert_eq!(among(&[&mpirun[..], &step[..]].concat()), None);
        assert_eq!(among(&[]), None);
    }
}
