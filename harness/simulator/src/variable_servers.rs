//! TensorFlow's parameter servers: each variable lies whole on one server. In the order of definition a variable goes to
//! the server that holds least so far. Every rank pulls each variable; the ranks of a node add their gradients up, and the
//! node pushes the sum to the variable's server, which adds those of all nodes.
//!
//! A server moves these bytes at the rate of one process. The others wait for the server that holds most: that of the
//! largest variable, if one is much of the model, as in VGG-16.
//!
//! After M. Abadi et al., "TensorFlow: a system for large-scale machine learning", OSDI 2016, and the mode
//! `parameter_server` of `tf_cnn_benchmarks`, with its `GreedyLoadBalancingStrategy` by bytes.

use std::num::NonZeroUsize;

use algorithms::simulate::Moment;

use crate::machine_file::MachineFile;

/// Its name in simulations; `:K` may follow.
pub const NAME: &str = "variable-servers";

/// Servers of whole variables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VariableServers {
    servers: usize,
    ranks: usize,
    nodes: usize,
    /// Of one server process, each way.
    bytes_s: f64,
    alpha_s: f64,
    combine_bytes_s: f64,
}

/// What follows the name is no number of servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{NAME} takes a number of at least 1, but {found:?} was found")]
pub struct InvalidServers {
    /// What follows it.
    pub found: String,
}

/// The number of servers in a name; `None` for another name, and `Some(Ok(None))` for as many as there are nodes.
///
/// # Errors
/// When what follows the name is no number of at least 1.
pub fn find(name: &str) -> Option<Result<Option<NonZeroUsize>, InvalidServers>> {
    let (base, count) = match name.split_once(':') {
        Some((base, count)) => (base, Some(count)),
        None => (name, None),
    };
    let count =
        count.map(|count| count.parse().map_err(|_| InvalidServers { found: count.into() }));
    (base == NAME).then(|| count.transpose())
}

impl VariableServers {
    /// On a machine whose network carries the protocol of the servers.
    pub fn new(
        machine: &MachineFile,
        ranks: usize,
        count: Option<NonZeroUsize>,
    ) -> VariableServers {
        let nodes = ranks.div_ceil(machine.node.ranks);
        let links = machine.network.as_ref().unwrap_or(&machine.socket);
        let fastest = links
            .values()
            .max_by(|a, b| a.bandwidth_gb_s.value.total_cmp(&b.bandwidth_gb_s.value))
            .expect("a link has a protocol");
        let card_gb_s = machine.shared.nic_gb_s.as_ref().map_or(f64::INFINITY, |gb_s| gb_s.value);
        VariableServers {
            servers: count.map_or(nodes, NonZeroUsize::get),
            ranks,
            nodes,
            bytes_s: 1e9 * fastest.bandwidth_gb_s.value.min(card_gb_s),
            alpha_s: 1e-6 * fastest.alpha_us.value,
            combine_bytes_s: 1e9 * machine.reduction.rates.combine_gb_s.value,
        }
    }

    /// Pushing and pulling so many bytes, evenly spread over the servers.
    pub fn time(&self, size_bytes: f64) -> Moment {
        let held_bytes = size_bytes / self.servers as f64;
        let latency_s = 2.0 * self.alpha_s;
        let bandwidth_s = (self.ranks + self.nodes) as f64 * held_bytes / self.bytes_s;
        let reduction_s = self.nodes as f64 * held_bytes / self.combine_bytes_s;
        let at_s = latency_s + bandwidth_s + reduction_s;
        Moment { at_s, latency_s, bandwidth_s, reduction_s, ..Moment::default() }
    }

    /// How many times as much as the mean the fullest server holds.
    pub fn imbalance(&self, variables_bytes: impl Iterator<Item = usize>) -> f64 {
        let mut held = vec![0.0_f64; self.servers];
        for bytes in variables_bytes {
            let least =
                held.iter_mut().min_by(|a, b| f64::total_cmp(a, b)).expect("there is a server");
            *least += bytes as f64;
        }
        let all: f64 = held.iter().sum();
        let most = held.iter().copied().fold(0.0, f64::max);
        if all > 0.0 { most * self.servers as f64 / all } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::toml_file::Checked;
    use std::path::Path;

    fn servers(ranks: usize, count: usize) -> VariableServers {
        let path = "../../configs/machines/published/p100-25gbe-tcp-grpc.toml";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        VariableServers::new(&MachineFile::read(&path).unwrap(), ranks, NonZeroUsize::new(count))
    }

    #[test]
    fn a_name_may_have_a_number_of_servers() {
        assert_eq!(find("ring"), None);
        assert_eq!(find("variable-servers"), Some(Ok(None)));
        assert_eq!(find("variable-servers:3"), Some(Ok(NonZeroUsize::new(3))));
        assert_eq!(
            find("variable-servers:0").unwrap().unwrap_err().to_string(),
            "variable-servers takes a number of at least 1, but \"0\" was found"
        );
    }

    /// VGG-16's largest variable has 411 MB: 16 ranks pull it and 4 nodes push it at 0.9 GB/s.
    #[test]
    fn the_server_of_the_largest_variable_decides() {
        let servers = servers(16, 4);
        let variables = [1_000_000, 2_000_000, 411_000_000, 3_000_000, 67_000_000, 16_000_000];
        let imbalance = servers.imbalance(variables.into_iter());
        let all = variables.iter().sum::<usize>() as f64;
        assert!((imbalance - 4.0 * 411e6 / all).abs() < 1e-9, "{imbalance}");
        let Moment { bandwidth_s, at_s, .. } = servers.time(imbalance * all);
        assert!((bandwidth_s - 20.0 * 411e6 / 0.9e9).abs() < 1e-6 && at_s > bandwidth_s);
        assert_eq!(servers.imbalance([0].into_iter()), 1.0);
        let even = [7usize; 8].into_iter();
        assert!((servers.imbalance(even) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn more_servers_share_the_bytes() {
        let (few, many) = (servers(64, 4).time(1e8), servers(64, 16).time(1e8));
        assert!((few.bandwidth_s / many.bandwidth_s - 4.0).abs() < 1e-9);
        assert_eq!(servers(1, 1).servers, 1);
    }
}
