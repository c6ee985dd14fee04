//! Assigns GPUs to ranks.

use algorithms::topology::Rank;
use thiserror::Error;

use super::SHARE_GPUS;
use super::facts::Facts;
use super::library::{Nccl, SHARES_GPUS_FROM, in_words};
use crate::cuda::devices::{Found, Gpu};

/// The GPU of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Its number in the rank's own process.
    pub ordinal: usize,
    /// The rank has it together with others.
    pub is_shared: bool,
}

/// Why ranks cannot have GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AssignmentError {
    /// A host has too few.
    #[error(
        "{ranks} ranks on {host} see {} GPU(s) ({}), but NCCL {} needs one for each: start fewer there, look at \
         CUDA_VISIBLE_DEVICES, or ask Slurm for more with --gpus-per-node={ranks}; {}",
        .uuids.len(),
        .uuids.join(", "),
        in_words(*.nccl),
        if can_share(*.nccl) { format!("to let ranks share GPUs, set {SHARE_GPUS}=1 for all of them") } else { 
                let from = in_words(SHARES_GPUS_FROM);
                format!("NCCL {from} or later lets ranks share GPUs, with {SHARE_GPUS}=1")
             }
    )]
    TooFew {
        /// Which.
        host: String,
        /// For how many ranks.
        ranks: usize,
        /// The GPUs that they see.
        uuids: Vec<String>,
        /// NCCL's version, in its numbering.
        nccl: i32,
    },
    /// Ranks have libraries of different versions.
    #[error(
        "rank 0 on {first} has NCCL {} and rank {rank} on {host} has {}, which are incompatible; give \
         all ranks the same with LD_LIBRARY_PATH or KOLO_NCCL_LIB",
        in_words(*.ours),
        in_words(*.theirs)
    )]
    Versions {
        /// Rank 0's host.
        first: String,
        /// Its version, in NCCL's numbering.
        ours: i32,
        /// The rank with another version.
        rank: Rank,
        /// Its host.
        host: String,
        /// Which.
        theirs: i32,
    },
}

/// The GPU of each rank: on each host the ranks, in order, get the first visible GPU that is free. If there are
/// too few, ranks share them if they [`may`](may_share).
///
/// # Errors
/// A host with too few GPUs, or a rank with another version of NCCL.
pub fn assign(facts: &[Facts]) -> Result<Vec<Assignment>, AssignmentError> {
    let nccl = facts[0].nccl;
    if let Some(rank) = facts.iter().position(|facts| facts.nccl != nccl) {
        return Err(AssignmentError::Versions {
            first: facts[0].host.clone(),
            ours: nccl,
            rank,
            host: facts[rank].host.clone(),
            theirs: facts[rank].nccl,
        });
    }
    let shares = may_share(facts);
    let mut assignments: Vec<(&str, &Gpu, usize)> = Vec::new();
    for own in facts {
        // One machine can have several names, as containers do.
        let users = |gpu: &Gpu| {
            let same = assignments.iter().filter(|(_, taken, _)| taken.uuid == gpu.uuid);
            (same.clone().filter(|(host, ..)| *host == own.host).count(), same.count())
        };
        let least = own.gpus.iter().enumerate().min_by_key(|(_, gpu)| users(gpu));
        match least.filter(|(_, gpu)| users(gpu).0 == 0 || shares) {
            Some((ordinal, gpu)) => assignments.push((&own.host, gpu, ordinal)),
            None => return Err(too_few(facts, own)),
        }
    }
    let assignment = |&(_, gpu, ordinal): &(&str, &Gpu, usize)| {
        let together = assignments.iter().filter(|(_, other, _)| other.uuid == gpu.uuid).count();
        Assignment { ordinal, is_shared: together > 1 }
    };
    Ok(assignments.iter().map(assignment).collect())
}

/// Whether ranks may share GPUs: NCCL supports it, and all ranks have it enabled.
pub fn may_share(facts: &[Facts]) -> bool {
    facts.iter().all(|facts| facts.may_share && can_share(facts.nccl))
}

fn can_share(nccl: i32) -> bool {
    nccl >= SHARES_GPUS_FROM
}

