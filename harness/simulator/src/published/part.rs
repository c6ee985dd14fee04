//! Parts of the model that can be switched off, to see what each brings.

use super::Training;
use crate::machine_file::{LinksName, MachineFile, Network, Parameter};

/// A part of the model of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Lasting differences between GPUs.
    GpuDifferences,
    /// Noise from step to step.
    StepNoise,
    /// Noise of a step is like that of the step before.
    StepCorrelation,
    /// Interruptions by the operating system.
    Interruptions,
    /// Traffic of other jobs on the network.
    Congestion,
    /// Copies into and out of the fusion buffer.
    Copies,
    /// The framework runs ahead of the GPU.
    RunningAhead,
    /// Computation is slower beside messages.
    Interference,
    /// Messages are slower beside computation.
    SlowerMessages,
    /// Background threads wake up late.
    LateThreads,
    /// Handing messages over.
    Launches,
    /// Agreeing on messages.
    Negotiation,
    /// Links inside nodes limit messages between them.
    LinksInside,
    /// Protocols that NCCL may not use, and hops over PCIe.
    Protocols,
    /// TCP reaches less than its card, and later.
    Tcp,
    /// Input comes no faster.
    Input,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 16] = [
        Part::GpuDifferences,
        Part::StepNoise,
        Part::StepCorrelation,
        Part::Interruptions,
        Part::Congestion,
        Part::Copies,
        Part::RunningAhead,
        Part::Interference,
        Part::SlowerMessages,
        Part::LateThreads,
        Part::Launches,
        Part::Negotiation,
        Part::LinksInside,
        Part::Protocols,
        Part::Tcp,
        Part::Input,
    ];

    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Part::GpuDifferences => "lasting differences between GPUs",
            Part::StepNoise => "noise from step to step",
            Part::StepCorrelation => "noise that lasts from step to step",
            Part::Interruptions => "interruptions by the operating system",
            Part::Congestion => "traffic of other jobs",
            Part::Copies => "copies into and out of the fusion buffer",
            Part::RunningAhead => "frameworks that run ahead of the GPU",
            Part::Interference => "slower computation beside messages",
            Part::SlowerMessages => "slower messages beside computation",
            Part::LateThreads => "threads that wake up late",
            Part::Launches => "time to hand messages over",
            Part::Negotiation => "time to agree on messages",
            Part::LinksInside => "links inside nodes that limit messages",
            Part::Protocols => "protocols that NCCL may not use",
            Part::Tcp => "what TCP costs",
            Part::Input => "limits of input",
        }
    }

    /// Switches it off.
    pub(super) fn remove(self, point: &mut Training, machine: &mut MachineFile) {
        let MachineFile { node, network, shared, control, nccl, variability, .. } = machine;
        let set = |parameter: &mut Parameter, value: f64| {
            (parameter.value, parameter.low, parameter.high) = (value, None, None);
        };
        match self {
            Part::GpuDifferences => {
                variability.iter_mut().for_each(|it| it.gpu_factors.fill(1.0));
            }
            Part::StepNoise => variability.iter_mut().for_each(|it| set(&mut it.step_cv, 0.0)),
            Part::StepCorrelation => {
                variability.iter_mut().for_each(|it| it.step_correlation = None);
            }
            Part::Interruptions => machine.interruptions = None,
            Part::Congestion => machine.congestion = None,
            Part::Copies => {
                control.iter_mut().for_each(|it| (it.copy_us, it.pack_gb_s) = (None, None));
            }
            Part::RunningAhead => point.launch_gradient_us = None,
            Part::Interference => machine.interference.iter_mut().for_each(|it| {
                set(&mut it.multiprocessors, 0.0);
                set(&mut it.memory_per_gb_s, 0.0);
            }),
            Part::SlowerMessages => {
                machine.interference.iter_mut().for_each(|it| it.messages = None);
            }
            Part::LateThreads => control.iter_mut().for_each(|it| it.late_us = None),
            Part::Launches => control.iter_mut().for_each(|it| set(&mut it.launch_us, 0.0)),
            Part::Negotiation => control.iter_mut().for_each(|it| {
                it.message_us = None;
                let costs = [&mut it.alpha_us, &mut it.rank0_ns, &mut it.cycle_us];
                costs.into_iter().for_each(|cost| set(cost, 0.0));
            }),
            Part::LinksInside => nccl.iter_mut().for_each(|it| {
                let between = it.channels_between.value * it.channel_between_gb_s.value;
                let least = 2.0 * between / it.channels_inside.value;
                let inside = it.channel_inside_gb_s.value.max(least);
                set(&mut it.channel_inside_gb_s, inside);
            }),
            Part::Protocols => nccl.iter_mut().for_each(|it| {
                (it.links, it.protocols) = (LinksName::Nvlink, None);
            }),
            Part::Tcp if node.network == Network::Tcp => {
                let nic_gb_s = shared.nic_gb_s.as_ref().map(|nic_gb_s| nic_gb_s.value);
                let Some(nic_gb_s) = nic_gb_s.filter(|_| node.nics > 0) else { return };
                network.iter_mut().flat_map(|it| it.values_mut()).for_each(|it| {
                    set(&mut it.bandwidth_gb_s, nic_gb_s);
                });
                nccl.iter_mut().for_each(|it| {
                    let channels = it.channels_between.value;
                    set(&mut it.channel_between_gb_s, nic_gb_s * node.nics as f64 / channels);
                    set(&mut it.card_us, 0.0);
                });
            }
            Part::Tcp => {}
            Part::Input => machine.input = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Points;
    use super::*;
    use crate::machine_file::{InterruptionFile, Interruptions};
    use crate::variability::Variability;
    use results::toml_file::Checked;

    /// No shipped machine file has these parts, so they are added here.
    #[test]
    fn parts_of_noise_are_removed_one_by_one() {
        let configs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs"));
        let point = Points::read(&configs.join("published.toml")).unwrap().training.remove(0);
        let mut machine = MachineFile::read(&configs.join("machines/summit.toml")).unwrap();
        let parameter = |value| Parameter { value, low: None, high: None, source: "a test".into() };
        machine.variability.as_mut().unwrap().step_correlation = Some(parameter(0.5));
        let kind = InterruptionFile { per_second: parameter(1.0), duration_us: parameter(50.0) };
        machine.interruptions = Some(Interruptions::from([("short".into(), kind)]));
        let without = |part: Part| {
            let (mut point, mut machine) = (point.clone(), machine.clone());
            part.remove(&mut point, &mut machine);
            let Variability { step_cv, step_correlation, .. } =
                machine.variability.clone().unwrap();
            let correlation = step_correlation.map(|it| it.value);
            (step_cv.value, correlation, machine.interruptions().len())
        };
        let cv = machine.variability.as_ref().unwrap().step_cv.value;
        assert!(cv > 0.0);
        assert_eq!(without(Part::GpuDifferences), (cv, Some(0.5), 1));
        assert_eq!(without(Part::StepNoise), (0.0, Some(0.5), 1));
        assert_eq!(without(Part::StepCorrelation), (cv, None, 1));
        assert_eq!(without(Part::Interruptions), (cv, Some(0.5), 0));
    }
}
