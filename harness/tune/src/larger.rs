//! Predictions of the simulator for more ranks than the job has.
//!
//! The machine file of the cluster describes messages between more nodes; measured blocks give its error.
//! Horovod's own data plane has no schedule in this project. A stand-in replaces it: the algorithm whose simulated
//! times are most nearly proportional to those measured, with a measured correction per message size.

use algorithms::topology::Topology;
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use super::grid::Grid;
use super::model::{Costs, training_job};
use super::tuned::Tuned;
use results::names;
use simulator::data_plane::{DataPlane, DataPlaneError, Engine};
use simulator::jitter::Jitter;
use simulator::machine_file::MachineFile;
use simulator::sweep::CaseError;
use simulator::training::{self, Job};

/// Algorithms that may stand in for a library's own.
const STAND_INS: [&str; 4] = ["ring", "halving-doubling", "recursive-doubling", "double-tree"];

/// Steps that are simulated, and those before them, in which caches fill.
const STEPS: usize = 3;
const WARMUP: usize = 2;

/// The largest simulated message, as a power of two.
const LARGEST_LOG2: u32 = 30;
const SIZES_PER_OCTAVE: f64 = 4.0;

/// The predictions.
#[derive(Clone, Debug, PartialEq)]
pub struct Larger {
    /// Name of the machine file.
    pub machine: String,
    /// Ranks on each node.
    pub local_size: usize,
    /// How messages are timed.
    pub messages: StandIn,
    /// What was measured at the job's own size.
    pub here: Here,
    /// World sizes, ascending; the first is that of the job.
    pub sizes: Vec<Size>,
}

/// The measurement that the first prediction can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Here {
    /// Step time of the recommended setting.
    pub measured_ms: f64,
    /// It over the simulated one.
    pub miss: f64,
    /// Step time of the first default over that of the recommended setting, measured over simulated; 1 if it is
    /// recommended.
    pub default_ratio_miss: f64,
}

/// An algorithm on a machine file whose times match the measured ones up to a factor.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StandIn {
    /// The algorithm.
    pub algorithm: &'static str,
    /// Fitted: sizes of a message's pieces in bytes, ascending, and measured time over simulated time.
    pub factors: Vec<(f64, f64)>,
    /// How unlike they are: the standard deviation of their logarithms.
    pub spread: f64,
}

/// One world size.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Size {
    pub ranks: usize,
    pub nodes: usize,
    /// Step time of the recommended setting: at the machine's values, and at both ends of its intervals.
    pub recommended_ms: Band,
    /// Step time of the first default, relative to the recommended setting.
    pub default_ratio: Band,
    /// The best setting of the grid there, by its number.
    #[serde(skip)]
    pub best: usize,
    /// Its step time, relative to the recommended setting.
    pub best_ratio: f64,
}

/// A value, and between which ends it may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Band {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Band {
    /// At least as wide as a miss by that factor.
    fn widened(self, miss: f64) -> Band {
        let most = miss.max(1.0 / miss);
        Band {
            low: self.low.min(self.value / most),
            high: self.high.max(self.value * most),
            ..self
        }
    }

    /// The first is the value.
    fn of(mut values: impl Iterator<Item = f64>) -> Band {
        let value = values.next().unwrap_or(f64::NAN);
        values.fold(Band { value, low: value, high: value }, |band, other| Band {
            low: band.low.min(other),
            high: band.high.max(other),
            ..band
        })
    }
}

/// Why a machine file does not cover more ranks than these, if it does not.
pub fn misfit(machine: &MachineFile, topology: &Topology) -> Option<String> {
    let (name, on_node) = (&machine.name, machine.node.ranks);
    if topology.ranks() != topology.nodes() * on_node {
        return Some(format!(
            "{name} has {on_node} ranks on each node, but this job has {topology}; use the file that kolo \
             calibrate writes with that many ranks on each node"
        ));
    }
    if machine.network.is_none() {
        return Some(format!(
            "{name} has no [network], so more nodes cannot be simulated; run kolo calibrate over MPI on \
             several"
        ));
    }
    let control = machine.control.is_none();
    control.then(|| format!("{name} has no [control]; run kolo calibrate again"))
}

