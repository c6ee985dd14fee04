//! The control plane `packs` forms the packs of real tf.distribute, as `tf_distribute/packs.py` has recorded them.

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
    tensorflow: String,
    workload: String,
    /// 0: one pack of everything.
    bytes_per_pack: usize,
    /// The gradients of each message.
    packs: Vec<Vec<TensorId>>,
}

#[test]
fn packs_are_those_of_tensorflow() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("results/reference/packs/packs.jsonl")).unwrap();
    let all: Vec<Recorded> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(all.len() >= 18, "{} runs", all.len());
    for Recorded { tensorflow, workload: model, bytes_per_pack, packs } in all {
        let path = root.join("configs/workloads").join(format!("{model}.csv"));
        let workload = Workload::read(&path).unwrap();
        let tensors = Tensors::new(workload.tensors(DataType::F32, ReduceOp::Sum)).unwrap();
        let name = match bytes_per_pack >> 20 {
            0 => "packs".to_string(),
            size_mib => format!("packs:{size_mib}"),
        };
        let mut plane = control::find(&name, Arc::new(tensors), &Settings::new(0, 1)).unwrap();
        for at in 0..2 {
            let found = step(&mut *plane, &workload.ready_order);
            assert_eq!(found, packs, "{model}, {name}, step {at} of TensorFlow {tensorflow}");
        }
    }
}
