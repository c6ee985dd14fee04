//! What a search has found, for people and for programs.

use std::fmt::Write as _;

use algorithms::fusion::effective_threshold_bytes;
use serde::Serialize;

use super::answer::{Answer, Ratio, Verdict};
use super::confirm;
use super::search::{Found, MARGIN};
use super::space::{CACHED, Space, variables};
use crate::config::{Case, mib};
use crate::data_plane::MPI_ALLREDUCE;
use crate::framework::Compression;
use crate::plan::Plan;
use crate::row::Row;
use crate::summary::{HOROVOD_DEFAULTS, SCOPE};

/// What the script calls the setting that was chosen.
pub const RECOMMENDED: &str = "recommended";

/// Blocks of each setting in the script, unless told otherwise.
const CONFIRMED_BLOCKS: usize = 8;

/// As many rivals are named; the others are in the JSON.
const NAMED: usize = 6;

/// Everything there is to tell.
pub struct Report<'r> {
    /// The grid.
    pub plan: &'r Plan,
    /// Its geometry.
    pub space: &'r Space,
    /// What the search brought.
    pub found: &'r Found,
    /// None where nothing can be concluded.
    pub answer: Option<&'r Answer>,
    /// Of the settings that were measured.
    pub rows: &'r std::collections::BTreeMap<usize, Row>,
    /// Blocks, steps of each, and seconds that all of them took.
    pub effort: (usize, usize, f64),
    /// What the first of the defaults is.
    pub reference: &'r str,
}

/// The same for programs.
#[derive(Debug, Serialize)]
struct Json {
    workload: String,
    transport: String,
    topology: String,
    verdict: Verdict,
    /// Rests on the data plane that Horovod would use.
    for_horovod: bool,
    recommended: Option<Setting>,
    compared: Vec<Compared>,
    expected_within_margin: Vec<Setting>,
    margin: f64,
    chance_that_a_better_one_was_missed: f64,
    blocks: usize,
    steps: usize,
    fresh_rounds: usize,
    seconds: f64,
    settings: usize,
    settings_measured: usize,
}

#[derive(Debug, Serialize)]
struct Setting {
    control_plane: String,
    algorithm: String,
    fusion_threshold_bytes: usize,
    cycle_time_ms: f64,
    compression: &'static str,
    num_groups: usize,
    step_ms: f64,
}

#[derive(Debug, Serialize)]
struct Compared {
    setting: Setting,
    /// As confirm.py calls it.
    name: String,
    /// Its step time in parts of the recommended setting's, with its 95 % interval.
    ratio: Ratio,
    tied: bool,
}