impl Larger {
    /// Predicts the job's world size, for comparison with the measurement, and its doubles up to `up_to` ranks.
    /// None if nothing was chosen.
    ///
    /// # Errors
    /// When a step cannot be simulated on the machine.
    pub fn expect(
        grid: &Grid,
        tuned: &Tuned,
        machine: &MachineFile,
        up_to: usize,
    ) -> Result<Option<Larger>, CaseError> {
        let Some(answer) = &tuned.answer else { return Ok(None) };
        let (choice, default) = (answer.choice, grid.space.defaults[0]);
        let case = &grid.plan.cases[choice].case;
        let here = case.topology.ranks();
        let costs = Costs::of(&grid.plan, &tuned.found.blocks);
        let measured = costs.messages.get(&case.algorithm).map_or(&[][..], Vec::as_slice);
        let machine = machine.with_nodes_for(up_to.max(here));
        let fits = |name| StandIn::fit(name, &machine, here, measured);
        let mut fits: Vec<StandIn> = STAND_INS.into_iter().map(fits).collect::<Result<_, _>>()?;
        fits.sort_by(|a, b| a.spread.total_cmp(&b.spread));
        let nearest = &fits[0];
        let ends = [true, false].map(|slow| machine.at_ends(slow));
        let mut models: Vec<Model> = fits.iter().map(|fit| (&machine, fit)).collect();
        models.extend(ends.iter().map(|machine| (machine, nearest)));
        let all: Vec<usize> = (0..grid.plan.cases.len()).collect();
        let doubled = std::iter::successors(Some(here), |ranks| Some(2 * ranks));
        let size = |ranks: usize| -> Result<Size, CaseError> {
            let times_s = step_times(grid, models[0], &all, ranks)?;
            let best = all.iter().copied().min_by(|&a, &b| times_s[a].total_cmp(&times_s[b]));
            let best = best.unwrap_or(choice);
            let both = |&model: &Model| step_times(grid, model, &[choice, default], ranks);
            let both: Vec<Vec<f64>> = models.iter().map(both).collect::<Result<_, _>>()?;
            Ok(Size {
                ranks,
                nodes: ranks / machine.node.ranks,
                recommended_ms: Band::of(both.iter().map(|times_s| 1e3 * times_s[0])),
                default_ratio: Band::of(both.iter().map(|times_s| times_s[1] / times_s[0])),
                best,
                best_ratio: times_s[best] / times_s[choice],
            })
        };
        let sizes = doubled.take_while(|&ranks| ranks <= up_to).map(size);
        let mut sizes: Vec<Size> = sizes.collect::<Result<_, _>>()?;
        let Some(first) = sizes.first() else { return Ok(None) };
        let measured_ms = 1e3 * answer.step_s;
        let ratio = answer.others.get(&default).map_or(first.default_ratio.value, |it| it.ratio);
        let here = Here {
            measured_ms,
            miss: measured_ms / first.recommended_ms.value,
            default_ratio_miss: ratio / first.default_ratio.value,
        };
        for size in &mut sizes {
            size.recommended_ms = size.recommended_ms.widened(here.miss);
            size.default_ratio = size.default_ratio.widened(here.default_ratio_miss);
        }
        let (name, local_size) = (machine.name.clone(), machine.node.ranks);
        Ok(Some(Larger { machine: name, local_size, messages: nearest.clone(), here, sizes }))
    }
}

/// A machine, and the times of messages on it.
type Model<'m> = (&'m MachineFile, &'m StandIn);

impl StandIn {
    /// The factors between an algorithm's times and the measured ones: sizes in bytes, and seconds.
    fn fit(
        algorithm: &'static str,
        machine: &MachineFile,
        ranks: usize,
        measured: &[(f64, f64)],
    ) -> Result<StandIn, CaseError> {
        let data = DataPlane::new(algorithm, machine, ranks, 0.0, Engine::Rounds)?;
        let pieces = pieces(algorithm, ranks)?;
        let factors: Vec<(f64, f64)> = measured
            .iter()
            .map(|&(bytes, seconds)| (bytes / pieces, seconds / data.time(bytes).at_s))
            .filter(|(_, factor)| factor.is_finite() && *factor > 0.0)
            .collect();
        let count = factors.len().max(1) as f64;
        let logs = || factors.iter().map(|(_, factor)| factor.ln());
        let mean = logs().sum::<f64>() / count;
        let square = logs().map(|log| (log - mean).powi(2)).sum::<f64>() / count;
        Ok(StandIn { algorithm, factors, spread: square.sqrt() })
    }

