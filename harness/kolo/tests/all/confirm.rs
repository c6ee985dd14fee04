//! The script that measures recommendations, and the evaluation of its rows.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::json;
use tune::answer::Ratio;
use tune::confirm::{self, Finding, Measured, REPORT, Setting, read, verdict};
use workloads::framework::{Compression, Framework};
use workloads::replay::StepTimes;
use workloads::workload::{Gradient, Workload};

use crate::coverage::not_tested;

/// Names that end Python's texts, comments and lines, if they are let.
const AWKWARD: &str = "a\"b'c\\d\n# PLAN\n\"\"\"{}%s č\u{2028}\u{0}";

fn workload() -> Workload {
    let gradient = |name: &str, shape: &[u64], ready_fraction| Gradient {
        name: name.into(),
        shape: shape.into(),
        ready_fraction,
    };
    Workload {
        name: AWKWARD.into(),
        gradients: vec![
            gradient("embedding", &[3, 2], 1.0),
            gradient(AWKWARD, &[], 1e-7),
            gradient("never", &[2], f64::INFINITY),
        ],
        ready_order: vec![1, 0, 2],
        ready_assumed: false,
    }
}

fn settings() -> Vec<Setting> {
    let setting =
        |label: &str, variables| Setting { label: label.into(), variables, ..Setting::default() };
    vec![
        Setting {
            framework: Framework {
                backward_passes_per_step: 3,
                compression: Compression::Fp16,
                gradient_predivide_factor: 2.0,
                ..Framework::default()
            },
            groups: vec![vec![1, 0], vec![2]],
            ..setting("recommended", vec![("HOROVOD_CYCLE_TIME", "2.5".into())])
        },
        setting("it's, \"default\"\n", vec![]),
        setting("64 MiB", vec![("HOROVOD_FUSION_THRESHOLD", "67108864".into())]),
    ]
}

fn script(blocks: usize) -> String {
    let ms = Duration::from_millis;
    let times = StepTimes {
        forward: ms(1),
        backward: ms(2),
        optimizer: Duration::ZERO,
        ..StepTimes::default()
    };
    confirm::script(&settings(), &workload(), times, blocks)
}

fn has_python() -> bool {
    match Command::new("python3").arg("--version").output() {
        Ok(_) => true,
        Err(error) => {
            not_tested("the script of kolo tune --confirm-script", format!("python3: {error}"));
            false
        }
    }
}

/// Runs the script in `folder`, which may have stubs of torch and Horovod.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    let path = folder.join("confirm.py");
    fs::write(&path, script(4)).unwrap();
    let mut python = Command::new("python3");
    python.arg(&path).args(arguments).env("PYTHONPATH", folder);
    python.env("HOROVOD_FUSION_THRESHOLD", "1").env("HOROVOD_AUTOTUNE", "1").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn python_reads_back_what_was_written() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("confirm.py");
    fs::write(&path, script(7)).unwrap();
    let compiled = Command::new("python3").args(["-m", "py_compile"]).arg(&path).output().unwrap();
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let print = "import json, confirm as c; print(json.dumps([c.WORKLOAD, c.SETTINGS, c.GRADIENTS, \
                 c.BLOCKS, c.FORWARD_MS, c.BACKWARD_MS, c.OPTIMIZER_MS]))";
    let mut python = Command::new("python3");
    let printed = python.args(["-c", print]).current_dir(folder.path()).output().unwrap();
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let found: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    let expected = json!([
        AWKWARD,
        [
            [
                "recommended",
                {"HOROVOD_CYCLE_TIME": "2.5"},
                {
                    "passes": 3,
                    "compression": "fp16",
                    "prescale_factor": 0.5,
                    "postscale_factor": 2.0,
                    "groups": [[0, 1], []],
                },
            ],
            ["it's, \"default\"\n", {}, {}],
            ["64 MiB", {"HOROVOD_FUSION_THRESHOLD": "67108864"}, {}],
        ],
        [[AWKWARD, [], 1e-7], ["embedding", [3, 2], 1.0]],
        7,
        1.0,
        2.0,
        0.0,
    ]);
    assert_eq!(found, expected);
}

