//! Timelines as input of other commands than `kolo timeline`: of Horovod (`HOROVOD_TIMELINE`), and ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use algorithms::topology::Topology;
use anyhow::Result;
use results::compare::{Run, Times};
use results::logs::{Format, Log, Operation, Point, Table};
use results::statistics::{Summary, median};
use workloads::trace::messages::{Message, gradients, messages, ranks};
use workloads::trace::read::Trace;
use workloads::trace::steps::{activities, steps, warm};

use super::usage;

/// So much of a file tells whether it is a timeline.
const BEGINNING: u64 = 4096;

/// Whether a file is a timeline, by its beginning: an array of trace events, or an object that has one.
pub fn is_timeline(path: &Path) -> bool {
    if path.is_dir() {
        return false;
    }
    let Ok(file) = File::open(path) else { return false };
    let mut bytes = Vec::new();
    if file.take(BEGINNING).read_to_end(&mut bytes).is_err() {
        return false;
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_start();
    text.starts_with('[') && text.contains("\"ph\"")
        || text.starts_with('{') && text.contains("\"traceEvents\"")
}

/// Reads a timeline, and tells on stderr if its end is missing.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> Result<Trace> {
    let trace = Trace::read(path).map_err(usage)?;
    if trace.flaws.cut {
        let path = path.display();
        eprintln!("kolo: {path}: the end of the file is missing; what is whole is read");
    }
    Ok(trace)
}

/// A step of a timeline and its activities are so many blocks of consecutive steps at most: steps that follow each other are
/// not independent.
const BLOCKS: usize = 50;

/// The workload of runs that are timelines.
const WORKLOAD: &str = "a timeline";

/// Times of a timeline for a comparison: of a step, and of each activity in a step. The first fifth of the steps is left out.
///
/// # Errors
/// When there are fewer than two whole steps.
pub fn run(path: &Path) -> Result<Run> {
    let trace = read(path)?;
    let all = steps(&trace);
    let kept = warm(&all);
    if kept.is_empty() {
        let (path, there) = (path.display(), all.len());
        let plural = if there == 1 { "" } else { "s" };
        return Err(usage(format!(
            "{path}: it has {there} whole training step{plural}, expected at least 2, since the first one warms up; record a \
             longer timeline"
        )));
    }
    let mut notes = Vec::new();
    let mut cases = BTreeMap::new();
    let times_us = kept.iter().map(|(begin_us, end_us)| end_us - begin_us).collect();
    cases.insert("timeline, a step".to_string(), of_blocks(times_us));
    let mut rare = Vec::new();
    for (name, times_us) in activities(&trace, kept) {
        if times_us.iter().all(|time_us| *time_us > 0.0) {
            cases.insert(format!("timeline, {name} in a step"), of_blocks(times_us));
        } else if times_us.iter().any(|time_us| *time_us > 0.0) {
            rare.push(name);
        }
    }
    if !rare.is_empty() {
        let (path, names) = (path.display(), rare.join(", "));
        notes.push(format!("{path}: not in every step, and left out: {names}"));
    }
    let workload_digest =
        gradients(&trace).map(|(count, bytes)| format!("{count} tensors of {bytes} bytes"));
    Ok(Run {
        path: path.into(),
        cases,
        workloads: BTreeSet::from([WORKLOAD.to_string()]),
        workload_digest: workload_digest.unwrap_or_default(),
        has_parts: true,
        notes,
        ..Run::default()
    })
}

/// Medians of consecutive steps.
fn of_blocks(times_us: Vec<f64>) -> Times {
    let size = times_us.len().div_ceil(BLOCKS).max(1);
    let blocks: Vec<f64> =
        times_us.chunks(size).filter_map(|block| median(block.to_vec())).collect();
    Times { median_us: median(times_us).unwrap_or_default(), ..Times::of_values(&blocks) }
}

