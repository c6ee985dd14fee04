//! What a search has found, for people and for programs.

mod hand_over;
mod json;

use std::fmt::Write as _;

use algorithms::fusion::effective_threshold_bytes;

pub use self::json::Tuning;
use super::answer::{Answer, Ratio, Shift, Verdict};
use super::fidelity::Fidelity;
use super::found::MARGIN;
use super::grid::Grid;
use super::larger::Larger;
use super::model::Costs;
use super::regret::Run;
use super::space::{CACHED, edges};
use super::tuned::Tuned;
use super::why::Rise;
use measure::config::Case;
use measure::summary::HOROVOD_DEFAULTS;
use results::row::{StepResult, StepRow};
use results::units::mib;
use transports::data_plane::MPI_ALLREDUCE;
use workloads::framework::Compression;

/// What the script calls the setting that was chosen.
pub const RECOMMENDED: &str = "recommended";

/// Number of rivals that are listed; the others are in the JSON.
const NAMED: usize = 6;

/// The report warns if a better setting was missed with more than this probability.
const LIKELY: f64 = 0.2;

/// The verdict without an answer.
const NOTHING: &str = "Nothing is recommended: too few blocks were measured after a setting was chosen. Raise --budget.";

/// The report of one world size.
pub struct Report<'r> {
    /// The settings.
    pub grid: &'r Grid,
    /// The result of the search.
    pub tuned: &'r Tuned,
    /// The name of the first default.
    pub reference: &'r str,
    /// Predictions for more ranks, if requested.
    pub larger: Option<&'r Larger>,
    /// It is the last world size, whose settings are to be copied.
    pub is_last: bool,
}

