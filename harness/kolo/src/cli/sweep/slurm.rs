//! `kolo sweep --slurm`: outside of a job it submits one, inside it drives the sweep.

mod batch_script;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};

use super::{Arguments, dry_run, override_config, range};
use crate::cli::site::described;
use crate::cli::{Exit, configuration, not_for, usage};
use batch_script::BatchScript;
use cluster::slurm::accounting;
use cluster::slurm::drive::{Drive, Ended};
use cluster::slurm::job::Job;
use cluster::slurm::launch::{Shape, Submission, line, sbatch, step};
use cluster::slurm::site::Site;
use cluster::slurm::step::Timeouts;
use cluster::slurm::stop::Stop;
use cluster::slurm::time_limit::TimeLimitError;
use cluster::slurm::{submit, time_limit};
use gpu::cuda::NAME as CUDA;
use gpu::nccl::NAME as NCCL;
use measure::back_ends::{self, has_processes};
use measure::config::Config;
use measure::environment::Environment;
use measure::plan::{Plan, Planned};
use measure::precedence::Options;
use results::config_kind::ConfigKind;
use results::provenance::{Launch, now};
use results::toml_file::Checked;
use training::back_end::{BackEndRef, MemoryKind, RankKind};
use workloads::workload::Workload;

/// Cases end this long before the job, or a tenth of its remaining time: Slurm may
/// send USR1 up to a minute before the two that the script asks for.
const MARGIN_SECONDS: i64 = 180;

#[derive(clap::Args)]
#[command(next_help_heading = "Slurm")]
pub struct Flags {
    /// Submit the sweep as a job of Slurm; within a job, run it
    ///
    /// With --dry-run the command that submits is printed.
    #[arg(long, conflicts_with = "resume")]
    slurm: bool,
    /// The cluster: a name from `kolo site list`, or a site file
    ///
    /// Default: the variable KOLO_SITE, or generic.
    #[arg(long, requires = "slurm", value_name = "NAME|FILE")]
    site: Option<String>,
    /// Nodes to request [default: as many as the largest topology has]
    #[arg(
        long,
        requires = "slurm",
        value_parser = clap::value_parser!(u32).range(1..),
        hide_short_help = true
    )]
    nodes: Option<u32>,
    /// Time limit to request, as Slurm writes it: minutes, H:MM:SS, D-HH:MM:SS
    #[arg(
        long,
        requires = "slurm",
        default_value = "01:00:00",
        value_parser = limit,
        hide_short_help = true
    )]
    time: String,
    /// Seconds to wait for a step that is to stop; other waits are in proportion
    #[arg(long, alias = "patience-seconds", hide = true, default_value_t = 60.0)]
    timeout_seconds: f64,
}

impl Flags {
    pub fn is_set(&self) -> bool {
        self.slurm
    }
}

fn limit(text: &str) -> Result<String, TimeLimitError> {
    time_limit::parse(text).map(|_| text.into())
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    let file = configuration(&arguments.config)?;
    let shown = file.path.display();
    match ConfigKind::of_file(&file)? {
        ConfigKind::Training => {}
        ConfigKind::ControlPlanes => {
            return Err(usage(format!(
                "{shown}: a sweep of control planes alone runs in one process; leave out --slurm"
            )));
        }
        ConfigKind::Simulated => {
            return Err(usage(format!(
                "{shown}: a simulated sweep runs in one process; leave out --slurm"
            )));
        }
        kind => return Err(not_for(&file, kind, "kolo sweep")),
    }
    // Signals are handled from here on; the following calls may wait for Slurm.
    let in_job = env::var_os("SLURM_JOB_ID").is_some() && !arguments.dry_run;
    let stop = if in_job { Stop::listen()? } else { Stop::default() };
    let site = Site::choose(arguments.slurm.site.as_deref())?;
    let mut config = Config::of(&file)?;
    let environment = Environment::read(&Launch::now().environment).map_err(usage)?;
    override_config(&mut config, &arguments.options, &environment, |sentence| {
        eprintln!("{sentence}")
    });
    let workload = Workload::read(&config.workload_path(&file.path))
        .map_err(|error| usage(format!("{shown}: {error}")))?;
    let plan = Plan::new(config, workload);
    if plan.cases.iter().any(|planned| planned.case.transport.rank_kind() == RankKind::Stream) {
        return Err(usage(format!(
            "{shown}: over {CUDA} all ranks are in one process; for a job, with a process for each GPU, give \
             --transport {NCCL}, or leave out --slurm"
        )));
    }
    let site = if needs_gpus(&plan) { site.with_gpus(ranks_per_node(&plan)) } else { site };
    let sweep = Sweep { arguments, site: &site, plan: &plan };
    match (Job::this().map_err(usage)?, arguments.dry_run) {
        (None, true) => sweep.show(),
        (None, false) => sweep.submit(),
        (Some(job), true) => sweep.show_in(&job),
        (Some(job), false) => sweep.drive(&job, &stop),
    }
}

