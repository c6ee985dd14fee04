//! Which GPU is whose.

use algorithms::topology::Rank;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::SHARE_GPUS;
use super::library::{SHARES_GPUS_FROM, in_words};
use super::rendezvous::Facts;
use crate::cuda::CudaError;
use crate::cuda::devices::{Device, Found, bus};

/// One GPU, as a process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Where it is plugged in: the same for all processes of a host, whatever they see of others.
    pub bus: String,
    /// Its name.
    pub name: String,
}

/// The GPUs that this process sees.
///
/// # Errors
/// When the driver does not say where one is.
pub fn gpus(found: &Found) -> Result<Vec<Gpu>, CudaError> {
    let gpu = |(at, device): (usize, &Device)| Ok(Gpu { bus: bus(at)?, name: device.name.clone() });
    found.devices.iter().enumerate().map(gpu).collect()
}

/// The GPU of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its number in the rank's own process.
    pub ordinal: usize,
    /// The rank has it together with others.
    pub is_shared: bool,
}

/// Why ranks cannot have GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SeatError {
    /// A host has too few.
    #[error(
        "host {host} has {gpus} GPU(s) for {ranks} ranks, and NCCL {version} wants one for each: start fewer \
         there, or ask Slurm for more with --gpus-per-node={ranks}{}",
        if *.can_share {
            format!("; to let ranks share GPUs, set {SHARE_GPUS}=1")
        } else {
            format!("; NCCL 2.30 or later lets ranks share GPUs, with {SHARE_GPUS}=1")
        }
    )]
    TooFew {
        /// Which.
        host: String,
        /// How many it has.
        gpus: usize,
        /// For how many ranks.
        ranks: usize,
        /// NCCL's version, in words.
        version: String,
        /// Whether that version lets ranks share GPUs.
        can_share: bool,
    },
    /// Ranks have libraries of different versions.
    #[error(
        "rank 0 on {first} has NCCL {ours} and rank {rank} on {host} has {theirs}, which do not understand each \
         other; give all ranks the same with KOLO_NCCL_LIB"
    )]
    Versions {
        /// Rank 0's host.
        first: String,
        /// Its version.
        ours: String,
        /// Who has another.
        rank: Rank,
        /// Where.
        host: String,
        /// Which.
        theirs: String,
    },
}

/// The GPU of each rank: on each host the first ranks get the first GPUs that they see and nobody has yet.
/// With `shares`, ranks share GPUs where there are too few.
///
/// # Errors
/// Which host has too few, or whose NCCL is another.
pub fn assign(facts: &[Facts], shares: bool) -> Result<Vec<Seat>, SeatError> {
    let nccl = facts[0].nccl;
    if let Some(rank) = facts.iter().position(|facts| facts.nccl != nccl) {
        return Err(SeatError::Versions {
            first: facts[0].host.clone(),
            ours: in_words(nccl),
            rank,
            host: facts[rank].host.clone(),
            theirs: in_words(facts[rank].nccl),
        });
    }
    let can_share = nccl >= SHARES_GPUS_FROM;
    let mut seats: Vec<(&str, &str, usize)> = Vec::new();
    for own in facts {
        let users = |gpu: &&Gpu| {
            let same =
                |(host, bus, _): &&(&str, &str, usize)| (*host, *bus) == (&own.host, &gpu.bus);
            seats.iter().filter(same).count()
        };
        let least = own.gpus.iter().enumerate().min_by_key(|(_, gpu)| users(gpu));
        let free = least.filter(|(_, gpu)| users(gpu) == 0 || (shares && can_share));
        let Some((ordinal, gpu)) = free else {
            let here = || facts.iter().filter(|other| other.host == own.host);
            let mut gpus: Vec<_> =
                here().flat_map(|facts| &facts.gpus).map(|gpu| &gpu.bus).collect();
            gpus.sort();
            gpus.dedup();
            let (host, gpus, ranks) = (own.host.clone(), gpus.len(), here().count());
            let version = in_words(nccl);
            return Err(SeatError::TooFew { host, gpus, ranks, version, can_share });
        };
        seats.push((&own.host, &gpu.bus, ordinal));
    }
    let seat = |(host, bus, ordinal): &(&str, &str, usize)| {
        let together = seats.iter().filter(|other| (other.0, other.1) == (*host, *bus)).count();
        Seat { ordinal: *ordinal, is_shared: together > 1 }
    };
    Ok(seats.iter().map(seat).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(host: &str, gpus: &[&str]) -> Facts {
        let gpu = |bus: &&str| Gpu { bus: bus.to_string(), name: "a GPU".into() };
        let gpus = gpus.iter().map(gpu).collect();
        Facts { host: host.into(), gpus, nccl: 22_706, ..Facts::default() }
    }

    fn ordinals(facts: &[Facts]) -> Vec<usize> {
        assign(facts, false).unwrap().iter().map(|seat| seat.ordinal).collect()
    }

    #[test]
    fn neighbours_get_different_gpus_whatever_each_sees() {
        let both = ["0", "1"];
        let same = [facts("a", &both), facts("a", &both), facts("b", &both), facts("b", &both)];
        assert_eq!(ordinals(&same), [0, 1, 0, 1]);
        // As with --gpus-per-task=1.
        assert_eq!(ordinals(&[facts("a", &["0"]), facts("a", &["1"])]), [0, 0]);
        assert_eq!(ordinals(&[facts("a", &["0"]), facts("a", &["1", "0", "2"])]), [0, 0]);
    }

    #[test]
    fn too_few_are_refused_with_the_figures_unless_they_may_be_shared() {
        let two = |nccl| [(); 2].map(|()| Facts { nccl, ..facts("gpu07", &["0"]) });
        let said = |nccl, shares| assign(&two(nccl), shares).unwrap_err().to_string();
        let expected = "host gpu07 has 1 GPU(s) for 2 ranks, and NCCL 2.27.6 wants one for each: start fewer \
                        there, or ask Slurm for more with --gpus-per-node=2; NCCL 2.30 or later lets ranks \
                        share GPUs, with NCCL_MULTI_RANK_GPU_ENABLE=1";
        assert_eq!(said(22_706, true), expected);
        assert!(said(23_003, false).ends_with("set NCCL_MULTI_RANK_GPU_ENABLE=1"));
        let shared = assign(&two(23_003), true).unwrap();
        assert!(shared.iter().all(|seat| *seat == Seat { ordinal: 0, is_shared: true }));
    }

    #[test]
    fn other_versions_are_named() {
        let ranks = [facts("a", &["0"]), Facts { nccl: 23_003, ..facts("b", &["0"]) }];
        let said = assign(&ranks, false).unwrap_err().to_string();
        assert!(
            said.starts_with("rank 0 on a has NCCL 2.27.6 and rank 1 on b has 2.30.3"),
            "{said}"
        );
    }
}
