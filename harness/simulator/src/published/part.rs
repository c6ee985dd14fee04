//! Parts of the model that can be switched off, to see what each brings.

use super::Training;
use crate::machine_file::MachineFile;

/// A part of the model of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Lasting differences between GPUs.
    GpuDifferences,
    /// Noise from step to step.
    StepNoise,
    /// Copies into and out of the fusion buffer.
    Copies,
    /// The framework runs ahead of the GPU.
    RunningAhead,
    /// Computation is slower beside messages.
    Interference,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 5] = [
        Part::GpuDifferences,
        Part::StepNoise,
        Part::Copies,
        Part::RunningAhead,
        Part::Interference,
    ];

    /// As in the table.
    pub fn name(self) -> &'static str {
        match self {
            Part::GpuDifferences => "lasting differences between GPUs",
            Part::StepNoise => "noise from step to step",
            Part::Copies => "copies into and out of the fusion buffer",
            Part::RunningAhead => "frameworks that run ahead of the GPU",
            Part::Interference => "slower computation beside messages",
        }
    }

    /// Switches it off.
    pub(super) fn remove(self, point: &mut Training, machine: &mut MachineFile) {
        match (self, &mut machine.variability, &mut machine.control) {
            (Part::GpuDifferences, Some(variability), _) => variability.gpu_factors.fill(1.0),
            (Part::StepNoise, Some(variability), _) => {
                let noise = &mut variability.step_cv;
                (noise.value, noise.low, noise.high) = (0.0, None, None);
            }
            (Part::Copies, _, Some(control)) => (control.copy_us, control.pack_gb_s) = (None, None),
            (Part::RunningAhead, ..) => point.ahead_ms = 0.0,
            (Part::Interference, ..) => machine.interference = None,
            _ => {}
        }
    }
}
