//! `kolo bench`: nccl-tests' table for our algorithms, and for the MPI library's own.

mod arguments;
mod gpus;
mod json;
mod kernels;
mod line;
mod lines;
mod local;
mod nccl;
mod osu;
mod out;
#[cfg(feature = "mpi")]
mod processes;
mod request;
mod sheet;
mod table;
mod turns;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Exit, usage};
use cluster::launch::Launched;
use measure::back_ends;
use results::row::{CollectiveRow, Row};
use training::back_end::BackEndRef;

pub use arguments::Arguments;
use arguments::Layout;

/// Version of [`Benched`] as JSON. Rows have a version of their own.
const SCHEMA: u32 = 1;

/// What `kolo bench` measured.
#[derive(Serialize, JsonSchema)]
pub struct Benched {
    /// Version of this structure.
    schema: u32,
    /// A row for each size, out of place and in place, with the columns of rows.csv.
    rows: Vec<Row>,
}

impl Benched {
    fn of(rows: Vec<CollectiveRow>) -> Benched {
        Benched { schema: SCHEMA, rows: rows.into_iter().map(Row::from).collect() }
    }

    /// The rows as CSV.
    fn csv(&self) -> Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        self.rows.iter().try_for_each(|row| writer.serialize(row))?;
        Ok(writer.into_inner()?)
    }
}

/// How `kolo bench` runs over a back end.
#[derive(Clone, Copy)]
struct Runner {
    /// Options that only some back ends have.
    options: &'static [&'static str],
    run: fn(&Arguments) -> Result<Exit>,
}

/// Of back ends whose ranks are in this process.
const LOCAL: Runner = Runner { options: &["--bound", "--sync"], run: local::run };

/// Of back ends that have more to ask for, or whose ranks are processes.
const SPECIAL: [(&str, Runner); 3] = [
    (transports::transport::MPI, Runner { options: &["--force", "--sync"], run: processes::run }),
    (gpu::cuda::NAME, Runner { options: &["--graph", "-G", "--kernels"], run: gpus::run }),
    (
        gpu::nccl::NAME,
        Runner { options: &["--force", "--nccl-algo", "--nccl-proto"], run: nccl::run },
    ),
];

/// The runner of a back end, if `kolo bench` has one.
fn runner(back_end: BackEndRef) -> Option<Runner> {
    let special = SPECIAL.iter().find(|(name, _)| *name == back_end.name());
    let local = (!back_ends::has_processes(back_end)).then_some(LOCAL);
    special.map(|(_, runner)| *runner).or(local)
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    if let Some(path) = arguments.out.as_ref().filter(|path| path.exists()) {
        return Err(usage(format!("{} exists; results are never overwritten", path.display())));
    }
    if matches!(arguments.format, Layout::Markdown | Layout::Csv) {
        for (option, is_given) in [
            ("--out-prefix", arguments.out_prefix.is_some()),
            ("-J", arguments.json.is_some()),
            ("--kernels", arguments.kernels.is_some()),
        ] {
            if is_given {
                return Err(usage(format!(
                    "--format markdown and csv print one table of all rows; leave {option} out, or choose another --format"
                )));
            }
        }
    }
    let back_end = arguments.back_end();
    let Some(runner) = runner(back_end) else {
        let known = choices(|_| true);
        return Err(usage(format!("kolo bench does not measure {back_end}; choose {known}")));
    };
    for option in arguments.special_options() {
        if !runner.options.contains(&option) {
            let known = choices(|(_, runner)| runner.options.contains(&option));
            return Err(usage(format!("{option} requires --transport {known}")));
        }
    }
    if arguments.agg_iters != 1 {
        let found = arguments.agg_iters;
        return Err(usage(format!(
            "-m {found}: collectives are launched one by one, expected 1; leave -m out, or use --graph over cuda"
        )));
    }
    if arguments.cycles == 0 {
        return Err(usage("-N 0: a run without end is not offered, expected at least 1"));
    }
    if let Some(ranks) = arguments.threads_times_gpus()
        && back_ends::has_processes(back_end)
        && ranks != 1
    {
        return Err(usage(format!(
            "-t and -g ask for {ranks} ranks per process, but over {back_end} a process has one, expected -t 1 -g 1; \
             start more processes"
        )));
    }
    let started = Launched::here().filter(|launched| launched.tasks > 1);
    if let Some(Launched { tasks, .. }) = started
        && !back_ends::has_processes(back_end)
    {
        return Err(usage(format!(
            "started as {tasks} processes, but ranks over {back_end} are in one process; start one process, or \
             choose --transport {}",
            choices(|(back_end, _)| back_ends::has_processes(*back_end))
        )));
    }
    (runner.run)(arguments)
}

