//! The launcher's variables without MPI: this process's rank, and the address of rank 0.

use std::fmt;
use std::net::IpAddr;

use super::rendezvous::RendezvousError;
use cluster::launch::Launched;
use cluster::slurm::hostlist;
use results::inputs::fnv1a;

/// HOST:PORT of rank 0; overrides the address from the launcher's variables.
pub const RENDEZVOUS: &str = "KOLO_RENDEZVOUS";

/// Ports that are derived from a job's id: below those that systems assign by themselves.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// Names of one run of a launcher, the same in all of its processes.
const RUNS: [&str; 4] =
    ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid", "PMI_JOBID"];

/// The address of rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or number of its node.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    /// Only processes of rank 0's node can reach it.
    pub fn is_loopback(&self) -> bool {
        let is_loopback = |ip: IpAddr| ip.is_loopback();
        self.host == "localhost" || self.host.parse().is_ok_and(is_loopback)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// This process among those that were started together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// In the launcher's numbering.
    pub rank: usize,
    /// Number of processes.
    pub ranks: usize,
    /// The address of rank 0; none if there is one process.
    pub address: Option<Address>,
    /// The job's id: equal in its processes, and in those of no other job. Not secret.
    pub job: String,
    /// The nodes of the job, if Slurm lists them.
    pub nodes: Vec<String>,
}

impl Started {
    /// Reads this process's environment.
    ///
    /// # Errors
    /// When the address of rank 0 is unknown, or a variable is not valid.
    pub fn here() -> Result<Started, RendezvousError> {
        let parent = std::os::unix::process::parent_id();
        Started::find(&|name| std::env::var(name).ok(), parent)
    }

    /// Reads the environment of a process with this parent.
    ///
    /// # Errors
    /// As [`Self::here`].
    pub fn find(
        variable: &dyn Fn(&str) -> Option<String>,
        parent: u32,
    ) -> Result<Started, RendezvousError> {
        let Some(launched) = Launched::find(variable).filter(|launched| launched.tasks > 1) else {
            let (address, job, nodes) = (None, String::new(), Vec::new());
            return Ok(Started { rank: 0, ranks: 1, address, job, nodes });
        };
        let by_srun = launched.by == "SLURM_STEP_NUM_TASKS";
        let list =
            if by_srun { variable("SLURM_STEP_NODELIST") } else { variable("SLURM_JOB_NODELIST") };
        let nodes = hostlist::expand(&list.unwrap_or_default())
            .map_err(|why| RendezvousError::InvalidVariable { why: why.to_string() })?;
        let named = |name: &&str| Some(format!("{name}={}", variable(name)?));
        let run = if by_srun { named(&"SLURM_STEP_ID") } else { RUNS.iter().find_map(named) };
        let has_one_node = nodes.len() == 1;
        let is_one_node = has_one_node
            || ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"].iter().any(|name| {
                variable(name).is_some_and(|size| size.trim() == launched.tasks.to_string())
            });
        // On one node all processes are children of one launcher, or have the address in a variable.
        let run = run.unwrap_or_else(|| {
            if is_one_node { format!("parent={parent}") } else { String::new() }
        });
        let job = variable("SLURM_JOB_ID").unwrap_or_default();
        let job = format!("{job} {run} {}", launched.tasks);
        let host = match (nodes.first(), is_one_node) {
            (_, true) => Some("127.0.0.1".to_string()),
            (first, false) => first.cloned(),
        };
        let address = match (variable(RENDEZVOUS).filter(|text| !text.is_empty()), host) {
            (Some(text), _) => parse(&text)?,
            (None, Some(host)) => Address { host, port: port(&job) },
            (None, None) => return Err(RendezvousError::UnknownAddress { by: launched.by.into() }),
        };
        let Launched { rank, tasks: ranks, .. } = launched;
        // Several jobs on one machine may differ only in the address.
        let job = format!("{job} {address}");
        Ok(Started { rank, ranks, address: Some(address), job, nodes })
    }
}

fn parse(text: &str) -> Result<Address, RendezvousError> {
    let parsed = text.rsplit_once(':').and_then(|(host, port)| {
        let host = host.trim_matches(['[', ']']).to_string();
        let port = port.parse().ok().filter(|&port| port > 0)?;
        (!host.is_empty()).then_some(Address { host, port })
    });
    let why =
        || format!("{RENDEZVOUS}={text} is not HOST:PORT; name the node of rank 0 and a free port");
    parsed.ok_or_else(|| RendezvousError::InvalidVariable { why: why() })
}

/// A port that only this job is likely to use.
fn port(job: &str) -> u16 {
    PORTS.start + ((fnv1a(job.as_bytes()) >> 16) % PORTS.len() as u64) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(set: &[(&str, &str)]) -> Result<Started, RendezvousError> {
        let value = |name: &str| Some(set.iter().find(|(other, _)| *other == name)?.1.to_string());
        Started::find(&value, 77)
    }

    #[test]
    fn one_process_needs_no_address() {
        for set in [&[][..], &[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]] {
            let started = find(set).unwrap();
            assert_eq!((started.rank, started.ranks, started.address), (0, 1, None));
        }
    }

    #[test]
    fn slurm_variables_have_the_node_of_rank_0_and_the_step() {
        let step = |id| {
            find(&[
                ("SLURM_PROCID", "3"),
                ("SLURM_STEP_NUM_TASKS", "8"),
                ("SLURM_STEP_NODELIST", "gpu[07-08]"),
                ("SLURM_JOB_ID", "1234"),
                ("SLURM_STEP_ID", id),
            ])
            .unwrap()
        };
        let started = step("0");
        assert_eq!((started.rank, started.ranks), (3, 8));
        assert_eq!(started.nodes, ["gpu07", "gpu08"]);
        let address = started.address.clone().unwrap();
        assert!(address.host == "gpu07" && PORTS.contains(&address.port), "{address}");
        assert_eq!(step("0"), started);
        assert!(step("1").job != started.job && step("1").address != started.address);
    }

    #[test]
    fn one_node_uses_loopback() {
        let slurm = [("SLURM_STEP_NODELIST", "gpu07"), ("SLURM_STEP_ID", "0")];
        let step =
            find(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2"), slurm[0], slurm[1]]);
        assert!(step.unwrap().address.unwrap().is_loopback());
        let started = find(&[
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ]);
        let started = started.unwrap();
        assert_eq!(started.address.unwrap().host, "127.0.0.1");
        assert!(started.job.contains("parent=77"));
    }

    #[test]
    fn missing_and_invalid_addresses_are_refused() {
        let several = [("PMI_RANK", "1"), ("PMI_SIZE", "2")];
        let said = find(&several).unwrap_err().to_string();
        assert!(said.contains("PMI_SIZE") && said.contains("KOLO_RENDEZVOUS=HOST:PORT"), "{said}");
        for text in ["n1", "n1:", ":5", "n1:0", "n1:70000"] {
            let said = find(&[several[0], several[1], (RENDEZVOUS, text)]).unwrap_err().to_string();
            assert!(said.contains(&format!("KOLO_RENDEZVOUS={text} is not HOST:PORT")), "{said}");
        }
        let named = find(&[several[0], several[1], (RENDEZVOUS, "[::1]:5000")]).unwrap();
        assert_eq!(named.address, Some(Address { host: "::1".into(), port: 5000 }));
    }
}
