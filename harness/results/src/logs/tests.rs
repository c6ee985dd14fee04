use super::*;
use algorithms::topology::Topology;

/// A log of `tests/data/logs`.
fn log(name: &str) -> Log {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/logs");
    Log::read(&folder.join(name)).unwrap()
}

fn parse(text: &str) -> Log {
    Log::parse(text, Path::new("a.log")).unwrap()
}

fn notes(log: &Log) -> String {
    log.notes().collect::<Vec<_>>().join("\n")
}

/// Lines of a version's table: header, and a line of times.
const NEWEST: &str = "\
# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
# Using devices
#  Rank  0 Group  0 Pid 12 on gpu-1 device  0 [0001:00:00] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid 13 on gpu-2 device  0 [0001:00:00] NVIDIA A100-SXM4-80GB
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
     1048576        262144     float     sum      -1    41.23   25.43   25.43       0    40.23   26.06   26.06       0
# Out of bounds values : 0 OK
";

#[test]
fn a_table_of_kolo_bench_is_read_with_its_ranks_and_algorithms() {
    let log = log("kolo-bench.log");
    assert_eq!((log.format, log.notes.as_slice()), (Format::NcclTests, [].as_slice()));
    let names: Vec<_> =
        log.tables.iter().map(|table| table.algorithm.as_deref().unwrap()).collect();
    assert_eq!(names, ["ring", "tree"]);
    for table in &log.tables {
        assert_eq!(table.topology().unwrap().to_string(), "2x2");
        assert!(table.emulated && table.oversubscribed);
        assert_eq!(table.points.len(), 2 * 8);
        assert_eq!((table.points[0].iterations, table.points[0].wrong), (Some(20), Some(0)));
        assert!(table.is_median);
    }
    let rows = log.rows(None);
    assert_eq!(rows.len(), 32);
    assert_eq!(rows[0].key.case, "nccl-tests/2x2/ring/f32/sum/1024B/out-of-place");
}

#[test]
fn json_is_read_whole_and_cut() {
    let log = log("kolo-bench.json");
    assert_eq!(log.format, Format::NcclTestsJson);
    let table = &log.tables[0];
    assert_eq!((table.points.len(), table.operation.clone()), (16, Operation::AllReduce));
    assert_eq!(table.topology().unwrap().to_string(), "2x2");
    let text = fs::read_to_string(&log.path).unwrap();
    // Cut within the last result.
    let at = text.rfind("\"in_place\"").unwrap();
    let cut = parse(&text[..at]);
    assert_eq!(cut.tables[0].points[..], table.points[..14]);
    assert!(notes(&cut).contains("the end of the file is missing"), "{}", notes(&cut));
}

#[test]
fn osu_allreduce_is_read_with_and_without_further_columns() {
    let log = log("osu-allreduce.txt");
    assert_eq!(log.format, Format::Osu);
    assert_eq!(log.tables[0].points.len(), 8);
    assert!(log.tables[0].points.iter().all(|point| point.time_us_min.is_some()));
    assert_eq!(log.rows(None)[0].key.case, "osu/2x2/ring/f32/unknown/1024B/out-of-place");
    let old = parse(
        "\n# OSU MPI Allreduce Latency Test v5.8\n# Size       Avg Latency(us)\n4       1.34\n8       1.17\n",
    );
    let times: Vec<_> = old.tables[0].points.iter().map(|it| (it.size_bytes, it.time_us)).collect();
    assert_eq!(times, [(4, 1.34), (8, 1.17)]);
    // OSU does not say how many ranks there were.
    let bandwidths = |topology: Option<&Topology>| {
        let row = old.rows(topology).remove(0);
        let bandwidths = row.outcome.right().unwrap().bandwidths.clone();
        (row.key.ranks, bandwidths.map(|of| of.busbw_gb_s))
    };
    assert_eq!(bandwidths(None), (0, None));
    // 4 bytes in 1.34 us, by 3/2; rounded to MB/s.
    assert_eq!(bandwidths(Some(&Topology::uniform(2, 2))), (4, Some(0.004)));
}

