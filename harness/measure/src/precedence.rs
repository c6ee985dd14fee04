//! The precedence of values: command line, environment, file, default.
//!
//! The environment does not override axes that a sweep varies: that would turn many cases into one.

use std::fmt::Display;
use std::slice;
use std::time::Duration;

use algorithms::algorithm::DEFAULT_INNER;
use algorithms::registry;
use clap::builder::PossibleValuesParser;
use results::provenance::Override;

use crate::back_ends;
use crate::config::Config;
use crate::environment::{
    Environment, MOST_CACHE_CAPACITY, MOST_CYCLE_TIME_MS, MOST_FUSION_THRESHOLD_BYTES, Setting,
    ValueError, number, whole_number,
};
use results::units::MIB;
use transports::data_plane::nccl;

/// Options of the command line; none where an option is absent.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Instead of the configuration's values")]
pub struct Options {
    /// Transport
    #[arg(long, value_name = "NAME", hide_short_help = true, value_parser = PossibleValuesParser::new(back_ends::names()))]
    pub transport: Option<String>,
    /// One fusion threshold in MiB; 0 turns fusion off
    #[arg(long, hide_short_help = true, value_name = "MIB", allow_negative_numbers = true, value_parser = threshold_mib)]
    pub fusion_threshold_mb: Option<f64>,
    /// One cycle time in ms
    #[arg(long, hide_short_help = true, value_name = "MS", allow_negative_numbers = true, value_parser = cycle_time_ms)]
    pub cycle_time_ms: Option<f64>,
    /// Starts of the program, each with all blocks
    #[arg(long, hide_short_help = true, value_name = "COUNT", value_parser = launches)]
    pub launches: Option<usize>,
    /// Timed steps of each block
    #[arg(long, hide_short_help = true, value_name = "COUNT", value_parser = steps)]
    pub steps: Option<usize>,
    /// Entries of the response cache; with 0, `bitvector` uses rank 0 in every cycle
    #[arg(long, hide_short_help = true, value_name = "COUNT", allow_negative_numbers = true, value_parser = cache_capacity)]
    pub cache_capacity: Option<usize>,
}

fn threshold_mib(text: &str) -> Result<f64, ValueError> {
    number(text, MOST_FUSION_THRESHOLD_BYTES as f64 / MIB)
}

fn cycle_time_ms(text: &str) -> Result<f64, ValueError> {
    number(text, MOST_CYCLE_TIME_MS)
}

fn cache_capacity(text: &str) -> Result<usize, ValueError> {
    whole_number(text, MOST_CACHE_CAPACITY)
}

fn launches(text: &str) -> Result<usize, String> {
    one_to(MOST_LAUNCHES, text)
}

fn steps(text: &str) -> Result<usize, String> {
    one_to(MOST_STEPS, text)
}

fn one_to(most: usize, text: &str) -> Result<usize, String> {
    match whole_number(text, most) {
        Ok(0) => Err("expected at least 1".into()),
        found => found.map_err(|error| error.to_string()),
    }
}

/// More launches than that are a mistake.
const MOST_LAUNCHES: usize = 1000;

/// More steps of a block than that are a mistake.
const MOST_STEPS: usize = 1_000_000;

/// A configuration after overrides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Precedence {
    /// The overridden values.
    pub overrides: Vec<Override>,
    /// Ignored settings, as sentences.
    pub ignored: Vec<String>,
}