impl Report<'_> {
    /// Recommendations for Horovod rest on its own data plane alone.
    fn is_for_horovod(&self) -> bool {
        self.plan.cases.iter().all(|planned| planned.case.algorithm == MPI_ALLREDUCE)
    }

    fn case(&self, setting: usize) -> &Case {
        &self.plan.cases[setting].case
    }

    fn name(&self, setting: usize) -> String {
        let case = self.case(setting);
        let cache = if case.control_plane == CACHED { "cache on" } else { "cache off" };
        let fusion = match case.fusion_threshold_bytes {
            0 => "no fusion".to_string(),
            bytes => format!("{} MiB", mib(bytes)),
        };
        let algorithm = match case.algorithm.as_str() {
            MPI_ALLREDUCE => String::new(),
            name => format!(", {name}"),
        };
        let compression = match case.varied.compression {
            None | Some(Compression::None) => "",
            Some(compression) => &format!(", {}", compression.name()),
        };
        let groups = match case.varied.num_groups {
            None | Some(0) => String::new(),
            Some(count) => format!(", {count} groups"),
        };
        let ms = case.cycle_time_ms();
        format!("{fusion}, {ms} ms, {cache}{algorithm}{compression}{groups}")
    }

    /// What a default is called.
    fn role(&self, setting: usize) -> Option<&str> {
        let place = self.space.defaults.iter().position(|&default| default == setting)?;
        Some(match place {
            0 => self.reference,
            _ => {
                let case = self.case(setting);
                let is = |(mib, ms, _): &&(usize, f64, &str)| {
                    case.fusion_threshold_bytes == mib << 20 && case.cycle_time_ms() == *ms
                };
                HOROVOD_DEFAULTS
                    .iter()
                    .find(is)
                    .map_or("near Horovod's older default", |default| default.2)
            }
        })
    }

    /// For the terminal, and `summary.txt`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let first = self.case(0);
        let (blocks, steps, seconds) = self.effort;
        let bytes = self.plan.workload.elements() * self.plan.config.wire().size_bytes();
        let nodes = first.topology.nodes();
        let _ = writeln!(
            text,
            "{}: {} gradients, {:.1} MB, {} ranks on {nodes} node{} over {}{}",
            self.plan.workload.name,
            self.plan.workload.gradients.len(),
            bytes as f64 / 1e6,
            first.topology.ranks(),
            if nodes == 1 { "" } else { "s" },
            first.transport,
            if self.plan.cases[0].placement.emulated { "; nodes are emulated" } else { "" },
        );
        let _ = writeln!(
            text,
            "measured {blocks} blocks ({} training steps) of {} of {} settings in {seconds:.0} s; the \
             likeliest setting that was not measured would save {:.0} % more with a probability of {:.0} %",
            blocks * steps,
            self.found.blocks.len(),
            self.plan.cases.len(),
            100.0 * MARGIN,
            100.0 * self.found.missed,
        );
        for (&setting, why) in &self.found.failed {
            let _ = writeln!(text, "failed: {}: {why}", self.name(setting));
        }
        match self.answer {
            Some(answer) => self.conclude(answer, &mut text),
            None => {
                let _ = writeln!(
                    text,
                    "\nNothing is recommended: too little could be measured after a setting was \
                     chosen. Give more time with --budget."
                );
            }
        }
        text
    }

    fn conclude(&self, answer: &Answer, text: &mut String) {
        let choice = answer.choice;
        let against = self.space.defaults.first().and_then(|default| answer.others.get(default));
        let _ = writeln!(text);
        let _ = match (answer.verdict, against) {
            (Verdict::Change, Some(ratio)) => {
                let (saved, least, most) = ratio.saved();
                writeln!(
                    text,
                    "Use {}: a step takes {:.1} ms, {} less than with {}.",
                    self.name(choice),
                    answer.step_s * 1e3,
                    interval(saved, least, most),
                    self.reference,
                )
            }
            (Verdict::Lean, Some(ratio)) => {
                let (saved, least, most) = ratio.saved();
                writeln!(
                    text,
                    "Probably use {}: a step takes {:.1} ms, {} less than with {}, but the interval holds \
                     0; a larger --budget would tell.",
                    self.name(choice),
                    answer.step_s * 1e3,
                    interval(saved, least, most),
                    self.reference,
                )
            }
            (Verdict::Keep, None) => writeln!(
                text,
                "Keep {}: nothing that was measured is better ({:.1} ms a step).",
                self.reference,
                answer.step_s * 1e3
            ),
            (Verdict::Keep, Some(ratio)) if ratio.low > 1.0 => {
                let (saved, least, most) = ratio.saved();
                writeln!(
                    text,
                    "Keep {}: the best candidate, {}, saves {} of a step, less than the {:.0} % that make \
                     a change worth while.",
                    self.reference,
                    self.name(choice),
                    interval(saved, least, most),
                    100.0 * MARGIN,
                )
            }
            (Verdict::Keep, Some(ratio)) => {
                let (saved, least, most) = ratio.saved();
                writeln!(
                    text,
                    "Keep {}: the best candidate, {}, cannot be told from it ({} less time).",
                    self.reference,
                    self.name(choice),
                    interval(saved, least, most),
                )
            }
            (Verdict::Unknown, _) | (Verdict::Change | Verdict::Lean, None) => writeln!(
                text,
                "Nothing is recommended: times vary so much that no setting can be told from another. \
                 Try on a quieter machine, or with a larger --budget."
            ),
        };
        let _ = writeln!(
            text,
            "\n  compared in {} fresh rounds, each setting once in each:",
            answer.rounds
        );
        let _ = writeln!(
            text,
            "  {:>8} ms  {}",
            format!("{:.1}", answer.step_s * 1e3),
            self.name(choice)
        );
        let mut others: Vec<(&usize, &Ratio)> = answer.others.iter().collect();
        others.sort_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
        for (&other, ratio) in others {
            let percent = |ratio: f64| 100.0 * (ratio - 1.0);
            let tied = if answer.tied.contains(&other) { "  as good" } else { "" };
            let role = self.role(other).map_or(String::new(), |role| format!("  ({role})"));
            let _ = writeln!(
                text,
                "  {:>+8.1} %   {:<34} [{:+.1}, {:+.1}] %{tied}{role}",
                percent(ratio.ratio),
                self.name(other),
                percent(ratio.low),
                percent(ratio.high),
            );
        }
        let near = &answer.expected_tied;
        if !near.is_empty() {
            let names: Vec<String> =
                near.iter().take(NAMED).map(|&setting| self.name(setting)).collect();
            let more = match near.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            let _ = writeln!(
                text,
                "  expected within {:.0} %, not compared: {}{more}",
                100.0 * MARGIN,
                names.join("; ")
            );
        }
        if answer.verdict == Verdict::Unknown {
            return;
        }
        self.explain(answer, text);
        self.hand_over(answer, text);
    }

    /// Where the time goes, what a threshold beside this one costs, and what the buffer takes.
    fn explain(&self, answer: &Answer, text: &mut String) {
        let choice = answer.choice;
        let default = self.space.defaults.first().copied().filter(|&default| default != choice);
        let row = |setting: usize| self.rows.get(&setting);
        let _ = writeln!(text, "\nwhy");
        let part = |what: &str, of: fn(&Row) -> Option<f64>| {
            let ms = |setting: usize| row(setting).and_then(of).map(|us| us / 1e3);
            let instead =
                default.and_then(ms).map_or(String::new(), |ms| format!(", instead of {ms:.1}"));
            ms(choice).map_or(String::new(), |ms| format!("  {what}: {ms:.1} ms{instead}\n"))
        };
        text.push_str(&part("computation, which no setting changes", |row| row.bound_us));
        text.push_str(&part("communication that computation does not hide", |row| {
            row.exposed_us_p50
        }));
        text.push_str(&part("copying into and out of the fusion buffer", |row| row.packing_us_p50));
        text.push_str(&part("negotiating what to reduce next", |row| row.negotiation_us_p50));
        let messages = |setting: usize| row(setting).and_then(|row| row.messages_p50);
        if let Some(count) = messages(choice).filter(|&count| count > 0.0) {
            let wire = self.plan.cases[choice].framework.wire(self.plan.config.dtype());
            let bytes = self.plan.workload.elements() * wire.size_bytes();
            let instead = default
                .and_then(messages)
                .map_or(String::new(), |other| format!(", instead of {other:.0}"));
            let _ = writeln!(
                text,
                "  messages: {count:.0} a step, of {:.1} MB on average{instead}",
                bytes as f64 / 1e6 / count
            );
        }
        let here = &self.space.points[choice];
        let beside = |octaves: f64| {
            (0..self.space.points.len()).find(|&other| {
                let point = &self.space.points[other];
                (point.category, point.cycle_octaves) == (here.category, here.cycle_octaves)
                    && (point.threshold_octaves - here.threshold_octaves - octaves).abs() < 0.01
            })
        };
        let base_s = self.found.expected_s[choice];
        let cost = |setting: usize| {
            let how =
                if self.found.blocks.contains_key(&setting) { "measured" } else { "expected" };
            let percent = 100.0 * (self.found.expected_s[setting] / base_s - 1.0);
            format!("{percent:+.1} % ({how})")
        };
        let _ = writeln!(
            text,
            "  a threshold half as large: {}; twice as large: {}",
            beside(-1.0).map_or("not tried".into(), cost),
            beside(1.0).map_or("not tried".into(), cost),
        );
        let case = self.case(choice);
        let threshold = case.fusion_threshold_bytes;
        let effective = effective_threshold_bytes(threshold, &case.topology);
        let rounding = match effective == threshold {
            true => String::new(),
            false => format!(", which Horovod rounds up to {effective} bytes"),
        };
        let _ = writeln!(
            text,
            "  memory: {} MiB on every rank for each fusion buffer (one for each framework, device and \
             stream){rounding}",
            mib(threshold)
        );
    }

    fn hand_over(&self, answer: &Answer, text: &mut String) {
        if !self.is_for_horovod() {
            let _ = writeln!(text, "\n({SCOPE}: Horovod would reduce by other means)");
            return;
        }
        if !answer.changes() {
            return;
        }
        let variables = variables(&self.plan.config, self.case(answer.choice));
        let _ = writeln!(text, "\nfor a job script");
        for (name, value) in &variables {
            let _ = writeln!(text, "  export {name}={value}");
        }
        let all: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = writeln!(text, "for srun\n  srun --export=ALL,{} ...", all.join(","));
        let _ = writeln!(text, "for horovodrun, or with --config-file horovod.yaml");
        let _ = writeln!(text, "  horovodrun {} ...", self.flags(answer.choice).join(" "));
        let framework = &self.plan.cases[answer.choice].framework;
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
        if self.plan.cases[answer.choice].placement.emulated {
            let _ = writeln!(text, "(nodes are emulated: nothing of this is for a cluster)");
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
            CACHED => self.plan.config.sweep.cache_capacity,
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
        let answer = self.answer.filter(|answer| answer.verdict != Verdict::Unknown)?;
        let of = |setting: usize| variables(&self.plan.config, self.case(setting));
        let defaults = self.space.defaults.iter().filter(|&&default| default != answer.choice);
        let mut settings = vec![(RECOMMENDED.to_string(), of(answer.choice))];
        settings.extend(defaults.map(|&default| (self.name(default), of(default))));
        let (workload, times) = (&self.plan.workload, self.plan.config.times());
        Some(confirm::script(&settings, workload, times, CONFIRMED_BLOCKS))
    }

    /// The file for `horovodrun --config-file`, where there is something to recommend for Horovod.
    pub fn yaml(&self) -> Option<String> {
        let answer = self.answer.filter(|answer| answer.changes())?;
        let mut text = String::from("params:\n");
        for (key, value) in self.parameters(answer.choice) {
            let _ = writeln!(text, "  {key}: {value}");
        }
        self.is_for_horovod().then_some(text)
    }

    /// For programs.
    pub fn json(&self) -> serde_json::Value {
        let setting = |setting: usize| {
            let case = self.case(setting);
            Setting {
                control_plane: case.control_plane.clone(),
                algorithm: case.algorithm.clone(),
                fusion_threshold_bytes: case.fusion_threshold_bytes,
                cycle_time_ms: case.cycle_time_ms(),
                compression: self.plan.cases[setting].framework.compression.name(),
                num_groups: self.plan.cases[setting].groups.len(),
                step_ms: 1e3 * self.found.expected_s[setting],
            }
        };
        let first = self.case(0);
        let (blocks, steps, seconds) = self.effort;
        let answer = self.answer;
        let compared = |answer: &Answer| -> Vec<Compared> {
            let others = answer.others.iter();
            others
                .map(|(&other, &ratio)| Compared {
                    setting: setting(other),
                    name: self.name(other),
                    ratio,
                    tied: answer.tied.contains(&other),
                })
                .collect()
        };
        let recommended = answer
            .filter(|answer| answer.verdict != Verdict::Unknown)
            .map(|answer| Setting { step_ms: 1e3 * answer.step_s, ..setting(answer.choice) });
        let near =
            |answer: &Answer| answer.expected_tied.iter().map(|&other| setting(other)).collect();
        let json = Json {
            workload: self.plan.workload.name.clone(),
            transport: first.transport.clone(),
            topology: first.topology.to_string(),
            verdict: answer.map_or(Verdict::Unknown, |answer| answer.verdict),
            for_horovod: self.is_for_horovod(),
            recommended,
            compared: answer.map(compared).unwrap_or_default(),
            expected_within_margin: answer.map(near).unwrap_or_default(),
            margin: MARGIN,
            chance_that_a_better_one_was_missed: self.found.missed,
            blocks,
            steps: blocks * steps,
            fresh_rounds: answer.map_or(0, |answer| answer.rounds),
            seconds,
            settings: self.plan.cases.len(),
            settings_measured: self.found.blocks.len(),
        };
        serde_json::to_value(json).expect("plain data")
    }
}

fn interval(nearest: f64, least: f64, most: f64) -> String {
    format!("{:.1} % [{:.1}, {:.1}]", 100.0 * nearest, 100.0 * least, 100.0 * most)
}
