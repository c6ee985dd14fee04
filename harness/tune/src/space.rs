//! Settings that may be chosen: a grid with Horovod's defaults and first points in it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use algorithms::control::{bitvector, coordinator};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::found::Point;
use super::search::{ForHorovod, Predict, Task};
use measure::back_ends;
use measure::config::{Axes, Case, Config};
use measure::plan::Plan;
use measure::summary::HOROVOD_DEFAULTS;
use results::names::UnknownName;
use results::units::MIB;
use results::units::mib;
use transports::data_plane;
use workloads::framework::Compression;

/// Fusion thresholds in MiB; 0: no fusion.
const THRESHOLDS_MIB: [f64; 12] =
    [0.0, 0.25, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Cycle times in ms.
const CYCLES_MS: [f64; 9] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0];

/// The first points of Horovod's own autotune: MiB and ms.
const SEEDS: [(f64, f64); 4] = [(4.0, 5.0), (32.0, 50.0), (16.0, 25.0), (8.0, 10.0)];

/// Without fusion, at this cycle time in ms, the cost of a message of every gradient is measured: the model cannot know
/// it from larger messages.
const UNFUSED_CYCLE_MS: f64 = 1.0;

/// No fusion is placed this many factors of two below the smallest threshold.
const WITHOUT_FUSION_OCTAVES: f64 = 2.0;

/// The cache is on.
pub const CACHED: &str = bitvector::NAME;
/// It is off.
pub const UNCACHED: &str = coordinator::NAME;

/// Settings that are fixed, and settings that are varied in addition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Settings to try")]
pub struct Pins {
    /// Only this fusion threshold in MiB; 0 turns fusion off
    #[arg(long, hide_short_help = true, value_name = "MIB")]
    pub fusion_threshold_mb: Option<f64>,
    /// Only this cycle time in ms
    #[arg(long, hide_short_help = true, value_name = "MS")]
    pub cycle_time_ms: Option<f64>,
    /// Only with the response cache (on), or without (off)
    #[arg(long, hide_short_help = true, value_name = "on|off")]
    pub cache: Option<Switch>,
    /// Only with Horovod's hierarchical allreduce (on), or without (off)
    #[arg(long, hide_short_help = true, value_name = "on|off")]
    pub hierarchical: Option<Switch>,
    /// Numbers of groups to try (num_groups of Horovod's optimizer; 0: no groups), such as 0,8
    #[arg(long, hide_short_help = true, value_name = "COUNTS", value_delimiter = ',')]
    pub groups: Vec<usize>,
    /// Casts to try, such as none,fp16
    #[arg(long, hide_short_help = true, value_name = "TYPES", value_delimiter = ',')]
    pub compression: Vec<Compression>,
    /// Largest fusion threshold to try in MiB, which is also the size of a fusion buffer
    #[arg(long, hide_short_help = true, value_name = "MIB")]
    pub max_buffer_mb: Option<f64>,
}

impl Pins {
    /// These values, completed from others.
    pub fn or(&self, other: &Pins) -> Pins {
        fn first<T: Clone>(own: &[T], other: &[T]) -> Vec<T> {
            if own.is_empty() { other.to_vec() } else { own.to_vec() }
        }
        Pins {
            fusion_threshold_mb: self.fusion_threshold_mb.or(other.fusion_threshold_mb),
            cycle_time_ms: self.cycle_time_ms.or(other.cycle_time_ms),
            cache: self.cache.or(other.cache),
            hierarchical: self.hierarchical.or(other.hierarchical),
            max_buffer_mb: self.max_buffer_mb.or(other.max_buffer_mb),
            groups: first(&self.groups, &other.groups),
            compression: first(&self.compression, &other.compression),
        }
    }
}