/// The allreduces of a timeline, as those of a log: for each size the median over its messages. Messages of the first fifth of
/// the steps are left out, and so are those of which the file lacks the size.
///
/// # Errors
/// When the file has no allreduce that is whole and whose size is known.
pub fn log(path: &Path, trace: &Trace) -> Result<Log> {
    let steps = steps(trace);
    let first_us = warm(&steps).first().map_or(f64::NEG_INFINITY, |(begin_us, _)| *begin_us);
    let all = messages(trace);
    let mut by_size: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let is_usable = |message: &&Message| message.is_whole && message.time_us > 0.0;
    let usable = all.iter().filter(is_usable).filter(|message| message.begin_us >= first_us);
    for Message { size_bytes, time_us, .. } in usable {
        if let Some(size_bytes) = size_bytes {
            by_size.entry(*size_bytes).or_default().push(*time_us);
        }
    }
    let library = all.first().map_or("unknown", |message| library(&message.name));
    if by_size.is_empty() {
        return Err(no_sizes(path, &all));
    }
    let point = |(size_bytes, times_us): (&u64, &Vec<f64>)| {
        let time = Summary::of(times_us)?;
        Some(Point {
            line: 1,
            size_bytes: *size_bytes as usize,
            dtype: String::new(),
            op: String::new(),
            in_place: true,
            time_us: time.p50,
            time_us_min: Some(time.min),
            time_us_max: Some(time.max),
            iterations: Some(time.samples),
            wrong: None,
        })
    };
    let points = by_size.iter().filter_map(point).collect();
    let table = Table { is_median: true, points, ..Table::at(1, Operation::AllReduce) };
    Ok(Log {
        path: path.into(),
        format: Format::Timeline { library },
        tables: vec![table],
        trials: Vec::new(),
        notes: Vec::new(),
    })
}

/// What a user should know of messages that are not among those of [`log`].
pub fn left_out(path: &Path, trace: &Trace) -> Option<String> {
    let all = messages(trace);
    let unknown = all.iter().filter(|message| message.size_bytes.is_none()).count();
    (unknown > 0).then(|| {
        let (path, all) = (path.display(), all.len());
        format!("{path}: the sizes of {unknown} of {all} messages are not in the file; they are left out")
    })
}

fn no_sizes(path: &Path, all: &[Message]) -> anyhow::Error {
    let path = path.display();
    usage(if all.is_empty() {
        format!("{path}: there is no allreduce in it; expected a timeline of training")
    } else if all.iter().all(|message| message.size_bytes.is_none()) {
        format!(
            "{path}: it has {} allreduces, but not their sizes: expected args with dtype and shape where an ALLREDUCE ends, \
             and an allreduce that is not a part of a hierarchical one; give a log of nccl-tests, whose lines have sizes",
            all.len()
        )
    } else {
        format!(
            "{path}: no allreduce with a known size is whole after the first step; record a longer timeline"
        )
    })
}

/// Refuses a topology with fewer ranks than the timeline has.
///
/// # Errors
/// When ranks were ready that it does not have.
pub fn check(path: &Path, trace: &Trace, topology: Option<&Topology>) -> Result<()> {
    match (ranks(trace), topology) {
        (Some(there), Some(topology)) if there > topology.ranks() => {
            let (path, said) = (path.display(), topology.ranks());
            Err(usage(format!(
                "{path}: --topology {topology} has {said} ranks, but rank {} is in the file; expected {there} ranks or more",
                there - 1
            )))
        }
        _ => Ok(()),
    }
}

