//! Timelines: from records to a file, from files to figures.

use std::path::Path;
use std::time::Duration;

use algorithms::control::{self, DataType, ReduceOp};
use algorithms::registry::find;
use algorithms::topology::Topology;
use results::statistics::Summary;
use training::engine::{self, RankMemory};
use training::job::Job;
use training::outcome::EngineError;
use training::outcome::Outcome;
use training::timeline::analyse::{
    Analysis, Cycles, Last, Messages, Negotiation, Share, Tensor, analyse,
};
use training::timeline::record::{Event, Record, Recorder};
use training::timeline::write::{Shown, file_name, write};
use transports::allreduce::Sizes;
use transports::data_plane::DataPlane;
use workloads::framework::Framework;
use workloads::replay::{HostCosts, StepTimes};
use workloads::trace::Category;
use workloads::trace::names;
use workloads::trace::read::{Flaws, Span, Trace};
use workloads::workload::{Gradient, Workload};

use crate::coverage::all_worlds;

const HOROVOD: &str = include_str!("golden/horovod.json");

fn gradient(name: &str, shape: &[u64], ready_fraction: f64) -> Gradient {
    Gradient { name: name.into(), shape: shape.into(), ready_fraction }
}

fn read(text: &str) -> Result<Trace, String> {
    Trace::parse(text.as_bytes(), Path::new("t.json")).map_err(|error| error.to_string())
}

/// Two steps of two ranks and two tensors, in microseconds.
fn two_ranks() -> [Vec<Record>; 2] {
    use Event::{Cycle, Message, Negotiated, Negotiation, Ready, Reduced, Step, StepEnded, Tensor};
    let plain = Reduced { packing_ns: 0, unpacking_ns: 0 };
    let rank0 = [
        (0, Step),
        (20, Ready(1)),
        (25, Cycle),
        (25, Negotiation),
        (30, Negotiated { messages: 0 }),
        (30, Ready(0)),
        (35, Cycle),
        (35, Negotiation),
        (42, Negotiated { messages: 2 }),
        (42, Message),
        (42, Tensor(1)),
        (50, plain),
        (50, Message),
        (50, Tensor(0)),
        (60, plain),
        (65, StepEnded),
        (65, Step),
        (85, Ready(1)),
        (95, Ready(0)),
        (100, Cycle),
        (100, Negotiation),
        (104, Negotiated { messages: 1 }),
        (104, Message),
        (104, Tensor(1)),
        (104, Tensor(0)),
        (120, Reduced { packing_ns: 3000, unpacking_ns: 2000 }),
        (125, StepEnded),
    ];
    let rank1 = [
        (2, Step),
        (25, Cycle),
        (25, Negotiation),
        (30, Negotiated { messages: 0 }),
        (31, Ready(1)),
        (32, Ready(0)),
        (36, Cycle),
        (36, Negotiation),
        (41, Negotiated { messages: 2 }),
        (41, Message),
        (41, Tensor(1)),
        (50, plain),
        (51, Message),
        (51, Tensor(0)),
        (61, plain),
        (66, StepEnded),
        (66, Step),
        (80, Ready(1)),
        (96, Ready(0)),
        (100, Cycle),
        (100, Negotiation),
        (103, Negotiated { messages: 1 }),
        (103, Message),
        (103, Tensor(1)),
        (103, Tensor(0)),
        (120, Reduced { packing_ns: 2000, unpacking_ns: 1000 }),
        (125, StepEnded),
    ];
    let records = |reported: &[(u64, Event)]| {
        reported.iter().map(|&(us, event)| Record { time_ns: us * 1000, event }).collect()
    };
    [records(&rank0), records(&rank1)]
}

