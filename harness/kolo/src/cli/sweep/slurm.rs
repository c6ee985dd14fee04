//! `kolo sweep --slurm`: outside of a job it submits one, inside it drives the sweep.

mod array;
mod batch_script;
mod prediction;

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};

use super::budget::{Range, seconds};
use super::intended::Intended;
use super::{Arguments, Samples, nodes, override_config};
use crate::cli::site::{described, ranks_per_node as ranks_of};
use crate::cli::{Exit, configuration, not_for, usage};
use batch_script::BatchScript;
use cluster::slurm::accounting;
use cluster::slurm::drive::{Drive, Ended, RETRY};
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
use measure::config::{Allocation, Config};
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

/// Nodes to request where nothing says how many, as the batch script does.
const USUAL_NODES: usize = 4;

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
    /// One job for each number of nodes, one after the other, with one folder of results
    ///
    /// For sites that bill nodes while a case uses fewer. The key job_per_node_count of a site file does the same.
    #[arg(long, requires = "slurm", hide_short_help = true)]
    array: bool,
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
    let job = Job::this().map_err(usage)?;
    let folder = job.as_ref().map(|job| folder_of(arguments, &job.id));
    nodes::settle(&mut config, arguments, folder.as_deref(), || match &job {
        Some(job) => Allocation { nodes: job.nodes.len(), ranks_per_node: ranks_of(&site) },
        None => Allocation { nodes: USUAL_NODES, ranks_per_node: site.ranks_per_node },
    })?;
    // Threads cannot span nodes.
    let over_mpi = config.sweep.transport.iter().all(|name| is_of(name, RankKind::Thread));
    if over_mpi {
        config.sweep.transport = vec![back_ends::default_of_processes().name().into()];
    }
    let workload_path = config.workload_path(&file.path);
    let workload =
        Workload::read(&workload_path).map_err(|error| usage(format!("{shown}: {error}")))?;
    let plan = Plan::new(config, workload);
    if plan.cases.iter().any(|planned| planned.case.transport.rank_kind() == RankKind::Stream) {
        return Err(usage(format!(
            "{shown}: over {CUDA} all ranks are in one process; for a job, with a process for each GPU, give \
             --transport {NCCL}, or leave out --slurm"
        )));
    }
    let site = if needs_gpus(&plan) { site.with_gpus(ranks_per_node(&plan)) } else { site };
    let workloads = workload_path.parent().unwrap_or(Path::new("")).to_path_buf();
    let sweep = Sweep { arguments, site: &site, plan: &plan, over_mpi, workloads };
    let is_array = arguments.slurm.array || site.job_per_node_count;
    match (job, arguments.dry_run) {
        (None, true) if is_array => sweep.show_array(),
        (None, true) => sweep.show(),
        (None, false) if is_array => sweep.submit_array(),
        (None, false) => sweep.submit(),
        (Some(job), true) => sweep.show_in(&job),
        (Some(job), false) => sweep.drive(&job, &stop),
    }
}

/// The folder of a job's results.
fn folder_of(arguments: &Arguments, job: &str) -> PathBuf {
    let stem = arguments.config.file_stem().unwrap_or_default().to_string_lossy();
    let default = || Path::new("results").join(format!("slurm-{job}-{stem}"));
    arguments.out.clone().unwrap_or_else(default)
}

/// A transport has ranks of this kind.
fn is_of(transport: &str, kind: RankKind) -> bool {
    back_ends::named(transport).rank_kind() == kind
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

/// Node-hours of a sweep.
struct NodeHours<'t> {
    guess: Range,
    /// What the time limit allows; none: it does not limit them.
    limit: Option<f64>,
    /// The time limit.
    time: &'t str,
}

impl fmt::Display for NodeHours<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit =
            self.limit.map_or("without limit".into(), |hours| format!("at most {hours:.2}"));
        let NodeHours { guess, time, .. } = self;
        write!(
            f,
            "about {guess:.2} node-hours without network time; {limit} by the time limit {time}"
        )
    }
}

/// The place of a job among those of one sweep.
#[derive(Clone, Copy, Debug, Default)]
struct Link<'a> {
    /// The job whose end it waits for.
    after: Option<&'a str>,
    /// The folder of the results, unless it is named after the job.
    folder: Option<&'a Path>,
    /// The most nodes of any job of the sweep.
    end: Option<usize>,
}

