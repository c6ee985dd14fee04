//! What must hold of a rehearsed world.

use super::super::{Response, Tensor, TensorId};
use super::{Fault, Member, World};
use crate::topology::Rank;

impl World<'_> {
    pub(super) fn check_size(
        &self,
        rank: Rank,
        response: &Response,
        names: &[usize],
    ) -> Result<(), String> {
        let plan = self.plan;
        let negotiates = self.members[rank].plane.is_paced();
        let tensor = |&id: &TensorId| {
            let (name, version) = self.members[rank].numbering[id];
            &plan.versions[name][version]
        };
        let bytes: usize = response.tensors.iter().map(|id| tensor(id).size_bytes()).sum();
        if negotiates && names.len() > 1 && bytes > plan.fusion_threshold_bytes {
            return Err(format!("a message of {bytes} bytes is above the threshold"));
        }
        let alike = |a: &TensorId, b: &TensorId| {
            let kind = |id| {
                let Tensor { operation, dtype, op, prescale, postscale, device, .. } = tensor(id);
                (operation, dtype, op, prescale.to_bits(), postscale.to_bits(), device)
            };
            kind(a) == kind(b)
        };
        if !response.tensors.windows(2).all(|pair| alike(&pair[0], &pair[1])) {
            return Err("a message of different kinds of tensors".into());
        }
        if let Some(groups) = &plan.groups {
            let group = |name: &usize| groups.iter().position(|group| group.contains(name));
            if names.iter().any(|name| group(name) != group(&names[0])) {
                return Err("a message of tensors of different groups".into());
            }
        }
        Ok(())
    }

    /// Nothing happens any more, or only idle cycles: is somebody to blame?
    pub(super) fn stuck(&mut self) -> Result<(), String> {
        let waits: Vec<(Rank, Vec<Rank>)> = (0..self.plan.ranks)
            .filter(|&rank| !self.members[rank].is_over())
            .map(|rank| (rank, self.waits_for(rank)))
            .collect();
        let Some(dead) = self.members.iter().position(|member| member.is_dead) else {
            let say = |(rank, waits): &(Rank, Vec<Rank>)| format!("rank {rank} for {waits:?}");
            let waits: Vec<_> = waits.iter().map(say).collect();
            return Err(format!("nothing goes on; waiting: {}", waits.join(", ")));
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
                return Err(format!("rank {dead} is dead, but rank {rank} does not wait for it"));
            }
        }
        Ok(())
    }

    /// For whom a rank waits: inside a cycle for a message or a collective, and between cycles for whoever
    /// has not made ready what it has.
    fn waits_for(&self, rank: Rank) -> Vec<Rank> {
        let member = &self.members[rank];
        if self.bits[rank].is_some() {
            return (0..self.plan.ranks).filter(|&other| self.bits[other].is_none()).collect();
        }
        if member.in_cycle {
            return member.plane.waits_for();
        }
        (0..self.plan.ranks)
            .filter(|&other| self.members[other].step < member.step || self.members[other].is_dead)
            .collect()
    }

    /// At the end: did all ranks do the same?
    pub(super) fn compare(&self) -> Result<(), String> {
        let first = self.members.iter().max_by_key(|member| member.log.len()).expect("a rank");
        let dies = matches!(self.plan.fault, Fault::Death { .. });
        for (rank, member) in self.members.iter().enumerate() {
            let cycles = member.agreed.len().min(self.members[0].agreed.len());
            if let Some(cycle) =
                (0..cycles).find(|&cycle| member.agreed[cycle] != self.members[0].agreed[cycle])
            {
                return Err(format!("caches of ranks 0 and {rank} differ after cycle {cycle}"));
            }
            let same = member.log.len().min(first.log.len());
            if let Some(at) = (0..same).find(|&at| member.log[at] != first.log[at]) {
                let (mine, other) = (&member.log[at], &first.log[at]);
                return Err(format!("message {at}: {mine:?} on rank {rank}, elsewhere {other:?}"));
            }
            if !dies && member.log.len() != first.log.len() {
                return Err(format!("rank {rank} carried out fewer messages than others"));
            }
            if member.asked.is_some_and(|asked| member.agreed.len() > asked + 1) {
                return Err(format!("rank {rank} goes on after its shutdown"));
            }
            if let Some(unfinished) = &member.stopped {
                let is_ready = |id: &TensorId| member.ready[member.numbering[*id].0];
                let ready = member.ready.iter().filter(|ready| **ready).count();
                if unfinished.len() != ready || !unfinished.iter().all(is_ready) {
                    return Err(format!("rank {rank} stops and loses a tensor"));
                }
            }
        }
        for name in 0..self.plan.versions.len() {
            let is_lost = |member: &Member| {
                member.stopped.is_some() && member.in_time[name] && member.ready[name]
            };
            if self.members.iter().all(is_lost) {
                return Err(format!(
                    "name {name} was ready everywhere and is lost by the shutdown"
                ));
            }
        }
        self.check_warnings()
    }

    /// A stall is reported by name, with who is missing, and ends the world; nothing else is reported.
    fn check_warnings(&self) -> Result<(), String> {
        let Fault::Stall { name, rank, .. } = self.plan.fault else {
            let stops = self.members.iter().any(|member| member.stopped.is_some());
            let asked = matches!(self.plan.fault, Fault::ShutDown { .. });
            return if stops && !asked { Err("shut down for nothing".into()) } else { Ok(()) };
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
        match self.warned.iter().any(is_it) {
            true if self.members.iter().all(|member| member.stopped.is_some()) => Ok(()),
            true => Err("a stall was reported, but not all ranks shut down".into()),
            false => Err(format!("nobody was told that rank {rank} lacks name {name}")),
        }
    }
}