impl Pins {
    /// Checks that the current settings are compatible with the fixed ones.
    ///
    /// # Errors
    /// When a fixed setting excludes the current one.
    pub fn allow(&self, plane: &str, mib: f64, ms: f64) -> Result<(), PinsError> {
        let cache = if plane == CACHED { Switch::On } else { Switch::Off };
        let differs = [
            ("--fusion-threshold-mb", self.fusion_threshold_mb.is_some_and(|pinned| pinned != mib)),
            ("--max-buffer-mb", self.max_buffer_mb.is_some_and(|most| mib > most)),
            ("--cycle-time-ms", self.cycle_time_ms.is_some_and(|pinned| pinned != ms)),
            ("--cache", self.cache.is_some_and(|pinned| pinned != cache)),
        ];
        match differs.iter().find(|(_, differs)| *differs) {
            None => Ok(()),
            Some((pin, _)) => Err(PinsError::LeavesOut { pin, mib, ms, cache }),
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Switch {
    On,
    Off,
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Switch::On { "on" } else { "off" })
    }
}

/// Why fixed settings contradict each other.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum PinsError {
    /// They exclude the settings to compare with.
    #[error(
        "--check compares with the settings of the environment ({mib} MiB, {ms} ms, cache {cache}), which \
         {pin} excludes; leave one of the two options out"
    )]
    LeavesOut {
        /// The option that excludes them.
        pin: &'static str,
        /// Fusion threshold of the environment.
        mib: f64,
        /// Its cycle time.
        ms: f64,
        /// Its response cache.
        cache: Switch,
    },
    /// The fusion threshold exceeds the largest buffer.
    #[error(
        "--fusion-threshold-mb is {pinned}, expected at most --max-buffer-mb ({most}); leave one of the \
         two out"
    )]
    AboveMost {
        /// The fusion threshold in MiB.
        pinned: f64,
        /// The largest buffer in MiB.
        most: f64,
    },
    /// No back end has that name.
    #[error(transparent)]
    Transport(#[from] UnknownName),
    /// The back end has no hierarchical allreduce.
    #[error(transparent)]
    Hierarchical(Arc<dyn Error + Send + Sync>),
}

/// The axes of the grid for gradients of this size.
///
/// # Errors
/// When fixed settings contradict each other or do not exist.
pub fn axes(
    transport: &str,
    topology: &str,
    gradient_bytes: usize,
    pins: &Pins,
) -> Result<Axes, PinsError> {
    let most = pins.max_buffer_mb.unwrap_or(f64::INFINITY);
    let thresholds = match pins.fusion_threshold_mb {
        Some(pinned) if pinned > most => {
            return Err(PinsError::AboveMost { pinned, most });
        }
        Some(pinned) => vec![pinned],
        // The smallest that holds everything is as good as any above it; defaults are always there.
        None => {
            let all_mib = gradient_bytes as f64 / MIB;
            let enough = THRESHOLDS_MIB.into_iter().find(|&mib| mib >= all_mib);
            let default = |mib: f64| HOROVOD_DEFAULTS.iter().any(|default| default.0 as f64 == mib);
            let of_use = |mib: &f64| *mib <= enough.unwrap_or(f64::INFINITY) || default(*mib);
            THRESHOLDS_MIB.into_iter().filter(of_use).filter(|&mib| mib <= most).collect()
        }
    };
    let cycle_time_ms = pins.cycle_time_ms.map_or(CYCLES_MS.to_vec(), |pinned| vec![pinned]);
    let planes: &[&str] = match pins.cache {
        None => &[CACHED, UNCACHED],
        Some(Switch::On) => &[CACHED],
        Some(Switch::Off) => &[UNCACHED],
    };
    let unknown =
        || UnknownName { kind: "transport", name: transport.into(), names: back_ends::names() };
    let back_end = back_ends::find(transport).ok_or_else(unknown)?;
    let hierarchical = pins.hierarchical.map(|switch| switch == Switch::On);
    let algorithms = back_end
        .horovod_planes(hierarchical, topology.starts_with("1x"))
        .map_err(|refused| PinsError::Hierarchical(refused.source))?;
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Ok(Axes {
        transport: vec![transport.into()],
        topology: vec![topology.into()],
        control_plane: names(planes),
        algorithm: names(&algorithms),
        fusion_threshold_mib: thresholds,
        cycle_time_ms,
        compression: pins.compression.clone(),
        num_groups: pins.groups.clone(),
        // Whole messages through the fusion buffer, as Horovod does.
        packing_kib: 0,
        segment_kib: Some(back_end.segment_bytes() / 1024),
        ..Axes::default()
    })
}

/// The current values of Horovod's variables: control plane, fusion threshold in bytes, cycle time in ms.
pub type Present = (String, usize, f64);

