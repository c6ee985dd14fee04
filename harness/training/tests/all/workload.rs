//! Workloads from timelines: Horovod's and ours, whole and damaged.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use algorithms::control::DataType;
use training::timeline::record::{Event, Record};
use training::timeline::write::{Shown, write};
use workloads::replay::StepTimes;
use workloads::workload::from_timeline::{self, Observed};
use workloads::workload::workload_path;
use workloads::workload::{Gradient, Workload};

use crate::coverage::not_tested;

/// A file as Horovod writes it, from spans of tensors: name, shape, and when it was ready in which
/// step, in microseconds.
struct Horovod {
    text: String,
    names: Vec<&'static str>,
    shapes: Vec<&'static str>,
}

impl Horovod {
    fn new() -> Horovod {
        let mut horovod = Horovod { text: "[\n".into(), names: vec![], shapes: vec![] };
        horovod.event(
            r#""name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 7}"#,
        );
        horovod.event(
            r#""name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}"#,
        );
        horovod
    }

    fn event(&mut self, fields: &str) {
        writeln!(self.text, "{{{fields}}},").unwrap();
    }

    fn pid(&mut self, name: &'static str, shape: &'static str) -> usize {
        if let Some(index) = self.names.iter().position(|&known| known == name) {
            return index + 1;
        }
        self.names.push(name);
        self.shapes.push(shape);
        let pid = self.names.len();
        self.event(&format!(
            r#""name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "{name}"}}"#
        ));
        self.event(&format!(
            r#""name": "process_sort_index", "ph": "M", "pid": {pid}, "args": {{"sort_index": {pid}}}"#
        ));
        pid
    }