/// Its ranks are processes, each with a GPU.
fn is_process_with_gpu(back_end: BackEndRef) -> bool {
    has_processes(back_end) && back_end.memory() == MemoryKind::Device
}

/// Every rank is to have a GPU, in some case.
fn needs_gpus(plan: &Plan) -> bool {
    plan.cases.iter().any(|planned| is_process_with_gpu(planned.case.transport))
}

/// The most ranks that any topology has on a node.
fn ranks_per_node(plan: &Plan) -> usize {
    let worlds = plan.cases.iter().map(|planned| &planned.case.topology);
    let sizes = worlds.flat_map(|world| (0..world.nodes()).map(|node| world.node(node).len()));
    sizes.max().unwrap_or(1)
}

/// The sweep, and its place.
struct Sweep<'a> {
    arguments: &'a Arguments,
    site: &'a Site,
    plan: &'a Plan,
}

impl Sweep<'_> {
    fn name(&self) -> String {
        let stem = self.arguments.config.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// Ranks on each node: the most of any topology; nodes: the most, or those requested.
    fn shape(&self) -> Shape {
        let worlds = self.plan.cases.iter().map(|planned| &planned.case.topology);
        let most = worlds.map(|world| world.nodes()).max().unwrap_or(1);
        let nodes = self.arguments.slurm.nodes.map_or(most, |nodes| nodes as usize);
        Shape { nodes, ranks_per_node: ranks_per_node(self.plan) }
    }

    /// Warnings about requirements of the configuration that the nodes do not meet.
    fn warn(&self, shape: Shape) {
        let too_large = |world: &algorithms::topology::Topology| world.nodes() > shape.nodes;
        let mut names: Vec<String> = self
            .plan
            .cases
            .iter()
            .filter(|planned| too_large(&planned.case.topology))
            .map(|planned| planned.case.topology.to_string())
            .collect();
        names.dedup();
        if !names.is_empty() {
            eprintln!(
                "warning: {} nodes are too few for topology {}; its cases cannot be run",
                shape.nodes,
                names.join(", ")
            );
        }
        if shape.ranks_per_node > self.site.ranks_per_node {
            eprintln!(
                "warning: the configuration puts {} ranks on a node, but site {} has {}",
                shape.ranks_per_node, self.site.origin.name, self.site.ranks_per_node
            );
        }
        if cfg!(not(feature = "mpi")) {
            eprintln!(
                "warning: this program was built without MPI, which a job needs; slurm/build.sh {} builds \
                 one that has it",
                self.site.origin.asked
            );
        }
        if needs_gpus(self.plan) && shape.ranks_per_node > self.site.gpus_per_node {
            eprintln!(
                "warning: transport {NCCL} takes a GPU for each of {} ranks on a node, but site {} has \
                 {}",
                shape.ranks_per_node, self.site.origin.name, self.site.gpus_per_node
            );
        }
    }

    fn folder(&self, job: &str) -> PathBuf {
        let default = || Path::new("results").join(format!("slurm-{job}-{}", self.name()));
        self.arguments.out.clone().unwrap_or_else(default)
    }

    fn script(&self) -> BatchScript {
        BatchScript::find(&format!("{}-{}", now().replace(':', ""), self.name()))
    }

    /// The command that submits.
    fn sbatch(&self, shape: Shape, script: &BatchScript) -> Vec<String> {
        let mut words = vec![self.arguments.config.display().to_string()];
        words.extend(["--site".into(), self.site.origin.asked.clone()]);
        if let Some(folder) = &self.arguments.out {
            words.extend(["--out".into(), folder.display().to_string()]);
        }
        words.extend(self.passed_on());
        let submission = Submission {
            name: &format!("kolo-{}", self.name()),
            shape,
            time: &self.arguments.slurm.time,
            script: script.path(),
            arguments: &words,
        };
        sbatch(self.site, &submission)
    }

    /// The command of every rank.
    fn program(&self, folder: &Path, until: Option<String>) -> Result<Vec<String>> {
        let mut words = vec![env::current_exe()?.display().to_string(), "sweep".into()];
        words.push(self.arguments.config.display().to_string());
        words.extend(["--out".into(), folder.display().to_string()]);
        words.push("--go-on".into());
        // If no case runs in several processes, all run over MPI.
        let in_processes = |planned: &Planned| has_processes(planned.case.transport);
        if !self.plan.cases.iter().any(in_processes) {
            words.extend(
                ["--transport", back_ends::default_of_processes().name()].map(str::to_string),
            );
        }
        words.extend(until.into_iter().flat_map(|until| ["--until".into(), until]));
        words.extend(self.passed_on());
        Ok(words)
    }

    /// Options of the user's that the sweep itself takes.
    fn passed_on(&self) -> Vec<String> {
        let Options { transport, fusion_threshold_mb, cycle_time_ms, cache_capacity } =
            &self.arguments.options;
        let mut words = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [name.to_string(), value]));
        };
        option("--transport", transport.clone());
        option("--fusion-threshold-mb", fusion_threshold_mb.map(|value| value.to_string()));
        option("--cycle-time-ms", cycle_time_ms.map(|value| value.to_string()));
        option("--cache-capacity", cache_capacity.map(|value| value.to_string()));
        let force = self.arguments.force || self.site.overcommit;
        for (flag, is_set) in [
            ("--timeline", self.arguments.timeline),
            ("--no-figures", self.arguments.no_figures),
            ("--force", force),
        ] {
            words.extend(is_set.then(|| flag.to_string()));
        }
        words
    }

    fn show(&self) -> Result<Exit> {
        let shape = self.shape();
        self.warn(shape);
        let folder = self.folder("JOBID");
        let program = self.program(&folder, Some("SECONDS".into()))?;
        let script = self.script();
        println!(
            "{} nodes of {} ranks; site {}",
            shape.nodes,
            shape.ranks_per_node,
            described(self.site)
        );
        println!("{}", self.node_hours(shape));
        println!("\ncommand to submit (not run):\n{}", line(&self.sbatch(shape, &script)));
        println!(
            "\ncommand in the job (JOBID: its number; SECONDS: its end minus a margin):\n\
             {}",
            line(&step(self.site, shape, &[], &program))
        );
        println!("\nwhat it measures:");
        dry_run(self.plan);
        Ok(Exit::Right)
    }

    fn node_hours(&self, shape: Shape) -> String {
        let measure = &self.plan.config.measure;
        let runs = self.plan.cases.iter().filter(|planned| planned.data_plane.is_ok());
        let block: f64 = runs.map(|planned| self.plan.estimate(planned).as_secs_f64()).sum();
        let hours = |blocks: usize| block * blocks as f64 * shape.nodes as f64 / 3600.0;
        let time = &self.arguments.slurm.time;
        let most = match time_limit::parse(time) {
            Ok(Some(seconds)) => {
                format!("at most {:.2}", (seconds * shape.nodes as u64) as f64 / 3600.0)
            }
            _ => "without limit".into(),
        };
        format!(
            "about {} node-hours without network time; {most} by the time limit {time}",
            range(
                format!("{:.2}", hours(measure.blocks_min)),
                format!("{:.2}", hours(measure.blocks_max))
            ),
        )
    }

    fn submit(&self) -> Result<Exit> {
        let shape = self.shape();
        self.warn(shape);
        let script = self.script();
        script.write(self.site)?;
        let command = self.sbatch(shape, &script);
        eprintln!("{}", line(&command));
        let name = format!("kolo-{}", self.name());
        let submitted = submit::submit(&command).map_err(|error| {
            anyhow::Error::new(error).context(format!(
                "it is unknown whether a job was submitted; check with `squeue --me --name={name}` \
                 before submitting again"
            ))
        })?;
        for variable in &submitted.ignored {
            eprintln!("{variable} is ignored: the site file describes the job");
        }
        let id = &submitted.id;
        println!(
            "job {id} is submitted: {} nodes for {}; its output is kolo-{id}.out, its results {}",
            shape.nodes,
            self.arguments.slurm.time,
            self.folder(id).display()
        );
        Ok(Exit::Right)
    }

    /// The nodes of the job, which may differ from the request.
    fn shape_in(&self, job: &Job) -> Shape {
        Shape { nodes: job.nodes.len(), ..self.shape() }
    }

    /// The program in the job, and its folder.
    fn program_in(&self, job: &Job) -> Result<(PathBuf, Vec<String>)> {
        let folder = self.folder(&job.id);
        let until = job.end.as_ref().map(|end| {
            let left = end.unix_seconds - Utc::now().timestamp();
            (end.unix_seconds - MARGIN_SECONDS.min(left.max(0) / 10)).to_string()
        });
        let program = self.program(&folder, until)?;
        Ok((folder, program))
    }

    fn show_in(&self, job: &Job) -> Result<Exit> {
        let shape = self.shape_in(job);
        self.warn(shape);
        let (_, program) = self.program_in(job)?;
        println!("in job {}:\n{}\n", job.id, line(&step(self.site, shape, &[], &program)));
        dry_run(self.plan);
        Ok(Exit::Right)
    }

    fn drive(&self, job: &Job, stop: &Stop) -> Result<Exit> {
        let shape = self.shape_in(job);
        let (folder, program) = self.program_in(job)?;
        self.tell(job, &folder);
        self.warn(shape);
        let drive = Drive {
            site: self.site,
            job,
            ranks_per_node: shape.ranks_per_node,
            folder: &folder,
            program: &program,
            timeout: Timeouts::of(Duration::from_secs_f64(self.arguments.slurm.timeout_seconds)),
        };
        let ended = drive.run(stop)?;
        if let Err(error) = accounting::of_job(&job.id, job.restarts + 1).keep(&folder) {
            eprintln!("the job's accounting is not saved: {error}");
        }
        Ok(match ended {
            Ended::Over(status) => {
                println!("the sweep has ended (status {status}): {}", folder.display());
                Exit::of(status)
            }
            Ended::Left(why) => {
                eprintln!("{why}");
                Exit::Left
            }
            Ended::Requeued => Exit::Left,
        })
    }

    fn tell(&self, job: &Job, folder: &Path) {
        let end = match &job.end {
            Some(end) => match DateTime::from_timestamp(end.unix_seconds, 0) {
                Some(time) => {
                    format!("it ends at {} ({})", time.format("%Y-%m-%dT%H:%M:%SZ"), end.said_by)
                }
                None => format!("it ends at {} s ({})", end.unix_seconds, end.said_by),
            },
            None => "its end time is unknown; new cases start until Slurm ends the job".into(),
        };
        eprintln!(
            "job {}, start {}: nodes {}; {end}; site {}; results in {}",
            job.id,
            job.restarts + 1,
            cluster::slurm::hostlist::compress(&job.nodes),
            described(self.site),
            folder.display()
        );
    }
}
