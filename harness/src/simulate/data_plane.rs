//! How long an allreduce takes on a machine file, by size: as NCCL itself expects, or as a schedule does
//! in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use algorithms::combine::Pipelined;
use algorithms::registry;
use algorithms::schedule::Schedule;
use algorithms::simulate::machine::Machine;
use algorithms::simulate::nccl::{Nccl, Pattern};
use algorithms::simulate::{Blocked, Moment, Outcome, events, rounds};
use serde::{Deserialize, Serialize};

use super::machine_file::MachineFile;

/// NCCL's own choice, by its tuning model. `nccl:ring` and `nccl:tree` fix the pattern, as `NCCL_ALGO`
/// does; rings were all there was before version 2.4. Any other name is an algorithm's.
pub const NCCL: &str = "nccl";

/// What works schedules out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Step by step, ranks that do the same once: [`rounds`].
    #[default]
    Rounds,
    /// Message by message: [`events`]. Slower, and where ranks share something of another opinion.
    Events,
}

impl Engine {
    /// As rows call it.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Rounds => "rounds",
            Engine::Events => "events",
        }
    }

    fn simulate(
        self,
        schedule: &dyn Schedule,
        machine: &Machine,
        size_bytes: f64,
    ) -> Result<Outcome, Blocked> {
        match self {
            Engine::Rounds => rounds::simulate(schedule, machine, size_bytes, &[]),
            Engine::Events => events::simulate(schedule, machine, size_bytes, &[]),
        }
    }
}

/// Moves bytes on one machine between so many ranks.
#[derive(Clone)]
pub struct DataPlane {
    ranks: usize,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Nccl(Nccl, Option<Pattern>),
    Scheduled(Arc<Scheduled>),
}

/// An algorithm in virtual time, worked out at some sizes and interpolated between them.
struct Scheduled {
    name: String,
    machine: Machine,
    segment_bytes: f64,
    engine: Engine,
    /// By the number of the size, see [`Scheduled::size_bytes`].
    known: Mutex<BTreeMap<u32, Moment>>,
}

/// A schedule is worked out at so many sizes per factor of two; between them time is taken for linear,
/// which is within 1 % of what is worked out there (test).
const SIZES_PER_OCTAVE: u32 = 2;

/// The most segments of a message.
const MOST_SEGMENTS: usize = 32;

impl DataPlane {
    /// The data plane of that name. Messages are cut in segments of about `segment_bytes`; 0: they are not.
    /// The engine is for schedules of ours.
    ///
    /// # Errors
    /// Why there is none: an unknown name, too many ranks, a machine file without NCCL's numbers.
    pub fn new(
        name: &str,
        file: &MachineFile,
        ranks: usize,
        segment_bytes: f64,
        engine: Engine,
    ) -> Result<DataPlane, String> {
        if let Some(misfit) = file.misfit(ranks) {
            return Err(misfit);
        }
        let pattern = match name {
            NCCL => Some(None),
            "nccl:ring" => Some(Some(Pattern::Ring)),
            "nccl:tree" => Some(Some(Pattern::Tree)),
            _ => None,
        };
        if let Some(pattern) = pattern {
            let nccl = file.nccl().ok_or_else(|| {
                format!(
                    "machine {} has no [nccl]; name an algorithm of our own, such as ring",
                    file.name
                )
            })?;
            return Ok(DataPlane { ranks, kind: Kind::Nccl(nccl, pattern) });
        }
        let algorithm = registry::find(name).map_err(|unknown| unknown.to_string())?;
        let machine = file.machine();
        algorithm.schedule(&machine.topology(ranks)).map_err(|why| why.to_string())?;
        let known = Mutex::default();
        let name = algorithm.name();
        let scheduled = Scheduled { name, machine, segment_bytes, engine, known };
        Ok(DataPlane { ranks, kind: Kind::Scheduled(Arc::new(scheduled)) })
    }

    /// What works it out, as in rows.
    pub fn engine(&self) -> &'static str {
        match &self.kind {
            Kind::Nccl(..) => NCCL,
            Kind::Scheduled(scheduled) => scheduled.engine.name(),
        }
    }

    /// When an allreduce of so many bytes per rank is over that begins at 0.
    pub fn time(&self, size_bytes: f64) -> Moment {
        match &self.kind {
            _ if self.ranks == 1 => Moment::default(),
            Kind::Nccl(nccl, pattern) => nccl.time(*pattern, self.ranks, size_bytes),
            Kind::Scheduled(scheduled) => scheduled.time(self.ranks, size_bytes),
        }
    }
}

