//! The control plane `ddp` forms the buckets of real torch DDP, as `ddp/buckets.py` has recorded them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use algorithms::control::{self, DataType, ReduceOp, Settings, TensorId, Tensors};
use serde::Deserialize;
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

#[test]
fn buckets_are_those_of_torch() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("results/reference/ddp/buckets.jsonl")).unwrap();
    let all: Vec<Recorded> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(all.len() >= 18, "{} runs", all.len());
    for Recorded { torch, workload: model, bucket_cap_mb, steps } in all {
        let path = root.join("configs/workloads").join(format!("{model}.csv"));
        let workload = Workload::read(&path).unwrap();
        let tensors = Tensors::new(workload.tensors(DataType::F32, ReduceOp::Average)).unwrap();
        let name = bucket_cap_mb.map_or("ddp".to_string(), |cap| format!("ddp:{cap}"));
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
