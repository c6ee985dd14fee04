//! One training step of a timeline, for its figure.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use plots::{Activity, Lane, Stretch, Timeline};
use workloads::trace::read::{Span, Trace};
use workloads::trace::steps::steps;
use workloads::trace::{Category, names};

use super::super::{timelines, usage};

/// The most ranks that are drawn.
const RANKS: usize = 8;

/// Reads the step of a timeline whose time is the median, and tells what is wrong with the file.
///
/// # Errors
/// When the file is no timeline, or has no whole step.
pub fn read(path: &Path) -> Result<Timeline> {
    of(path, &timelines::read(path)?).map_err(usage)
}

/// The step of a timeline whose time is the median.
///
/// # Errors
/// A sentence, when the file has no whole step.
pub fn of(path: &Path, trace: &Trace) -> Result<Timeline, String> {
    let steps = steps(trace);
    let Some((number, (begin_us, end_us))) = median(&steps) else {
        let why = "there is no whole training step in it; record at least two";
        return Err(format!("{}: {why}", path.display()));
    };
    let ranks: BTreeSet<Option<u32>> = trace
        .tracks
        .iter()
        .filter(|track| trace.case.is_none() || track.rank.is_some())
        .map(|track| track.rank.map(|rank| rank as u32))
        .collect();
    let lanes = ranks.iter().take(RANKS).flat_map(|rank| lanes(trace, *rank, (begin_us, end_us)));
    let name = trace.case.clone().unwrap_or_else(|| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        format!("{file}, read as a timeline of Horovod; steps begin with its first gradient")
    });
    let shown = if ranks.len() > RANKS {
        format!("; {RANKS} of {} ranks", ranks.len())
    } else {
        String::new()
    };
    Ok(Timeline {
        name,
        step: format!("step {} of {}, the median by time{shown}", number + 1, steps.len()),
        time_ms: (end_us - begin_us) / 1e3,
        lanes: lanes.filter(|lane| !lane.stretches.is_empty()).collect(),
    })
}

/// The step of median length, and its index.
fn median(steps: &[(f64, f64)]) -> Option<(usize, (f64, f64))> {
    let mut sorted: Vec<(usize, (f64, f64))> = steps.iter().copied().enumerate().collect();
    sorted.sort_by(|(_, a), (_, b)| (a.1 - a.0).total_cmp(&(b.1 - b.0)));
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Computation, control plane and messages of a rank within a step.
fn lanes(trace: &Trace, rank: Option<u32>, (begin_us, end_us): (f64, f64)) -> Vec<Lane> {
    let prefix = rank.map_or(String::new(), |rank| format!("rank {rank}, "));
    let mut lanes = ["computation", "negotiation", "messages"]
        .map(|name| Lane { name: format!("{prefix}{name}"), stretches: Vec::new() });
    for span in &trace.spans {
        let own = trace.tracks[span.track].rank.map(|rank| rank as u32) == rank;
        let within = span.begin_us < end_us && span.end_us > begin_us;
        let Some((lane, activity)) = activity(trace, span).filter(|_| own && within) else {
            continue;
        };
        let ms = |time_us: f64| (time_us.clamp(begin_us, end_us) - begin_us) / 1e3;
        lanes[lane].stretches.push(Stretch {
            activity,
            begin_ms: ms(span.begin_us),
            end_ms: ms(span.end_us),
        });
    }
    lanes.into()
}

/// The lane of a span, and what it was spent on.
fn activity(trace: &Trace, span: &Span) -> Option<(usize, Activity)> {
    let name = &*span.name;
    match (span.category, name) {
        (Category::Step, names::FORWARD) => Some((0, Activity::Forward)),
        (Category::Step, names::BACKWARD) => Some((0, Activity::Backward)),
        (Category::Step, names::OPTIMIZER) => Some((0, Activity::Optimizer)),
        (Category::Cycle, names::NEGOTIATE) => Some((1, Activity::Negotiation)),
        // Of kolo's the cycles have it; a tensor's lasts from its readiness.
        (Category::Tensor, name) if name.starts_with(names::NEGOTIATE_PREFIX) => {
            trace.case.is_none().then_some((1, Activity::Negotiation))
        }
        (Category::Tensor, names::MEMCPY_IN | names::MEMCPY_OUT) => Some((2, Activity::Packing)),
        (Category::Tensor, name) if names::OPERATIONS.contains(&name) => {
            Some((2, Activity::Operation))
        }
        // KOLO_ALLREDUCE, MPI_ALLREDUCE, NCCL_ALLREDUCE and so on.
        (Category::Tensor, name) if name.ends_with(names::ALLREDUCE) => {
            Some((2, Activity::Allreduce))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timeline that the tests of `training` compare with what is written.
    const GOLDEN: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../training/tests/all/golden/timeline.json");

    #[test]
    fn the_median_step_of_a_timeline_has_a_lane_for_each_part_of_a_rank() {
        let step = read(Path::new(GOLDEN)).unwrap();
        assert_eq!(step.name, "threads/2x1/bitvector/ring/64MiB/5ms");
        assert!(step.step.ends_with(", the median by time"), "{}", step.step);
        let names: Vec<&str> = step.lanes.iter().map(|lane| lane.name.as_str()).collect();
        assert!(
            names.starts_with(&["rank 0, computation", "rank 0, negotiation", "rank 0, messages"]),
            "{names:?}"
        );
        let within = |stretch: &Stretch| 0.0 <= stretch.begin_ms && stretch.end_ms <= step.time_ms;
        assert!(step.lanes.iter().all(|lane| lane.stretches.iter().all(within)));
    }

    #[test]
    fn steps_of_horovods_timeline_begin_with_its_first_tensor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("horovod.json");
        let events = |begin: u32| {
            let event = |ph: &str, name: &str, ts: u32| {
                format!(r#"{{"ph":"{ph}","name":"{name}","pid":1,"ts":{}}}"#, begin + ts)
            };
            [
                event("B", "NEGOTIATE_ALLREDUCE", 0),
                event("E", "NEGOTIATE_ALLREDUCE", 1000),
                event("B", "ALLREDUCE", 1000),
                event("B", "MPI_ALLREDUCE", 2000),
                event("E", "MPI_ALLREDUCE", 4000),
                event("E", "ALLREDUCE", 5000),
            ]
            .join(",\n")
        };
        std::fs::write(&path, format!("[{},\n{},\n{}]", events(0), events(10_000), events(30_000)))
            .unwrap();
        let step = read(&path).unwrap();
        assert_eq!((step.time_ms, step.step.as_str()), (10.0, "step 1 of 2, the median by time"));
        let lanes: Vec<(&str, usize)> =
            step.lanes.iter().map(|lane| (lane.name.as_str(), lane.stretches.len())).collect();
        assert_eq!(lanes, [("negotiation", 1), ("messages", 2)]);
        // A real one begins with broadcasts.
        let real = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../training/tests/all/golden/horovod_training.json"
        ));
        let step = read(real).unwrap();
        assert_eq!((step.time_ms, step.step.as_str()), (67.987, "step 1 of 3, the median by time"));
        std::fs::write(&path, format!("[{}]", events(0))).unwrap();
        let why = read(&path).unwrap_err().to_string();
        assert!(
            why.ends_with("there is no whole training step in it; record at least two"),
            "{why}"
        );
    }
}