/// Names of back ends with a runner, as in `a, b or c`.
fn choices(is_chosen: impl Fn(&(BackEndRef, Runner)) -> bool) -> String {
    let with_runner = |back_end| Some((back_end, runner(back_end)?));
    let all = back_ends::all().into_iter().filter_map(with_runner);
    let names: Vec<&str> = all.filter(is_chosen).map(|(back_end, _)| back_end.name()).collect();
    match &names[..] {
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(not(feature = "mpi"))]
mod processes {
    use super::{Arguments, Exit, Result, usage};

    pub fn run(_: &Arguments) -> Result<Exit> {
        Err(usage("this program was built without MPI; build it with --features mpi"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use algorithms::topology::Topology;
    use results::provenance::Launch;
    use training::back_end::{BackEnd, LocalRanks, RankKind, Shares};
    use training::engine::RankMemory;
    use training::job::Job;
    use training::outcome::{BackEndError, EngineError, Outcome};
    use transports::bench::{Bench, Timed};
    use transports::pattern::Wrong;

    /// A back end that is not in the registry, whose allreduce always takes 250 us.
    struct Constant;

    impl BackEnd for Constant {
        fn name(&self) -> &'static str {
            "constant"
        }

        fn rank_kind(&self) -> RankKind {
            RankKind::Thread
        }

        fn availability(&self) -> Result<String, BackEndError> {
            Ok("for tests".into())
        }

        fn open(&self, _: &mut Launch) -> Result<Box<dyn LocalRanks>, BackEndError> {
            Ok(Box::new(Constant))
        }
    }

    impl LocalRanks for Constant {
        fn shares(&self, _: &Topology) -> Shares {
            Shares { emulated: false, oversubscribed: false }
        }

        fn run(&mut self, _: &Job, _: &mut [RankMemory]) -> Result<Outcome, EngineError> {
            unreachable!("kolo bench does not train")
        }

        fn bench(&mut self, bench: &Bench) -> Result<Timed, EngineError> {
            Ok(Timed {
                times: vec![Duration::from_micros(250); bench.repetitions],
                wrong: Some(Wrong::default()),
                ..Timed::default()
            })
        }
    }

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_back_end_that_is_added_is_measured() {
        back_ends::add(&Constant);
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("rows.csv");
        let line = [
            "bench",
            "--transport",
            "constant",
            "--algorithm",
            "ring",
            "-b",
            "1K",
            "-e",
            "1K",
            "--out",
        ];
        let line = line.into_iter().map(Into::into).chain([out.clone().into_os_string()]);
        let CommandLine { arguments } = CommandLine::parse_from(line);
        assert_eq!(run(&arguments).unwrap(), Exit::Right);
        let mut rows = csv::Reader::from_path(out).unwrap();
        let head = rows.headers().unwrap().clone();
        let at = |name: &str| head.iter().position(|column| column == name).unwrap();
        let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2, "out of place and in place");
        for row in rows {
            assert_eq!(&row[at("transport")], "constant");
            assert_eq!(&row[at("time_us_p50")], "250.0");
        }
        assert!(runner(&Constant).is_some());
    }

    #[test]
    fn every_back_end_of_the_registry_is_measured() {
        for back_end in back_ends::all() {
            assert!(runner(back_end).is_some(), "{back_end}");
        }
        for (name, _) in SPECIAL {
            assert!(back_ends::find(name).is_some(), "{name} is in the registry");
        }
    }

    #[test]
    fn choices_are_enumerated() {
        let only =
            |wanted: &'static [&str]| choices(|(back_end, _)| wanted.contains(&back_end.name()));
        assert_eq!(only(&["threads"]), "threads");
        assert_eq!(only(&["threads", "mpi", "cuda"]), "threads, mpi or cuda");
    }
}
