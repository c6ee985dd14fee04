//! What the simulator expects of more ranks than were at hand.
//!
//! The machine file of the cluster says how messages travel between more nodes; blocks measured at hand say
//! how far it is off. Horovod's own data plane has no schedule of ours: in its place stands the algorithm
//! whose times on the machine file run most alike to those measured, all of them multiplied by one factor.

use algorithms::topology::Topology;
use rayon::prelude::*;
use serde::Serialize;

use super::grid::Grid;
use super::model::{Costs, training_job};
use super::tuned::Tuned;
use crate::simulate::data_plane::{DataPlane, Engine};
use crate::simulate::jitter::Jitter;
use crate::simulate::machine_file::MachineFile;
use crate::simulate::training::{self, Job};

/// Algorithms that may stand in the place of a library's own.
const STAND_INS: [&str; 4] = ["ring", "halving-doubling", "recursive-doubling", "double-tree"];

/// Steps that are simulated, and those before them, in which caches fill.
const STEPS: usize = 3;
const WARMUP: usize = 2;

/// Sizes at which a message is worked out: powers of two up to this.
const LARGEST_LOG2: u32 = 30;

/// What is expected.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Larger {
    /// Name of the machine file.
    pub machine: String,
    /// Ranks on each node.
    pub local_size: usize,
    /// How messages are timed.
    pub messages: StandIn,
    /// World sizes, ascending.
    pub sizes: Vec<Size>,
}

/// An algorithm on a machine file that takes as long as what was measured, but for a factor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StandIn {
    /// The algorithm.
    pub algorithm: &'static str,
    /// Measured time over simulated time, the geometric mean over sizes of messages.
    pub factor: f64,
    /// Sizes of messages that it was fitted on.
    pub sizes: usize,
    /// The largest factor by which a measured time differs from what is then expected.
    pub off_by: f64,
}

/// One world size.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Size {
    pub ranks: usize,
    pub nodes: usize,
    /// Of the recommended setting: at the machine's values, and at both ends of all that is not sure.
    pub recommended_ms: Band,
    /// What the first of the defaults takes, in parts of that.
    pub default_ratio: Band,
    /// The best setting of the grid there, by its number.
    pub best: usize,
    /// What it takes, in parts of the recommended setting.
    pub best_ratio: f64,
}

/// A value, and between which ends it may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Band {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Band {
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

/// Why a machine file says nothing of more ranks than these, if so.
pub fn misfit(machine: &MachineFile, topology: &Topology) -> Option<String> {
    let (name, on_node) = (&machine.name, machine.node.ranks);
    if topology.ranks() != topology.nodes() * on_node {
        return Some(format!(
            "{name} has {on_node} ranks on each node, but here are {topology}; give the file that kolo \
             calibrate writes with as many ranks on each node"
        ));
    }
    if machine.network.is_none() {
        return Some(format!(
            "{name} has no [network], so nothing is known of more nodes; run kolo calibrate over MPI on \
             several"
        ));
    }
    let control = machine.control.is_none();
    control.then(|| format!("{name} has no [control]; run kolo calibrate again"))
}