fn written(ranks: &[Vec<Record>]) -> String {
    let gradients = [gradient("w", &[2, 3], 1.0), gradient("b", &[2], 0.5)];
    let us = Duration::from_micros;
    let shown = Shown {
        case: "threads/2x1/bitvector/ring/64MiB/5ms",
        algorithm: "ring",
        gradients: &gradients,
        dtype: DataType::F32,
        times: StepTimes {
            forward: us(10),
            backward: us(40),
            optimizer: us(5),
            ..StepTimes::default()
        },
    };
    let mut text = Vec::new();
    write(&mut text, &shown, ranks).unwrap();
    String::from_utf8(text).unwrap()
}

/// The two steps, and a third that rank 0 does not survive. `UPDATE_GOLDEN=1 cargo test` rewrites the
/// file.
#[test]
fn the_format_of_a_timeline_is_fixed() {
    let mut ranks = two_ranks();
    let push = |rank: &mut Vec<Record>, us: u64, event| {
        rank.push(Record { time_ns: us * 1000 + 250, event });
    };
    let begun = [
        (125, Event::Step),
        (145, Event::Ready(1)),
        (150, Event::Cycle),
        (150, Event::Negotiation),
    ];
    for (us, event) in begun {
        push(&mut ranks[0], us, event);
    }
    let text = written(&ranks);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/golden/timeline.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(text == golden, "{text}");
    let trace = read(&text).unwrap();
    // The step, its cycle, the control plane, and the tensor twice: on the rank and on all ranks.
    assert_eq!(trace.flaws, Flaws { open: 5, ..Flaws::default() });
    assert_eq!((trace.first_us, trace.last_us), (0.0, 150.25));
}

