//! One thing at a time that could be otherwise.

use rayon::prelude::*;

use super::{Changed, Question, SEEDS, efficiencies};
use crate::data_plane::NCCL;
use crate::machine_file::Protocols;
use results::statistics::median;
use workloads::framework::Compression;
use workloads::groups::Groups;

/// Groups to try.
const GROUPS: usize = 5;

/// Data planes to try.
const DATA_PLANES: [&str; 4] = [NCCL, "nccl:ring", "nccl:tree", "hierarchical"];

/// Control planes to try.
const CONTROL_PLANES: [&str; 2] = ["bitvector", "ddp"];

type Change = Box<dyn Fn(&mut Question) + Sync + Send>;

impl Question {
    /// The efficiency with each change; a change that cannot be simulated is left out.
    pub(super) fn changes(&self, ranks: usize) -> Vec<Changed> {
        let of = |(what, change): (String, Change)| {
            let mut question = self.clone();
            change(&mut question);
            let simulated = question.simulated(&question.machine, ranks, SEEDS).ok()?;
            let efficiency = median(efficiencies(&simulated))?;
            Some(Changed { what, efficiency })
        };
        let mut changed: Vec<Changed> = self.to_try().into_par_iter().filter_map(of).collect();
        changed.sort_by(|a, b| b.efficiency.total_cmp(&a.efficiency));
        changed
    }

    fn to_try(&self) -> Vec<(String, Change)> {
        let mut all: Vec<(String, Change)> = Vec::new();
        let mut add = |what: String, change: Change| all.push((what, change));
        let (policy, machine) = (&self.policy, &self.machine);
        for factor in [0.25, 4.0] {
            let mib = policy.fusion_threshold_mib * factor;
            if mib > 0.0 {
                let change = move |it: &mut Question| it.policy.fusion_threshold_mib = mib;
                add(format!("fusion threshold {mib} MiB"), Box::new(change));
            }
        }
        for factor in [0.2, 5.0] {
            let ms = policy.cycle_time_ms * factor;
            if ms > 0.0 {
                let change = move |it: &mut Question| it.policy.cycle_time_ms = ms;
                add(format!("cycle time {ms} ms"), Box::new(change));
            }
        }
        if policy.groups.is_none() && self.workload.gradients.len() > GROUPS {
            let change = |it: &mut Question| it.policy.groups = Some(Groups::Even(GROUPS));
            add(format!("gradients in {GROUPS} groups"), Box::new(change));
        }
        if self.model.compression == Compression::None {
            let change = |it: &mut Question| it.model.compression = Compression::Fp16;
            add("gradients as fp16".into(), Box::new(change));
        }
        for name in DATA_PLANES.into_iter().filter(|&name| name != policy.data_plane) {
            let change = move |it: &mut Question| it.policy.data_plane = name.into();
            add(format!("data plane {name}"), Box::new(change));
        }
        for name in CONTROL_PLANES.into_iter().filter(|&name| name != policy.control_plane) {
            let change = move |it: &mut Question| it.policy.control_plane = name.into();
            add(format!("control plane {name}"), Box::new(change));
        }
        if machine.network.is_some() {
            add("network twice as fast".into(), Box::new(faster_network));
        }
        if machine.variability.is_some() {
            let equal = |it: &mut Question| {
                it.machine.variability.iter_mut().for_each(|it| it.gpu_factors.fill(1.0));
            };
            add("GPUs equally fast".into(), Box::new(equal));
            let steady = |it: &mut Question| {
                it.machine.variability.iter_mut().for_each(|it| it.step_cv.value = 0.0);
            };
            add("steps equally long".into(), Box::new(steady));
        }
        if machine.interruptions.is_some() {
            let alone = |it: &mut Question| it.machine.interruptions = None;
            add("no interruptions by the operating system".into(), Box::new(alone));
        }
        if machine.congestion.is_some() {
            let quiet = |it: &mut Question| it.machine.congestion = None;
            add("no other jobs on the network".into(), Box::new(quiet));
        }
        if machine.interference.is_some() {
            let apart = |it: &mut Question| it.machine.interference = None;
            add("computation undisturbed by messages".into(), Box::new(apart));
        }
        all
    }
}

/// Twice the bandwidth between nodes, at the same latency.
fn faster_network(question: &mut Question) {
    let machine = &mut question.machine;
    let double = |network: &mut Protocols| {
        for protocol in network.values_mut() {
            protocol.bandwidth_gb_s.value *= 2.0;
            protocol.alone_gb_s.iter_mut().for_each(|alone| alone.value *= 2.0);
        }
    };
    machine.network.iter_mut().for_each(double);
    for shared in
        [&mut machine.shared.nic_gb_s, &mut machine.shared.node_gb_s].into_iter().flatten()
    {
        shared.value *= 2.0;
    }
    if let Some(nccl) = &mut machine.nccl {
        nccl.channel_between_gb_s.value *= 2.0;
    }
}