/// The grid of a plan.
pub struct Space {
    /// For each case.
    pub points: Vec<Point>,
    /// Horovod's two pairs of defaults, the newer first: the nearest that pins allow.
    pub defaults: Vec<usize>,
    /// Always measured: the defaults, Horovod's first points, a setting without fusion, and the default of every control
    /// plane and algorithm.
    pub always: Vec<usize>,
    /// For each case, how much it asks of a user: variables that differ from the first default.
    pub changes: Vec<u32>,
    /// For each case without the cache, the same with it; for each other without fusion, the same with the smallest threshold.
    pub scaling: Vec<Option<usize>>,
}

/// What a setting without the cache, or without fusion, counts as. Both negotiate more with every rank, so they are
/// never chosen where another setting is as good.
pub(super) const DOES_NOT_SCALE: u32 = 100;

/// Whether so many changes give up the cache or fusion, which the default has.
pub(super) fn give_up(changes: u32) -> bool {
    changes >= DOES_NOT_SCALE
}

/// Changes from a default to another setting: one for each variable that differs.
fn changes(default: &Case, case: &Case) -> u32 {
    let is_without = |plane: &str| plane == UNCACHED;
    let cache = is_without(&case.control_plane) && !is_without(&default.control_plane);
    let fusion = case.fusion_threshold_bytes == 0 && default.fusion_threshold_bytes > 0;
    let differs = [
        case.control_plane != default.control_plane,
        case.fusion_threshold_bytes != default.fusion_threshold_bytes,
        case.cycle_time != default.cycle_time,
        case.algorithm != default.algorithm,
        case.varied.compression != default.varied.compression,
        case.varied.num_groups != default.varied.num_groups,
    ];
    let count = |all: &[bool]| all.iter().filter(|&&is| is).count() as u32;
    DOES_NOT_SCALE * count(&[cache, fusion]) + count(&differs)
}

impl Space {
    /// From a plan whose cases differ only in tuned settings.
    pub fn of(plan: &Plan) -> Space {
        let cases: Vec<&Case> = plan.cases.iter().map(|planned| &planned.case).collect();
        let category =
            |case: &'_ Case| (case.control_plane.clone(), case.algorithm.clone(), case.varied);
        let mut categories = Vec::new();
        for case in &cases {
            if !categories.contains(&category(case)) {
                categories.push(category(case));
            }
        }
        let smallest = cases.iter().map(|case| case.fusion_threshold_bytes);
        let smallest_bytes = smallest.filter(|&bytes| bytes > 0).min();
        let smallest = smallest_bytes.unwrap_or(1) as f64;
        let octaves = |bytes: f64| match bytes {
            0.0 => (smallest / MIB).log2() - WITHOUT_FUSION_OCTAVES,
            _ => (bytes / MIB).log2(),
        };
        let point = |case: &&Case| {
            let own = category(case);
            Point {
                category: categories.iter().position(|other| *other == own).unwrap_or(0),
                threshold_octaves: octaves(case.fusion_threshold_bytes as f64),
                cycle_octaves: case.cycle_time.max(Duration::from_micros(10)).as_secs_f64().log2(),
            }
        };
        let points: Vec<Point> = cases.iter().map(point).collect();
        let nearest = |category: usize, mib: f64, ms: f64| {
            let distance = |point: &Point| {
                (point.threshold_octaves - mib.log2()).powi(2)
                    + (point.cycle_octaves - (ms * 1e-3).log2()).powi(2)
            };
            (0..points.len())
                .filter(|&at| points[at].category == category)
                .min_by(|&a, &b| distance(&points[a]).total_cmp(&distance(&points[b])))
        };
        let [new, old] = HOROVOD_DEFAULTS.map(|(mib, ms, _)| (mib as f64, ms));
        let unfused_mib = octaves(0.0).exp2();
        let unique = |wanted: &[(usize, f64, f64)]| {
            let mut settings: Vec<usize> = Vec::new();
            for &(category, mib, ms) in wanted {
                let found = nearest(category, mib, ms).filter(|at| !settings.contains(at));
                settings.extend(found);
            }
            settings
        };
        let defaults = unique(&[(0, new.0, new.1), (0, old.0, old.1)]);
        let mut wanted = vec![(0, new.0, new.1), (0, old.0, old.1)];
        wanted.extend(SEEDS.map(|(mib, ms)| (0, mib, ms)));
        wanted.push((0, unfused_mib, UNFUSED_CYCLE_MS));
        // Two sizes of message at least of every algorithm.
        let others = 1..categories.len();
        wanted.extend(others.flat_map(|category| [(category, new.0, new.1), (category, 4.0, 5.0)]));
        let twin = |one: &&Case| {
            let mut twin = (*one).clone();
            if one.control_plane == UNCACHED {
                twin.control_plane = CACHED.into();
            } else if one.fusion_threshold_bytes == 0 {
                twin.fusion_threshold_bytes = smallest_bytes?;
            } else {
                return None;
            }
            let key = |case: &Case| (category(case), case.fusion_threshold_bytes, case.cycle_time);
            cases.iter().position(|other| key(other) == key(&twin))
        };
        let scaling = cases.iter().map(twin).collect();
        let always = unique(&wanted);
        let mut space = Space { always, points, defaults, changes: Vec::new(), scaling };
        space.count_changes(plan);
        space
    }

