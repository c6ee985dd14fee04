//! The time of a step on an assumed network; it is not measured.
//!
//! With L = ceil(log2 P), per cycle that uses rank 0, alpha the latency of a message, beta the time of a byte and
//! m that of one message of many at rank 0:
//!
//! ```text
//! star    4 L alpha  +  (what rank 0 receives + its answer) beta      gather, gatherv and 2 broadcasts
//! tree    2 D alpha  +  D r (a list + the answer) beta                D levels of radix r, up and down
//! points  2 alpha  +  messages m  +  (received + sent) beta           what rank 0 receives and sends, one by one
//! bits    2 L (alpha + bytes beta)                                    each bitwise collective: reduce, broadcast
//! ```
//!
//! Bytes are those that Horovod would send. The star's are a lower bound: its gatherv and broadcast are assumed to
//! be perfectly pipelined. Static buckets send nothing once they know their order.

use algorithms::control::{Report, point_to_point};

use serde::{Deserialize, Serialize};

/// Parameters of the computed time on a network; they are not measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Latency of a small message in microseconds.
    pub alpha_us: f64,
    /// Time of one message, in microseconds, where rank 0 sends or receives many one after the other.
    pub message_us: f64,
    /// A rank's bandwidth in each direction, in 10^9 bytes per second.
    pub bandwidth_gb_s: f64,
}

impl Default for Network {
    /// A small message of MPI over EDR InfiniBand, two million of them per second, and the injection bandwidth of
    /// a node of Summit.
    fn default() -> Network {
        Network { alpha_us: 1.5, message_us: 0.5, bandwidth_gb_s: 23.0 }
    }
}

/// The reports of a world's ranks in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reports {
    /// Rank 0.
    pub rank_0: Report,
    /// The last rank, which forwards nothing.
    pub last: Report,
    /// The sum over all ranks.
    pub all: Report,
}

/// How a plane's ranks and rank 0 talk to each other, if they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// By collectives.
    Star,
    /// Along a tree of this radix.
    Tree(usize),
    /// By individual messages.
    Points,
}

impl Pattern {
    /// That of a plane, by the one spelling of its name.
    pub fn of(plane: &str) -> Pattern {
        match plane.strip_prefix("tree:").and_then(|radix| radix.parse().ok()) {
            Some(radix) => Pattern::Tree(radix),
            None if plane == point_to_point::NAME => Pattern::Points,
            None => Pattern::Star,
        }
    }
}

/// Time on the network in microseconds.
pub fn time_us(network: &Network, ranks: usize, pattern: Pattern, reports: &Reports) -> f64 {
    let Reports { rank_0, last, all } = reports;
    let byte_us = 1e-3 / network.bandwidth_gb_s;
    let levels = ranks.next_power_of_two().trailing_zeros() as f64;
    let answer = rank_0.bytes_horovod_sent as f64 / rank_0.messages_sent.max(1) as f64;
    let slow_cycles = rank_0.slow_cycles as f64;
    let received = (all.bytes_horovod_sent - rank_0.bytes_horovod_sent) as f64;
    let slow_us = match pattern {
        Pattern::Star => {
            slow_cycles * (4.0 * levels * network.alpha_us + answer * byte_us) + received * byte_us
        }
        Pattern::Points => {
            let messages = (rank_0.messages_received + rank_0.messages_sent) as f64;
            let bytes = received + rank_0.bytes_horovod_sent as f64;
            let ends = if ranks == 1 { 0.0 } else { 2.0 * slow_cycles };
            ends * network.alpha_us + messages * network.message_us + bytes * byte_us
        }
        Pattern::Tree(radix) => {
            let list = last.bytes_horovod_sent as f64 / last.messages_sent.max(1) as f64;
            let level_us = 2.0 * network.alpha_us + radix as f64 * (list + answer) * byte_us;
            slow_cycles * depth(ranks, radix) as f64 * level_us
        }
    };
    let bits_us = rank_0.bitwise as f64 * network.alpha_us + rank_0.bitwise_bytes as f64 * byte_us;
    slow_us + 2.0 * levels * bits_us
}