    /// The times of messages between this many ranks.
    fn data_plane(&self, machine: &MachineFile, ranks: usize) -> Result<DataPlane, CaseError> {
        let data = DataPlane::new(self.algorithm, machine, ranks, 0.0, Engine::Rounds)?;
        let pieces = pieces(self.algorithm, ranks)?;
        let mut most_s: f64 = 0.0;
        let point = |step: u32| {
            let bytes = (f64::from(step) / SIZES_PER_OCTAVE).exp2();
            // More bytes never take less time.
            most_s = most_s.max(self.factor(bytes / pieces) * data.time(bytes).at_s);
            (bytes, most_s)
        };
        let steps = (0..=LARGEST_LOG2 * SIZES_PER_OCTAVE as u32).map(point);
        Ok(DataPlane::measured(steps.collect(), ranks))
    }

    /// Between sizes that were fitted on, by their logarithms; beyond them as at the nearest.
    fn factor(&self, piece_bytes: f64) -> f64 {
        let next = self.factors.partition_point(|&(bytes, _)| bytes < piece_bytes);
        let at = |place: usize| self.factors.get(place).copied();
        match (next.checked_sub(1).and_then(at), at(next)) {
            (Some((low, from)), Some((high, to))) => {
                let part = (piece_bytes / low).ln() / (high / low).ln();
                (from.ln() + part * (to / from).ln()).exp()
            }
            (Some((_, factor)), None) | (None, Some((_, factor))) => factor,
            (None, None) => 1.0,
        }
    }
}

/// Into how many pieces an algorithm cuts a message.
fn pieces(algorithm: &str, ranks: usize) -> Result<f64, DataPlaneError> {
    let algorithm = names::algorithm(algorithm, &[])?;
    let schedule = algorithm.schedule(&Topology::flat(ranks))?;
    Ok(schedule.chunks() as f64)
}