    /// Whether this setting gives up the cache or fusion, which the first default has.
    pub fn gives_up(&self, setting: usize) -> bool {
        give_up(self.changes[setting])
    }

    /// The search of these settings, with a model's expectation, and with the interval of a ratio that holds for Horovod.
    pub fn task<'t>(
        &'t self,
        predict: &'t Predict<'t>,
        for_horovod: &'t ForHorovod<'t>,
    ) -> Task<'t> {
        let Space { points, always, defaults, changes, scaling } = self;
        Task { points, always, defaults, changes, scaling, predict, for_horovod }
    }

    fn count_changes(&mut self, plan: &Plan) {
        let cases = || plan.cases.iter().map(|planned| &planned.case);
        self.changes = match self.defaults.first() {
            Some(&first) => cases().map(|case| changes(&plan.cases[first].case, case)).collect(),
            None => vec![0; plan.cases.len()],
        };
    }
}

impl Space {
    /// Replaces the newer defaults by the current settings, if they are in the grid.
    pub fn compare_with(&mut self, plan: &Plan, (plane, bytes, ms): &Present) {
        let is = |planned: &measure::plan::Planned| {
            let case = &planned.case;
            (&case.control_plane, case.fusion_threshold_bytes) == (plane, *bytes)
                && case.cycle_time_ms() == *ms
        };
        if let Some(present) = plan.cases.iter().position(is) {
            self.defaults.retain(|&setting| setting != present);
            self.defaults.insert(0, present);
            self.always.retain(|&setting| setting != present);
            self.always.insert(0, present);
            self.count_changes(plan);
        }
    }
}

/// A setting as Horovod's variables.
pub fn variables(config: &Config, case: &Case) -> Vec<(&'static str, String)> {
    let capacity = match case.control_plane.as_str() {
        CACHED => config.sweep.cache_capacity,
        _ => 0,
    };
    let mut variables = vec![
        ("HOROVOD_FUSION_THRESHOLD", case.fusion_threshold_bytes.to_string()),
        ("HOROVOD_CYCLE_TIME", case.cycle_time_ms().to_string()),
        ("HOROVOD_CACHE_CAPACITY", capacity.to_string()),
    ];
    if ["hierarchical", data_plane::nccl::HIERARCHICAL].contains(&&*case.algorithm) {
        variables.push(("HOROVOD_HIERARCHICAL_ALLREDUCE", "1".into()));
    }
    let has_groups = case.varied.apply(&config.framework).groups.is_some();
    if has_groups && config.sweep.disable_group_fusion {
        variables.push(("HOROVOD_DISABLE_GROUP_FUSION", "1".into()));
    }
    variables
}