/// The error for a process without a free GPU on its host.
fn too_few(facts: &[Facts], own: &Facts) -> AssignmentError {
    let here: Vec<&Facts> = facts.iter().filter(|other| other.host == own.host).collect();
    let mut uuids: Vec<_> =
        here.iter().flat_map(|facts| &facts.gpus).map(|gpu| gpu.uuid.clone()).collect();
    uuids.sort();
    uuids.dedup();
    AssignmentError::TooFew { host: own.host.clone(), ranks: here.len(), uuids, nccl: own.nccl }
}

/// This process's libraries, and the GPU of each process, as text.
pub fn in_provenance(
    nccl: &Nccl,
    found: &Found,
    facts: &[Facts],
    assignments: &[Assignment],
) -> Vec<String> {
    let gpu = |(process, (facts, assignment)): (usize, (&Facts, &Assignment))| {
        format!("process {process}: {} on {}", facts.about(assignment.ordinal), facts.host)
    };
    let gpus = facts.iter().zip(assignments).enumerate().map(gpu);
    [nccl.about(), found.about()].into_iter().chain(gpus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(host: &str, gpus: &[&str]) -> Facts {
        let gpu = |uuid: &&str| Gpu { uuid: format!("GPU-{uuid}"), ..Gpu::default() };
        let gpus = gpus.iter().map(gpu).collect();
        Facts { host: host.into(), gpus, nccl: 22_706, ..Facts::default() }
    }

    fn ordinals(facts: &[Facts]) -> Vec<usize> {
        assign(facts).unwrap().iter().map(|assignment| assignment.ordinal).collect()
    }

    #[test]
    fn neighbours_get_different_gpus_whatever_each_sees() {
        let (a, b) = (facts("a", &["a0", "a1"]), facts("b", &["b0", "b1"]));
        assert_eq!(ordinals(&[a.clone(), a, b.clone(), b]), [0, 1, 0, 1]);
        // As with --gpus-per-task=1.
        assert_eq!(ordinals(&[facts("a", &["0"]), facts("a", &["1"])]), [0, 0]);
        assert_eq!(ordinals(&[facts("a", &["0"]), facts("a", &["1", "0", "2"])]), [0, 0]);
    }

    #[test]
    fn containers_of_one_machine_get_different_gpus() {
        let both = ["0", "1"];
        let ranks = [facts("a", &both), facts("b", &both)];
        assert_eq!(ordinals(&ranks), [0, 1]);
        let assignments = assign(&[&ranks[..], &[facts("c", &both)]].concat()).unwrap();
        let shared: Vec<_> = assignments
            .iter()
            .map(|assignment| (assignment.ordinal, assignment.is_shared))
            .collect();
        assert_eq!(shared, [(0, true), (1, false), (0, true)]);
    }

    #[test]
    fn too_few_gpus_are_refused_unless_all_ranks_may_share_them() {
        let ranks = |nccl, allowed: [bool; 2]| {
            allowed.map(|may_share| Facts { nccl, may_share, ..facts("gpu07", &["0"]) })
        };
        let said = |nccl, allowed| assign(&ranks(nccl, allowed)).unwrap_err().to_string();
        let expected = "2 ranks on gpu07 see 1 GPU(s) (GPU-0), but NCCL 2.27.6 needs one for each: start fewer \
                        there, look at CUDA_VISIBLE_DEVICES, or ask Slurm for more with --gpus-per-node=2; \
                        NCCL 2.30.0 or later lets ranks share GPUs, with NCCL_MULTI_RANK_GPU_ENABLE=1";
        assert_eq!(said(22_706, [true, true]), expected);
        let advice = "to let ranks share GPUs, set NCCL_MULTI_RANK_GPU_ENABLE=1 for all of them";
        assert!(said(23_003, [false, false]).ends_with(advice));
        assert!(said(23_003, [true, false]).ends_with(advice));
        let shared = assign(&ranks(23_003, [true, true])).unwrap();
        assert!(
            shared
                .iter()
                .all(|assignment| *assignment == Assignment { ordinal: 0, is_shared: true })
        );
    }

    #[test]
    fn different_nccl_versions_are_refused() {
        let ranks = [facts("a", &["0"]), Facts { nccl: 23_003, ..facts("b", &["0"]) }];
        let said = assign(&ranks).unwrap_err().to_string();
        assert!(
            said.starts_with("rank 0 on a has NCCL 2.27.6 and rank 1 on b has 2.30.3"),
            "{said}"
        );
    }
}