/// Applies overrides to a checked configuration, which remains valid.
pub fn apply(config: &mut Config, options: &Options, environment: &Environment) -> Precedence {
    let mut precedence = Precedence::default();
    let axes = &mut config.sweep;
    let transport = option("--transport", options.transport.clone());
    precedence.fix("sweep.transport", &mut axes.transport, transport, None);
    let threshold = &environment.fusion_threshold_bytes;
    let also = &mut config.also;
    precedence.fix_everywhere(
        "sweep.fusion_threshold_mib",
        &mut axes.fusion_threshold_mib,
        also.iter_mut().map(|also| &mut also.fusion_threshold_mib).collect(),
        option("--fusion-threshold-mb", options.fusion_threshold_mb),
        variable(threshold, threshold.value as f64 / MIB),
    );
    precedence.fix_everywhere(
        "sweep.cycle_time_ms",
        &mut axes.cycle_time_ms,
        also.iter_mut().map(|also| &mut also.cycle_time_ms).collect(),
        option("--cycle-time-ms", options.cycle_time_ms),
        variable(&environment.cycle_time_ms, environment.cycle_time_ms.value),
    );
    let mut capacity = vec![axes.cache_capacity];
    precedence.fix(
        "sweep.cache_capacity",
        &mut capacity,
        option("--cache-capacity", options.cache_capacity),
        variable(&environment.cache_capacity, environment.cache_capacity.value),
    );
    axes.cache_capacity = capacity[0];
    for (key, value, set) in [
        ("measure.launches", &mut config.measure.launches, option("--launches", options.launches)),
        (
            "measure.steps_per_block",
            &mut config.measure.steps_per_block,
            option("--steps", options.steps),
        ),
    ] {
        let mut axis = vec![*value];
        precedence.fix(key, &mut axis, set, None);
        *value = axis[0];
    }
    let mut set = |key, value: &mut f64, setting: &Setting<Duration>| {
        let mut axis = vec![*value];
        precedence.fix(key, &mut axis, None, variable(setting, setting.value.as_secs_f64()));
        *value = axis[0];
    };
    let measure = &mut config.measure;
    let warning = "measure.stall_warning_seconds";
    set(warning, &mut measure.stall_warning_seconds, &environment.stall_warning);
    let shutdown = "measure.stall_shutdown_seconds";
    set(shutdown, &mut measure.stall_shutdown_seconds, &environment.stall_shutdown);
    let mut switch = |key, value: &mut bool, set: Set<bool>| {
        let mut axis = vec![*value];
        precedence.fix(key, &mut axis, None, set);
        *value = axis[0];
    };
    let disable = &environment.stall_check_disable;
    let check = variable(disable, !disable.value);
    switch("measure.stall_check", &mut measure.stall_check, check);
    let alone = &environment.disable_group_fusion;
    let alone = variable(alone, alone.value);
    switch("sweep.disable_group_fusion", &mut config.sweep.disable_group_fusion, alone);
    precedence.fix_algorithm(config, environment);
    precedence
}

/// A value, and the option or variable that set it.
type Set<T> = Option<(T, String)>;

fn option<T: Display>(flag: &str, value: Option<T>) -> Set<T> {
    let set_by = value.as_ref().map(|value| format!("{flag} {value}"))?;
    value.zip(Some(set_by))
}

fn variable<T, U>(setting: &Setting<U>, value: T) -> Set<T> {
    setting.set_by.clone().map(|set_by| (value, set_by))
}

impl Precedence {
    /// The effective values of one axis.
    fn fix<T: Display + PartialEq>(
        &mut self,
        key: &str,
        axis: &mut Vec<T>,
        option: Set<T>,
        variable: Set<T>,
    ) {
        match (option, variable) {
            (None, None) => {}
            (None, Some((_, set_by))) if axis.len() > 1 => self.leave_varied(key, &set_by),
            (None, Some((value, set_by))) => self.replace(key, axis, value, set_by),
            (Some((value, set_by)), variable) => {
                let ignored =
                    |(_, variable)| format!("{variable} is ignored: {set_by} takes precedence");
                self.ignored.extend(variable.map(ignored));
                self.replace(key, axis, value, set_by);
            }
        }
    }

    /// The effective values of an axis for which `[[also]]` has further ones.
    fn fix_everywhere<T: Clone + Display + PartialEq>(
        &mut self,
        key: &str,
        axis: &mut Vec<T>,
        also: Vec<&mut Option<Vec<T>>>,
        option: Set<T>,
        variable: Set<T>,
    ) {
        let mut all = axis.clone();
        for value in also.iter().filter_map(|list| list.as_ref()).flatten() {
            if !all.contains(value) {
                all.push(value.clone());
            }
        }
        let written = all.clone();
        self.fix(key, &mut all, option, variable);
        if all != written {
            *axis = all;
            also.into_iter().for_each(|list| *list = None);
        }
    }