/// How far the last rank of a tree is from rank 0.
pub fn depth(ranks: usize, radix: usize) -> usize {
    let parents = std::iter::successors(Some(ranks - 1), |rank| Some(rank.checked_sub(1)? / radix));
    parents.count() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Network = Network { alpha_us: 2.0, message_us: 0.5, bandwidth_gb_s: 1.0 };

    fn report(slow_cycles: usize, messages_sent: usize, bytes_horovod_sent: usize) -> Report {
        Report { slow_cycles, messages_sent, bytes_horovod_sent, ..Report::default() }
    }

    #[test]
    fn the_depth_of_a_tree_is_the_published_formula() {
        for radix in 2..17 {
            for ranks in 1..500 {
                let levels = ((ranks * (radix - 1) + 1) as f64).log(radix as f64);
                let expected = (levels - 1e-9).ceil() as usize - 1;
                assert_eq!(depth(ranks, radix), expected, "{ranks} ranks, radix {radix}");
            }
        }
    }

    #[test]
    fn a_star_pays_for_every_list() {
        // 5 ranks: 4 lists of 1000 bytes, an answer of 300.
        let (rank_0, last) = (report(1, 4, 1200), report(1, 1, 1000));
        let reports = Reports { rank_0, last, all: report(5, 8, 5200) };
        let expected = 4.0 * 3.0 * 2.0 + (4000.0 + 300.0) * 1e-3;
        assert!((time_us(&NETWORK, 5, Pattern::Star, &reports) - expected).abs() < 1e-9);
    }

    #[test]
    fn a_tree_pays_by_level() {
        // 7 ranks: 2 levels of radix 2.
        let reports = Reports {
            rank_0: report(1, 2, 600),
            last: report(1, 1, 1000),
            all: report(7, 12, 7800),
        };
        let expected = 2.0 * (2.0 * 2.0 + 2.0 * 1300.0 * 1e-3);
        assert!((time_us(&NETWORK, 7, Pattern::Tree(2), &reports) - expected).abs() < 1e-9);
    }

    #[test]
    fn points_pay_for_every_message() {
        // 5 ranks: 3 requests of 100 bytes and an end each; an answer of 50 bytes and an end to each.
        let rank_0 = Report { messages_received: 16, ..report(1, 8, 200) };
        let reports = Reports { rank_0, last: report(1, 4, 300), all: report(5, 24, 1400) };
        let expected = 2.0 * 2.0 + (16.0 + 8.0) * 0.5 + (1200.0 + 200.0) * 1e-3;
        assert!((time_us(&NETWORK, 5, Pattern::Points, &reports) - expected).abs() < 1e-9);
    }

    #[test]
    fn patterns_are_chosen_by_name() {
        let of = |name| Pattern::of(&algorithms::control::spelling(name).unwrap());
        assert_eq!(of("tree"), Pattern::Tree(4));
        assert_eq!(of("tree:16"), Pattern::Tree(16));
        assert_eq!(of("point-to-point"), Pattern::Points);
        assert_eq!(of("coordinator"), Pattern::Star);
    }

    #[test]
    fn bits_pay_by_logarithm_and_one_rank_pays_nothing() {
        let rank_0 = Report { bitwise: 1, bitwise_bytes: 24, ..Report::default() };
        let reports = Reports { rank_0, ..Reports::default() };
        let expected = 2.0 * 13.0 * (2.0 + 24.0 * 1e-3);
        assert!((time_us(&NETWORK, 6000, Pattern::Star, &reports) - expected).abs() < 1e-9);
        assert_eq!(time_us(&NETWORK, 1, Pattern::Points, &reports), 0.0);
        assert_eq!(time_us(&NETWORK, 6000, Pattern::Star, &Reports::default()), 0.0);
    }
}