#[test]
fn a_dry_run_prints_commands_in_random_order() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["-np", "8", "-H", "n1:4,n2:4", "--dry-run", "--blocks", "5", "--steps", "3"];
    let output = run(folder.path(), &arguments);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 2 * 3 * 5);
    let mut orders = Vec::new();
    for (block, lines) in lines.chunks(6).enumerate() {
        let labels = lines.iter().step_by(2).enumerate().map(|(order, line)| {
            line.strip_prefix(&format!("# block {block}, order {order}: ")).unwrap()
        });
        let mut labels: Vec<&str> = labels.collect();
        orders.push(labels.clone());
        labels.sort();
        assert_eq!(labels, ["64 MiB", "it's, \"default\"", "recommended"]);
    }
    orders.dedup();
    assert!(orders.len() > 1, "every block has the same order: {printed}");
    let line = lines.iter().find(|line| line.starts_with("env HOROVOD_CYCLE_TIME=2.5 ")).unwrap();
    assert!(line.contains(" horovodrun -np 8 -H n1:4,n2:4 "), "{line}");
    assert!(
        line.ends_with("--worker 0 --warmup 10 --steps 3 --device auto --dtype float32"),
        "{line}"
    );
    assert_eq!(run(folder.path(), &arguments).stdout, output.stdout, "the seed fixes the order");
}

/// One rank with stubs of torch and Horovod. The tensors that they reduce, and the variables they see, go to the
/// file `log`.
const TORCH: &str = r#"
float32 = float64 = "float"
class Tensor:
    def __init__(self, data): self.data = data
    def clone(self): return Tensor(self.data)
    def add_(self, other): self.data += other.data
    def set_(self, other): self.data = other.data
    def numel(self): return 1
    def element_size(self): return 4
    def __sub__(self, other): return Tensor(self.data - other)
    def abs(self): return Tensor(abs(self.data))
    def max(self): return self.data
    def tolist(self): return self.data
class device:
    def __init__(self, type, index=0): self.type = type
class cuda:
    def is_available(): return False
def full(shape, value, dtype, device): return Tensor(value)
def tensor(data, dtype): return Tensor(data)
"#;
const HOROVOD: &str = r#"
import os, sys
Average = "average"
def log(what):
    with open(os.path.join(os.path.dirname(__file__), "log"), "a", encoding="utf-8") as file:
        file.write(repr(what) + "\n")
def init():
    log({name: os.environ[name] for name in os.environ if name.startswith("HOROVOD_")})
    if "FAIL" in os.environ and "HOROVOD_CYCLE_TIME" in os.environ:
        sys.exit("no such\ndevice")
    if "HANG" in os.environ:
        import time
        time.sleep(60)
    if "SHUT_DOWN" in os.environ:
        import atexit, time
        atexit.register(time.sleep, 60)
def fail():
    if "SHUT_DOWN" in os.environ: raise RuntimeError("Horovod has been shut down")
def shutdown(): pass
def rank(): return 0
def local_rank(): return 0
def size(): return 1
class Compression:
    class none:
        compress = staticmethod(lambda tensor: (tensor, None))
        decompress = staticmethod(lambda tensor, context: tensor)
    class fp16:
        compress = staticmethod(lambda tensor: (tensor.clone(), "float"))
        decompress = staticmethod(lambda tensor, context: tensor)
def allreduce_async_(tensor, name, op):
    log(name)
    if "WRONG" in os.environ: tensor.data = 7
    fail()
    return tensor
def grouped_allreduce_async_(tensors, name, op, prescale_factor, postscale_factor):
    log((len(tensors), prescale_factor, postscale_factor))
    for tensor in tensors: tensor.data = 7 if "WRONG" in os.environ else tensor.data
    fail()
    return tensors
def synchronize(handle): return handle
def poll(handle): return True
def allgather(tensor, name): return tensor
def broadcast_object(value, name): return value
"#;

fn fake_horovod(folder: &Path) {
    fs::create_dir(folder.join("horovod")).unwrap();
    fs::write(folder.join("torch.py"), TORCH).unwrap();
    fs::write(folder.join("horovod/__init__.py"), "").unwrap();
    fs::write(folder.join("horovod/torch.py"), HOROVOD).unwrap();
}

const SHORT: [&str; 6] = ["--launcher", "env", "--steps", "2", "--warmup", "1"];