/// What OSU micro-benchmarks 5.3 printed: two ranks of Open MPI 4.1.4 on one machine.
#[test]
fn logs_of_the_osu_micro_benchmarks_are_read() {
    let allreduce = log("osu-5.3-allreduce.txt");
    assert_eq!((allreduce.format, allreduce.tables.len()), (Format::Osu, 1));
    let table = &allreduce.tables[0];
    assert_eq!((&table.operation, table.points.len()), (&Operation::AllReduce, 19));
    let last = &table.points[18];
    assert_eq!((last.size_bytes, last.time_us, last.time_us_min), (1 << 20, 234.2, Some(234.17)));
    let latency = log("osu-5.3-latency.txt");
    assert_eq!(latency.tables[0].operation, Operation::Message);
    assert_eq!(latency.tables[0].points[1].time_us, 0.19);
    assert_eq!(latency.tables[0].points.last().unwrap().size_bytes, 4 << 20);
}

#[test]
fn osu_programs_are_told_apart() {
    for (title, header, expected) in [
        (
            "OSU MPI-CUDA Allreduce Latency Test v7.3",
            "# Size       Avg Latency(us)",
            Operation::AllReduce,
        ),
        ("OSU MPI Latency Test v3.3", "# Size            Latency (us)", Operation::Message),
        ("OSU MPI Latency Test v7.5", "# Size       Avg Latency(us)", Operation::Message),
        ("OSU MPI Bandwidth Test v7.5", "# Size      Bandwidth (MB/s)", Operation::Stream),
        (
            "OSU MPI Non-blocking Allreduce Latency Test v7.0",
            "# Size       Avg Latency(us)",
            Operation::Other("mpi non-blocking allreduce latency".into()),
        ),
        (
            "OSU MPI_Put Latency Test v5.8",
            "# Size          Latency (us)",
            Operation::Other("mpi_put latency".into()),
        ),
    ] {
        let log = parse(&format!("# {title}\n{header}\n1024 2.00\n"));
        assert_eq!(log.tables[0].operation, expected, "{title}");
        let time_us = if expected == Operation::Stream { 512.0 } else { 2.0 };
        assert_eq!(log.tables[0].points[0].time_us, time_us);
    }
}

#[test]
fn an_autotuners_log_of_every_version_is_read() {
    for (header, line, torus, cache) in [
        (
            "hierarchical_allreduce,hierarchical_allgather,cycle_time_ms,tensor_fusion_threshold,score",
            "0,0,5,4,424.1",
            false,
            true,
        ),
        (
            "hierarchical_allreduce,hierarchical_allgather,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score",
            "0,0,0,5,4,424.1",
            false,
            false,
        ),
        (
            "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score",
            // As Horovod writes it, with a space.
            "0,0,1, 1,5,4,424.1",
            true,
            true,
        ),
    ] {
        let log = parse(&format!("{header}\n{line}\n"));
        let trial = &log.trials[0];
        assert_eq!((trial.torus_allreduce, trial.cache_enabled), (torus, cache));
        assert_eq!(
            (trial.cycle_time_ms, trial.fusion_threshold_mib, trial.score),
            (5.0, 4.0, 424.1)
        );
        let cut = parse(&format!("{header}\n{line}\n0,0,"));
        assert_eq!(cut.trials.len(), 1);
        assert_eq!(notes(&cut), "a.log:3: the line is cut; it is left out");
        let cut = parse(&format!("{header}\n{line}\n{}", &line[..line.len() - 2]));
        assert_eq!(cut.trials.len(), 1);
        let said = "a.log:3: the line has no end, so its score may be cut; it is left out";
        assert_eq!(notes(&cut), said);
    }
    let header = "hierarchical_allreduce,hierarchical_allgather,cycle_time_ms,tensor_fusion_threshold,score\n";
    let why = Log::parse(header, Path::new("a.csv")).unwrap_err().to_string();
    assert!(why.starts_with("a.csv:1: found a header alone: the tuner had no time"), "{why}");
}

#[test]
fn an_autotuner_that_ended_repeats_its_best_setting() {
    let header = "hierarchical_allreduce,hierarchical_allgather,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score";
    let tried = format!("{header}\n0,0,1,5,64,400\n0,0,1,1,32,500\n0,0,1,5,64,410\n");
    let (trials, answer) = (parse(&tried).trials, |trials: &[Trial]| {
        let (tried, answer) = autotune::answer(trials);
        (tried.len(), answer.map(|answer| (answer.line, answer.score)))
    });
    assert_eq!(answer(&trials), (3, None));
    assert_eq!(answer(&[]), (0, None));
    let ended = parse(&format!("{tried}0,0,1,1,32,500\n")).trials;
    assert_eq!(answer(&ended), (3, Some((5, 500.0))));
}

