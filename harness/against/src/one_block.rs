//! One block of one case, measured by a kolo binary in processes of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use measure::back_ends::has_processes;
use measure::config::{Axes, Case, Config, Measure, Scaling, Step};
use results::units::MIB;

use crate::engine::BlockError;
use crate::launcher::Launcher;
use crate::process::{ProcessError, output};

/// The output of the processes, in the folder of a block.
pub const OUTPUT: &str = "output";

/// Exit status of a sweep that measured every case, and none precisely enough for an interval.
const INCONCLUSIVE: i32 = 3;

/// Who measures, and what.
pub struct OneBlock<'a> {
    /// The binary.
    pub program: &'a Path,
    /// Variables that it is given.
    pub environment: &'a [(String, String)],
    /// Starts the ranks of cases whose ranks are processes.
    pub launcher: &'a Launcher,
    /// The configuration that the case belongs to.
    pub config: &'a Config,
    /// Its gradients.
    pub workload: &'a Path,
    /// The case.
    pub case: &'a Case,
    /// Of the data.
    pub seed: u64,
    /// The most time that the processes may take.
    pub limit: Duration,
}

impl OneBlock<'_> {
    /// Measures the block; returns the folder of results, within `folder`, which also gets the output of the
    /// processes.
    ///
    /// # Errors
    /// When the processes fail or do not end, or a file cannot be written.
    pub fn run(&self, folder: &Path) -> Result<PathBuf, BlockError> {
        fs::create_dir_all(folder).map_err(BlockError::file("folder of the block"))?;
        let config = toml::to_string(&self.config());
        let config = config.map_err(BlockError::file("configuration of the block"))?;
        let file = folder.join("block.toml");
        fs::write(&file, config).map_err(BlockError::file("configuration of the block"))?;
        let results = results_in(folder);
        let command = self.command(&file, &results);
        match output(&command, &removed(), &folder.join(OUTPUT), self.limit) {
            // One block may have too few independent steps for an interval.
            Err(ProcessError::Status { status, .. }) if status.code() == Some(INCONCLUSIVE) => {}
            ended => drop(ended?),
        }
        Ok(results)
    }

    /// The case's name in the results of the block.
    pub fn name(&self) -> String {
        Case { scaling: Scaling::Weak, ..self.case.clone() }.to_string()
    }

    /// A launcher may start ranks on other machines, so variables are given to each rank by `env`.
    fn command(&self, config: &Path, results: &Path) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let given = variables.collect::<Vec<_>>();
        let mut words: Vec<String> = Vec::new();
        if !given.is_empty() {
            words.push("env".into());
            words.extend(given);
        }
        words.extend([text(self.program), "sweep".into(), text(config)]);
        words.extend(["--out".into(), text(results)]);
        words.extend(["--force", "--no-figures"].map(String::from));
        if has_processes(self.case.transport) {
            return self.launcher.command(self.case.topology.ranks(), &words);
        }
        words
    }

    /// The configuration of the block. Strong scaling is in the times of its passes.
    fn config(&self) -> Config {
        let OneBlock { config, case, .. } = self;
        // A workload that is not on disk is embedded in the binary, under the name that the configuration gives.
        let workload = self.workload.canonicalize().map(|path| path.display().to_string());
        let workload = workload.unwrap_or_else(|_| config.workload.clone());
        let share = config.share_of_passes(&case.topology);
        Config {
            workload,
            step: Step {
                forward_ms: config.step.forward_ms * share,
                backward_ms: config.step.backward_ms * share,
                scaling: Scaling::Weak,
                ..config.step
            },
            sweep: Axes {
                transport: vec![case.transport.name().into()],
                topology: vec![case.topology.to_string()],
                nodes: None,
                ranks_per_node: None,
                control_plane: vec![case.control_plane.clone()],
                algorithm: vec![case.algorithm.clone()],
                fusion_threshold_mib: vec![case.fusion_threshold_bytes as f64 / MIB],
                cycle_time_ms: vec![case.cycle_time_ms()],
                compression: case.varied.compression.into_iter().collect(),
                num_groups: case.varied.num_groups.into_iter().collect(),
                ..config.sweep.clone()
            },
            also: Vec::new(),
            measure: Measure {
                blocks_min: 1,
                blocks_max: 1,
                repeat_base: false,
                calibrate: false,
                seed: self.seed,
                ..config.measure.clone()
            },
            ..(*config).clone()
        }
    }
}

/// Where a block's processes write their results.
pub fn results_in(folder: &Path) -> PathBuf {
    folder.join("results")
}

/// Horovod's variables of this process are not for the block, whose configuration says everything.
fn removed() -> Vec<(String, Option<String>)> {
    let of_horovod = |(name, _): (OsString, OsString)| {
        let name = name.to_string_lossy().into_owned();
        name.starts_with("HOROVOD_").then_some((name, None))
    };
    std::env::vars_os().filter_map(of_horovod).collect()
}