/// The sweep, and its place.
struct Sweep<'a> {
    arguments: &'a Arguments,
    site: &'a Site,
    plan: &'a Plan,
    /// The configuration's transport has threads, and the job's are processes.
    over_mpi: bool,
    /// The folder of the gradient list.
    workloads: PathBuf,
}

impl Sweep<'_> {
    fn name(&self) -> String {
        let stem = self.arguments.config.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// Nodes of the largest topology.
    fn most_nodes(&self) -> usize {
        let worlds = self.plan.cases.iter().map(|planned| &planned.case.topology);
        worlds.map(|world| world.nodes()).max().unwrap_or(1)
    }

    /// Ranks on each node: the most of any topology; nodes: the most, or those requested.
    fn shape(&self) -> Shape {
        let requested = self.arguments.nodes.nodes;
        let nodes = requested.map_or_else(|| self.most_nodes(), |nodes| nodes as usize);
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
        folder_of(self.arguments, job)
    }

    fn script(&self) -> BatchScript {
        BatchScript::find(&format!("{}-{}", now().replace(':', ""), self.name()))
    }

    /// The command that submits a job of these nodes.
    fn sbatch(&self, shape: Shape, script: &BatchScript, link: &Link<'_>) -> Vec<String> {
        let mut words = vec![self.arguments.config.display().to_string()];
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [name.to_string(), value]));
        };
        option("--site", Some(self.site.origin.asked.clone()));
        option("--out", link.folder.map(|folder| folder.display().to_string()));
        option("--nodes", link.end.map(|end| end.to_string()));
        option("--ranks-per-node", self.arguments.nodes.ranks_per_node.map(|it| it.to_string()));
        words.extend(self.passed_on());
        let submission = Submission {
            name: &format!("kolo-{}", self.name()),
            shape,
            time: &self.arguments.slurm.time,
            after: link.after,
            script: script.path(),
            arguments: &words,
        };
        sbatch(self.site, &submission)
    }

    /// A single job, which measures on as many nodes as it is given.
    fn alone(&self) -> Link<'_> {
        Link { folder: self.arguments.out.as_deref(), ..Link::default() }
    }

    /// The command of every rank.
    fn program(&self, folder: &Path, until: Option<String>) -> Result<Vec<String>> {
        let mut words = vec![env::current_exe()?.display().to_string(), "sweep".into()];
        words.push(self.arguments.config.display().to_string());
        words.extend(["--out".into(), folder.display().to_string()]);
        words.push("--go-on".into());
        if self.over_mpi {
            words.extend(
                ["--transport", back_ends::default_of_processes().name()].map(str::to_string),
            );
        }
        let sweep = &self.plan.config.sweep;
        if let (Some(nodes), Some(ranks)) = (&sweep.nodes, sweep.ranks_per_node) {
            let end = nodes.most().to_string();
            words.extend(["--nodes".into(), end, "--ranks-per-node".into(), ranks.to_string()]);
        }
        words.extend(until.into_iter().flat_map(|until| ["--until".into(), until]));
        words.extend(self.passed_on());
        Ok(words)
    }

    /// Options of the user's that the sweep itself takes.
    fn passed_on(&self) -> Vec<String> {
        let Options {
            transport,
            fusion_threshold_mb,
            cycle_time_ms,
            launches,
            steps,
            cache_capacity,
        } = &self.arguments.options;
        let mut words = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [name.to_string(), value]));
        };
        option("--transport", transport.clone().filter(|_| !self.over_mpi));
        option("--fusion-threshold-mb", fusion_threshold_mb.map(|value| value.to_string()));
        option("--cycle-time-ms", cycle_time_ms.map(|value| value.to_string()));
        option("--launches", launches.map(|value| value.to_string()));
        option("--steps", steps.map(|value| value.to_string()));
        option("--cache-capacity", cache_capacity.map(|value| value.to_string()));
        option("--budget", self.arguments.budget.map(|time| format!("{}s", time.as_secs_f64())));
        let is_columnar = self.arguments.samples == Samples::Parquet;
        option("--samples", is_columnar.then(|| "parquet".into()));
        for (flag, is_set) in [
            ("--timeline", self.arguments.timeline),
            ("--no-figures", self.arguments.no_figures),
            ("--force", self.is_forced()),
            (RETRY, self.arguments.retries_failed()),
        ] {
            words.extend(is_set.then(|| flag.to_string()));
        }
        words
    }

    fn is_forced(&self) -> bool {
        self.arguments.force || self.site.overcommit
    }

    fn show(&self) -> Result<Exit> {
        let shape = self.shape();
        self.warn(shape);
        let folder = self.folder("JOBID");
        let program = self.program(&folder, Some("SECONDS".into()))?;
        let script = self.script();
        let command = line(&self.sbatch(shape, &script, &self.alone()));
        let node_hours = self.node_hours(|_| shape.nodes, shape.nodes);
        if self.arguments.printed.is_text() {
            println!(
                "{} nodes of {} ranks; site {}",
                shape.nodes,
                shape.ranks_per_node,
                described(self.site)
            );
            println!("{node_hours}");
            println!("\ncommand to submit (not run):\n{command}");
            println!(
                "\ncommand in the job (JOBID: its number; SECONDS: its end minus a margin):\n\
                 {}",
                line(&step(self.site, shape, &[], &program))
            );
            println!("\nwhat it measures:");
        }
        self.show_intended(Some(node_hours), vec![command])
    }

    /// What the sweep is going to do, by these commands.
    fn show_intended(&self, node_hours: Option<NodeHours>, commands: Vec<String>) -> Result<Exit> {
        let intended = Intended {
            node_hours: node_hours.as_ref().map(|hours| hours.guess),
            node_hours_limit: node_hours.and_then(|hours| hours.limit),
            commands,
            ..Intended::of(self.plan, self.arguments.budget)
        };
        intended.show(self.arguments.printed)?;
        Ok(Exit::Right)
    }

    /// A guess at the node-hours, and what the time limit allows; `nodes` are those that are busy with a case, and
    /// `limited` those of all jobs.
    fn node_hours(&self, nodes: impl Fn(&Planned) -> usize, limited: usize) -> NodeHours<'_> {
        let time = &*self.arguments.slurm.time;
        let limit = time_limit::parse(time).ok().flatten();
        let guess = seconds(self.plan, self.arguments.budget, |planned| nodes(planned) as f64);
        NodeHours {
            guess: guess.over(3600.0),
            limit: limit.map(|seconds| (seconds * limited as u64) as f64 / 3600.0),
            time,
        }
    }

    fn submit(&self) -> Result<Exit> {
        let shape = self.shape();
        self.warn(shape);
        let script = self.script();
        script.write(self.site)?;
        let id = self.hand_over(&self.sbatch(shape, &script, &self.alone()))?;
        println!(
            "job {id} is submitted: {} nodes for {}; its output is kolo-{id}.out, its results {}",
            shape.nodes,
            self.arguments.slurm.time,
            self.folder(&id).display()
        );
        Ok(Exit::Right)
    }

    /// Submits, and returns the number of the job.
    fn hand_over(&self, command: &[String]) -> Result<String> {
        eprintln!("{}", line(command));
        let name = format!("kolo-{}", self.name());
        let submitted = submit::submit(command).map_err(|error| {
            anyhow::Error::new(error).context(format!(
                "it is unknown whether a job was submitted; check with `squeue --me --name={name}` \
                 before submitting again"
            ))
        })?;
        for variable in &submitted.ignored {
            eprintln!("{variable} is ignored: the site file describes the job");
        }
        Ok(submitted.id)
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
        let command = line(&step(self.site, shape, &[], &program));
        if self.arguments.printed.is_text() {
            println!("in job {}:\n{command}\n", job.id);
        }
        self.show_intended(None, vec![command])
    }

    /// Some case is small enough for the job.
    fn check_that_some_fits(&self, job: &Job, shape: Shape) -> Result<()> {
        let worlds = self.plan.cases.iter().map(|planned| &planned.case.topology);
        match worlds.min_by_key(|world| world.ranks()) {
            Some(smallest) if smallest.ranks() > shape.ranks() => Err(usage(format!(
                "no case fits: job {} has {} nodes of {} ranks, and the smallest topology is {smallest}; request \
                 more nodes, or measure on fewer",
                job.id, shape.nodes, shape.ranks_per_node
            ))),
            _ => Ok(()),
        }
    }

    fn drive(&self, job: &Job, stop: &Stop) -> Result<Exit> {
        let shape = self.shape_in(job);
        self.check_that_some_fits(job, shape)?;
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
        if matches!(ended, Ended::Over(status) if status != Exit::Usage as u8) {
            self.predict(&drive, stop);
        }
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
