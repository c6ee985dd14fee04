//! What must hold in a simulated world.

use super::super::response::Response;
use super::super::tensor::{Tensor, TensorId};
use super::{Fault, SimulatedRank, Violation, World, violated};
use crate::topology::Rank;

impl World<'_> {
    pub(super) fn check_size(
        &self,
        rank: Rank,
        response: &Response,
        names: &[usize],
    ) -> Result<(), Violation> {
        let plan = self.plan;
        let negotiates = self.ranks[rank].plane.is_paced();
        let tensor = |&id: &TensorId| {
            let (name, version) = self.ranks[rank].numbering[id];
            &plan.versions[name][version]
        };
        let bytes: usize = response.tensors.iter().map(|id| tensor(id).size_bytes()).sum();
        if negotiates && names.len() > 1 && bytes > plan.fusion_threshold_bytes {
            return violated(format!("a message of {bytes} bytes is above the threshold"));
        }
        let alike = |a: &TensorId, b: &TensorId| {
            let kind = |id| {
                let Tensor { operation, dtype, op, prescale, postscale, device, .. } = tensor(id);
                (operation, dtype, op, prescale.to_bits(), postscale.to_bits(), device)
            };
            kind(a) == kind(b)
        };
        if !response.tensors.windows(2).all(|pair| alike(&pair[0], &pair[1])) {
            return violated("a message of different kinds of tensors");
        }
        if let Some(groups) = &plan.groups {
            let group = |name: &usize| groups.iter().position(|group| group.contains(name));
            if names.iter().any(|name| group(name) != group(&names[0])) {
                return violated("a message of tensors of different groups");
            }
        }
        Ok(())
    }

    /// Nothing happens any more but idle cycles: checks that all ranks wait for a dead one.
    pub(super) fn stuck(&mut self) -> Result<(), Violation> {
        let waits: Vec<(Rank, Vec<Rank>)> = (0..self.plan.ranks)
            .filter(|&rank| !self.ranks[rank].is_over())
            .map(|rank| (rank, self.waits_for(rank)))
            .collect();
        let Some(dead) = self.ranks.iter().position(|state| state.is_dead) else {
            let say = |(rank, waits): &(Rank, Vec<Rank>)| format!("rank {rank} for {waits:?}");
            let waits: Vec<_> = waits.iter().map(say).collect();
            return violated(format!("nothing goes on; waiting: {}", waits.join(", ")));
        };
        for (rank, _) in &waits {
            let (mut seen, mut next) = (vec![*rank], vec![*rank]);
            while let Some(rank) = next.pop() {
                for &other in waits.iter().filter(|wait| wait.0 == rank).flat_map(|wait| &wait.1) {
                    if !seen.contains(&other) {
                        seen.push(other);
                        next.push(other);
                    }
                }
            }
            if !seen.contains(&dead) {
                return violated(format!(
                    "rank {dead} is dead, but rank {rank} does not wait for it"
                ));
            }
        }
        Ok(())
    }

    /// The ranks for which a rank waits: inside a cycle for a message or a reduction, and between cycles for
    /// those on which its tensors are not ready.
    fn waits_for(&self, rank: Rank) -> Vec<Rank> {
        let state = &self.ranks[rank];
        if self.bits[rank].is_some() {
            return (0..self.plan.ranks).filter(|&other| self.bits[other].is_none()).collect();
        }
        if state.in_cycle {
            return state.plane.waits_for();
        }
        (0..self.plan.ranks)
            .filter(|&other| self.ranks[other].step < state.step || self.ranks[other].is_dead)
            .collect()
    }

    /// At the end: checks that all ranks did the same.
    pub(super) fn compare(&self) -> Result<(), Violation> {
        let first = self.ranks.iter().max_by_key(|state| state.log.len()).expect("a rank");
        let dies = matches!(self.plan.fault, Fault::Death { .. });
        for (rank, state) in self.ranks.iter().enumerate() {
            let cycles = state.agreed.len().min(self.ranks[0].agreed.len());
            if let Some(cycle) =
                (0..cycles).find(|&cycle| state.agreed[cycle] != self.ranks[0].agreed[cycle])
            {
                return violated(format!(
                    "caches of ranks 0 and {rank} differ after cycle {cycle}"
                ));
            }
            let same = state.log.len().min(first.log.len());
            if let Some(at) = (0..same).find(|&at| state.log[at] != first.log[at]) {
                let (mine, other) = (&state.log[at], &first.log[at]);
                return violated(format!(
                    "message {at}: {mine:?} on rank {rank}, elsewhere {other:?}"
                ));
            }
            if !dies && state.log.len() != first.log.len() {
                return violated(format!("rank {rank} executed fewer messages than others"));
            }
            if state.asked.is_some_and(|asked| state.agreed.len() > asked + 1) {
                return violated(format!("rank {rank} goes on after its shutdown"));
            }
            if let Some(unfinished) = &state.stopped {
                let is_ready = |id: &TensorId| state.ready[state.numbering[*id].0];
                let ready = state.ready.iter().filter(|ready| **ready).count();
                if unfinished.len() != ready || !unfinished.iter().all(is_ready) {
                    return violated(format!("rank {rank} stops and loses a tensor"));
                }
            }
        }
        for name in 0..self.plan.versions.len() {
            let is_lost = |state: &SimulatedRank| {
                state.stopped.is_some() && state.in_time[name] && state.ready[name]
            };
            if self.ranks.iter().all(is_lost) {
                return violated(format!(
                    "name {name} was ready everywhere and is lost by the shutdown"
                ));
            }
        }
        self.check_warnings()
    }

    /// Checks that a stall is reported with name and missing rank and shuts down all ranks, and that nothing
    /// else is reported.
    fn check_warnings(&self) -> Result<(), Violation> {
        let Fault::Stall { name, rank, .. } = self.plan.fault else {
            let stops = self.ranks.iter().any(|state| state.stopped.is_some());
            let asked = matches!(self.plan.fault, Fault::ShutDown { .. });
            return if stops && !asked { violated("shut down for nothing") } else { Ok(()) };
        };
        let group: Vec<usize> = match &self.plan.groups {
            Some(groups) => {
                groups.iter().find(|group| group.contains(&name)).cloned().unwrap_or_default()
            }
            None => vec![name],
        };
        let is_it = |(warned, missing): &(String, Vec<Rank>)| {
            group.iter().any(|name| *warned == format!("layer{name}.weight"))
                && (missing.contains(&rank) || self.plan.plane.starts_with("tree"))
        };
        if !self.warned.iter().any(is_it) {
            return violated(format!(
                "no warning says that name {name} is not ready on rank {rank}"
            ));
        }
        if !self.ranks.iter().all(|state| state.stopped.is_some()) {
            return violated("a stall was reported, but not all ranks shut down");
        }
        Ok(())
    }
}