#[test]
fn the_script_measures_every_setting_in_every_block() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fake_horovod(folder.path());
    let output = run(folder.path(), &SHORT);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let path = folder.path().join("confirm.csv");
    fs::write(&path, &output.stdout).unwrap();
    let rows = read(&path).unwrap();
    assert_eq!(rows.len(), 3 * 4);
    // A step takes its forward and backward pass at least.
    assert!(rows.iter().all(|row| row.step_ms >= 3.0 && row.ranks == 1), "{rows:?}");
    let promised = [("64 MiB".into(), (1.0, 1.1))];
    let blocks: Vec<_> = verdict(&rows, "recommended", &promised)
        .into_iter()
        .map(|comparison| (comparison.other, comparison.blocks, comparison.finding.is_some()))
        .collect();
    let expected = [("64 MiB".into(), 4, true), ("it's, \"default\"\n".into(), 4, false)];
    assert_eq!(blocks, expected);
    let log = fs::read_to_string(folder.path().join("horovod/log")).unwrap();
    let count = |line: &str| log.lines().filter(|&found| found == line).count();
    assert_eq!(count("{'HOROVOD_CYCLE_TIME': '2.5'}"), 4, "{log}");
    assert_eq!(count("{'HOROVOD_FUSION_THRESHOLD': '67108864'}"), 4, "{log}");
    assert_eq!(count("{}"), 4, "variables of the shell reach no setting: {log}");
    let blocks_of_steps = 4 * (1 + 2 + 1);
    assert_eq!(count("'embedding'"), 2 * blocks_of_steps, "{log}");
    assert_eq!(count("(2, 0.5, 2.0)"), blocks_of_steps, "one group after three passes: {log}");
}

/// Autotune with the stubs in `folder`, and a log of two settings.
fn autotune(folder: &Path) -> Command {
    let [confirm, log] = ["confirm.py", "autotune.csv"].map(|name| folder.join(name));
    fs::write(&confirm, script(4)).unwrap();
    let tried =
        "cache_enabled,cycle_time_ms,tensor_fusion_threshold,score\n1,5,64,1.5\n0,2.5,8,2\n";
    fs::write(&log, tried).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../against/src/autotune.py");
    let mut python = Command::new("python3");
    python.arg(program).args([&confirm, &log]).args(["5000", "float32"]).env("PYTHONPATH", folder);
    python
}

/// Horovod's autotune replays the steps of the same script until its log stands still.
#[test]
fn autotune_replays_the_steps_until_its_log_stands_still() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fake_horovod(folder.path());
    let output = autotune(folder.path()).output().unwrap();
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = printed.lines().find_map(|line| line.strip_prefix(REPORT)).unwrap();
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    for (key, expected) in [
        ("finished", json!(true)),
        ("steps", json!(50)),
        ("settings", json!(1)),
        ("fusion_threshold_mib", json!(8.0)),
        ("cycle_time_ms", json!(2.5)),
        ("is_cached", json!(false)),
    ] {
        assert_eq!(report[key], expected, "{key}: {report}");
    }
}

#[test]
fn a_block_that_fails_has_a_reason_and_no_row() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fake_horovod(folder.path());
    let launcher = |variable: &str| format!("env {variable}=1");
    let output =
        run(folder.path(), &["--launcher", &launcher("FAIL"), "--steps", "2", "--warmup", "0"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let reason = "recommended: exit status 1 and no report; its last line: device";
    assert_eq!(printed.matches(reason).count(), 4, "{printed}");
    let path = folder.path().join("confirm.csv");
    fs::write(&path, &printed).unwrap();
    let rows = read(&path).unwrap();
    assert_eq!(rows.len(), 2 * 4);
    let verdict = verdict(&rows, "recommended", &[("64 MiB".into(), (1.0, 1.1))]);
    assert_eq!(
        verdict[0].to_string(),
        "recommended against 64 MiB: 0 blocks have both, expected at least 4; run confirm.py with \
         more --blocks"
    );
    for (variable, reason) in
        [("WRONG", "rank 0 has a wrong result in "), ("HANG", "no result after 1 s (--timeout)")]
    {
        let launcher = launcher(variable);
        let output =
            run(folder.path(), &["--launcher", &launcher, "--blocks", "1", "--timeout", "1"]);
        let printed = text(&output.stdout);
        assert!(!output.status.success());
        assert_eq!(printed.matches(reason).count(), 3, "{printed}");
        assert!(text(&output.stderr).ends_with("no block has a result\n"));
    }
}

/// Horovod waits for other ranks when a rank ends. That of a rank whose background thread has failed waits for ever.
#[test]
fn a_rank_that_fails_ends_at_once() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fake_horovod(folder.path());
    let shut_down = ["--launcher", "env SHUT_DOWN=1", "--blocks", "1", "--timeout", "50"];
    let output = run(folder.path(), &shut_down);
    let printed = text(&output.stdout);
    let reason =
        "exit status 1 and no report; its last line: RuntimeError: Horovod has been shut down";
    assert_eq!(printed.matches(reason).count(), 3, "{printed}");
    let start = Instant::now();
    let output = autotune(folder.path()).env("SHUT_DOWN", "1").output().unwrap();
    let said = text(&output.stderr);
    assert!(said.ends_with("RuntimeError: Horovod has been shut down\n"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    assert!(start.elapsed() < Duration::from_secs(50));
}

#[test]
fn the_script_reports_missing_modules() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (
            &["--launcher", "/no/such/launcher"][..],
            "/no/such/launcher is not on this machine's PATH",
        ),
        (&[], "give either -np, for horovodrun, or --launcher"),
        (&["-np", "0"], "0, expected 1 or more"),
        (&["-H", "a", "--launcher", "env"], "-H is for horovodrun"),
    ] {
        let output = run(folder.path(), arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{said}");
    }
    // These modules are found first, whether or not this machine has others.
    fs::write(folder.path().join("torch.py"), "raise ImportError('no torch here')").unwrap();
    let output = run(folder.path(), &SHORT);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("no torch here"), "{said}");
    assert_eq!(said.lines().count(), 1, "the first block says it, and is the last: {said}");
    fs::remove_file(folder.path().join("torch.py")).unwrap();
    fake_horovod(folder.path());
    let alone = folder.path().join("two");
    let quoted = "#!/bin/sh\n\"$@\" && \"$@\"\n";
    fs::write(&alone, quoted).unwrap();
    let launcher = format!("sh {}", alone.display());
    let output = run(folder.path(), &["--launcher", &launcher, "--steps", "2"]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("2 processes ran alone"), "{said}");
}

