//! The control plane `ddp` forms the buckets of real torch DDP, as `ddp/buckets.py` has recorded them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use algorithms::control::{self, DataType, ReduceOp, Settings, TensorId, Tensors};
use results::toml_file::Checked;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use simulator::config::{Case, Config, Model};
use simulator::data_plane::{DataPlane, NCCL};
use simulator::policy::Policy;
use simulator::sweep::Plan;
use simulator::training::{Congestion, Drive, Interference, simulate};
use workloads::framework::Compression;
use workloads::workload::Workload;

use crate::messages::step;

/// A line of the recorded file.
#[derive(Deserialize)]
struct Recorded {
    torch: String,
    workload: String,
    bucket_cap_mb: Option<f64>,
    /// For each step, the gradients of each message.
    steps: Vec<Vec<Vec<TensorId>>>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn recorded<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let text = fs::read_to_string(root().join("results/reference/ddp").join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The control plane with that cap of buckets.
fn plane_name(bucket_cap_mb: Option<f64>) -> String {
    bucket_cap_mb.map_or("ddp".to_string(), |cap| format!("ddp:{cap}"))
}

#[test]
fn buckets_are_those_of_torch() {
    let root = root();
    let all: Vec<Recorded> = recorded("buckets.jsonl");
    assert!(all.len() >= 18, "{} runs", all.len());
    for Recorded { torch, workload: model, bucket_cap_mb, steps } in all {
        let path = root.join("configs/workloads").join(format!("{model}.csv"));
        let workload = Workload::read(&path).unwrap();
        let tensors = Tensors::new(workload.tensors(DataType::F32, ReduceOp::Average)).unwrap();
        let name = plane_name(bucket_cap_mb);
        let mut plane = control::find(&name, Arc::new(tensors), &Settings::new(0, 1)).unwrap();
        for (at, recorded) in steps.iter().enumerate() {
            let mut found = step(&mut *plane, &workload.ready_order);
            let mut recorded = recorded.clone();
            if at == 0 {
                // One message, in the order of the parameters or of their gradients.
                found.iter_mut().chain(&mut recorded).for_each(|message| message.sort());
            }
            assert_eq!(found, recorded, "{model}, {name}, step {at} of torch {torch}");
        }
    }
}

/// A line of `exposed.jsonl`, which `ddp/exposed.py` has written.
#[derive(Deserialize)]
struct Exposed {
    torch: String,
    workload: String,
    ranks: usize,
    bucket_cap_mb: Option<f64>,
    backward_ms: f64,
    message_ms: f64,
    mb_ms: f64,
    exposed_ms: f64,
}

/// Where messages take the same time, steps wait for them as long as in torch.
#[test]
fn exposed_times_are_those_of_torch() {
    let path = root().join("configs/summit-scaling.toml");
    let shipped = Config::read(&path).unwrap();
    let all: Vec<Exposed> = recorded("exposed.jsonl");
    assert!(all.len() >= 18, "{} runs", all.len());
    for run in &all {
        let policy = Policy::new("ddp", &plane_name(run.bucket_cap_mb), NCCL);
        let model = Model {
            workload: run.workload.clone(),
            batch: 1,
            forward_ms: 0.0,
            backward_ms: run.backward_ms,
            optimizer_ms: 0.0,
            compression: Compression::None,
            source: "exposed.jsonl".into(),
        };
        let mut config = Config { model: vec![model.clone()], ..shipped.clone() };
        config.jitter.cv = Some(0.0);
        let plan = Plan::new(config, &path).unwrap();
        let seconds = |bytes: f64| (bytes, 1e-3 * (run.message_ms + run.mb_ms * bytes / 1e6));
        let data = DataPlane::measured(vec![seconds(1.0), seconds(1e10)], run.ranks);
        let case = Case { model: &model, policy: &policy, ranks: run.ranks };
        let mut job = plan.job(&case, &data, 1, Drive::All).unwrap();
        (job.interference, job.congestion) = (Interference::default(), Congestion::default());
        // In the first step DDP does not know the order yet.
        let step = simulate(&job, 3).unwrap()[2];
        let exposed_ms = 1e3 * (step.time - step.compute);
        // DDP copies gradients, and Python wakes up: 0.5 to 0.8 ms, and about 2 ms where messages take longer than the
        // backward pass.
        let error_ms = run.exposed_ms - exposed_ms;
        assert!(
            error_ms.abs() <= 1.0 + 0.03 * exposed_ms,
            "{}, {}, {} ms per MB: {} ms of torch {}, {exposed_ms:.3} ms here",
            run.workload,
            policy.control_plane,
            run.mb_ms,
            run.exposed_ms,
            run.torch,
        );
    }
}