/// Step times in seconds of some settings, in their order.
fn step_times(
    grid: &Grid,
    (machine, stand_in): Model,
    settings: &[usize],
    ranks: usize,
) -> Result<Vec<f64>, CaseError> {
    let data = stand_in.data_plane(machine, ranks)?;
    let missing = || CaseError::NoControl { machine: machine.name.clone() };
    let control = machine.control.as_ref().ok_or_else(missing)?;
    let jitter = Jitter { cv: Some(0.0), ..Jitter::default() };
    let seconds = |&setting: &usize| {
        let parts = (control, &data, &jitter);
        let job = training_job(&grid.plan, &grid.plan.cases[setting], parts, true)?;
        let steps = training::simulate(&Job { ranks, ..job }, WARMUP + STEPS)?;
        Ok(steps[WARMUP..].iter().map(|step| step.time).sum::<f64>() / STEPS as f64)
    };
    settings.par_iter().map(seconds).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::answer::{Answer, Verdict};
    use super::super::found::Found;
    use super::super::space::{Pins, axes};
    use super::super::surface::Observed;
    use super::*;
    use measure::config::{Config, Measure, Step};
    use measure::plan::Plan;
    use results::toml_file::Checked;
    use transports::transport::MPI;
    use workloads::workload::Workload;

    fn machine() -> MachineFile {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/machines/p100-25gbe-tcp.toml");
        MachineFile::read(Path::new(path)).unwrap()
    }

    fn grid(nodes: usize) -> Grid {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/workloads");
        let workload = Workload::read(&Path::new(folder).join("resnet50.csv")).unwrap();
        let pins = Pins { cycle_time_ms: Some(1.0), ..Pins::default() };
        let topology = format!("{nodes}x{}", machine().node.ranks);
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
            sweep: axes(MPI, &topology, bytes, &pins).unwrap(),
            also: Vec::new(),
            measure: Measure::default(),
        };
        let plan = || Plan::new(config.clone(), workload.clone());
        Grid::new(&plan(), plan(), None)
    }

    /// Messages take 1.5 times as long as an algorithm on the machine.
    fn tuned(grid: &Grid, algorithm: &str) -> Tuned {
        let ranks = grid.plan.cases[0].case.topology.ranks();
        let data = DataPlane::new(algorithm, &machine(), ranks, 0.0, Engine::Rounds).unwrap();
        let messages = (8..26).map(|log2| f64::from(log2).exp2());
        let messages = messages.map(|bytes| (bytes, 1.5 * data.time(bytes).at_s)).collect();
        let observed =
            Observed { step_s: 0.1, messages, negotiation_s: 1e-4, ..Observed::default() };
        let default = grid.space.defaults[0];
        let found = Found { blocks: [(default, vec![observed])].into(), ..Found::default() };
        let answer = Answer {
            choice: default - 2,
            step_s: 0.1,
            rounds: 4,
            others: Default::default(),
            tied: Vec::new(),
            expected_tied: Vec::new(),
            verdict: Verdict::Change,
            shift: None,
        };
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

    #[test]
    fn the_stand_in_is_the_algorithm_with_proportional_times() {
        let grid = grid(4);
        for algorithm in ["ring", "recursive-doubling"] {
            let expected =
                Larger::expect(&grid, &tuned(&grid, algorithm), &machine(), 64).unwrap().unwrap();
            let StandIn { algorithm: found, factors, spread } = expected.messages;
            assert_eq!((found, factors.len()), (algorithm, 18));
            let are_right = factors.iter().all(|(_, factor)| (factor - 1.5).abs() < 1e-9);
            assert!(are_right && spread < 1e-9, "{factors:?} {spread}");
        }
    }

    /// Long pieces took three times as long, short ones as expected: so they do elsewhere.
    #[test]
    fn factors_depend_on_the_size_of_pieces() {
        let data = DataPlane::new("ring", &machine(), 4, 0.0, Engine::Rounds).unwrap();
        let factor = |bytes: f64| if bytes > 4.0 * 65536.0 { 3.0 } else { 1.0 };
        let sizes = (10..28).map(|log2| f64::from(log2).exp2());
        let measured: Vec<(f64, f64)> =
            sizes.map(|bytes| (bytes, factor(bytes) * data.time(bytes).at_s)).collect();
        let fit = StandIn::fit("ring", &machine(), 4, &measured).unwrap();
        let expected = [(1.0, 1.0), (65536.0, 1.0), (131072.0, 3.0), (1e9, 3.0)];
        for (piece_bytes, factor) in expected {
            assert!((fit.factor(piece_bytes) - factor).abs() < 1e-9, "{piece_bytes}");
        }
        assert!((fit.factor(65536.0 * 2f64.sqrt()) - 3f64.sqrt()).abs() < 1e-9);
        let alone = DataPlane::new("ring", &machine(), 16, 0.0, Engine::Rounds).unwrap();
        let larger = fit.data_plane(&machine(), 16).unwrap();
        let ratio = |bytes: f64| larger.time(bytes).at_s / alone.time(bytes).at_s;
        assert!((ratio(1048576.0) - 1.0).abs() < 1e-9 && (ratio(2097152.0) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn sizes_double_and_steps_lie_within_their_ends() {
        let grid = grid(2);
        let here = grid.plan.cases[0].case.topology.ranks();
        let larger = Larger::expect(&grid, &tuned(&grid, "ring"), &machine(), 8 * here + 1);
        let Larger { sizes, here: measured, .. } = larger.unwrap().unwrap();
        let ranks: Vec<usize> = sizes.iter().map(|size| size.ranks).collect();
        assert_eq!(ranks, [here, 2 * here, 4 * here, 8 * here]);
        // 100 ms were measured: the prediction for the job's own size missed by this factor, and so may all others.
        let miss = measured.miss.max(1.0 / measured.miss);
        let simulated_ms = sizes[0].recommended_ms.value;
        assert!(miss > 1.05 && (measured.miss * simulated_ms - 100.0).abs() < 1e-9, "{measured:?}");
        for Size { recommended_ms: step, default_ratio, best_ratio, .. } in &sizes {
            let (low, high) = (step.value / miss, step.value * miss);
            assert!(step.high >= high - 1e-9 && step.low <= low + 1e-9, "{step:?}");
            assert!(30.0 < step.value && *best_ratio <= 1.0, "{step:?} {best_ratio}");
            assert!(default_ratio.low <= default_ratio.value && default_ratio.value > 0.5);
        }
        let nothing = Tuned { answer: None, ..tuned(&grid, "ring") };
        assert_eq!(Larger::expect(&grid, &nothing, &machine(), 64), Ok(None));
    }

    #[test]
    fn a_machine_of_another_shape_is_refused() {
        let topology = |text: &str| text.parse::<Topology>().unwrap();
        let on_node = machine().node.ranks;
        assert_eq!(misfit(&machine(), &topology(&format!("2x{on_node}"))), None);
        let problem = misfit(&machine(), &topology("1x3")).unwrap();
        assert!(problem.contains("ranks on each node, but this job has 1x3"), "{problem}");
        let alone = MachineFile { network: None, ..machine() };
        let problem = misfit(&alone, &topology(&format!("1x{on_node}"))).unwrap();
        assert!(problem.contains("has no [network]"), "{problem}");
    }
}
