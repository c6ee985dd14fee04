//! One job for each number of nodes, each after the one before, into one folder of results.

use std::path::PathBuf;

use anyhow::Result;

use super::batch_script::BatchScript;
use super::{Link, Sweep};
use crate::cli::Exit;
use cluster::slurm::launch::{Shape, line};

impl Sweep<'_> {
    /// The numbers of nodes, ascending, up to those that are requested.
    fn sizes(&self) -> Vec<usize> {
        let worlds = self.plan.cases.iter().map(|planned| planned.case.topology.nodes());
        let mut sizes: Vec<usize> = worlds.filter(|&nodes| nodes <= self.shape().nodes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The commands that submit all jobs. Each gets its number from `submit`, which later commands name.
    fn chain(
        &self,
        script: &BatchScript,
        mut submit: impl FnMut(&[String]) -> Result<String>,
    ) -> Result<Vec<String>> {
        let sizes = self.sizes();
        let (mut ids, mut folder): (Vec<String>, Option<PathBuf>) = (Vec::new(), None);
        for &nodes in &sizes {
            let shape = Shape { nodes, ..self.shape() };
            let link = Link {
                after: ids.last().map(String::as_str),
                folder: folder.as_deref().or(self.arguments.out.as_deref()),
                end: sizes.last().copied(),
            };
            let id = submit(&self.sbatch(shape, script, &link))?;
            folder.get_or_insert_with(|| self.folder(&id));
            ids.push(id);
        }
        Ok(ids)
    }

    pub fn show_array(&self) -> Result<Exit> {
        let sizes = self.sizes();
        self.warn(self.shape());
        let node_hours =
            self.node_hours(|planned| planned.case.topology.nodes(), sizes.iter().sum());
        let mut commands = Vec::new();
        self.chain(&self.script(), |command| {
            commands.push(line(command));
            Ok(format!("JOBID{}", commands.len()))
        })?;
        if self.arguments.printed.is_text() {
            println!("{node_hours}");
            println!("\ncommands to submit (not run; JOBID1, ...: the numbers of the jobs):");
            commands.iter().for_each(|command| println!("{command}"));
            println!("\nwhat they measure:");
        }
        self.show_intended(Some(node_hours), commands)
    }

    pub fn submit_array(&self) -> Result<Exit> {
        self.warn(self.shape());
        let script = self.script();
        script.write(self.site)?;
        let ids = self.chain(&script, |command| self.hand_over(command))?;
        println!(
            "{} jobs are submitted, one after the other: {}; their results are {}",
            ids.len(),
            ids.join(", "),
            self.folder(&ids[0]).display()
        );
        Ok(Exit::Right)
    }
}
