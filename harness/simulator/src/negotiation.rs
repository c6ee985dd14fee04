//! One cycle of a control plane in virtual time: the state machines decide, a formula gives the time.
//!
//! With L = ceil(log2 P), n requests of all ranks together, alpha the latency of a small message, m the time of
//! one of many at rank 0 and beta that of a byte there:
//!
//! ```text
//! star    4 L alpha  +  (requests + answer) beta  +  n c              c of rank 0's processor per request
//! tree    D (2 alpha  +  r (list + answer) beta  +  r n' c)           D levels of radix r, n' of one rank
//! points  2 alpha  +  messages m  +  (requests + answers) beta  +  n c   one for each request and each response
//! bits    2 L (alpha + bytes beta)                                    each bitwise collective
//! ```
//!
//! and in each case a little of every rank's processor. Bytes are those that Horovod would send.
//!
//! Ranks differ in when their tensors become ready, not in their order. In a large world it is therefore enough to
//! drive rank 0 and a few others including the slowest: a tensor is agreed on when the slowest has it, in the
//! order of the list (test: equal to driving all). The others only add requests, which are counted exactly.

use std::sync::Arc;
use std::time::Duration;

use algorithms::control::lockstep::Lockstep;
use algorithms::control::message::{name_horovod, requests_horovod, responses_horovod};
use algorithms::control::{
    self, ControlError, ControlPlane, Response, Settings, TensorId, Tensors,
};

use super::machine_file::Control;
use crate::network::{Pattern, depth};
use results::names::UnknownName;

/// A control plane's state machines, and the cost of their cycles.
pub struct Negotiation {
    world: Lockstep,
    tensors: Arc<Tensors>,
    /// World size; some of the ranks are driven.
    ranks: usize,
    cost: Cost,
    /// How ranks talk to rank 0; none for planes that do not.
    pattern: Option<Pattern>,
    /// Tensors that were agreed on before, which a cache with room for all contains.
    known: Vec<bool>,
}

struct Cost {
    alpha_s: f64,
    message_s: f64,
    byte_s: f64,
    request_s: f64,
    cycle_s: f64,
}

/// The result of a cycle.
#[derive(Clone, Debug, Default)]
pub struct Agreed {
    /// Messages, in order.
    pub responses: Vec<Response>,
    /// How long it took.
    pub seconds: f64,
}

impl Negotiation {
    /// `driven` state machines that represent `ranks`.
    ///
    /// # Errors
    /// When the name is unknown.
    pub fn new(
        name: &str,
        tensors: &Arc<Tensors>,
        settings: &Settings,
        (ranks, driven): (usize, usize),
        control: &Control,
    ) -> Result<Negotiation, UnknownName> {
        let unknown = || UnknownName {
            kind: "control plane",
            name: name.into(),
            names: control::NAMES.to_vec(),
        };
        let plane = |rank: usize, ranks: usize| {
            control::find(name, tensors.clone(), &Settings { rank, ranks, ..settings.clone() })
                .ok_or_else(unknown)
        };
        let one = plane(0, 1)?;
        let pattern = one.is_paced().then(|| Pattern::of(&one.name()));
        // Static buckets need no other rank to determine the next message.
        let driven = if pattern.is_none() { 1 } else { driven };
        let planes: Result<Vec<Box<dyn ControlPlane>>, UnknownName> =
            (0..driven).map(|rank| plane(rank, driven)).collect();
        let cost = Cost {
            alpha_s: control.alpha_us.value * 1e-6,
            message_s: control.message_us.as_ref().unwrap_or(&control.alpha_us).value * 1e-6,
            byte_s: 1e-9 / control.bandwidth_gb_s.value,
            request_s: control.rank0_ns.value * 1e-9,
            cycle_s: control.cycle_us.value * 1e-6,
        };
        Ok(Negotiation {
            world: Lockstep::new(planes?),
            tensors: tensors.clone(),
            ranks,
            cost,
            pattern,
            known: vec![false; tensors.len()],
        })
    }