    /// Horovod's switches choose `hierarchical` or `torus`, and exclude them where they are off; groups remain.
    /// Horovod ignores both on one node, and prefers the first.
    fn fix_algorithm(&mut self, config: &mut Config, environment: &Environment) {
        const KEY: &str = "sweep.algorithm";
        let axes = &mut config.sweep;
        let is_one_node = axes.topologies().iter().all(|it| it.nodes() == 1);
        let is_varied = config.also.iter().any(|also| also.algorithm.is_some());
        let switches = [
            ("hierarchical", &environment.hierarchical_allreduce),
            ("torus", &environment.torus_allreduce),
        ];
        let set =
            switches.map(|(plane, switch)| Some((plane, switch.value, switch.set_by.clone()?)));
        let (on, off): (Vec<_>, Vec<_>) = set.into_iter().flatten().partition(|(_, on, _)| *on);
        let first = on.first().map(|(_, _, set_by)| set_by.clone());
        for (plane, on, set_by) in on.into_iter().chain(off) {
            let written = axes.algorithm.as_slice();
            let ([written], false) = (written, is_varied) else {
                self.leave_varied(KEY, &set_by);
                continue;
            };
            if on && is_one_node {
                self.ignored.push(format!("{set_by} is ignored on one node, as in Horovod"));
            } else if let Some(first) = first.as_ref().filter(|first| on && **first != set_by) {
                self.ignored
                    .push(format!("{set_by} is ignored: {first} comes first, as in Horovod"));
            } else if on != is_a(plane, written) {
                let value = match (nccl::parse(written), plane) {
                    (Ok(Some(_)), "hierarchical") if on => nccl::HIERARCHICAL.into(),
                    (Ok(Some(_)), "hierarchical") => nccl::ALL_REDUCE.into(),
                    _ => with_inner(written, if on { plane } else { DEFAULT_INNER }),
                };
                self.replace(KEY, &mut axes.algorithm, value, set_by);
            }
        }
    }

    fn leave_varied(&mut self, key: &str, set_by: &str) {
        self.ignored.push(format!("{set_by} is ignored: this sweep varies it ({key})"));
    }

    fn replace<T: Display + PartialEq>(
        &mut self,
        key: &str,
        axis: &mut Vec<T>,
        value: T,
        set_by: String,
    ) {
        if axis.as_slice() == slice::from_ref(&value) {
            return;
        }
        let written: Vec<_> = axis.iter().map(T::to_string).collect();
        self.overrides.push(Override {
            key: key.into(),
            value: value.to_string(),
            instead_of: written.join(", "),
            set_by,
        });
        *axis = vec![value];
    }
}

/// The grouping, if any, and the algorithm inside.
fn parts(name: &str) -> (Option<&str>, &str) {
    let is_grouped = registry::find(name).is_ok_and(|algorithm| algorithm.grouping().is_some());
    match name.split_once(':') {
        Some((groups, inner)) if is_grouped => (Some(groups), inner),
        None if is_grouped => (Some(name), DEFAULT_INNER),
        _ => (None, name),
    }
}

fn is_a(plane: &str, name: &str) -> bool {
    let (_, inner) = parts(name);
    inner.split(':').next() == Some(plane)
        || (plane == "hierarchical" && name == nccl::HIERARCHICAL)
}

