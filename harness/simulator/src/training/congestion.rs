//! How much longer messages take between nodes, since other jobs use the network, too.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::late::longest;

/// A stream of random numbers that nothing else uses.
const CONGESTION: u64 = u64::MAX - 2;

/// Traffic of other jobs on the network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Congestion {
    /// What a message's bytes take longer over the links of one node, on average, in parts of their time.
    pub mean: f64,
    /// Nodes of the job; a message within one node meets no traffic.
    pub nodes: usize,
}

/// One message after another.
pub(super) struct Congested {
    congestion: Congestion,
    random: ChaCha8Rng,
}

impl Congested {
    /// The same seed and world meet the same traffic.
    pub fn new(congestion: Congestion, seed: u64) -> Congested {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(CONGESTION);
        Congested { congestion, random }
    }

    /// What the bytes of the next message take longer, in parts of their time: as much as over the links of the node that
    /// other jobs slow down most.
    pub fn next(&mut self) -> f64 {
        let Congestion { mean, nodes } = self.congestion;
        if mean == 0.0 || nodes < 2 {
            return 0.0;
        }
        longest(mean, nodes as f64, &mut self.random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(congestion: Congestion) -> f64 {
        let mut congested = Congested::new(congestion, 1);
        (0..20_000).map(|_| congested.next()).sum::<f64>() / 20_000.0
    }

    /// The largest of n exponentially distributed times is m (1 + 1/2 + ... + 1/n) on average.
    #[test]
    fn a_message_waits_for_the_node_that_others_slow_down_most() {
        for nodes in [2, 16, 256] {
            let expected = 0.16 * (1..=nodes).map(|n| 1.0 / n as f64).sum::<f64>();
            let found = mean(Congestion { mean: 0.16, nodes });
            assert!((found / expected - 1.0).abs() < 0.02, "{nodes}: {found}, {expected}");
        }
    }

    #[test]
    fn one_node_and_a_quiet_network_meet_no_traffic() {
        assert_eq!(mean(Congestion { mean: 0.16, nodes: 1 }), 0.0);
        assert_eq!(mean(Congestion { mean: 0.0, nodes: 256 }), 0.0);
    }

    #[test]
    fn a_seed_repeats() {
        let all = |seed| {
            let mut congested = Congested::new(Congestion { mean: 0.1, nodes: 4 }, seed);
            [congested.next(), congested.next()]
        };
        assert_eq!(all(3), all(3));
        assert_ne!(all(3), all(4));
    }
}