/// Columns came and went; a blank one has no word.
#[test]
fn tables_of_every_version_are_read() {
    let first = |text: &str| {
        let log = parse(text);
        assert_eq!(log.notes, [], "{text}");
        log.tables[0]
            .points
            .iter()
            .map(|it| (it.time_us, it.in_place, it.wrong))
            .collect::<Vec<_>>()
    };
    let both = vec![(41.23, false, Some(0)), (40.23, true, Some(0))];
    let head = "#       size         count      type";
    let half = "    time   algbw   busbw";
    let line = "     1048576        262144     float";
    let ends = "\n# Out of bounds values : 0 OK\n";
    // 2.0: no root, the largest error; 2.10: root.
    let old = format!(
        "{head}   redop {half}  error {half}  error\n{line}     sum    41.23   25.43   25.43  2e-07    40.23   26.06   26.06  0e+00{ends}"
    );
    assert_eq!(first(&old), both);
    let blank = format!(
        "{head} {half}  error {half}  error\n{line}    41.23   25.43   25.43  0e+00    40.23   26.06   26.06  0e+00{ends}"
    );
    assert_eq!(first(&blank), both);
    assert_eq!(first(NEWEST), both);
    // A root that is left blank, beside a time without decimals.
    let blank_root = format!(
        "{head}   redop    root {half}  #wrong {half}  #wrong\n{line}     sum           123456   25.43   25.43       0   123457   26.06   26.06       0{ends}"
    );
    assert_eq!(first(&blank_root)[1], (123457.0, true, Some(0)));
    // Without a check; with time stamps; with times of single iterations; in place alone; out of place alone.
    let unchecked = NEWEST
        .replace("       0    40.23", "     N/A    40.23")
        .replace("26.06       0", "26.06     N/A");
    assert_eq!(first(&unchecked), [(41.23, false, None), (40.23, true, None)]);
    let stamped = NEWEST.replace("26.06       0", "26.06       0  2026-01-02 03:04:05");
    assert_eq!(first(&stamped), both);
    let single = format!(
        "{head}   redop    root {half} #wrong i_min i_max i_p99 i_cv% {half} #wrong i_min i_max i_p99 i_cv%\n{line} sum -1 41.23 25.43 25.43 0 40.00 50.00 49.00 3.10 40.23 26.06 26.06 0 39.00 51.00 50.00 3.20{ends}"
    );
    assert_eq!(first(&single), both);
    assert_eq!(parse(&single).tables[0].points[1].time_us_max, Some(51.0));
    let in_place =
        NEWEST.replace("    41.23   25.43   25.43       0", "                                ");
    assert_eq!(first(&in_place), both[1..]);
    let one = format!("{head} redop root {half} #wrong\n{line} sum -1 41.23 25.43 25.43 0{ends}");
    assert_eq!(first(&one), both[..1]);
}

#[test]
fn prefixes_of_launchers_and_lines_of_nccl_are_passed_over() {
    for prefix in ["0: ", "[1,0]<stdout>:", "2026-01-02T03:04:05Z "] {
        let text: String = NEWEST.lines().map(|line| format!("{prefix}{line}\n")).collect();
        let text = text.replace(
            "# Using",
            "# gpu-1:12:12 [0] NCCL INFO NCCL_ALGO set by environment to tree.\n# Using",
        );
        let log = parse(&text);
        assert_eq!(log.tables[0].points.len(), 2, "{prefix}");
        assert_eq!(log.tables[0].algorithm.as_deref(), Some("Tree"));
        assert_eq!(log.tables[0].topology().unwrap().to_string(), "2x1");
        assert_eq!(log.tables[0].device, "NVIDIA A100-SXM4-80GB");
    }
}