/// Describes the edges of the grid at which this setting lies. Below the smallest threshold
/// there is no fusion at all, and above one that holds all gradients nothing changes.
pub fn edges(plan: &Plan, setting: usize) -> Vec<String> {
    let cases = || plan.cases.iter().map(|planned| &planned.case);
    let chosen = &plan.cases[setting].case;
    let mut edges = Vec::new();
    let thresholds = || cases().map(|case| case.fusion_threshold_bytes).filter(|&bytes| bytes > 0);
    let all_bytes = plan.workload.elements() * plan.config.wire().size_bytes();
    let own = chosen.fusion_threshold_bytes;
    let (least, most) = (thresholds().min(), thresholds().max());
    if least != most && Some(own) == least {
        edges.push(format!("the smallest threshold above 0, {} MiB", mib(own)));
    }
    if least != most && Some(own) == most && own < all_bytes {
        edges.push(format!("the largest threshold, {} MiB", mib(own)));
    }
    let cycles = || cases().map(|case| case.cycle_time);
    let (shortest, longest) = (cycles().min(), cycles().max());
    for (edge, name) in [(shortest, "shortest"), (longest, "longest")] {
        if shortest != longest && edge == Some(chosen.cycle_time) {
            edges.push(format!("the {name} cycle time, {} ms", chosen.cycle_time_ms()));
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::config::{Config, Measure, Step};
    use results::toml_file::Checked;
    use transports::threads;
    use transports::transport::{MPI, NCCL};
    use workloads::workload::{Gradient, Workload};

    fn plan(transport: &str, topology: &str, elements: u64, pins: &Pins) -> Plan {
        let gradient = Gradient { name: "a".into(), shape: vec![elements], ready_fraction: 1.0 };
        let workload = Workload {
            name: "x".into(),
            gradients: vec![gradient],
            ready_order: vec![0],
            ready_assumed: false,
        };
        let config = Config {
            workload: "x".into(),
            step: Step {
                forward_ms: 1.0,
                backward_ms: 2.0,
                optimizer_ms: 0.0,
                scaling: Default::default(),
            },
            host: Default::default(),
            data: Default::default(),
            framework: Default::default(),
            sweep: axes(transport, topology, 4 * elements as usize, pins).unwrap(),
            also: Vec::new(),
            measure: Measure::default(),
        };
        config.check().unwrap();
        Plan::new(config, workload)
    }

    fn names(plan: &Plan, settings: &[usize]) -> Vec<String> {
        settings.iter().map(|&setting| plan.cases[setting].case.to_string()).collect()
    }

    #[test]
    fn settings_that_do_not_scale_have_a_twin_that_does() {
        let plan = plan(threads::NAME, "2x2", 25 << 20, &Pins::default());
        let scaling = Space::of(&plan).scaling;
        let of = |plane: &str, values: &str| {
            let name = format!("threads/2x2/{plane}/ring/{values}");
            let at = plan.cases.iter().position(|planned| planned.case.to_string() == name);
            scaling[at.unwrap()].map(|twin| plan.cases[twin].case.to_string())
        };
        let with = |values: &str| Some(format!("threads/2x2/{CACHED}/ring/{values}"));
        assert_eq!(of(UNCACHED, "8MiB/5ms"), with("8MiB/5ms"));
        assert_eq!(of(UNCACHED, "0MiB/5ms"), with("0MiB/5ms"));
        assert_eq!(of(CACHED, "0MiB/5ms"), with("0.25MiB/5ms"));
        assert_eq!(of(CACHED, "0.25MiB/5ms"), None);
    }

    #[test]
    fn edges_are_where_something_beyond_could_be_better() {
        let all = plan(threads::NAME, "2x2", 25 << 20, &Pins::default());
        let of = |values: &str| {
            let name = format!("threads/2x2/{CACHED}/ring/{values}");
            let at = all.cases.iter().position(|planned| planned.case.to_string() == name);
            edges(&all, at.unwrap()).join("; ")
        };
        assert_eq!(of("8MiB/5ms"), "");
        assert_eq!(of("0MiB/5ms"), "");
        assert_eq!(of("0.25MiB/5ms"), "the smallest threshold above 0, 0.25 MiB");
        assert_eq!(of("1MiB/5ms"), "");
        assert_eq!(of("128MiB/5ms"), "", "it holds all gradients");
        assert_eq!(of("8MiB/0.1ms"), "the shortest cycle time, 0.1 ms");
        assert_eq!(of("8MiB/50ms"), "the longest cycle time, 50 ms");
        let pins = Pins { cycle_time_ms: Some(5.0), ..Pins::default() };
        let pinned = plan(threads::NAME, "2x2", 25 << 20, &pins);
        assert!(edges(&pinned, pinned.cases.len() / 2).iter().all(|edge| !edge.contains("cycle")));
    }

    #[test]
    fn defaults_and_horovods_first_points_are_always_measured() {
        let plan = plan(threads::NAME, "2x2", 25 << 20, &Pins::default());
        let space = Space::of(&plan);
        let settings = |plane: &str, algorithm: &str, values: &[&str]| -> Vec<String> {
            values.iter().map(|value| format!("threads/2x2/{plane}/{algorithm}/{value}")).collect()
        };
        let first =
            ["128MiB/1ms", "64MiB/5ms", "4MiB/5ms", "32MiB/50ms", "16MiB/25ms", "8MiB/10ms"];
        let other = ["128MiB/1ms", "4MiB/5ms"];
        let always = [
            settings(CACHED, "ring", &first),
            settings(CACHED, "ring", &["0MiB/1ms"]),
            settings(CACHED, "hierarchical", &other),
            settings(UNCACHED, "ring", &other),
            settings(UNCACHED, "hierarchical", &other),
        ];
        assert_eq!(names(&plan, &space.always), always.concat());
        assert_eq!(names(&plan, &space.defaults), settings(CACHED, "ring", &first[..2]));
        // 100 MiB fit into 128: larger thresholds would be equal.
        let most = plan.cases.iter().map(|planned| planned.case.fusion_threshold_bytes).max();
        assert_eq!((most, plan.cases.len()), (Some(128 << 20), 4 * 10 * 9));
    }

    #[test]
    fn fixed_settings_apply_everywhere_and_must_be_consistent() {
        let pins =
            Pins { fusion_threshold_mb: Some(48.0), cache: Some(Switch::Off), ..Pins::default() };
        let pinned = plan(threads::NAME, "1x2", 1 << 20, &pins);
        let space = Space::of(&pinned);
        assert_eq!(pinned.cases.len(), 9);
        assert_eq!(
            names(&pinned, &space.defaults),
            ["threads/1x2/coordinator/ring/48MiB/1ms", "threads/1x2/coordinator/ring/48MiB/5ms"]
        );
        let refused =
            |pins: Pins, transport: &str| axes(transport, "1x2", 1, &pins).unwrap_err().to_string();
        let both = Pins { max_buffer_mb: Some(16.0), ..pins.clone() };
        assert!(
            refused(both, threads::NAME)
                .contains("--fusion-threshold-mb is 48, expected at most --max-buffer-mb (16)")
        );
        let hierarchical = Pins { hierarchical: Some(Switch::On), ..Pins::default() };
        assert!(refused(hierarchical.clone(), MPI).contains("needs NCCL"));
        let over_nccl = |pins: &Pins| axes(NCCL, "2x2", 1, pins).unwrap().algorithm;
        assert_eq!(over_nccl(&hierarchical), ["nccl-hierarchical"]);
        assert_eq!(over_nccl(&Pins::default()), ["nccl-allreduce", "nccl-hierarchical"]);
        let small = Pins { max_buffer_mb: Some(16.0), ..Pins::default() };
        let capped = plan(threads::NAME, "1x2", 1 << 28, &small);
        assert!(capped.cases.iter().all(|planned| planned.case.fusion_threshold_bytes <= 16 << 20));
    }

    #[test]
    fn settings_of_the_environment_can_be_the_reference() {
        let plan = plan(threads::NAME, "1x2", 25 << 20, &Pins::default());
        let mut space = Space::of(&plan);
        space.compare_with(&plan, &(UNCACHED.into(), 32 << 20, 2.5));
        assert_eq!(names(&plan, &space.defaults)[0], "threads/1x2/coordinator/ring/32MiB/2.5ms");
        assert_eq!((space.defaults.len(), space.always[0]), (3, space.defaults[0]));
    }

    #[test]
    fn settings_are_horovods_variables() {
        let plan = plan(MPI, "1x2", 25 << 20, &Pins::default());
        let of = |name: &str| {
            let cases = plan.cases.iter().map(|planned| &planned.case);
            let case = cases.into_iter().find(|case| case.to_string() == name).unwrap();
            variables(&plan.config, case).into_iter().map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(of("mpi/1x2/bitvector/mpi-allreduce/64MiB/2.5ms"), ["67108864", "2.5", "1024"]);
        assert_eq!(of("mpi/1x2/coordinator/mpi-allreduce/0MiB/1ms"), ["0", "1", "0"]);
    }
}
