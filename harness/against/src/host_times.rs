//! How long Horovod's threads are busy with each gradient and message on the host.
//!
//! Handing over a gradient and taking back its result are work of the framework's thread: Python, the binding, the locks of
//! Horovod's queue and of its results. Where ranks have few cores it takes time from the background loop. The loop has work
//! of its own: names, hash tables, callbacks; so has the engine's, and the difference is what it does besides. PyTorch adds
//! and casts gradients on the framework's thread, and takes longer for that than the engine. All this is measured before
//! the comparison, as time on a core, and not fitted to step times.
//!
//! These are times at the best, where nothing slows the threads down. Handing over took 9 to 15 us in blocks of one minute, and
//! 8.1 to 9.2 us in the fastest steps of each: neighbours on the host use the core's caches. The engine does as much work as
//! takes this time at the best, so what slows Horovod down slows it down, too ([`training`]'s `host_work.rs`).
//!
//! The framework's thread also wakes up from waits for gradients, and the caches are cold then. Handing over is measured in
//! steps in which all gradients are ready at once, and taking back in the same steps, once the last result is there. What
//! the thread takes besides, from one wait to the next in steps of the configuration, is waking up. It is the median over
//! waits, because Linux 6.18 counts some of the time in which a thread waits for a core as time on that core. Adding,
//! casting and waking up are medians.
//!
//! Memory counts, too. A process gets the smallest fragments of free memory first. In Horovod's process they go to Python and
//! PyTorch, and gradients get pages that follow each other. MPI copies these faster.

use std::collections::BTreeMap;
use std::path::Path;

use measure::config::Host;
use results::files::write_whole;
use results::statistics::median;

use crate::engine::BlockError;
use crate::horovod::Horovod;
use crate::plan::{Origin, Plan};

/// The file in a folder of results.
const FILE: &str = "host_times.json";

const WHAT: &str = "times of Horovod's threads";

/// Gradients whose times on the loops' threads are measured.
pub const LOOP_GRADIENTS: usize = 200;

/// Everything is measured so often, each time for all configurations: a host may be busy for minutes.
const ROUNDS: usize = 3;

/// Measures the engine's own loop for a configuration, given what its other thread does; see [`crate::kolo::Kolo`].
pub type OwnLoop<'o> = &'o mut dyn FnMut(&Plan, usize, Host) -> Result<LoopTimes, BlockError>;

/// Measures the times for each configuration that does not state them, or reads what an earlier launch has measured.
/// `report` gets a line for each measurement.
///
/// # Errors
/// When a block of Horovod fails, or the file cannot be read or written.
pub fn measure(
    plan: &mut Plan,
    horovod: &mut Horovod,
    own: OwnLoop,
    folder: &Path,
    report: impl Fn(String),
) -> Result<(), BlockError> {
    let path = folder.join(FILE);
    let mut times = read(&path)?;
    let is_known =
        |origin: &Origin| times.contains_key(&origin.name) || origin.host != Host::default();
    let measured: Vec<usize> =
        (0..plan.origins.len()).filter(|&index| !is_known(&plan.origins[index])).collect();
    let (mut of_framework, mut of_loops) = (vec![Vec::new(); plan.origins.len()], Vec::new());
    for round in 1..=ROUNDS {
        for &index in &measured {
            let name = &plan.origins[index].name;
            report(format!("[{round}/{ROUNDS}] {name}: how long Horovod's threads are busy"));
            of_framework[index].push(horovod.framework_times(plan, index)?);
        }
        if let Some(&first) = measured.first() {
            report(format!("[{round}/{ROUNDS}] how long Horovod's loop and the engine's are busy"));
            let host = besides(
                FrameworkTimes::at_best(&of_framework[first]),
                LoopTimes::default(),
                WorkTimes::default(),
            );
            of_loops.push(horovod.loop_times()?.beyond(own(plan, first, host)?));
        }
    }
    for index in measured {
        let framework = FrameworkTimes::at_best(&of_framework[index]);
        let work = horovod.work_times(plan, index)?;
        let host = besides(framework, LoopTimes::median_of(&of_loops), work);
        times.insert(plan.origins[index].name.clone(), host);
    }
    for origin in &mut plan.origins {
        origin.host = *times.entry(origin.name.clone()).or_insert(origin.host);
    }
    let text = serde_json::to_string_pretty(&times).expect("plain data");
    write_whole(&path, (text + "\n").as_bytes()).map_err(BlockError::file(WHAT))
}

/// What an earlier run has measured, by configuration; nothing if there is no such file.
fn read(path: &Path) -> Result<BTreeMap<String, Host>, BlockError> {
    if !path.exists() {
        return Ok(BTreeMap::new());
    }
    let text = std::fs::read_to_string(path).map_err(BlockError::file(WHAT))?;
    serde_json::from_str(&text).map_err(BlockError::file(WHAT))
}