impl Larger {
    /// Of world sizes that double from the one at hand up to `up_to` ranks. None if nothing was chosen.
    ///
    /// # Errors
    /// When a step cannot be simulated on the machine, and why.
    pub fn expect(
        grid: &Grid,
        tuned: &Tuned,
        machine: &MachineFile,
        up_to: usize,
    ) -> Result<Option<Larger>, String> {
        let Some(answer) = &tuned.answer else { return Ok(None) };
        let (choice, default) = (answer.choice, grid.space.defaults[0]);
        let case = &grid.plan.cases[choice].case;
        let here = case.topology.ranks();
        let costs = Costs::of(&grid.plan, &tuned.found.blocks);
        let measured = costs.messages.get(&case.algorithm).map_or(&[][..], Vec::as_slice);
        let machine = machine.with_nodes_for(up_to.max(here));
        let fits = |name| StandIn::fit(name, &machine, here, measured);
        let mut fits: Vec<StandIn> = STAND_INS.into_iter().map(fits).collect::<Result<_, _>>()?;
        fits.sort_by(|a, b| a.off_by.total_cmp(&b.off_by));
        let nearest = &fits[0];
        let ends = [true, false].map(|slow| machine.at_ends(slow));
        let mut models: Vec<Model> = fits.iter().map(|fit| (&machine, fit)).collect();
        models.extend(ends.iter().map(|machine| (machine, nearest)));
        let all: Vec<usize> = (0..grid.plan.cases.len()).collect();
        let doubled = std::iter::successors(Some(2 * here), |ranks| Some(2 * ranks));
        let size = |ranks: usize| -> Result<Size, String> {
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
        let sizes = sizes.collect::<Result<_, _>>()?;
        let (name, local_size) = (machine.name.clone(), machine.node.ranks);
        Ok(Some(Larger { machine: name, local_size, messages: nearest.clone(), sizes }))
    }
}

/// A machine, and what messages take on it.
type Model<'m> = (&'m MachineFile, &'m StandIn);

impl StandIn {
    /// The factor that brings an algorithm nearest to what messages took: sizes in bytes, and seconds.
    fn fit(
        algorithm: &'static str,
        machine: &MachineFile,
        ranks: usize,
        measured: &[(f64, f64)],
    ) -> Result<StandIn, String> {
        let data = DataPlane::new(algorithm, machine, ranks, 0.0, Engine::Rounds)?;
        let ratio = |&(bytes, seconds): &(f64, f64)| (seconds / data.time(bytes).at_s).ln();
        let logs: Vec<f64> = measured.iter().map(ratio).filter(|log| log.is_finite()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
        let off_by = logs.iter().map(|log| (log - mean).abs()).fold(0.0, f64::max).exp();
        Ok(StandIn { algorithm, factor: mean.exp(), sizes: logs.len(), off_by })
    }

    /// What messages take between so many ranks.
    fn data_plane(&self, machine: &MachineFile, ranks: usize) -> Result<DataPlane, String> {
        let data = DataPlane::new(self.algorithm, machine, ranks, 0.0, Engine::Rounds)?;
        let point = |log2: u32| {
            let bytes = f64::from(log2).exp2();
            (bytes, self.factor * data.time(bytes).at_s)
        };
        Ok(DataPlane::measured((0..=LARGEST_LOG2).map(point).collect(), ranks))
    }
}

/// Step times in seconds of some settings, in their order.
fn step_times(
    grid: &Grid,
    (machine, stand_in): Model,
    settings: &[usize],
    ranks: usize,
) -> Result<Vec<f64>, String> {
    let data = stand_in.data_plane(machine, ranks)?;
    let control =
        machine.control.as_ref().ok_or_else(|| format!("{} has no [control]", machine.name))?;
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
    use super::super::search::Found;
    use super::super::space::{Pins, axes};
    use super::super::surface::Observed;
    use super::*;
    use crate::config::{Config, Measure, Step};
    use crate::plan::Plan;
    use crate::transport::MPI;
    use crate::workload::Workload;

    fn machine() -> MachineFile {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/machines/p100-25gbe-tcp.toml");
        MachineFile::read(Path::new(path)).unwrap()
    }

    fn grid(nodes: usize) -> Grid {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/workloads");
        let workload = Workload::read(&Path::new(folder).join("resnet50.csv")).unwrap();
        let pins = Pins { cycle_time_ms: Some(1.0), ..Pins::default() };
        let topology = format!("{nodes}x{}", machine().node.ranks);
        let bytes = 4 * workload.elements();
        let config = Config {
            workload: "resnet50".into(),
            step: Step { forward_ms: 10.0, backward_ms: 20.0, optimizer_ms: 0.0 },
            data: Default::default(),
            framework: Default::default(),
            sweep: axes(MPI, &topology, bytes, &pins).unwrap(),
            measure: Measure::default(),
        };
        let plan = || Plan::new(config.clone(), workload.clone());
        Grid::new(&plan(), plan(), None)
    }

    /// Messages took 1.5 times what an algorithm takes on the machine.
    fn tuned(grid: &Grid, algorithm: &str) -> Tuned {
        let ranks = grid.plan.cases[0].case.topology.ranks();
        let data = DataPlane::new(algorithm, &machine(), ranks, 0.0, Engine::Rounds).unwrap();
        let messages = (8..26).map(|log2| f64::from(log2).exp2());
        let messages = messages.map(|bytes| (bytes, 1.5 * data.time(bytes).at_s)).collect();
        let observed = Observed { step_s: 0.1, messages, negotiation_s: 1e-4 };
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
        };
        Tuned {
            found,
            answer: Some(answer),
            rows: Default::default(),
            blocks: 1,
            steps_per_block: 5,
            seconds: 1.0,
            lost: None,
        }
    }

    #[test]
    fn the_algorithm_that_messages_run_alike_to_stands_in() {
        let grid = grid(4);
        for algorithm in ["ring", "recursive-doubling"] {
            let expected =
                Larger::expect(&grid, &tuned(&grid, algorithm), &machine(), 64).unwrap().unwrap();
            let StandIn { algorithm: found, factor, sizes, off_by } = expected.messages;
            assert_eq!((found, sizes), (algorithm, 18));
            assert!((factor - 1.5).abs() < 1e-9 && off_by < 1.0 + 1e-9, "{factor} {off_by}");
        }
    }

    #[test]
    fn sizes_double_and_steps_lie_within_their_ends() {
        let grid = grid(2);
        let here = grid.plan.cases[0].case.topology.ranks();
        let larger = Larger::expect(&grid, &tuned(&grid, "ring"), &machine(), 8 * here + 1);
        let sizes = larger.unwrap().unwrap().sizes;
        let ranks: Vec<usize> = sizes.iter().map(|size| size.ranks).collect();
        assert_eq!(ranks, [2 * here, 4 * here, 8 * here]);
        for Size { recommended_ms: step, default_ratio, best_ratio, .. } in &sizes {
            assert!(30.0 < step.low && step.low <= step.value && step.value <= step.high);
            assert!(step.low < step.high && *best_ratio <= 1.0, "{step:?} {best_ratio}");
            assert!(default_ratio.low <= default_ratio.value && default_ratio.value > 0.5);
        }
        let nothing = Tuned { answer: None, ..tuned(&grid, "ring") };
        assert_eq!(Larger::expect(&grid, &nothing, &machine(), 64), Ok(None));
    }

    #[test]
    fn a_machine_of_another_shape_is_refused() {
        let topology = |text: &str| crate::config::parse_topology(text).unwrap();
        let on_node = machine().node.ranks;
        assert_eq!(misfit(&machine(), &topology(&format!("2x{on_node}"))), None);
        let problem = misfit(&machine(), &topology("1x3")).unwrap();
        assert!(problem.contains("ranks on each node, but here are 1x3"), "{problem}");
        let alone = MachineFile { network: None, ..machine() };
        let problem = misfit(&alone, &topology(&format!("1x{on_node}"))).unwrap();
        assert!(problem.contains("has no [network]"), "{problem}");
    }
}
