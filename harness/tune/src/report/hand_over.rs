//! Output to copy: lines for job scripts, a file for `horovodrun`, and a script that confirms the gain.

use std::fmt::Write as _;

use super::super::answer::{Answer, Verdict};
use super::super::confirm;
use super::super::space::{CACHED, variables};
use super::{NOTHING, RECOMMENDED, Report};
use measure::summary::SCOPE;
use results::conclusion::{Conclusion, ToCopy};
use results::units::mib;
use workloads::framework::Compression;

/// Default number of blocks of each setting in the script.
const CONFIRMED_BLOCKS: usize = 8;

/// The sentence under lines to copy that were measured on emulated nodes.
const EMULATED: &str = "nodes are emulated: do not use these settings on a cluster";

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
        text.push('\n');
        for ToCopy { purpose, lines } in self.to_copy(answer) {
            let _ = writeln!(text, "{purpose}");
            lines.iter().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
        }
        if let Some(Compression::Bf16) = self.case(answer.choice).varied.compression {
            text.push_str("(Horovod's optimizers do not offer bf16 by themselves)\n");
        }
        if self.grid.plan.cases[answer.choice].placement.emulated {
            let _ = writeln!(text, "({EMULATED})");
        }
    }

    /// What to copy in order to use the setting that was chosen.
    fn to_copy(&self, answer: &Answer) -> Vec<ToCopy> {
        let for_a = |purpose: &str, lines: Vec<String>| ToCopy { purpose: purpose.into(), lines };
        let variables = variables(&self.grid.plan.config, self.case(answer.choice));
        let all: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let exports = all.iter().map(|variable| format!("export {variable}")).collect();
        let flags = self.flags(answer.choice).join(" ");
        let mut to_copy = vec![
            for_a("for a job script", exports),
            for_a("for srun", vec![format!("srun --export=ALL,{} ...", all.join(","))]),
            for_a(
                "for horovodrun, or with --config-file horovod.yaml",
                vec![format!("horovodrun {flags} ...")],
            ),
        ];
        let varied = self.case(answer.choice).varied;
        if let Some(Compression::Fp16) = varied.compression {
            let line = "compression=hvd.Compression.fp16".to_string();
            to_copy.push(for_a("in the training script", vec![line]));
        }
        let groups = &self.grid.plan.cases[answer.choice].framework.groups;
        if let (Some(count), Some(_)) = (varied.num_groups, groups) {
            let line = format!("DistributedOptimizer(..., num_groups={count})");
            to_copy.push(for_a("in the training script", vec![line]));
        }
        to_copy
    }

    /// The verdict, what limits it, and what to copy.
    pub fn conclusion(&self) -> Conclusion {
        let Some(answer) = &self.tuned.answer else {
            return Conclusion { verdicts: vec![NOTHING.into()], ..Conclusion::default() };
        };
        let mut limits: Vec<String> = self.doubt(answer).into_iter().map(String::from).collect();
        let is_emulated = self.grid.plan.cases[answer.choice].placement.emulated;
        let changes = self.is_last && self.is_for_horovod() && answer.changes();
        if !self.is_for_horovod() {
            limits.push(format!("{SCOPE}: Horovod would use another allreduce"));
        } else if changes && is_emulated {
            limits.push(EMULATED.into());
        }
        Conclusion {
            verdicts: vec![self.verdict(answer)],
            limits,
            to_copy: if changes { self.to_copy(answer) } else { Vec::new() },
            ..Conclusion::default()
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::super::grid::Grid;
    use super::super::super::space::{Pins, axes};
    use super::super::super::tuned::Tuned;
    use super::*;
    use crate::answer::Ratio;
    use crate::found::Found;
    use measure::config::{Config, Measure, Step};
    use measure::plan::Plan;
    use transports::transport::MPI;
    use workloads::workload::Workload;

    fn grid() -> Grid {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/workloads");
        let workload = Workload::read(&Path::new(folder).join("resnet50.csv")).unwrap();
        let bytes = 4 * workload.elements();
        let config = Config {
            workload: "resnet50".into(),
            step: Step {
                forward_ms: 10.0,
                backward_ms: 20.0,
                optimizer_ms: 0.0,
                scaling: Default::default(),
            },
            host: Default::default(),
            data: Default::default(),
            framework: Default::default(),
            sweep: axes(MPI, "4x1", bytes, &Pins::default()).unwrap(),
            also: Vec::new(),
            measure: Measure::default(),
        };
        let plan = || Plan::new(config.clone(), workload.clone());
        Grid::new(&plan(), plan(), None)
    }

    fn tuned(grid: &Grid, verdict: Verdict) -> Tuned {
        let default = grid.space.defaults[0];
        let others = [(default, Ratio { ratio: 1.5, low: 1.4, high: 1.6 })].into();
        let answer = Answer {
            choice: 0,
            step_s: 0.1,
            rounds: 6,
            others,
            tied: Vec::new(),
            expected_tied: Vec::new(),
            verdict,
            shifted: false,
        };
        let found = Found { expected_s: vec![0.1; grid.plan.cases.len()], ..Found::default() };
        Tuned {
            found,
            answer: Some(answer),
            rows: Default::default(),
            fresh: Default::default(),
            blocks: 1,
            steps_per_block: 5,
            seconds: 1.0,
            lost: None,
        }
    }

    #[test]
    fn the_conclusion_has_the_words_of_the_text() {
        let mut grid = grid();
        grid.plan.cases[0].placement.emulated = true;
        for (verdict, copied) in [(Verdict::Change, 5), (Verdict::Keep, 0), (Verdict::Unknown, 0)] {
            let tuned = tuned(&grid, verdict);
            let (reference, larger) = ("Horovod's default", None);
            let report = Report { grid: &grid, tuned: &tuned, reference, larger, is_last: true };
            let (text, conclusion) = (report.text(), report.conclusion());
            let to_copy = || conclusion.to_copy.iter();
            let words = to_copy().map(|it| &it.purpose).chain(to_copy().flat_map(|it| &it.lines));
            for words in words.chain(&conclusion.verdicts).chain(&conclusion.limits) {
                assert!(text.contains(words.as_str()), "{words}\nis not in\n{text}");
            }
            assert_eq!(conclusion.verdicts.len(), 1);
            assert_eq!(to_copy().flat_map(|it| &it.lines).count(), copied, "{conclusion:?}");
            assert_eq!(conclusion.limits.is_empty(), copied == 0, "{conclusion:?}");
        }
    }
}
