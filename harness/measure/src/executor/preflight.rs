//! What is looked at before a job of several processes measures anything: what would make its figures
//! worthless is refused, or, if the user insists, said.

use serde::{Deserialize, Serialize};

use cluster::launch::Launched;
use cluster::nodes::Node;
use results::provenance::Machine;

/// What one process tells of itself and its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Its node.
    pub machine: Machine,
    /// The MPI library.
    pub library: String,
    /// Cores that it may use, as the system numbers them.
    pub cores: Vec<usize>,
}

/// What is wrong with these processes, in sentences. `facts` are those of every process, in order;
/// `is_emulated` that nodes are known to share a machine.
pub fn problems(
    nodes: &[Node],
    facts: &[Facts],
    is_emulated: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let by_srun =
        Launched::find(&variable).is_some_and(|launched| launched.by.starts_with("SLURM"));
    let allocated = variable("SLURM_STEP_NUM_NODES").filter(|_| by_srun);
    if let Some(allocated) = allocated.and_then(|text| text.parse::<usize>().ok())
        && allocated != nodes.len()
    {
        problems.push(format!(
            "Slurm gave this step {allocated} nodes, and its processes see {}: containers may hide that \
             they share memory, or a launcher put them elsewhere",
            nodes.len()
        ));
    }
    for node in nodes.iter().filter(|node| node.ranks.len() > node.cores && !is_emulated) {
        problems.push(format!(
            "{} processes share {} core(s) of {}: times would be the scheduler's; start fewer",
            node.ranks.len(),
            node.cores,
            facts[node.ranks[0]].machine.host
        ));
    }
    let mut differs = |what: &str, of: fn(&Facts) -> &str| {
        let first = &facts[0];
        if let Some(other) = facts.iter().find(|other| of(other) != of(first)) {
            problems.push(format!(
                "{what} differs: {} on {}, {} on {}",
                of(first),
                first.machine.host,
                of(other),
                other.machine.host
            ));
        }
    };
    differs("the MPI library", |facts| &facts.library);
    differs("the clock source", |facts| &facts.machine.clock_source);
    differs("the processor", |facts| &facts.machine.cpu);
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(host: &str) -> Facts {
        let machine =
            Machine { host: host.into(), clock_source: "tsc".into(), ..Machine::default() };
        Facts { machine, library: "Open MPI v4.1.4".into(), cores: vec![0, 1] }
    }

    #[test]
    fn what_makes_figures_worthless_is_told() {
        let nodes = [vec![0, 1], vec![2, 3]].map(|ranks| Node { ranks, cores: 2 });
        let mut all = [facts("n1"), facts("n1"), facts("n2"), facts("n2")];
        let srun = |name: &str| match name {
            "SLURM_PROCID" => Some("0".into()),
            "SLURM_STEP_NUM_TASKS" => Some("4".into()),
            "SLURM_STEP_NUM_NODES" => Some("2".to_string()),
            _ => None,
        };
        assert_eq!(problems(&nodes, &all, false, srun), [""; 0]);
        all[3].machine.clock_source = "hpet".into();
        all[2].library = "MPICH 4.0.2".into();
        let one = [vec![0, 1, 2, 3]].map(|ranks| Node { ranks, cores: 2 });
        let reported = problems(&one, &all, false, srun);
        assert_eq!(reported.len(), 4, "{reported:?}");
        assert!(reported[0].starts_with("Slurm gave this step 2 nodes, and its processes see 1"));
        assert!(reported[1].starts_with("4 processes share 2 core(s) of n1"));
        assert_eq!(
            reported[2],
            "the MPI library differs: Open MPI v4.1.4 on n1, MPICH 4.0.2 on n2"
        );
        assert_eq!(reported[3], "the clock source differs: tsc on n1, hpet on n2");
        assert_eq!(problems(&one, &all, true, |_| None).len(), 2, "emulated, by mpirun");
    }
}
