//! The simulator's prediction of a sweep's cases, on a calibration of the job's nodes.

use std::env;
use std::path::Path;

use anyhow::{Result, bail};

use super::Sweep;
use crate::cli::plot;
use crate::cli::predict::{Request, UpTo, simulate};
use cluster::slurm::drive::Drive;
use cluster::slurm::stop::Stop;
use measure::back_ends;
use report::PREDICTED;
use results::provenance::Launch;

/// The machine file in a folder of results.
const MACHINE: &str = "machine.toml";

impl Sweep<'_> {
    /// Calibrates the nodes and predicts, if the configuration asks for it. What goes wrong is printed: the sweep is over,
    /// and its results are written.
    pub fn predict(&self, drive: &Drive<'_>, stop: &Stop) {
        if !self.plan.config.measure.calibrate {
            return;
        }
        if let Err(error) = self.try_to_predict(drive, stop) {
            eprintln!("no prediction: {error:#}");
        }
    }

    fn try_to_predict(&self, drive: &Drive<'_>, stop: &Stop) -> Result<()> {
        let (most, nodes) = (self.most_nodes(), drive.job.nodes.len());
        if nodes < most {
            bail!("a job with {most} nodes calibrates them, and this one has {nodes}");
        }
        let over = back_ends::default_of_processes();
        let mut cases = self.plan.cases.iter();
        if let Some(other) = cases.find(|planned| planned.case.transport != over) {
            bail!(
                "only transport {over} is calibrated, and the sweep is over {}",
                other.case.transport
            );
        }
        let machine = drive.folder.join(MACHINE);
        if !machine.exists() {
            let status = drive.run_once(&self.calibration(&machine)?, stop)?;
            if !machine.exists() {
                bail!("the calibration {}", cluster::slurm::step::in_words(status));
            }
        }
        let out = drive.folder.join(PREDICTED);
        if out.exists() {
            bail!("{} exists; results are never overwritten", out.display());
        }
        let request = Request {
            results: drive.folder,
            machine: &machine,
            workloads: &self.workloads,
            up_to: UpTo::Times(1),
            known_ranks: None,
            out,
            figures: !self.arguments.no_figures,
        };
        print!("{}", simulate(&request, Launch::now())?.text());
        if request.figures {
            // It was written at the end of the sweep, without the predictions.
            print!("{}", plot::report_of(drive.folder));
        }
        Ok(())
    }

    /// The command of every rank.
    fn calibration(&self, machine: &Path) -> Result<Vec<String>> {
        let mut words = vec![env::current_exe()?.display().to_string(), "calibrate".into()];
        words.extend(["--transport".into(), back_ends::default_of_processes().name().into()]);
        words.extend(["--out".into(), machine.display().to_string()]);
        words.extend(["--name".into(), self.site.origin.name.clone()]);
        words.extend(self.is_forced().then(|| "--force".to_string()));
        Ok(words)
    }
}
