//! How this process was started: alone, or by a launcher as one of several.

use thiserror::Error;

/// What a launcher told this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// This process, from 0.
    pub rank: usize,
    /// How many the launcher started.
    pub tasks: usize,
    /// The variable with the number.
    pub by: &'static str,
}

/// Launcher and MPI library count different numbers of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{by} reports {tasks} processes, but MPI has {ranks}: launcher and MPI library use different \
     protocols; with Open MPI try srun --mpi=pmix, with MPICH srun --mpi=pmi2, or the library's own mpirun"
)]
pub struct Contradiction {
    /// The launcher's variable.
    pub by: &'static str,
    /// How many the launcher started.
    pub tasks: usize,
    /// How many MPI sees.
    pub ranks: usize,
}

/// Rank and number of processes, as launchers tell them: those that are most sure first. Under `mpirun`
/// within a Slurm job, Slurm's are those of `mpirun`'s own daemons.
const VARIABLES: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("PMIX_RANK", "PMIX_SIZE"),
];

impl Launched {
    /// Reads an environment, if a launcher has set it.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
        VARIABLES.iter().find_map(|&(rank, tasks)| {
            let number = |name| variable(name)?.trim().parse().ok();
            Some(Launched { rank: number(rank)?, tasks: number(tasks)?, by: tasks })
        })
    }

    /// Reads this process's environment.
    pub fn here() -> Option<Launched> {
        Launched::find(|name| std::env::var(name).ok())
    }

    /// Nodes x processes on each, if the launcher reports them; otherwise one node.
    pub fn shape(&self, variable: impl Fn(&str) -> Option<String>) -> String {
        let number = |name| variable(name)?.trim().parse::<usize>().ok();
        let per_node = number("OMPI_COMM_WORLD_LOCAL_SIZE").or_else(|| number("MPI_LOCALNRANKS"));
        let nodes = per_node
            .map(|per_node| self.tasks / per_node.max(1))
            .or_else(|| number("SLURM_STEP_NUM_NODES"))
            .filter(|&nodes| nodes > 0 && self.tasks.is_multiple_of(nodes));
        let nodes = nodes.unwrap_or(1);
        format!("{nodes}x{}", self.tasks / nodes)
    }

    /// Why `ranks`, as MPI counts them, cannot be what was started, if so.
    pub fn contradicts(&self, ranks: usize) -> Option<Contradiction> {
        let Launched { tasks, by, .. } = *self;
        (tasks != ranks).then_some(Contradiction { by, tasks, ranks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(set: &[(&str, &str)]) -> Option<Launched> {
        let value = |name: &str| {
            set.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string())
        };
        Launched::find(value)
    }

    #[test]
    fn launchers_are_distinguished() {
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), None, "a batch script");
        let by_srun = find(&[("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "4")]).unwrap();
        assert_eq!((by_srun.rank, by_srun.tasks), (3, 4));
        let under_mpirun = [
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "1"),
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
        ];
        let launched = find(&under_mpirun).unwrap();
        assert_eq!((launched.rank, launched.tasks), (2, 8));
        assert_eq!(launched.contradicts(8), None);
        let contradiction = launched.contradicts(1).unwrap().to_string();
        assert!(
            contradiction.starts_with("OMPI_COMM_WORLD_SIZE reports 8 processes"),
            "{contradiction}"
        );
    }
}