    /// False for planes that act as soon as a tensor is ready.
    pub fn is_paced(&self) -> bool {
        self.pattern.is_some()
    }

    /// A cycle in which these become ready on each driven rank, and so many on all ranks together.
    ///
    /// # Errors
    /// When a plane refuses to go on.
    pub fn cycle<'r>(
        &mut self,
        now_s: f64,
        ready: impl Fn(usize) -> &'r [TensorId],
        newly_ready: &[(TensorId, usize)],
    ) -> Result<Agreed, ControlError> {
        let responses = self.world.cycle_with(Duration::from_secs_f64(now_s), ready)?[0].clone();
        let report = self.world.take_report(0);
        let Some(pattern) = self.pattern else {
            return Ok(Agreed { responses, seconds: 0.0 });
        };
        let levels = f64::from(self.ranks.next_power_of_two().trailing_zeros());
        let Cost { alpha_s, message_s, byte_s, request_s, cycle_s } = self.cost;
        let mut seconds = cycle_s;
        // Ranks that are not driven may be the only ones with something new.
        let is_new = newly_ready.iter().any(|&(id, _)| !self.known[id]);
        if report.slow_cycles > 0 || is_new {
            let requests: usize = newly_ready.iter().map(|(_, ranks)| ranks).sum();
            let answer = self.answer_bytes(&responses) as f64;
            seconds += match pattern {
                Pattern::Tree(radix) => {
                    let list = newly_ready.iter().map(|&(id, _)| self.fields(id));
                    let list_bytes = requests_horovod(list) as f64;
                    let work_s = (radix * newly_ready.len()) as f64 * request_s;
                    let level_s = 2.0 * alpha_s + radix as f64 * (list_bytes + answer) * byte_s;
                    depth(self.ranks, radix) as f64 * (level_s + work_s)
                }
                Pattern::Points => {
                    let others = self.ranks - 1;
                    let messages = requests + (2 + responses.len()) * others;
                    let bytes = self.request_bytes(newly_ready) as f64 + others as f64 * answer;
                    let ends = if others == 0 { 0.0 } else { 2.0 };
                    ends * alpha_s
                        + messages as f64 * message_s
                        + bytes * byte_s
                        + requests as f64 * request_s
                }
                Pattern::Star => {
                    let bytes = self.request_bytes(newly_ready) as f64 + answer;
                    4.0 * levels * alpha_s + bytes * byte_s + requests as f64 * request_s
                }
            };
        }
        for response in &responses {
            response.tensors.iter().for_each(|&id| self.known[id] = true);
        }
        let bits_s = report.bitwise as f64 * alpha_s + report.bitwise_bytes as f64 * byte_s;
        seconds += 2.0 * levels * bits_s;
        Ok(Agreed { responses, seconds })
    }

    /// How long a cycle takes in which there is nothing to do.
    ///
    /// # Errors
    /// When a plane refuses to go on.
    pub fn idle_s(&mut self) -> Result<f64, ControlError> {
        Ok(self.cycle(0.0, |_| &[], &[])?.seconds)
    }

    fn fields(&self, id: TensorId) -> (usize, usize) {
        let tensor = self.tensors.get(id);
        (tensor.name.len(), tensor.shape.len())
    }

    /// Bytes into rank 0: every other rank's list and its contents.
    fn request_bytes(&self, newly_ready: &[(TensorId, usize)]) -> usize {
        let empty = requests_horovod(std::iter::empty());
        let one = |&(id, ranks): &(TensorId, usize)| {
            ranks * (requests_horovod(std::iter::once(self.fields(id))) - 49)
        };
        (self.ranks - 1) * empty + newly_ready.iter().map(one).sum::<usize>()
    }

    fn answer_bytes(&self, responses: &[Response]) -> usize {
        let names = |response: &Response| {
            let name = |&id: &TensorId| name_horovod(self.tensors.get(id).name.len());
            response.tensors.iter().map(name).sum()
        };
        responses_horovod(self.ranks, responses.iter().map(names))
    }
}