/// The same groups, if any, over another algorithm.
fn with_inner(name: &str, inner: &str) -> String {
    let (groups, _) = parts(name);
    let name = groups.map_or(inner.to_string(), |groups| format!("{groups}:{inner}"));
    registry::find(&name).map_or(name, |algorithm| algorithm.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(axes: &str) -> Config {
        let text = format!(
            "workload = \"x\"\nstep = {{ backward_ms = 1 }}\n[sweep]\n\
             control_plane = [\"bitvector\"]\n{axes}"
        );
        toml::from_str(&text).unwrap()
    }

    fn environment(set: &[(&str, &str)]) -> Environment {
        let set = set.iter().map(|(name, text)| (format!("HOROVOD_{name}"), text.to_string()));
        Environment::read(&set.collect::<Vec<_>>()).unwrap()
    }

    /// Values of `[[also]]` count as values of the axis: an option replaces all of them, a variable none.
    #[test]
    fn further_cases_have_the_value_of_an_option_too() {
        let text = "topology = [\"2x2\"]\nalgorithm = [\"ring\"]\nfusion_threshold_mib = [128]\n\
                    [[also]]\nfusion_threshold_mib = [64]\ncycle_time_ms = [5]";
        let thresholds = |config: &Config| -> Vec<usize> {
            config.cases().iter().map(|case| case.fusion_threshold_bytes >> 20).collect()
        };
        let mut varied = config(text);
        let set = environment(&[("FUSION_THRESHOLD", "1048576"), ("HIERARCHICAL_ALLREDUCE", "1")]);
        let precedence = apply(&mut varied, &Options::default(), &set);
        assert_eq!(thresholds(&varied), [128, 64]);
        let ignored = "HOROVOD_FUSION_THRESHOLD=1048576 is ignored: this sweep varies it (sweep.fusion_threshold_mib)";
        assert_eq!(precedence.ignored, [ignored]);
        assert_eq!(varied.cases()[1].algorithm, "hierarchical");
        let mut fixed = config(text);
        let option = Options { fusion_threshold_mb: Some(2.0), ..Options::default() };
        let precedence = apply(&mut fixed, &option, &environment(&[]));
        assert_eq!(thresholds(&fixed), [2, 2]);
        let said = precedence.overrides[0].to_string();
        assert_eq!(
            said,
            "sweep.fusion_threshold_mib is 2 instead of 128, 64: --fusion-threshold-mb 2"
        );
    }

    const RING: &str = "topology = [\"2x2\"]\nalgorithm = [\"ring\"]\n";

    /// Axis of the file, variable, option: the effective value, and the notice.
    #[test]
    fn options_override_variables_override_the_file_overrides_defaults() {
        for (file, variable, option, counts, overridden, ignored) in [
            ("", None, None, vec![1.0], "", ""),
            ("[5]", None, None, vec![5.0], "", ""),
            ("[5, 1]", None, None, vec![5.0, 1.0], "", ""),
            ("", Some("2.5"), None, vec![2.5], "2.5 instead of 1: HOROVOD_CYCLE_TIME=2.5", ""),
            ("[5]", Some("2.5"), None, vec![2.5], "2.5 instead of 5: HOROVOD_CYCLE_TIME=2.5", ""),
            ("[5]", Some("5"), None, vec![5.0], "", ""),
            ("[5]", Some("0"), None, vec![0.0], "0 instead of 5: HOROVOD_CYCLE_TIME=0", ""),
            ("[5, 1]", Some("2"), None, vec![5.0, 1.0], "", "=2 is ignored: this sweep varies it"),
            ("", None, Some(3.0), vec![3.0], "3 instead of 1: --cycle-time-ms 3", ""),
            ("[5]", None, Some(3.0), vec![3.0], "3 instead of 5: --cycle-time-ms 3", ""),
            ("[5, 1]", None, Some(3.0), vec![3.0], "3 instead of 5, 1: --cycle-time-ms 3", ""),
            (
                "[5, 1]",
                Some("2"),
                Some(3.0),
                vec![3.0],
                "3 instead of 5, 1: --cycle-time-ms 3",
                "HOROVOD_CYCLE_TIME=2 is ignored: --cycle-time-ms 3 takes precedence",
            ),
        ] {
            let axis = if file.is_empty() { "" } else { "cycle_time_ms = " };
            let mut config = config(&format!("{RING}{axis}{file}"));
            let environment = environment(&variable.map_or(vec![], |it| vec![("CYCLE_TIME", it)]));
            let options = Options { cycle_time_ms: option, ..Options::default() };
            let precedence = apply(&mut config, &options, &environment);
            assert_eq!(config.sweep.cycle_time_ms, counts, "{file} {variable:?} {option:?}");
            let said: Vec<_> = precedence.overrides.iter().map(Override::to_string).collect();
            assert!(said.concat().ends_with(overridden), "{said:?}");
            assert_eq!(said.is_empty(), overridden.is_empty(), "{said:?}");
            assert!(precedence.ignored.concat().contains(ignored), "{precedence:?}");
            assert_eq!(precedence.ignored.is_empty(), ignored.is_empty(), "{precedence:?}");
        }
    }

    #[test]
    fn thresholds_are_converted_and_capacities_replaced() {
        let mut config = config(&format!("{RING}fusion_threshold_mib = [64]"));
        let set = [("FUSION_THRESHOLD", "1048577"), ("CACHE_CAPACITY", "0")];
        let precedence = apply(&mut config, &Options::default(), &environment(&set));
        assert_eq!(config.cases()[0].fusion_threshold_bytes, 1_048_577);
        assert_eq!(config.sweep.cache_capacity, 0);
        assert_eq!(precedence.overrides.len(), 2);
        let options = Options { cache_capacity: Some(7), ..Options::default() };
        let precedence = apply(&mut config, &options, &environment(&set));
        assert_eq!(config.sweep.cache_capacity, 7);
        assert_eq!(
            precedence.ignored,
            ["HOROVOD_CACHE_CAPACITY=0 is ignored: --cache-capacity 7 takes precedence"]
        );
    }

    #[test]
    fn switches_choose_the_algorithm() {
        for (topology, algorithm, hierarchical, torus, counts, ignored) in [
            ("2x2", "ring", "1", "", "hierarchical", ""),
            ("2x2", "ring", "0", "0", "ring", ""),
            ("2x2", "ring", "", "1", "torus", ""),
            ("2x2", "tree", "1", "", "hierarchical", ""),
            ("2x2", "auto", "1", "", "hierarchical", ""),
            ("2x2", "hierarchical:tree", "1", "", "hierarchical:tree", ""),
            ("2x2", "hierarchical:tree", "0", "", "ring", ""),
            ("2x2", "torus", "", "0", "ring", ""),
            ("2x2", "torus", "0", "", "torus", ""),
            ("2x2", "torus", "1", "0", "hierarchical", ""),
            ("2x2", "hierarchical", "0", "1", "torus", ""),
            ("2x2", "grouped", "1", "", "grouped:hierarchical", ""),
            ("2x2", "nccl-allreduce", "1", "", "nccl-hierarchical", ""),
            ("2x2", "nccl-hierarchical", "1", "", "nccl-hierarchical", ""),
            ("2x2", "nccl-hierarchical", "0", "", "nccl-allreduce", ""),
            ("2x2", "grouped-scattered:tree", "", "1", "grouped-scattered:torus", ""),
            ("2x2", "grouped:hierarchical", "0", "", "grouped", ""),
            ("2x2", "ring", "1", "1", "hierarchical", "TORUS_ALLREDUCE=1 is ignored: HOROVOD_HIER"),
            ("1x4", "ring", "1", "", "ring", "is ignored on one node"),
            ("1x4\", \"2x2", "ring", "1", "", "hierarchical", ""),
            ("2x2", "ring\", \"tree", "1", "", "ring tree", "this sweep varies it"),
        ] {
            let axes = format!("topology = [\"{topology}\"]\nalgorithm = [\"{algorithm}\"]");
            let mut config = config(&axes);
            let set = [("HIERARCHICAL_ALLREDUCE", hierarchical), ("TORUS_ALLREDUCE", torus)];
            let set: Vec<_> = set.into_iter().filter(|(_, text)| !text.is_empty()).collect();
            let precedence = apply(&mut config, &Options::default(), &environment(&set));
            assert_eq!(config.sweep.algorithm.join(" "), counts, "{algorithm} {set:?}");
            assert!(precedence.ignored.concat().contains(ignored), "{precedence:?}");
            assert_eq!(precedence.ignored.is_empty(), ignored.is_empty(), "{precedence:?}");
            let is_replaced = algorithm.replace("\", \"", " ") != counts;
            assert_eq!(precedence.overrides.len(), usize::from(is_replaced), "{precedence:?}");
        }
    }
}