/// A step of warm-up and two that count; a gradient takes 10 us to hand over and 2 us to take back. Linux charged one wait
/// 3.7 ms.
const WAITS: &str = "
import confirm, types
now = iter([0.0, 20e-6, 1e-3, 1.004e-3] * 3)
confirm.time = types.SimpleNamespace(thread_time=lambda: next(now))
step = object.__new__(confirm.Steps)
step.gradients = types.SimpleNamespace(await_last_result=lambda: None, synchronize=lambda: None)
step.compute = lambda forward, backward: None
step.waits = [
    [(0.0, 0), (1.0, 2)],
    [(0.0, 0), (50e-6, 1), (3760e-6, 2)],
    [(5e-3, 0), (5.03e-3, 0), (5.07e-3, 1), (5.115e-3, 2)],
]
for at_once in [3, 0]:
    times_us = step.thread_us(steps=2, at_once=at_once)
    print('wake %.3f us, hand over %.3f us, take back %.3f us' % times_us)
";

/// The last of two results is there when it is asked for the third time.
const LAST_RESULT: &str = "
import confirm, types
answers, asked = iter([False, False, True]), []
gradients = object.__new__(confirm.Gradients)
gradients.hvd = types.SimpleNamespace(poll=lambda handle: asked.append(handle) or next(answers))
gradients.handles = [('first', [0], [None]), ('last', [1], [None])]
gradients.await_last_result()
print(*asked)
";

/// What Python prints for lines that import the script.
fn python_prints(lines: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("confirm.py"), script(4)).unwrap();
    let mut python = Command::new("python3");
    let output = python.args(["-c", lines]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn taking_back_is_timed_once_the_last_result_is_there() {
    if !has_python() {
        return;
    }
    assert_eq!(python_prints(LAST_RESULT), "last last last\n");
}

#[test]
fn waking_up_is_the_median_over_the_waits_of_measured_steps() {
    if !has_python() {
        return;
    }
    // Of 40, 3700, 30, 30 and 35 us.
    let expected = "wake 35.000 us, hand over 10.000 us, take back 2.000 us\n\
         wake 0.000 us, hand over 0.000 us, take back 0.000 us\n";
    assert_eq!(python_prints(WAITS), expected);
}

const HEADER: &str = "# of a run\nblock,order,setting,step_ms,min_ms,max_ms,steps,ranks,device\n";

#[test]
fn malformed_rows_are_refused_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("confirm.csv");
    let row = "0,0,default,5.5,5,6,30,8,cpu\n";
    for (text, expected) in [
        (String::new(), ":1: column \"block\" is missing; found \"\""),
        ("block,setting\n".into(), ":1: column \"step_ms\" is missing; found \"block,setting\""),
        (HEADER.into(), ":2: no rows; the comments in the file say why blocks have no result"),
        (
            format!("{HEADER}{row}# a block failed\n{}", row.replace("5.5", "soon")),
            ":5: step_ms is \"soon\", expected a time above 0",
        ),
        (format!("{HEADER}{}", row.replace("5.5", "NaN")), ":3: step_ms is \"NaN\", expected"),
        (format!("{HEADER}{}", row.replace("5.5", "0")), ":3: step_ms is \"0\", expected a time"),
        (format!("{HEADER}-1{row}"), ":3: block is \"-10\", expected a whole number"),
        (
            format!("{HEADER}{row}{row}"),
            ":4: block 0 has \"default\" twice, first in line 3; keep the rows of one run",
        ),
        (
            format!("{HEADER}{row}1,0,default,5.5,5,6,30,4,cpu\n"),
            ":4: ranks is 4, expected 8 as in line 3; keep the rows of one run",
        ),
        (format!("{HEADER}{row}#\n\n1,0,def"), ":6: 3 fields, expected 9 as in the header"),
    ] {
        fs::write(&path, &text).unwrap();
        let error = read(&path).unwrap_err().to_string();
        let expected = format!("{}{expected}", path.display());
        assert!(error.starts_with(&expected), "{error}\n{expected}");
    }
    let error = read(&folder.path().join("none.csv")).unwrap_err().to_string();
    assert!(error.contains("none.csv: No such file"), "{error}");
}