#[test]
fn several_tables_of_a_file_have_each_their_own_environment() {
    let run = |algorithm: &str, program: &str| {
        format!(
            "mpirun -x NCCL_ALGO={algorithm} -x NCCL_PROTO=ll128 ./build/{program} -b 8\n{NEWEST}"
        )
    };
    let text = run("Ring", "all_reduce_perf")
        + &run("Tree", "all_reduce_perf")
        + &run("Ring", "all_gather_perf");
    let log = parse(&text);
    let names: Vec<_> = log.tables.iter().map(|it| it.algorithm.clone().unwrap()).collect();
    assert_eq!(names, ["Ring", "Tree", "Ring"]);
    assert!(log.tables.iter().all(|it| it.protocol.as_deref() == Some("LL128")));
    assert_eq!(log.tables[2].operation, Operation::Other("all_gather".into()));
    assert_eq!((log.rows(None).len(), log.others().len()), (4, 1));
    assert!(log.others()[0].ends_with("all_gather: no allreduce, left out"), "{:?}", log.others());
}

#[test]
fn a_files_name_says_what_the_log_does_not() {
    let named = |name: &str| named_in_path(Path::new(name));
    let some = |name: &str| Some(name.to_string());
    assert_eq!(named("logs/ring-ll128.log"), (some("Ring"), some("LL128")));
    assert_eq!(named("ar_Tree_simple_4n.txt"), (some("Tree"), some("Simple")));
    assert_eq!(named("ring-and-tree.log"), (None, None));
    assert_eq!(named("string.log"), (None, None));
    let log = Log::parse(NEWEST, Path::new("tree.ll.log")).unwrap();
    assert_eq!(
        (log.tables[0].algorithm.clone(), log.tables[0].protocol.clone()),
        (some("Tree"), some("LL"))
    );
}

#[test]
fn of_a_log_that_is_cut_the_whole_lines_are_read() {
    let whole = NEWEST.find("41.23").unwrap();
    let (before, line) = (
        &NEWEST[..NEWEST.find("     1048576").unwrap()],
        "     1048576        262144     float     sum      -1    41.23   25.43   25.43       0    40.23   26.06   26.06       0\n",
    );
    let log = parse(&format!("{before}{line}{}", &line[..60]));
    assert_eq!(log.tables[0].points.len(), 2);
    assert!(notes(&log).starts_with("a.log:7: "), "{}", notes(&log));
    assert!(notes(&log).contains("the end of the table is missing"), "{}", notes(&log));
    let why = Log::parse(&NEWEST[..whole], Path::new("a.log")).unwrap_err().to_string();
    assert!(
        why.starts_with("a.log:6: found ") && why.contains("look at the end of the log"),
        "{why}"
    );
}

#[test]
fn what_is_no_log_is_refused_with_its_first_line() {
    for text in ["", "size,time\n1,2\n", "{\"traceEvents\": []}", "schema,kind,case\n1,step,a\n"] {
        let why = Log::parse(text, Path::new("x.txt")).unwrap_err().to_string();
        assert!(
            why.starts_with("x.txt:1: found ") && why.contains("expected a log of nccl-tests"),
            "{why}"
        );
    }
}

#[test]
fn wrong_data_and_mixed_jobs_are_told() {
    let log = parse(&NEWEST.replace("25.43       0 ", "25.43      12 "));
    assert!(
        log.rows(None)[0].outcome.right().is_none() && log.rows(None)[1].outcome.right().is_some()
    );
    let log = parse(&NEWEST.replace("Rank  1", "Rank  0"));
    assert_eq!(log.tables[0].topology(), None);
    assert!(notes(&log).contains("several jobs wrote into this log"), "{}", notes(&log));
    // As in a part of a log that somebody quotes.
    let log = parse(&NEWEST.replace("Rank  1", "Rank 71"));
    assert_eq!(log.tables[0].topology(), None);
    let missing = "ranks are missing from the list of devices; how many there are is not known";
    assert!(notes(&log).contains(missing), "{}", notes(&log));
}

/// A log without the program's name: its columns tell what was timed.
#[test]
fn an_unnamed_collective_is_an_allreduce_only_if_its_columns_say_so() {
    let operation = |text: &str| parse(text).tables[0].operation.clone();
    assert_eq!(operation(NEWEST), Operation::AllReduce);
    for (from, to) in [
        ("sum      -1", "none       0"),
        ("sum      -1", "sum       0"),
        ("25.43   25.43", "25.43   12.71"),
    ] {
        assert!(matches!(operation(&NEWEST.replace(from, to)), Operation::Other(_)), "{to}");
    }
}