impl Report<'_> {
    pub(super) fn case(&self, setting: usize) -> &Case {
        &self.grid.plan.cases[setting].case
    }

    pub(super) fn name(&self, setting: usize) -> String {
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

    /// The name of a default.
    fn role(&self, setting: usize) -> Option<&str> {
        let place = self.grid.space.defaults.iter().position(|&default| default == setting)?;
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
        let Tuned { blocks, steps_per_block: steps, seconds, .. } = *self.tuned;
        let bytes = self.grid.plan.workload.elements() * self.grid.plan.config.wire().size_bytes();
        let nodes = first.topology.nodes();
        let _ = writeln!(
            text,
            "{}: {} gradients, {:.1} MB, {} rank{} on {nodes} node{} over {}{}",
            self.grid.plan.workload.name,
            self.grid.plan.workload.gradients.len(),
            bytes as f64 / 1e6,
            first.topology.ranks(),
            if first.topology.ranks() == 1 { "" } else { "s" },
            if nodes == 1 { "" } else { "s" },
            first.transport,
            if self.grid.plan.cases[0].placement.emulated { "; nodes are emulated" } else { "" },
        );
        let host = self.grid.plan.config.host;
        if !host.is_idle() {
            let _ = writeln!(
                text,
                "the framework's thread takes {} us to wake up for a gradient, and {} us to hand it over (assumed, of one \
                 processor with PyTorch and Horovod, unless a configuration has host.*)",
                host.wake_us, host.hand_over_us,
            );
        }
        let _ = writeln!(
            text,
            "measured {blocks} blocks ({} training steps) of {} of {} settings in {seconds:.0} s; {:.0} % \
             chance that an untried setting is more than {:.0} % faster",
            blocks * steps,
            self.tuned.found.blocks.len(),
            self.grid.plan.cases.len(),
            100.0 * self.tuned.found.missed,
            100.0 * MARGIN,
        );
        if let Some(unsteady) = &self.tuned.unsteady {
            let _ = writeln!(text, "{unsteady}");
        }
        for (&setting, why) in &self.tuned.found.failed {
            let _ = writeln!(text, "failed: {}: {why}", self.name(setting));
        }
        match &self.tuned.answer {
            Some(answer) => self.conclude(answer, &mut text),
            None => {
                let _ = writeln!(text, "\n{NOTHING}");
            }
        }
        if let Some(Run { settings, regret, default_regret, .. }) = &self.tuned.lost {
            let saved = |regret: &f64| 100.0 * (1.0 - 1.0 / (1.0 + regret));
            let _ = writeln!(
                text,
                "\nmeasured all {settings} settings afterwards: the best, chosen in every second round, saves \
                 {:.1} % against what is recommended in the others, {:.1} % against {}",
                saved(regret),
                saved(default_regret),
                self.reference,
            );
        }
        text
    }

    fn conclude(&self, answer: &Answer, text: &mut String) {
        let _ = writeln!(text, "\n{}", self.verdict(answer));
        if let Some(doubt) = self.doubt(answer) {
            let _ = writeln!(text, "{doubt}");
        }
        self.compare(answer, text);
        if answer.verdict == Verdict::Unknown {
            return;
        }
        self.explain(answer, text);
        self.expect_of_larger(text);
        if self.is_last {
            self.hand_over(answer, text);
        }
    }

    /// Why a better setting may exist.
    fn doubt(&self, answer: &Answer) -> Option<&'static str> {
        let is_likely = self.tuned.found.missed > LIKELY && answer.verdict != Verdict::Unknown;
        is_likely.then_some(
            "A setting that was not measured may well be better: the budget was too small; raise --budget.",
        )
    }

    /// The step of another setting over that of the choice, with the interval that holds for what its readers will see.
    pub(super) fn promised(&self, answer: &Answer, ratio: &Ratio) -> Ratio {
        let exposed = || self.tuned.exposed(answer, ratio);
        let fidelity = self.grid.fidelity();
        fidelity.map_or(*ratio, |fidelity| fidelity.for_horovod(ratio, exposed()))
    }

    /// The step of the first default over that of the choice, if both were compared.
    fn default_over_choice<'a>(&self, answer: &'a Answer) -> Option<&'a Ratio> {
        answer.others.get(self.grid.space.defaults.first()?)
    }

    /// How far Horovod's ratio may be from this one some minutes later, in words.
    fn distance_from_horovod(&self, fidelity: Fidelity, answer: &Answer, ratio: &Ratio) -> String {
        let error = fidelity.of_pair(ratio.ratio, self.tuned.exposed(answer, ratio));
        let sharing = if fidelity.share_error > 0.0 { " where ranks share cores" } else { "" };
        format!(
            " ({:.1} % here, for 95 % of promises; estimated from {}{sharing}, on a virtual machine)",
            100.0 * (error - 1.0),
            fidelity.promises,
        )
    }

    fn verdict(&self, answer: &Answer) -> String {
        let (name, reference) = (self.name(answer.choice), self.reference);
        let step_ms = 1e3 * answer.step_s;
        let against = self.default_over_choice(answer);
        let saves = against.map_or(String::new(), |ratio| saved(&self.promised(answer, ratio)));
        let costs_ms = against.map_or(0.0, |ratio| step_ms * (ratio.ratio - 1.0));
        match (answer.verdict, against) {
            (Verdict::Change, Some(_)) => {
                format!(
                    "Use {name}: a step takes {step_ms:.1} ms, {saves} less than with {reference}. Without the change a \
                     step takes {costs_ms:.1} ms more."
                )
            }
            (Verdict::Lean, Some(ratio)) => {
                let but = if ratio.low > 1.0 {
                    "the interval for Horovod includes 0; compare both settings in Horovod (--confirm-script)"
                } else {
                    "the interval includes 0; a larger --budget would decide"
                };
                format!(
                    "Probably use {name}: a step takes {step_ms:.1} ms, {saves} less than with {reference}, but {but}."
                )
            }
            (Verdict::Keep, None) => format!(
                "Keep {reference}: nothing that was measured is better ({step_ms:.1} ms a step)."
            ),
            (Verdict::Keep, Some(ratio)) if ratio.ratio > 1.0 + MARGIN => format!(
                "Keep {reference}: the best candidate, {name}, saves {saves} of a step, but the interval includes 0, and \
                 without the cache or fusion every rank adds work to the negotiation. Compare both settings in Horovod \
                 (--confirm-script)."
            ),
            (Verdict::Keep, Some(ratio)) if ratio.low > 1.0 => format!(
                "Keep {reference}: the best candidate, {name}, saves {saves} of a step, less than the \
                 {:.0} % that make a change worth while.",
                100.0 * MARGIN,
            ),
            (Verdict::Keep, Some(ratio)) if ratio.high < 1.0 => format!(
                "Keep {reference}: the best candidate, {name}, turned out to be slower."
            ),
            (Verdict::Keep, Some(_)) => format!(
                "Keep {reference}: the best candidate, {name}, cannot be distinguished from it ({saves} less time)."
            ),
            (_, None) => format!(
                "Nothing is recommended: {reference} could not be measured, so there is nothing to compare \
                 {name} with ({step_ms:.1} ms a step)."
            ),
            (Verdict::Unknown, Some(ratio)) if answer.shift.is_some() => {
                self.shifted(answer, ratio)
            }
            (Verdict::Unknown, _) => {
                "Nothing is recommended: times vary so much that settings cannot be distinguished. Try \
                 on a quieter machine, or with a larger --budget."
                    .into()
            }
        }
    }

    /// Why a machine that changed its speed leaves no verdict.
    fn shifted(&self, answer: &Answer, ratio: &Ratio) -> String {
        let disturbed = &self.tuned.found.disturbed;
        match answer.shift {
            Some(Shift::Level(change)) => format!(
                "Nothing is recommended: the machine changed its speed by {:.0} % while settings were compared, and {}. Try \
                 when nothing else runs.",
                100.0 * change,
                self.saved(answer, ratio),
            ),
            Some(Shift::Since(change)) => format!(
                "Nothing is recommended: while settings were compared, the speed of the machine differed by {:.0} % from \
                 that during most of the search, and {}. Try when nothing else runs.",
                100.0 * change,
                self.saved(answer, ratio),
            ),
            _ => format!(
                "Nothing is recommended: the speed of this machine changed while it was measured. In {} of {} rounds \
                 steps took {} times as long as in the others. Try when nothing else runs.",
                disturbed.len(),
                disturbed.len() + answer.rounds,
                range(disturbed),
            ),
        }
    }

    /// How little the choice saves.
    fn saved(&self, answer: &Answer, ratio: &Ratio) -> String {
        format!(
            "{} is {:.0} % faster than {}, but perhaps by only {:.0} %",
            self.name(answer.choice),
            100.0 * (ratio.ratio - 1.0),
            self.reference,
            100.0 * (ratio.low - 1.0).max(0.0),
        )
    }

    fn compare(&self, answer: &Answer, text: &mut String) {
        let _ = writeln!(
            text,
            "\n  compared in {} fresh rounds, each setting once in each:",
            answer.rounds
        );
        let disturbed = &self.tuned.found.disturbed;
        if !disturbed.is_empty() {
            let _ = writeln!(
                text,
                "  ({} more rounds do not count, because steps took {} times as long as in the others)",
                disturbed.len(),
                range(disturbed)
            );
        }
        let moved_ns = &self.tuned.found.moved_ns;
        if let Some(usual_ns) = self.tuned.found.core_to_core_ns.filter(|_| !moved_ns.is_empty()) {
            let _ = writeln!(
                text,
                "  ({} more rounds do not count, because the hypervisor had moved the processors: a write took {} ns from one \
                 to the other, and {usual_ns:.0} ns in the rounds that count, for which the intervals hold)",
                moved_ns.len(),
                nanoseconds(moved_ns),
            );
        }
        let step_ms = format!("{:.1}", answer.step_s * 1e3);
        let _ = writeln!(text, "  {step_ms:>8} ms  {}", self.name(answer.choice));
        let mut others: Vec<(&usize, &Ratio)> = answer.others.iter().collect();
        others.sort_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio));
        for (&other, ratio) in others {
            let percent = |ratio: f64| 100.0 * (ratio - 1.0);
            let tied = match answer.tied.contains(&other) {
                true if ratio.high < 1.0 => "  faster here",
                true => "  as good",
                false => "",
            };
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
        if let Some(fidelity) = self.grid.fidelity() {
            let ratio = self.default_over_choice(answer);
            let distance = ratio
                .map_or(String::new(), |ratio| self.distance_from_horovod(fidelity, answer, ratio));
            let _ = writeln!(
                text,
                "  these intervals hold for kolo's engine; that of the saving also covers the noise of a second measurement, and \
                 how far Horovod's gains are from promised ones some minutes later{distance}"
            );
        }
        let near = &answer.expected_tied;
        let names: Vec<String> =
            near.iter().take(NAMED).map(|&setting| self.name(setting)).collect();
        let more = match near.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        if !near.is_empty() {
            let _ = writeln!(
                text,
                "  expected within {:.0} %, not compared: {}{more}",
                100.0 * MARGIN,
                names.join("; ")
            );
        }
    }

    /// The breakdown of the step time.
    fn explain(&self, answer: &Answer, text: &mut String) {
        let choice = answer.choice;
        let default =
            self.grid.space.defaults.first().copied().filter(|&default| default != choice);
        let measured = |setting: usize| {
            let row = self.tuned.fresh.get(&setting)?;
            Some((row, row.outcome.measured()?))
        };
        let before = if self.reference.starts_with("Horovod") { "default" } else { "now" };
        let _ = writeln!(text, "\nwhy (medians of the fresh rounds)");
        let part = |what: &str, of: fn(&StepRow, &StepResult) -> f64| {
            let ms = |setting: usize| measured(setting).map(|(row, result)| of(row, result) / 1e3);
            let instead =
                default.and_then(ms).map_or(String::new(), |ms| format!(" ({before}: {ms:.1})"));
            ms(choice).map_or(String::new(), |ms| format!("  {what}: {ms:.1} ms{instead}\n"))
        };
        text.push_str(&part("computation, which no setting changes", |row, _| row.bound_us));
        text.push_str(&part("communication that computation does not hide", |_, result| {
            result.exposed_us_p50
        }));
        text.push_str(&part("copying into and out of the fusion buffer", |_, result| {
            result.packing_us_p50
        }));
        text.push_str(&part("negotiating what to reduce next", |_, result| {
            result.negotiation_us_p50
        }));
        let messages = |setting: usize| measured(setting).map(|(_, result)| result.messages_p50);
        if let Some(count) = messages(choice).filter(|&count| count > 0.0) {
            let wire = self.grid.plan.cases[choice].framework.wire(self.grid.plan.config.dtype());
            let bytes = self.grid.plan.workload.elements() * wire.size_bytes();
            let instead = default
                .and_then(messages)
                .map_or(String::new(), |other| format!(" ({before}: {other:.0})"));
            let _ = writeln!(
                text,
                "  messages: {count:.0} a step{instead}, of {:.1} MB on average",
                bytes as f64 / 1e6 / count
            );
        }
        let costs = Costs::of(&self.grid.plan, &self.tuned.found.blocks);
        if let Some(rise) = Rise::of(&costs, &self.case(choice).algorithm) {
            let advice = if self.grid.is_for_horovod() {
                ": MPI_Allreduce probably changes its algorithm between these sizes; choosing the algorithm \
                 (coll_tuned_allreduce_algorithm in Open MPI) may gain more"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "  messages of {:.2} MB take {:.1} times as long per byte as messages of {:.2} MB{advice}",
                rise.above_bytes / 1e6,
                rise.factor,
                rise.below_bytes / 1e6,
            );
        }
        self.explain_threshold(choice, text);
    }

    /// The effect of other thresholds, and the memory of the buffer.
    fn explain_threshold(&self, choice: usize, text: &mut String) {
        let here = &self.grid.space.points[choice];
        let beside = |octaves: f64| {
            (0..self.grid.space.points.len()).find(|&other| {
                let point = &self.grid.space.points[other];
                (point.category, point.cycle_octaves) == (here.category, here.cycle_octaves)
                    && (point.threshold_octaves - here.threshold_octaves - octaves).abs() < 0.01
            })
        };
        let base_s = self.tuned.found.expected_s[choice];
        let cost = |setting: usize| {
            let how = if self.tuned.found.blocks.contains_key(&setting) {
                "measured"
            } else {
                "expected"
            };
            let percent = 100.0 * (self.tuned.found.expected_s[setting] / base_s - 1.0);
            format!("{percent:+.1} % ({how})")
        };
        let _ = writeln!(
            text,
            "  a threshold half as large: {}; twice as large: {}",
            beside(-1.0).map_or("not tried".into(), cost),
            beside(1.0).map_or("not tried".into(), cost),
        );
        let edges = edges(&self.grid.plan, choice);
        if !edges.is_empty() {
            let _ = writeln!(
                text,
                "  at the edge of what was tried: {}; values beyond can be pinned (--fusion-threshold-mb, \
                 --cycle-time-ms)",
                edges.join(" and ")
            );
        }
        let case = self.case(choice);
        let threshold = case.fusion_threshold_bytes;
        let effective = effective_threshold_bytes(threshold, &case.topology);
        let rounding = if effective == threshold {
            String::new()
        } else {
            format!(", which Horovod rounds up to {effective} bytes")
        };
        let _ = writeln!(
            text,
            "  memory: {} MiB on every rank for each fusion buffer (one for each framework, device and \
             stream){rounding}",
            mib(threshold)
        );
    }

    fn expect_of_larger(&self, text: &mut String) {
        let Some(Larger { machine, local_size, messages, here, sizes }) = self.larger else {
            return;
        };
        // Rounded as shown, without a negative zero.
        let percent = |ratio: f64| (1000.0 * (ratio - 1.0)).round() / 10.0 + 0.0;
        let factors = || messages.factors.iter().map(|&(_, factor)| factor);
        let _ = writeln!(
            text,
            "\nat larger sizes, simulated on machine {machine}, {local_size} rank{} on each node\n  message \
             times: simulated times of {} x a measured correction per size \
             ({} sizes, {:.2} to {:.2})",
            if *local_size == 1 { "" } else { "s" },
            messages.algorithm,
            messages.factors.len(),
            factors().fold(f64::INFINITY, f64::min),
            factors().fold(0.0, f64::max),
        );
        let _ = writeln!(
            text,
            "  {:>10}  {:>24}  {:>25}  best there",
            "ranks", "recommended, step (ms)", "defaults take more (%)"
        );
        for (at, size) in sizes.iter().enumerate() {
            let step = size.recommended_ms;
            let more = size.default_ratio;
            let step = format!("{:.1} [{:.1}, {:.1}]", step.value, step.low, step.high);
            let [value, low, high] = [more.value, more.low, more.high].map(percent);
            let more = format!("{value:+.1} [{low:+.1}, {high:+.1}]");
            let best = format!("{} ({:+.1} %)", self.name(size.best), percent(size.best_ratio));
            let ranks = format!("{}{}", if at == 0 { "here: " } else { "" }, size.ranks);
            let _ = writeln!(text, "  {ranks:>10}  {step:>24}  {more:>25}  {best}");
        }
        let _ = writeln!(
            text,
            "  here {:.1} ms were measured, {:.1} % {} than the simulated {:.1} ms\n  intervals: each machine parameter \
             at both ends of its range, and other algorithms; at least as wide as that miss",
            here.measured_ms,
            percent(here.miss).abs(),
            if here.miss < 1.0 { "less" } else { "more" },
            sizes[0].recommended_ms.value,
        );
    }
}

/// The least and the largest of several latencies.
fn nanoseconds(latencies_ns: &[f64]) -> String {
    let least = latencies_ns.iter().copied().fold(f64::INFINITY, f64::min).round();
    let most = latencies_ns.iter().copied().fold(0.0, f64::max).round();
    if least == most { format!("{most}") } else { format!("{least} to {most}") }
}

/// The least and the largest of several factors.
fn range(factors: &[f64]) -> String {
    let least = factors.iter().copied().fold(f64::INFINITY, f64::min);
    let most = factors.iter().copied().fold(0.0, f64::max);
    if least == most { format!("{most:.1}") } else { format!("{least:.1} to {most:.1}") }
}

/// How much less time the choice takes, with its interval.
fn saved(ratio: &Ratio) -> String {
    let (nearest, least, most) = ratio.saved();
    format!("{:.1} % [{:.1}, {:.1}]", 100.0 * nearest, 100.0 * least, 100.0 * most)
}