/// Blocks in which the recommended setting takes 10 ms, and the other the given multiple.
fn rows(ratios: &[f64]) -> Vec<Measured> {
    let row = |block, setting: &str, step_ms| Measured {
        block,
        setting: setting.into(),
        step_ms,
        ranks: 8,
    };
    let pair = |(block, ratio): (usize, &f64)| {
        // The machine's drift is the same for both.
        let ms = 10.0 + block as f64;
        [row(block, "default", ms * ratio), row(block, "recommended", ms)]
    };
    ratios.iter().enumerate().flat_map(pair).collect()
}

#[test]
fn intervals_are_student_s() {
    // Logarithms with mean 0.1 and standard deviation 0.02; t is 3.18245 at 3 degrees of freedom.
    let spread = 0.02 * 0.75_f64.sqrt();
    let ratios = [0.1 - spread, 0.1 - spread, 0.1 + spread, 0.1 + spread].map(f64::exp);
    let gain = Ratio::of(&ratios).unwrap();
    for (found, expected) in
        [(gain.ratio, 0.1), (gain.low, 0.1 - 0.0318245), (gain.high, 0.1 + 0.0318245)]
    {
        assert!((found.ln() - expected).abs() < 1e-6, "{found} {expected}");
    }
    assert_eq!(Ratio::of(&ratios[..3]), None);
}

#[test]
fn measurements_are_held_against_the_promise() {
    let steady = |ratio: f64| [0.99, 1.0, 1.0, 1.0, 1.01].map(|noise| ratio * noise);
    let noisy = |ratio: f64| [0.6, 0.8, 1.0, 1.2, 1.6].map(|noise| ratio * noise);
    for (ratios, promised, expected) in [
        (steady(1.1), (1.05, 1.15), Finding::Agrees),
        (steady(1.1), (1.105, 1.2), Finding::Agrees),
        (steady(1.0), (0.99, 1.01), Finding::Agrees),
        (steady(1.3), (1.05, 1.15), Finding::Faster),
        (steady(1.03), (1.1, 1.2), Finding::Slower),
        (steady(1.0), (1.1, 1.2), Finding::Slower),
        (steady(0.9), (1.1, 1.2), Finding::Contradicts),
        (steady(0.9), (0.95, 1.2), Finding::Slower),
        (steady(1.0), (1.005, 1.2), Finding::TooNoisy),
        (noisy(1.1), (1.05, 1.15), Finding::TooNoisy),
        (noisy(1.0), (0.9, 1.1), Finding::TooNoisy),
    ] {
        let comparisons = verdict(&rows(&ratios), "recommended", &[("default".into(), promised)]);
        assert_eq!(comparisons.len(), 1);
        assert_eq!(comparisons[0].finding, Some(expected), "{}", comparisons[0]);
    }
    let reported = verdict(&rows(&[1.1; 4]), "recommended", &[("default".into(), (1.05, 1.15))]);
    assert_eq!(
        reported[0].to_string(),
        "recommended is 1.100 times as fast as default, 95 % interval 1.100 to 1.100, 4 blocks; \
         promised 1.050 to 1.150: agrees"
    );
    assert_eq!(verdict(&rows(&[1.1; 3]), "recommended", &[])[0].measured, None);
    // A block without one of the two is ignored.
    let mut rows = rows(&[1.1; 5]);
    rows.remove(3);
    let comparison = &verdict(&rows, "recommended", &[])[0];
    assert_eq!((comparison.blocks, comparison.finding), (4, None));
    assert!(comparison.to_string().ends_with("95 % interval 1.100 to 1.100, 4 blocks"));
}