/// The library that reduces, by the name of its activity.
fn library(name: &str) -> &'static str {
    let known = ["mpi", "nccl", "gloo", "ccl", "kolo"];
    let prefix = name.split('_').next().unwrap_or_default().to_ascii_lowercase();
    known.into_iter().find(|known| *known == prefix).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../training/tests/all/golden/horovod_training.json");

    fn file(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn timelines_are_recognised_by_their_beginning() {
        for (text, expected) in [
            ("[\n{\"name\": \"process_name\", \"ph\": \"M\"", true),
            ("  {\"schemaVersion\": 1, \"traceEvents\": [", true),
            ("{\"version\": 3, \"results\": []}", false),
            ("[1, 2]", false),
            ("schema,kind\n", false),
            ("", false),
        ] {
            let (_folder, path) = file("timeline", text);
            assert_eq!(is_timeline(&path), expected, "{text}");
        }
        assert!(is_timeline(Path::new(GOLDEN)) && !is_timeline(Path::new("nowhere")));
    }

    #[test]
    fn a_run_has_a_step_and_its_activities() {
        let run = run(Path::new(GOLDEN)).unwrap();
        let names: Vec<&str> = run.cases.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "timeline, ALLREDUCE in a step",
                "timeline, MEMCPY_IN_FUSION_BUFFER in a step",
                "timeline, MEMCPY_OUT_FUSION_BUFFER in a step",
                "timeline, MPI_ALLREDUCE in a step",
                "timeline, NEGOTIATE_ALLREDUCE in a step",
                "timeline, a step",
            ]
        );
        // Steps of 72011 and 37335 us.
        assert_eq!(run.cases["timeline, a step"].median_us, (72_011.0 + 37_335.0) / 2.0);
        assert_eq!(run.workload_digest, "4 tensors of 273448 bytes");
        assert!(run.has_parts && run.notes.is_empty());
        let times = of_blocks((0..1000).map(f64::from).collect());
        assert_eq!((times.blocks.len(), times.median_us), (BLOCKS, 499.5));
    }

    #[test]
    fn a_timeline_without_steps_or_sizes_is_refused() {
        let text = std::fs::read_to_string(GOLDEN).unwrap();
        let first =
            text.find(r#"{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 238335"#).unwrap();
        let (_folder, path) = file("cut.json", &text[..first]);
        let why = run(&path).unwrap_err().to_string();
        assert!(why.ends_with("cut.json: it has 1 whole training step, expected at least 2, since the first one warms up; record a longer timeline"), "{why}");
        let (_folder, path) = file("bare.json", &text.replace("\"shape\"", "\"form\""));
        let why = log(&path, &read(&path).unwrap()).unwrap_err().to_string();
        assert!(
            why.contains("bare.json: it has 9 allreduces, but not their sizes: expected args"),
            "{why}"
        );
        let broadcasts = text.find(r#"{"name": "process_name", "ph": "M", "pid": 5"#).unwrap();
        let (_folder, path) = file("none.json", &text[..broadcasts]);
        let why = log(&path, &read(&path).unwrap()).unwrap_err().to_string();
        assert!(
            why.ends_with(
                "none.json: there is no allreduce in it; expected a timeline of training"
            ),
            "{why}"
        );
    }

    #[test]
    fn each_size_is_a_point_with_the_median_of_its_messages() {
        let path = Path::new(GOLDEN);
        let trace = read(path).unwrap();
        let log = log(path, &trace).unwrap();
        assert_eq!(log.format, Format::Timeline { library: "mpi" });
        let points: Vec<(usize, f64, Option<usize>)> = log.tables[0]
            .points
            .iter()
            .map(|point| (point.size_bytes, point.time_us, point.iterations))
            .collect();
        // Three steps: 9599, 2983 and 33 us; 15930, 79 and 83 us.
        assert_eq!(points, [(10_280, 2983.0, Some(3)), (263_168, 83.0, Some(3))]);
        let rows = log.rows(Some(&Topology::uniform(2, 1)));
        assert_eq!(
            rows[0].key.case,
            "horovod-timeline/2x1/mpi-allreduce/unknown/unknown/10280B/in-place"
        );
        assert!(left_out(path, &trace).is_none());
        check(path, &trace, None).unwrap();
        check(path, &trace, Some(&Topology::uniform(1, 2))).unwrap();
        let why = check(path, &trace, Some(&Topology::uniform(1, 1))).unwrap_err().to_string();
        assert!(
            why.ends_with(
                "--topology 1x1 has 1 ranks, but rank 1 is in the file; expected 2 ranks or more"
            ),
            "{why}"
        );
        assert_eq!(library("GLOO_ALLREDUCE"), "gloo");
        assert_eq!(library("XLA_ALLREDUCE"), "unknown");
    }
}
