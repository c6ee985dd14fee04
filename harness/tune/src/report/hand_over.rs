//! Output to copy: lines for job scripts, a file for `horovodrun`, and a script that confirms the gain.

use std::fmt::Write as _;

use super::super::answer::{Answer, Verdict};
use super::super::confirm;
use super::super::space::{CACHED, variables};
use super::{RECOMMENDED, Report};
use measure::summary::SCOPE;
use results::units::mib;
use workloads::framework::Compression;

/// Default number of blocks of each setting in the script.
const CONFIRMED_BLOCKS: usize = 8;

impl Report<'_> {
    /// For the terminal.
    pub(super) fn hand_over(&self, answer: &Answer, text: &mut String) {
        if !self.is_for_horovod() {
            let _ = writeln!(text, "\n({SCOPE}: Horovod would use another allreduce)");
            return;
        }
        if !answer.changes() {
            return;
        }
        let variables = variables(&self.grid.plan.config, self.case(answer.choice));
        let _ = writeln!(text, "\nfor a job script");
        for (name, value) in &variables {
            let _ = writeln!(text, "  export {name}={value}");
        }
        let all: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = writeln!(text, "for srun\n  srun --export=ALL,{} ...", all.join(","));
        let _ = writeln!(text, "for horovodrun, or with --config-file horovod.yaml");
        let _ = writeln!(text, "  horovodrun {} ...", self.flags(answer.choice).join(" "));
        let framework = &self.grid.plan.cases[answer.choice].framework;
        let varied = self.case(answer.choice).varied;
        if let Some(compression) = varied.compression {
            let how = match compression {
                Compression::None => "",
                Compression::Fp16 => "in the training script\n  compression=hvd.Compression.fp16\n",
                Compression::Bf16 => "(Horovod's optimizers do not offer bf16 by themselves)\n",
            };
            text.push_str(how);
        }
        if let (Some(count), Some(_)) = (varied.num_groups, &framework.groups) {
            let _ = writeln!(
                text,
                "in the training script\n  DistributedOptimizer(..., num_groups={count})"
            );
        }
        if self.grid.plan.cases[answer.choice].placement.emulated {
            let _ = writeln!(text, "(nodes are emulated: do not use these settings on a cluster)");
        }
    }

    fn flags(&self, setting: usize) -> Vec<String> {
        let pairs = self.parameters(setting);
        pairs.iter().map(|(key, value)| format!("--{} {value}", key.replace('_', "-"))).collect()
    }

    /// As horovodrun calls them.
    fn parameters(&self, setting: usize) -> Vec<(&'static str, String)> {
        let case = self.case(setting);
        let capacity = match case.control_plane.as_str() {
            CACHED => self.grid.plan.config.sweep.cache_capacity,
            _ => 0,
        };
        vec![
            ("fusion_threshold_mb", mib(case.fusion_threshold_bytes)),
            ("cycle_time_ms", case.cycle_time_ms().to_string()),
            ("cache_capacity", capacity.to_string()),
        ]
    }

    /// A script that measures the recommended setting against the defaults in training jobs of Horovod.
    pub fn script(&self) -> Option<String> {
        let answer =
            self.tuned.answer.as_ref().filter(|answer| answer.verdict != Verdict::Unknown)?;
        let of = |setting: usize, label: String| {
            let planned = &self.grid.plan.cases[setting];
            confirm::Setting {
                label,
                variables: variables(&self.grid.plan.config, &planned.case),
                framework: planned.framework.clone(),
                groups: planned.groups.clone(),
            }
        };
        let defaults = self.grid.space.defaults.iter().filter(|&&default| default != answer.choice);
        let mut settings = vec![of(answer.choice, RECOMMENDED.to_string())];
        settings.extend(defaults.map(|&default| of(default, self.name(default))));
        let (workload, times) = (&self.grid.plan.workload, self.grid.plan.config.times());
        Some(confirm::script(&settings, workload, times, CONFIRMED_BLOCKS))
    }

    /// The file for `horovodrun --config-file`, if there is a recommendation for Horovod.
    pub fn yaml(&self) -> Option<String> {
        let answer = self.tuned.answer.as_ref().filter(|answer| answer.changes())?;
        let mut text = String::from("params:\n");
        for (key, value) in self.parameters(answer.choice) {
            let _ = writeln!(text, "  {key}: {value}");
        }
        self.is_for_horovod().then_some(text)
    }
}
