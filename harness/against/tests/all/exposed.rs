//! Where messages take the same time, steps wait for them as long as in real torch DDP and tf.distribute.
//!
//! `ddp/exposed.py` and `tf_distribute/exposed.py` have measured that, with messages of given durations.

use std::fs;
use std::path::{Path, PathBuf};

use results::toml_file::Checked;
use serde::Deserialize;
use simulator::config::{Case, Config, Model};
use simulator::data_plane::{DataPlane, NCCL};
use simulator::policy::Policy;
use simulator::sweep::Plan;
use simulator::training::{Congestion, Drive, Interference, simulate};
use workloads::framework::Compression;

/// A line of an `exposed.jsonl`.
#[derive(Deserialize)]
struct Exposed {
    workload: String,
    ranks: usize,
    /// Of DDP; its default if there is none.
    bucket_cap_mb: Option<f64>,
    /// Of tf.distribute; 0: one pack of everything.
    bytes_per_pack: Option<usize>,
    backward_ms: f64,
    message_ms: f64,
    mb_ms: f64,
    /// The size of each message.
    bytes: Vec<usize>,
    /// From the end of the backward pass to that of the last message.
    exposed_ms: f64,
}

impl Exposed {
    /// The control plane that sends such messages.
    fn plane(&self) -> String {
        match (self.bytes_per_pack, self.bucket_cap_mb) {
            (None, None) => "ddp".into(),
            (None, Some(cap)) => format!("ddp:{cap}"),
            (Some(0), _) => "packs".into(),
            (Some(bytes), _) => format!("packs:{}", bytes >> 20),
        }
    }

    /// The exposed time in the simulator, in ms.
    fn simulated_ms(&self) -> f64 {
        let path = root().join("configs/summit-scaling.toml");
        let policy = Policy::new("compared", &self.plane(), NCCL);
        let model = Model {
            workload: self.workload.clone(),
            batch: 1,
            forward_ms: 0.0,
            backward_ms: self.backward_ms,
            optimizer_ms: 0.0,
            compression: Compression::None,
            source: "exposed.jsonl".into(),
        };
        let mut config = Config { model: vec![model.clone()], ..Config::read(&path).unwrap() };
        config.jitter.cv = Some(0.0);
        let plan = Plan::new(config, &path).unwrap();
        let seconds = |bytes: f64| (bytes, 1e-3 * (self.message_ms + self.mb_ms * bytes / 1e6));
        let data = DataPlane::measured(vec![seconds(1.0), seconds(1e10)], self.ranks);
        let case = Case { model: &model, policy: &policy, ranks: self.ranks };
        let mut job = plan.job(&case, &data, 1, Drive::All).unwrap();
        (job.interference, job.congestion) = (Interference::default(), Congestion::default());
        // In the first step DDP does not know the order yet.
        let step = simulate(&job, 3).unwrap()[2];
        1e3 * (step.time - step.compute)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Checks the 18 runs of a recorded file: they may differ by so many ms, and this share.
fn check(recorded: &str, most_ms: f64, most_share: f64) {
    let text = fs::read_to_string(root().join("results/reference").join(recorded)).unwrap();
    let all: Vec<Exposed> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(all.len() >= 18, "{} runs", all.len());
    for run in &all {
        let simulated_ms = run.simulated_ms();
        let error_ms = (run.exposed_ms - simulated_ms).abs();
        assert!(
            error_ms <= most_ms + most_share * simulated_ms,
            "{}, {}, {} ms per MB, {} messages: {} ms measured, {simulated_ms:.3} ms here",
            run.workload,
            run.plane(),
            run.mb_ms,
            run.bytes.len(),
            run.exposed_ms,
        );
    }
}

/// DDP copies gradients, and Python wakes up: 0.5 to 0.8 ms, and about 2 ms where messages take longer than the backward
/// pass.
#[test]
fn exposed_times_are_those_of_torch() {
    check("ddp/exposed.jsonl", 1.0, 0.03);
}

/// Python wakes up late for the last message. Where messages are small, it does so for the last ones one after the other.
#[test]
fn exposed_times_are_those_of_tensorflow() {
    check("packs/exposed.jsonl", 0.2, 0.01);
}