/// The bound of each rank is a label, and the largest one is in the header.
#[test]
fn the_bound_of_clocks_is_in_the_file() {
    let clock = |error_ns| Record { time_ns: 0, event: Event::Clock { error_ns } };
    let with = |errors_ns: &[(usize, u64)]| {
        let mut ranks = two_ranks();
        errors_ns.iter().for_each(|&(rank, error_ns)| ranks[rank].insert(0, clock(error_ns)));
        written(&ranks)
    };
    let text = with(&[(0, 300), (1, 12_340)]);
    assert!(text.contains(r#""clock_error_us":12.34"#), "{text}");
    for (rank, us) in [(0, "0.30"), (1, "12.34")] {
        let label = format!("clock within {us} us of rank 0's");
        let event = format!(
            r#"{{"ph":"M","name":"process_labels","pid":{},"args":{{"labels":"{label}"}}}}"#,
            rank + 2
        );
        assert!(text.contains(&event), "{text}");
    }
    let trace = read(&text).unwrap();
    assert_eq!((trace.clock_error_us, trace.first_us), (Some(12.34), 0.0));
    let text = with(&[(1, u64::MAX)]);
    assert!(text.contains(r#""clock_error_us":null"#), "{text}");
    assert!(text.contains(r#""labels":"clock not compared with rank 0's""#), "{text}");
    assert_eq!(read(&text).unwrap().clock_error_us, Some(f64::INFINITY));
    assert_eq!(read(&with(&[])).unwrap().clock_error_us, Some(0.0));
    assert!(!with(&[]).contains("process_labels"));
    assert_eq!(read(HOROVOD).unwrap().clock_error_us, None);
}

fn summary(times: &[f64]) -> Summary {
    Summary::of(times).unwrap()
}

fn tensor(name: &str, times: usize, mean_us: f64, max_us: f64, last: Option<usize>) -> Tensor {
    Tensor { name: name.into(), times, mean_us, max_us, last }
}

#[test]
fn the_breakdown_of_a_small_job() {
    let mut trace = read(&written(&two_ranks())).unwrap();
    assert_eq!(trace.case.as_deref(), Some("threads/2x1/bitvector/ring/64MiB/5ms"));
    assert_eq!(trace.flaws, Flaws::default());
    let share = |rank, communication_us, packing_us, exposed_us, control_us| Share {
        rank: Some(rank),
        communication_us,
        packing_us,
        computation_us: Some(110.0),
        exposed_us: Some(exposed_us),
        control_us: Some(control_us),
        cycles: Some(Cycles { count: 3, idle: 1 }),
    };
    let expected = Analysis {
        covered_us: 125.0,
        steps: Some(summary(&[65.0, 60.0])),
        // Rank 0 reduces from 42 to 60 and from 104 to 120; its backward pass ends at 50 and 115.
        ranks: vec![share(0, 34.0, 5.0, 15.0, 16.0), share(1, 37.0, 3.0, 13.0, 13.0)],
        negotiation: Some(Negotiation {
            time: summary(&[12.0, 9.0, 22.0, 24.0]),
            wall_us: 46.0,
            ticked: 4,
            waiting_us: 19.0,
            last: vec![
                Last { rank: 1, times: 3, alone_us: 13.0 },
                Last { rank: 0, times: 1, alone_us: 5.0 },
            ],
        }),
        messages: Some(Messages {
            count: 3,
            tensors_mean: 4.0 / 3.0,
            tensors_min: 1,
            tensors_max: 2,
            reported: true,
        }),
        tensors: vec![tensor("b", 2, 23.0, 24.0, Some(1)), tensor("w", 2, 10.5, 12.0, Some(1))],
    };
    assert_eq!(analyse(&trace), expected);
    trace.skip(1).unwrap();
    let second = analyse(&trace);
    assert_eq!((second.covered_us, second.steps), (60.0, Some(summary(&[60.0]))));
    assert_eq!((second.ranks[0].communication_us, second.ranks[1].exposed_us), (16.0, Some(4.0)));
    assert_eq!(second.messages.unwrap().count, 1);
    assert_eq!(trace.skip(1), Err(1), "there is one step left");
}

#[test]
fn the_breakdown_of_a_horovod_file_has_what_the_file_contains() {
    let trace = read(HOROVOD).unwrap();
    assert_eq!((&trace.case, trace.flaws), (&None, Flaws::default()));
    let expected = Analysis {
        covered_us: 80.0,
        steps: None,
        ranks: vec![Share {
            communication_us: 29.0,
            packing_us: 5.0,
            cycles: Some(Cycles { count: 4, idle: 2 }),
            ..Share::default()
        }],
        negotiation: Some(Negotiation {
            time: summary(&[16.0, 5.0, 2.0]),
            wall_us: 19.0,
            // The last one came from the cache, for which Horovod does not distinguish ranks.
            ticked: 2,
            waiting_us: 19.0,
            last: vec![Last { rank: 1, times: 2, alone_us: 16.0 }],
        }),
        messages: Some(Messages {
            count: 2,
            tensors_mean: 1.5,
            tensors_min: 1,
            tensors_max: 2,
            reported: false,
        }),
        tensors: vec![
            tensor("rank 1", 1, 16.0, 16.0, Some(1)),
            tensor("grad.bias", 2, 3.5, 5.0, Some(1)),
        ],
    };
    assert_eq!(analyse(&trace), expected);
}

/// A file that a kill has cut is read as far as it is whole, and the cut is reported.
#[test]
fn a_cut_file_is_read_up_to_the_cut() {
    let ours = written(&two_ranks());
    for text in [HOROVOD, &ours] {
        let whole = read(text).unwrap();
        let end = text.trim_end().len();
        let mut spans = 0;
        for length in (0..end).step_by(if all_worlds() { 1 } else { 7 }) {
            match read(&text[..length]) {
                Ok(trace) => {
                    assert!(trace.flaws.cut && trace.spans.len() >= spans, "{length}");
                    spans = trace.spans.len();
                    analyse(&trace);
                }
                Err(error) => assert!(spans == 0 && error.contains("expected an array"), "{error}"),
            }
        }
        assert!(spans == whole.spans.len() || !all_worlds());
    }
}

/// A rank may fail after any record, and the others elsewhere.
#[test]
fn a_job_that_fails_anywhere_has_a_readable_timeline() {
    let ranks = two_ranks();
    for first in 0..=ranks[0].len() {
        for second in 0..=ranks[1].len() {
            let text = written(&[ranks[0][..first].to_vec(), ranks[1][..second].to_vec()]);
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
            match read(&text) {
                Ok(trace) => drop(analyse(&trace)),
                Err(error) => assert!(first + second == 0, "{error}"),
            }
        }
    }
}

/// Of rank 0, written as Horovod would have: a process for each tensor, pairs of `B` and `E`.
#[test]
fn a_timeline_is_written_in_horovods_layout_and_read_as_one() {
    let ours = read(&written(&two_ranks())).unwrap();
    let mut text = Vec::new();
    workloads::trace::horovod::write(&mut text, &ours, 0).unwrap();
    let text = String::from_utf8(text).unwrap();
    let events: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let phases = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!(phases("B"), phases("E"));
    assert!(events.iter().all(|event| event["tid"].is_null() && event["cat"].is_null()), "{text}");
    let again = read(&text).unwrap();
    assert_eq!((again.flaws, again.case.as_deref()), (Flaws::default(), None));
    assert_eq!((again.ticks.len(), again.cycle_starts.len()), (ours.ticks.len(), 3));
    let reductions = |trace: &Trace, rank: Option<usize>| {
        let is_own =
            |span: &&Span| &*span.name == names::ALLREDUCE && trace.tracks[span.track].rank == rank;
        let mut times: Vec<(String, f64, f64)> = trace
            .spans
            .iter()
            .filter(is_own)
            .map(|span| (trace.tracks[span.track].name.clone(), span.begin_us, span.end_us))
            .collect();
        times.sort_by(|a, b| a.partial_cmp(b).unwrap());
        times
    };
    assert_eq!(reductions(&again, None), reductions(&ours, Some(0)));
    assert_eq!(reductions(&again, None).len(), 4);
    let negotiated = |trace: &Trace| analyse(trace).negotiation.map(|it| it.time.samples);
    assert_eq!(negotiated(&again), negotiated(&ours));
}

/// As PyTorch's profiler and merged timelines of Horovod have them.
#[test]
fn events_may_be_in_an_object() {
    let plain = read(HOROVOD).unwrap();
    let text = format!(
        r#"{{"schemaVersion": 1, "traceEvents": {}, "displayTimeUnit": "ms"}}"#,
        HOROVOD.trim()
    );
    let wrapped = read(&text).unwrap();
    assert_eq!((&wrapped.spans, &wrapped.ticks), (&plain.spans, &plain.ticks));
    assert!(!wrapped.flaws.cut && !wrapped.spans.is_empty());
    // Cut within the events.
    let cut = read(&text[..text.len() / 2]).unwrap();
    assert!(cut.flaws.cut && cut.spans.len() < plain.spans.len());
}

#[test]
fn a_file_that_is_not_a_timeline_is_refused() {
    for (text, expected) in [
        ("", "t.json: EOF while parsing a value at line 1 column 0; expected an array of trace"),
        ("kolo", "t.json: expected value at line 1 column 1; expected an array of trace events"),
        (
            r#"{"traceEvents": 3}"#,
            "t.json: invalid type: integer `3`, expected an array of events, or an object with \"traceEvents\" at line 1",
        ),
        (r#"{"displayTimeUnit": "ms"}"#, "t.json: there is no \"traceEvents\" at line 1"),
        ("[]", "t.json: no events found; expected an array of trace events"),
        ("[3]", "t.json: event 0: found a number, expected an object with ph, name, ts and pid"),
        (r#"[{"pid": 1}]"#, "t.json: event 0: there is no ph; expected a phase such as \"B\""),
        (r#"[{"ph": 7}]"#, "t.json: event 0: ph is 7, expected a text"),
        (
            r#"[{"ph": "E", "ts": 1, "pid": 1}, {"ph": "B", "name": "A", "pid": 1}]"#,
            "t.json: event 1: there is no ts; expected a time in microseconds",
        ),
        (
            r#"[{"ph": "B", "name": "A", "ts": "soon", "pid": 1}]"#,
            "t.json: event 0: ts is \"soon\", expected a time in microseconds",
        ),
        (
            r#"[{"ph": "B", "name": "A", "ts": 1}]"#,
            "t.json: event 0: there is no pid; expected a whole number",
        ),
        (
            r#"[{"ph": "B", "name": "A", "ts": 1, "pid": -1}]"#,
            "t.json: event 0: pid is -1, expected a whole number",
        ),
        (
            r#"[{"ph": "B", "ts": 1, "pid": 1}]"#,
            "t.json: event 0: there is no name; expected what begins",
        ),
        (
            r#"[{"ph": "X", "name": "A", "ts": 1, "dur": -2, "pid": 1}]"#,
            "t.json: event 0: dur is -2, expected 0 or more",
        ),
        (
            r#"[{"ph": "B", "name": "A", "ts": 5, "pid": 1}, {"ph": "E", "ts": 4, "pid": 1}]"#,
            "t.json: event 1: A ends at 4 us, expected 5 us or later",
        ),
        (
            r#"[{"ph": "E", "ts": 4, "pid": 1} {"ph""#,
            "t.json: event 1: expected `,` or `]` at line 1 column 33; expected `,` and an event",
        ),
        (r#"[{"ph": "E", "ts": 4, "pid": 1}] more"#, "t.json: event 1: trailing characters"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(expected), "{error}\n{expected}");
    }
    let error = Trace::read(Path::new("no/such.json")).unwrap_err().to_string();
    assert!(error.starts_with("no/such.json: No such file"), "{error}");
}

#[test]
fn other_phases_and_ends_without_beginning_are_ignored() {
    let trace = read(
        r#"[{"ph": "b", "pid": "x"}, {"ph": "E", "ts": 4, "pid": 1}, {"ph": "s"}, {"ph": "M"},
            {"ph": "i", "name": "something", "ts": 9, "s": "g"}]"#,
    );
    let trace = trace.unwrap();
    assert_eq!((trace.spans.len(), trace.first_us, trace.last_us), (0, 4.0, 9.0));
    assert_eq!(trace.flaws, Flaws { unopened: 1, ..Flaws::default() });
    let analysis = analyse(&trace);
    assert_eq!((analysis.negotiation, analysis.messages), (None, None));
}

#[test]
fn each_case_has_its_own_file() {
    for (case, name) in [
        ("threads/2x2/bitvector/ring/64MiB/0.5ms", "threads_2x2_bitvector_ring_64MiB_0.5ms.json"),
        ("threads/3+1/coordinator/grouped:tree", "threads_3+1_coordinator_grouped-tree.json"),
    ] {
        assert_eq!(file_name(case), name);
    }
}

/// Times of the job's steps.
const TIMES: StepTimes = StepTimes {
    forward: Duration::from_micros(300),
    backward: Duration::from_millis(4),
    optimizer: Duration::from_micros(100),
    host: HostCosts {
        wake: Duration::ZERO,
        hand_over: Duration::ZERO,
        take_back: Duration::ZERO,
        loop_gradient: Duration::ZERO,
        loop_message: Duration::ZERO,
        add_mb: Duration::ZERO,
        cast_mb: Duration::ZERO,
        cast_back_mb: Duration::ZERO,
        launch_gradient: Duration::ZERO,
        framework_bytes: 0,
    },
};

/// A job of 3 ranks on the engine, and its timeline.
fn job(plane: &str, timeout: Duration, times: StepTimes) -> (Result<Outcome, EngineError>, Trace) {
    let mut memories = Vec::new();
    memories.resize_with(3, RankMemory::default);
    job_in(&mut memories, plane, timeout, times)
}

/// The same, in this memory of its ranks.
fn job_in(
    memories: &mut [RankMemory],
    plane: &str,
    timeout: Duration,
    times: StepTimes,
) -> (Result<Outcome, EngineError>, Trace) {
    let gradients = (0..12_u64)
        .map(|id| gradient(&format!("layer{id}"), &[id * 37 % 100], 1.0 - id as f64 / 12.0));
    let workload = Workload {
        name: "twelve".into(),
        gradients: gradients.collect(),
        ready_order: (0..12).rev().collect(),
        ready_assumed: false,
    };
    let topology = Topology::flat(3);
    let ring = DataPlane::ours(find("ring").unwrap(), &topology).unwrap();
    let recorder = Recorder::new(3, 10);
    let job = Job {
        workload: &workload,
        times,
        topology: &topology,
        dtype: DataType::F32,
        op: ReduceOp::Sum,
        data_plane: &ring,
        framework: &Framework::default(),
        groups: &[],
        disable_group_fusion: false,
        stall_check: None,
        fault: None,
        control_plane: plane,
        fusion_threshold_bytes: 700,
        cycle_time: Duration::from_micros(500),
        cache_capacity: 1024,
        sizes: Sizes { segment_bytes: 0, packing_bytes: 0 },
        timeout,
        steps: 3,
        seed: 5,
        recorder: Some(&recorder),
    };
    let outcome = engine::run(&job, memories);
    let shown = Shown {
        case: "twelve",
        algorithm: "ring",
        gradients: &workload.gradients,
        dtype: job.dtype,
        times,
    };
    let mut text = Vec::new();
    write(&mut text, &shown, &recorder.into_records()).unwrap();
    (outcome, read(std::str::from_utf8(&text).unwrap()).unwrap())
}

#[test]
fn a_framework_that_is_busy_hands_gradients_over_one_after_the_other() {
    let ms = Duration::from_millis;
    let host = HostCosts {
        wake: ms(1) / 5,
        hand_over: ms(2),
        take_back: ms(1),
        loop_gradient: ms(3),
        loop_message: ms(1),
        ..HostCosts::default()
    };
    let times = StepTimes { host, ..TIMES };
    for plane in control::NAMES {
        let (outcome, trace) = job(plane, Duration::from_secs(60), times);
        let outcome = outcome.unwrap();
        agrees(&outcome, &trace);
        // 12 gradients, the last of which is reduced and taken back after all were handed over.
        let least = 12 * ms(2) + ms(3) + ms(1) + ms(1);
        for step in outcome.ranks.iter().flat_map(|rank| &rank.steps) {
            assert!(step.time >= least, "{plane}: {:?}", step.time);
        }
    }
}

#[test]
fn a_framework_has_memory_as_long_as_jobs_replay_it() {
    let mut memories = Vec::new();
    memories.resize_with(3, RankMemory::default);
    let mut sizes_after = |host: HostCosts| {
        let times = StepTimes { host, ..TIMES };
        let (outcome, _) = job_in(&mut memories, "bitvector", Duration::from_secs(60), times);
        assert_eq!(outcome.unwrap().wrong.count, 0);
        memories.iter().map(|rank| rank.framework.size_bytes()).collect::<Vec<_>>()
    };
    let host = HostCosts { framework_bytes: 1 << 20, ..HostCosts::default() };
    assert_eq!(sizes_after(host), [1 << 20, 0, 0], "three ranks, one process");
    let with_a_thread = HostCosts { hand_over: Duration::from_micros(1), ..host };
    assert_eq!(sizes_after(with_a_thread), [1 << 20, 0, 0]);
    assert_eq!(sizes_after(HostCosts::default()), [0; 3]);
}

#[test]
fn a_timeline_agrees_with_what_the_engine_measures() {
    for plane in control::NAMES {
        let (outcome, trace) = job(plane, Duration::from_secs(60), TIMES);
        agrees(&outcome.unwrap(), &trace);
    }
}

fn agrees(outcome: &Outcome, trace: &Trace) {
    assert_eq!((outcome.wrong.count, trace.flaws), (0, Flaws::default()));
    assert_eq!(trace.ticks.len(), 3 * 12 * 3);
    let analysis = analyse(trace);
    for (rank, (log, share)) in outcome.ranks.iter().zip(&analysis.ranks).enumerate() {
        let own = |category, name: &'static str| {
            let spans = trace
                .spans
                .iter()
                .filter(move |span| (span.category, &*span.name) == (category, name));
            spans.filter(|span| trace.tracks[span.track].rank == Some(rank)).collect::<Vec<_>>()
        };
        let same = |spans: &[&Span], times: Vec<Duration>| {
            assert_eq!(spans.len(), times.len());
            for (span, time) in spans.iter().zip(times) {
                let time_us = time.as_nanos() as f64 / 1e3;
                assert!((span.time_us() - time_us).abs() < 1e-3, "{span:?} took {time_us} us");
            }
        };
        let steps = own(Category::Step, names::STEP);
        same(&[steps[0], steps[2]], vec![log.steps[0].time, log.steps[2].time]);
        // The last step may begin while the optimizer of the one before still runs.
        assert!(steps[1].time_us() < log.steps[1].time.as_nanos() as f64 / 1e3 + 1e-3);
        assert!(steps[1].end_us < steps[2].begin_us + 1e-3);
        let cycles = log.cycles.iter().map(|cycle| cycle.negotiation);
        same(&own(Category::Cycle, names::NEGOTIATE), cycles.collect());
        let messages = own(Category::Message, names::MESSAGE);
        same(&messages, log.messages.iter().map(|message| message.time).collect());
        let tensors: Vec<_> = log.messages.iter().map(|message| message.tensors as u64).collect();
        assert_eq!(messages.iter().filter_map(|span| span.tensors).collect::<Vec<_>>(), tensors);
        assert_eq!(own(Category::Tensor, names::ALLREDUCE).len(), 12 * 3);
        let packing: Duration = log.steps.iter().map(|step| step.packing).sum();
        let packing_us = packing.as_nanos() as f64 / 1e3;
        assert!(packing_us > 0.0 && (share.packing_us - packing_us).abs() < 1e-2);
        // The loop is idle, or it reduces; and the first gradient of a cycle waits while the loop is idle.
        for step in &log.steps {
            assert!(step.until_cycle <= step.cycle_wait, "{step:?}");
            assert!(step.until_cycle + step.data <= step.time, "{step:?}");
            assert!(step.reduction.is_some_and(|time| time <= step.data), "{step:?}");
        }
        assert!(log.steps.iter().any(|step| step.until_cycle > Duration::ZERO));
        let idle = log.cycles.iter().filter(|cycle| cycle.messages == 0).count();
        assert_eq!(share.cycles, Some(Cycles { count: log.cycles.len(), idle }));
        let data: Duration = log.steps.iter().map(|step| step.data).sum();
        assert!(share.communication_us >= data.as_nanos() as f64 / 1e3 - 1e-2);
        assert!(share.exposed_us.unwrap() <= share.communication_us);
    }
    let negotiation = analysis.negotiation.unwrap();
    assert_eq!((negotiation.time.samples, negotiation.ticked), (36, 36));
    assert_eq!(analysis.messages.unwrap().count, outcome.ranks[0].messages.len());
}

/// Ranks that time out after a microsecond fail soon, and the file shows in which operation.
#[test]
fn a_failed_job_has_a_timeline() {
    let (outcome, trace) = job("bitvector", Duration::from_micros(1), TIMES);
    assert!(outcome.is_err());
    let open = |span: &&Span| span.end_us == trace.last_us && &*span.name == names::CYCLE;
    assert!(trace.flaws.open > 0 && trace.spans.iter().any(|span| open(&span)));
    assert!(!analyse(&trace).ranks.is_empty());
}