impl Scheduled {
    fn size_bytes(number: u32) -> f64 {
        (f64::from(number) / f64::from(SIZES_PER_OCTAVE)).exp2()
    }

    fn time(&self, ranks: usize, size_bytes: f64) -> Moment {
        let number = (size_bytes.max(1.0).log2() * f64::from(SIZES_PER_OCTAVE)).floor() as u32;
        let (low, high) = (Self::size_bytes(number), Self::size_bytes(number + 1));
        let share = ((size_bytes - low) / (high - low)).max(0.0);
        let a = self.at(ranks, number);
        if share == 0.0 {
            return a;
        }
        let b = self.at(ranks, number + 1);
        let mix = |a: f64, b: f64| a + share * (b - a);
        Moment {
            at_s: mix(a.at_s, b.at_s),
            latency_s: mix(a.latency_s, b.latency_s),
            bandwidth_s: mix(a.bandwidth_s, b.bandwidth_s),
            contention_s: mix(a.contention_s, b.contention_s),
            reduction_s: mix(a.reduction_s, b.reduction_s),
        }
    }

    fn at(&self, ranks: usize, number: u32) -> Moment {
        if let Some(known) = self.known.lock().expect("nobody panics while it is held").get(&number)
        {
            return *known;
        }
        let moment = self.simulate(ranks, Self::size_bytes(number));
        self.known.lock().expect("nobody panics while it is held").insert(number, moment);
        moment
    }

    fn simulate(&self, ranks: usize, size_bytes: f64) -> Moment {
        let topology = self.machine.topology(ranks);
        let algorithm = registry::find(&self.name).expect("it was found before");
        let choices = algorithm.choices(&topology).expect("there was a schedule before");
        let fits = |from_bytes: usize| from_bytes as f64 <= size_bytes;
        let choice = choices.into_iter().rfind(|choice| fits(choice.from_bytes));
        let schedule = choice.expect("the first is for 0 bytes and more").schedule;
        let segments = match self.segment_bytes > 0.0 {
            true => ((size_bytes / self.segment_bytes) as usize).clamp(1, MOST_SEGMENTS),
            false => 1,
        };
        let schedule = Pipelined::new(schedule, segments);
        let outcome = self.engine.simulate(&schedule, &self.machine, size_bytes);
        outcome.expect("registered schedules are proved to end").end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn summit() -> MachineFile {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/machines/summit.toml");
        MachineFile::read(Path::new(path)).unwrap()
    }

    #[test]
    fn between_two_sizes_time_is_as_good_as_worked_out() {
        for name in ["ring", "double-tree", "hierarchical", "halving-doubling"] {
            let plane = DataPlane::new(name, &summit(), 96, 0.0, Engine::Rounds).unwrap();
            let Kind::Scheduled(scheduled) = &plane.kind else { panic!() };
            for size_bytes in [5.3, 1_300.0, 71e3, 1.9e6, 44e6, 700e6] {
                let (a, b) = (plane.time(size_bytes).at_s, scheduled.simulate(96, size_bytes).at_s);
                assert!((a / b - 1.0).abs() < 0.01, "{name}, {size_bytes} bytes: {a} for {b}");
            }
        }
    }

    /// Where cards are shared the engines are of different opinions, within some percent.
    #[test]
    fn events_are_the_other_engine() {
        let [rounds, events] = [Engine::Rounds, Engine::Events]
            .map(|engine| DataPlane::new("hierarchical", &summit(), 48, 0.0, engine).unwrap());
        assert_eq!((rounds.engine(), events.engine()), ("rounds", "events"));
        let [a, b] = [rounds, events].map(|plane| plane.time(64e6).at_s);
        assert!((a / b - 1.0).abs() < 0.1, "{a} by rounds, {b} by events");
    }

    #[test]
    fn what_there_is_not_is_said() {
        for (name, ranks, expected) in [
            ("rign", 6, "algorithm \"rign\" is unknown"),
            ("one-shot", 600, "one-shot is for at most 64 ranks"),
            ("nccl", 7, "7 ranks leave a node of summit half empty"),
            ("ring", 1 << 20, "summit has 27648 ranks"),
        ] {
            let Err(problem) = DataPlane::new(name, &summit(), ranks, 0.0, Engine::Rounds) else {
                panic!("{name}")
            };
            assert!(problem.starts_with(expected), "{problem}");
        }
        let without = MachineFile { nccl: None, ..summit() };
        let Err(problem) = DataPlane::new(NCCL, &without, 6, 0.0, Engine::Rounds) else { panic!() };
        assert_eq!(
            problem,
            "machine summit has no [nccl]; name an algorithm of our own, such as ring"
        );
    }
}
