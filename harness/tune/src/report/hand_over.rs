//! Output to copy: lines for job scripts, a file for `horovodrun`, and a script that confirms the gain.

use std::fmt::Write as _;

use super::super::answer::{Answer, Verdict};
use super::super::confirm;
use super::super::space::{CACHED, variables};
use super::{NOTHING, RECOMMENDED, Report};
use measure::steadiness::Unsteady;
use measure::summary::SCOPE;
use results::conclusion::{Conclusion, ToCopy};
use results::units::mib;
use transports::data_plane::nccl;
use workloads::framework::Compression;

/// Default number of blocks of each setting in the script.
const CONFIRMED_BLOCKS: usize = 8;

/// The sentence under lines to copy that were measured on emulated nodes.
const EMULATED: &str = "nodes are emulated: do not use these settings on a cluster";

impl Report<'_> {
    /// For the terminal.
    pub(super) fn hand_over(&self, answer: &Answer, text: &mut String) {
        if !self.grid.is_for_horovod() {
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
        let flags = self.horovodrun(answer.choice);
        let mut to_copy = vec![
            for_a("for a job script", exports),
            for_a("for srun", vec![format!("srun --export=ALL,{} ...", all.join(","))]),
            for_a("for horovodrun, or with --config-file horovod.yaml", vec![flags]),
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
        let changes = self.is_last && self.grid.is_for_horovod() && answer.changes();
        limits.extend(self.tuned.unsteady.as_ref().map(Unsteady::to_string));
        if !self.grid.is_for_horovod() {
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

    /// The command line of `horovodrun`. Its threshold is a whole number of MiB; others are for the variable.
    fn horovodrun(&self, setting: usize) -> String {
        let mut line = String::new();
        if self.whole_mib(setting).is_none() {
            let _ = write!(
                line,
                "HOROVOD_FUSION_THRESHOLD={} ",
                self.case(setting).fusion_threshold_bytes
            );
        }
        line += "horovodrun";
        for (key, value) in self.parameters(setting) {
            let flag = key.replace('_', "-");
            // A switch has no value.
            let _ = match value.as_str() {
                "true" => write!(line, " --{flag}"),
                "false" => write!(line, " --no-{flag}"),
                _ => write!(line, " --{flag} {value}"),
            };
        }
        line + " ..."
    }

    /// The fusion threshold in MiB, if that is a whole number.
    fn whole_mib(&self, setting: usize) -> Option<usize> {
        let bytes = self.case(setting).fusion_threshold_bytes;
        bytes.is_multiple_of(1 << 20).then_some(bytes >> 20)
    }

    /// As horovodrun calls them, in its file and on its command line.
    fn parameters(&self, setting: usize) -> Vec<(&'static str, String)> {
        let case = self.case(setting);
        let capacity = match case.control_plane.as_str() {
            CACHED => self.grid.plan.config.sweep.cache_capacity,
            _ => 0,
        };
        let threshold = self.whole_mib(setting).map(|mib| ("fusion_threshold_mb", mib.to_string()));
        let mut parameters: Vec<_> = threshold.into_iter().collect();
        parameters.push(("cycle_time_ms", case.cycle_time_ms().to_string()));
        parameters.push(("cache_capacity", capacity.to_string()));
        // Only NCCL has it.
        if case.algorithm.starts_with(nccl::ALL_REDUCE) || case.algorithm == nccl::HIERARCHICAL {
            let is_on = case.algorithm == nccl::HIERARCHICAL;
            parameters.push(("hierarchical_allreduce", is_on.to_string()));
        }
        parameters
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
        let mut text = String::new();
        if self.whole_mib(answer.choice).is_none() {
            let bytes = self.case(answer.choice).fusion_threshold_bytes;
            let _ = writeln!(
                text,
                "# horovodrun takes whole MiB; for {} MiB: export HOROVOD_FUSION_THRESHOLD={bytes}",
                mib(bytes)
            );
        }
        text += "params:\n";
        for (key, value) in self.parameters(answer.choice) {
            let _ = writeln!(text, "  {key}: {value}");
        }
        self.grid.is_for_horovod().then_some(text)
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
        grid_over(MPI, "4x1")
    }

    fn grid_over(transport: &str, topology: &str) -> Grid {
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
            sweep: axes(transport, topology, bytes, &Pins::default()).unwrap(),
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
            shift: None,
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
            unsteady: None,
            lost: None,
        }
    }

    /// What is copied for a threshold, by a recommendation of the first case with this algorithm.
    fn for_horovodrun(
        grid: &mut Grid,
        algorithm: &str,
        threshold_bytes: usize,
    ) -> (String, String) {
        let case = grid.plan.cases.iter().position(|it| it.case.algorithm == algorithm).unwrap();
        grid.plan.cases[case].case.fusion_threshold_bytes = threshold_bytes;
        let mut tuned = tuned(grid, Verdict::Change);
        tuned.answer.as_mut().unwrap().choice = case;
        let report =
            Report { grid, tuned: &tuned, reference: "default", larger: None, is_last: true };
        (report.yaml().unwrap(), report.horovodrun(case))
    }

    #[test]
    fn thresholds_for_horovodrun_are_whole_and_others_are_variables() {
        let (yaml, line) = for_horovodrun(&mut grid(), "mpi-allreduce", 4 << 20);
        assert!(yaml.starts_with("params:\n  fusion_threshold_mb: 4\n  cycle_time_ms: "), "{yaml}");
        assert!(line.starts_with("horovodrun --fusion-threshold-mb 4 --cycle-time-ms "), "{line}");
        assert!(!yaml.contains("hierarchical"), "{yaml}");
        let (yaml, line) = for_horovodrun(&mut grid(), "mpi-allreduce", 1 << 19);
        let comment = "# horovodrun takes whole MiB; for 0.5 MiB: export HOROVOD_FUSION_THRESHOLD=524288\nparams:\n  cycle";
        assert!(yaml.starts_with(comment), "{yaml}");
        assert!(
            line.starts_with("HOROVOD_FUSION_THRESHOLD=524288 horovodrun --cycle-time-ms "),
            "{line}"
        );
    }

    #[test]
    fn a_recommendation_over_nccl_is_for_horovod_and_says_whether_it_is_hierarchical() {
        let grid = || grid_over(transports::transport::NCCL, "2x2");
        let (yaml, line) = for_horovodrun(&mut grid(), "nccl-hierarchical", 64 << 20);
        assert!(yaml.ends_with("  hierarchical_allreduce: true\n"), "{yaml}");
        assert!(line.ends_with(" --hierarchical-allreduce ..."), "{line}");
        let (yaml, line) = for_horovodrun(&mut grid(), "nccl-allreduce", 64 << 20);
        assert!(yaml.ends_with("  hierarchical_allreduce: false\n"), "{yaml}");
        assert!(line.ends_with(" --no-hierarchical-allreduce ..."), "{line}");
    }

    #[test]
    fn a_probable_gain_names_what_would_decide() {
        let grid = grid();
        let text = |low: f64| {
            let mut tuned = tuned(&grid, Verdict::Lean);
            let answer = tuned.answer.as_mut().unwrap();
            answer.others.values_mut().for_each(|ratio| ratio.low = low);
            let reference = "default";
            Report { grid: &grid, tuned: &tuned, reference, larger: None, is_last: true }.text()
        };
        assert!(text(0.99).contains("the interval includes 0; a larger --budget would decide."));
        let horovod = "but the interval for Horovod includes 0; compare both settings in Horovod (--confirm-script).";
        assert!(text(1.01).contains(horovod), "{}", text(1.01));
    }

    #[test]
    fn a_probable_gain_does_not_give_up_fusion() {
        let grid = grid();
        let mut tuned = tuned(&grid, Verdict::Keep);
        let answer = tuned.answer.as_mut().unwrap();
        answer.others.values_mut().for_each(|ratio| ratio.low = 0.99);
        let report = Report {
            grid: &grid,
            tuned: &tuned,
            reference: "default",
            larger: None,
            is_last: true,
        };
        let text = report.text();
        assert!(text.contains("Keep default: the best candidate, no fusion, "), "{text}");
        let reason = "but the interval includes 0, and without the cache or fusion every rank adds work to the \
                      negotiation. Compare both settings in Horovod (--confirm-script).";
        assert!(text.contains(reason), "{text}");
        assert_eq!(report.yaml(), None);
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
            let json = serde_json::to_value(report.json()).unwrap();
            assert_eq!(json["reference"], report.name(grid.space.defaults[0]));
            assert_eq!(json["compared"][0]["name"], json["reference"]);
        }
    }
}