    /// A tensor is ready; rank 1 comes 3 us later.
    fn ready(&mut self, operation: &str, name: &'static str, shape: &'static str, us: u64) {
        let pid = self.pid(name, shape);
        let at = |us: u64| format!(r#""ts": {us}, "pid": {pid}"#);
        self.event(&format!(r#""ph": "B", "name": "NEGOTIATE_{operation}", {}"#, at(us)));
        self.event(&format!(r#""ph": "X", "name": "0", {}, "dur": 0"#, at(us)));
        self.event(&format!(r#""ph": "X", "name": "1", {}, "dur": 0"#, at(us + 3)));
        self.event(&format!(r#""ph": "E", {}"#, at(us + 4)));
    }

    fn reduced(&mut self, operation: &str, name: &'static str, us: u64) {
        let shape = self.shapes[self.names.iter().position(|&known| known == name).unwrap()];
        let pid = self.pid(name, shape);
        let at = |us: u64| format!(r#""ts": {us}, "pid": {pid}"#);
        self.event(&format!(r#""ph": "B", "name": "{operation}", {}"#, at(us)));
        self.event(&format!(r#""ph": "B", "name": "NCCL_{operation}", {}"#, at(us + 1)));
        self.event(&format!(r#""ph": "E", {}"#, at(us + 8)));
        let args = format!(r#""args": {{"dtype": "float32", "shape": "{shape}"}}"#);
        self.event(&format!(r#""ph": "E", {}, {args}"#, at(us + 9)));
    }

    /// A step of three gradients: the bias when the backward pass begins, the weight after `middle_us`
    /// of its 100 us, the embedding at its end.
    fn step(&mut self, begin_us: u64, middle_us: u64) {
        self.event(&format!(r#""ph": "i", "name": "CYCLE_START", "ts": {begin_us}, "s": "g""#));
        self.ready("ALLREDUCE", "fc.bias", "[10]", begin_us);
        self.ready("ALLREDUCE", "fc.weight", "[10, 4]", begin_us + middle_us);
        self.ready("ALLREDUCE", "embedding", "[50, 4]", begin_us + 100);
        for name in ["fc.bias", "fc.weight", "embedding"] {
            self.reduced("ALLREDUCE", name, begin_us + 110);
        }
    }

    fn end(self) -> String {
        self.text.trim_end().trim_end_matches(',').to_string() + "\n]\n"
    }
}

/// A broadcast, a metric that is averaged once, and steps whose middle gradient is ready at the given times.
fn training(middles_us: &[u64]) -> String {
    let mut horovod = Horovod::new();
    horovod.ready("BROADCAST", "broadcast.fc.bias", "[10]", 10);
    horovod.reduced("BROADCAST", "broadcast.fc.bias", 20);
    for (step, &middle_us) in middles_us.iter().enumerate() {
        horovod.step(1000 * (step as u64 + 1), middle_us);
    }
    let after_us = 1000 * (middles_us.len() as u64 + 1);
    horovod.ready("ALLREDUCE", "average loss", "[]", after_us);
    horovod.reduced("ALLREDUCE", "average loss", after_us + 10);
    horovod.end()
}

fn read(text: &str) -> Result<Observed, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.json");
    fs::write(&path, text).unwrap();
    from_timeline::read(&path)
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

fn gradient(name: &str, shape: &[u64], ready_fraction: f64) -> Gradient {
    Gradient { name: name.into(), shape: shape.into(), ready_fraction }
}

#[test]
fn a_timeline_of_horovod_is_a_workload() {
    // The first step is the warm-up and is left out; the median of the others is used.
    let observed = read(&training(&[90, 25, 20, 30])).unwrap();
    let expected = Observed {
        workload: Workload {
            name: "train".into(),
            gradients: vec![
                gradient("embedding", &[50, 4], 1.0),
                gradient("fc.weight", &[10, 4], 0.25),
                gradient("fc.bias", &[10], 0.0),
            ],
            ready_order: vec![2, 1, 0],
            ready_assumed: false,
        },
        dtype: Some(DataType::F32),
        steps: 3,
        backward_ms: 0.1,
    };
    assert_eq!(observed, expected);
}

#[test]
fn a_configuration_may_name_a_timeline() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train.json"), training(&[25, 25])).unwrap();
    let path = workload_path("train.json", &folder.path().join("sweep.toml"));
    assert_eq!(path, folder.path().join("train.json"));
    assert_eq!(Workload::read(&path).unwrap().elements(), 250);
}

/// Two linear layers on two ranks, as Horovod 0.28.1 has written it (PyTorch 2.0.1, MPI): four whole steps;
/// "loss" is averaged in the first step alone.
#[test]
fn a_recorded_timeline_of_horovod_is_a_workload() {
    let Observed { workload, dtype, steps, .. } =
        read(include_str!("golden/horovod_training.json")).unwrap();
    assert_eq!((dtype, steps), (Some(DataType::F32), 3));
    let gradients: Vec<_> =
        workload.gradients.iter().map(|g| (&*g.name, g.shape.clone())).collect();
    let expected = [
        ("allreduce.0.weight", vec![256, 256]),
        ("allreduce.0.bias", vec![256]),
        ("allreduce.2.weight", vec![10, 256]),
        ("allreduce.2.bias", vec![10]),
    ];
    assert_eq!(gradients, expected);
    let ready: Vec<f64> = workload.gradients.iter().map(|g| g.ready_fraction).collect();
    assert!(ready[0] == 1.0 && ready[1] > 0.5 && ready[2] < 0.5 && ready[3] == 0.0, "{ready:?}");
}

/// A cut file is read as far as its steps are complete, or refused.
#[test]
fn a_cut_timeline_is_read_as_far_as_its_steps_are_whole() {
    let text = training(&[90, 25, 20, 30]);
    let whole = read(&text).unwrap().workload;
    let mut steps = 0;
    for length in (0..text.trim_end().len()).step_by(7) {
        match read(&text[..length]) {
            Ok(observed) => {
                assert!(observed.steps >= steps, "{length}");
                steps = observed.steps;
                let names = |workload: &Workload| -> Vec<String> {
                    workload.gradients.iter().map(|gradient| gradient.name.clone()).collect()
                };
                assert_eq!(names(&observed.workload), names(&whole), "{length}");
            }
            Err(error) => assert!(steps == 0 && error.starts_with("train.json: "), "{error}"),
        }
    }
    assert_eq!(steps, 3);
    let first_step = text.find(r#""ts": 2000"#).unwrap();
    assert_eq!(
        read(&text[..first_step]).unwrap_err(),
        "train.json: it has 1 whole step; the file's end is missing, expected at least 2, since the \
         first one warms up; let the job train for 10 steps or more"
    );
}

#[test]
fn missing_information_in_a_timeline_is_reported() {
    let good = training(&[25, 25, 25]);
    let mut early = Horovod::new();
    early.step(1000, 25);
    early.step(1050, 25);
    let mut at_once = Horovod::new();
    for begin_us in [100, 200] {
        for name in ["a", "b"] {
            at_once.ready("ALLREDUCE", name, "[2]", begin_us);
            at_once.reduced("ALLREDUCE", name, begin_us + 10);
        }
    }
    let mut broadcast = Horovod::new();
    broadcast.ready("BROADCAST", "a", "[2]", 10);
    for (text, expected) in [
        (String::new(), "train.json: EOF while parsing a value"),
        ("[]".into(), "train.json: no events found; expected an array of trace events"),
        ("{\"a\": 1}".into(), "train.json: there is no \"traceEvents\" at line 1"),
        (
            good.replacen(r#""ts": 1000"#, r#""ts": "soon""#, 1),
            "train.json: event 12: ts is \"soon\", expected a time in microseconds",
        ),
        (
            training(&[25]),
            "train.json: it has 1 whole step, expected at least 2, since the first one warms up",
        ),
        (
            broadcast.end(),
            "train.json: no tensor in it is negotiated for an allreduce (NEGOTIATE_ALLREDUCE); expected",
        ),
        (
            good.replace("\"shape\": \"[10]\"", "\"form\": \"[10]\""),
            "train.json: no event has the shape of \"fc.bias\"; expected args with \"shape\" where",
        ),
        (
            good.replace("[10, 4]", "10 by 4"),
            "train.json: event 38: the shape of \"fc.weight\" is \"10 by 4\", expected as in [64, 3]",
        ),
        (
            good.replacen("[10, 4]", "[10, 5]", 1),
            "train.json: event 63: the shape of \"fc.weight\" is [10, 4], expected [10, 5] as before",
        ),
        (
            good.replace("[10, 4]", "[9999999999, 9999999999]"),
            "train.json: event 38: the shape of \"fc.weight\" is \"[9999999999, 9999999999]\"",
        ),
        (
            early.end(),
            "train.json: its steps cannot be told apart: \"fc.bias\" is negotiated for step 1 at 1050 \
             us, before \"embedding\" is for step 0 at 1100 us",
        ),
        (
            at_once.end(),
            "train.json: all 2 gradients of a step begin their negotiation at the same moment",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.starts_with(expected), "{error}\n{expected}");
    }
    let error = Workload::read(Path::new("no/such.json")).unwrap_err().to_string();
    assert!(error.starts_with("no/such.json: No such file"), "{error}");
}

/// Steps of two ranks as the engine notes them; the first rank is ready first.
fn records(rank: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for begin in [0, 1000, 2000, 3000] {
        for (us, event) in [
            (0, Event::Step),
            (100 + rank, Event::Ready(1)),
            (140 + rank, Event::Ready(0)),
            (300 + rank, Event::Ready(2)),
            (310, Event::Cycle),
            (310, Event::Negotiation),
            (320, Event::Negotiated { messages: 1 }),
            (320, Event::Message),
            (320, Event::Tensor(1)),
            (320, Event::Tensor(0)),
            (320, Event::Tensor(2)),
            (400, Event::Reduced { packing_ns: 10, unpacking_ns: 10 }),
            (450, Event::StepEnded),
        ] {
            records.push(Record { time_ns: (begin + us) * 1000, event });
        }
    }
    records
}

#[test]
fn a_timeline_of_kolo_is_a_workload() {
    let gradients =
        [gradient("w", &[2, 3], 0.5), gradient("b \"1\"", &[2], 0.1), gradient("scale", &[], 1.0)];
    let us = Duration::from_micros;
    let shown = Shown {
        case: "threads/2x1/bitvector/ring/64MiB/5ms",
        algorithm: "ring",
        gradients: &gradients,
        dtype: DataType::F16,
        times: StepTimes {
            forward: us(50),
            backward: us(250),
            optimizer: us(50),
            ..StepTimes::default()
        },
    };
    let mut text = Vec::new();
    write(&mut text, &shown, &[records(0), records(1)]).unwrap();
    let Observed { workload, dtype, steps, backward_ms } =
        read(&String::from_utf8(text).unwrap()).unwrap();
    assert_eq!((dtype, steps, backward_ms), (Some(DataType::F16), 3, 0.2));
    let reported: Vec<_> = workload
        .gradients
        .iter()
        .map(|g| (g.name.as_str(), g.elements(), g.ready_fraction))
        .collect();
    assert_eq!(reported, [("scale", 1, 1.0), ("w", 6, 0.2), ("b \"1\"", 2, 0.0)]);
    assert_eq!(workload.ready_order, [2, 1, 0]);
}

/// Enough of PyTorch for the function in the README: three parameters, one of which is frozen.
const MODEL: &str = r#"
class cuda:
    def is_available(): return False
class Parameter:
    def __init__(self, shape, elements, requires_grad=True):
        self.shape, self.elements, self.requires_grad = shape, elements, requires_grad
    def numel(self): return self.elements
    def register_post_accumulate_grad_hook(self, hook): self.hook = hook
class Model:
    parameters = {
        "w, v": Parameter([2, 3], 6), "frozen": Parameter([5], 5, False), "b": Parameter([], 1)}
    def named_parameters(self): return iter(self.parameters.items())
    def backward(self):
        for name in ["b", "w, v"]: self.parameters[name].hook(self.parameters[name])
"#;

#[test]
fn the_function_in_the_readme_writes_a_workload() {
    if let Err(error) = Command::new("python3").arg("--version").output() {
        return not_tested(
            "the function of configs/workloads/README.md",
            format!("python3: {error}"),
        );
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/workloads/README.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("<!-- workload.py -->\n```python\n").unwrap();
    let function = rest.split_once("```").unwrap().0;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("torch.py"), MODEL).unwrap();
    let call = "model = torch.Model()\nwrite_workload('mine', model, model)\n";
    let mut python = Command::new("python3");
    let python = python.args(["-c", &format!("{function}\n{call}")]).current_dir(folder.path());
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let workload = Workload::read(&folder.path().join("mine.csv")).unwrap();
    let gradients: Vec<_> =
        workload.gradients.iter().map(|g| (&*g.name, g.shape.clone())).collect();
    assert_eq!(gradients, [("w, v", vec![2, 3]), ("b", vec![])]);
    assert_eq!((workload.ready_assumed, workload.ready_order), (false, vec![1, 0]));
    assert_eq!(workload.gradients[0].ready_fraction, 1.0);
}