/// Times on a core of the framework's thread, and its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameworkTimes {
    /// For each wait for gradients.
    pub wake_us: f64,
    /// For each gradient: Horovod's call, and what the framework does around it.
    pub hand_over_us: f64,
    /// For each gradient: taking back the result, and what the framework does around it.
    pub take_back_us: f64,
    /// Memory of its process before that of gradients, without files.
    pub memory_mib: f64,
}

impl FrameworkTimes {
    /// The shortest times of several blocks for each gradient, and the median of what else they have.
    fn at_best(blocks: &[FrameworkTimes]) -> FrameworkTimes {
        let of = |us: fn(&FrameworkTimes) -> f64| blocks.iter().map(us);
        let [wake_us, memory_mib] = [of(|block| block.wake_us), of(|block| block.memory_mib)]
            .map(|values| median(values.collect()).unwrap_or_default());
        let [hand_over_us, take_back_us] =
            [of(|block| block.hand_over_us), of(|block| block.take_back_us)]
                .map(|times_us| times_us.reduce(f64::min).unwrap_or_default());
        FrameworkTimes { wake_us, hand_over_us, take_back_us, memory_mib }
    }
}

/// Times on a core of the background loop, for each gradient of one element.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopTimes {
    /// All in one message.
    pub fused_us: f64,
    /// Each in a message of its own.
    pub alone_us: f64,
}

impl LoopTimes {
    fn median_of(rounds: &[LoopTimes]) -> LoopTimes {
        let of = |us: fn(&LoopTimes) -> f64| median(rounds.iter().map(us).collect());
        LoopTimes {
            fused_us: of(|round| round.fused_us).unwrap_or_default(),
            alone_us: of(|round| round.alone_us).unwrap_or_default(),
        }
    }

    /// What this loop takes more than another.
    fn beyond(self, other: LoopTimes) -> LoopTimes {
        LoopTimes {
            fused_us: self.fused_us - other.fused_us,
            alone_us: self.alone_us - other.alone_us,
        }
    }
}

/// Times on a core of the framework's thread, for a megabyte of gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkTimes {
    /// Adding them to others.
    pub add_us: f64,
    /// Casting them to fp16.
    pub cast_us: f64,
    /// Casting results back.
    pub cast_back_us: f64,
}

/// What the engine's threads do besides: `of_loop` is what Horovod's takes more than the engine's own.
fn besides(framework: FrameworkTimes, of_loop: LoopTimes, work: WorkTimes) -> Host {
    let FrameworkTimes { wake_us, hand_over_us, take_back_us, memory_mib } = framework;
    let LoopTimes { fused_us, alone_us } = of_loop;
    let rounded = |us: f64| (10.0 * us.max(0.0)).round() / 10.0;
    Host {
        wake_us: rounded(wake_us),
        hand_over_us: rounded(hand_over_us),
        take_back_us: rounded(take_back_us),
        loop_gradient_us: rounded(fused_us),
        loop_message_us: rounded(alone_us - fused_us.max(0.0)),
        add_mb_us: rounded(work.add_us),
        cast_mb_us: rounded(work.cast_us),
        cast_back_mb_us: rounded(work.cast_back_us),
        framework_mib: rounded(memory_mib),
        ..Host::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_busy_with_what_its_own_loop_does_not_do() {
        let framework = FrameworkTimes {
            wake_us: 41.26,
            hand_over_us: 10.0,
            take_back_us: 1.32,
            memory_mib: 171.04,
        };
        let host = besides(
            framework,
            LoopTimes { fused_us: 18.0, alone_us: 29.06 }
                .beyond(LoopTimes { fused_us: 3.0, alone_us: 4.0 }),
            WorkTimes { add_us: 70.02, cast_us: 0.0, cast_back_us: 1.0 },
        );
        let Host { wake_us, hand_over_us, take_back_us, loop_gradient_us, loop_message_us, .. } =
            host;
        assert_eq!((host.add_mb_us, host.cast_mb_us, host.cast_back_mb_us), (70.0, 0.0, 1.0));
        assert_eq!((wake_us, hand_over_us, take_back_us), (41.3, 10.0, 1.3));
        assert_eq!(host.framework_mib, 171.0);
        assert_eq!((loop_gradient_us, loop_message_us), (15.0, 10.1));
        let framework =
            FrameworkTimes { wake_us: -1.0, hand_over_us: 2.0, take_back_us: 0.0, memory_mib: 0.0 };
        assert_eq!(
            besides(framework, LoopTimes { fused_us: -1.0, alone_us: -2.0 }, WorkTimes::default()),
            Host { hand_over_us: 2.0, ..Host::default() }
        );
    }
}
