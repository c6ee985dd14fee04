//! `kolo site`.

use std::env;

use anyhow::Result;

use super::printed::Printed;
use super::{Exit, usage};
use cluster::slurm::job::Job;
use cluster::slurm::launch::{Shape, line, step};
use cluster::slurm::offer::{Answers, Finding, Verdict, compare};
use cluster::slurm::site::Site;
use results::inputs;
use schemars::JsonSchema;
use serde::Serialize;

/// Show site files, and compare one with Slurm
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kolo site list
  kolo site check generic")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Compare a site file with Slurm
    ///
    /// Exit status: 1 if they contradict each other; 3 if Slurm is not installed here.
    #[command(after_help = "\
Examples:
  kolo site check generic
  kolo site check ./my-site.toml")]
    Check {
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        printed: Printed,
    },
    /// List the site files in configs/sites and the embedded ones
    #[command(after_help = "\
Examples:
  kolo site list | grep -i slingshot
  kolo site list --json")]
    List(Printed),
    /// Print a site with every key, defaults included
    #[command(after_help = "\
Examples:
  kolo site show generic
  kolo site show ./my-site.toml")]
    Show(Named),
    /// Print what a shell must export for a job
    #[command(hide = true)]
    ShellEnv(Named),
    /// Within a job, print the command that starts a program as its ranks
    #[command(hide = true)]
    Step(Named),
}

#[derive(clap::Args)]
struct Named {
    /// A name from `kolo site list`, or a site file [default: the variable KOLO_SITE, or generic]
    site: Option<String>,
}

impl Named {
    fn read(&self) -> Result<Site> {
        Ok(Site::choose(self.site.as_deref())?)
    }
}

pub fn run(arguments: &Arguments) -> Result<Exit> {
    match &arguments.command {
        Command::Check { named, printed } => return check(&named.read()?, *printed),
        Command::List(printed) => list(*printed)?,
        Command::Show(named) => print!("{}", toml::to_string(&named.read()?)?),
        Command::ShellEnv(named) => shell_env(&named.read()?),
        Command::Step(named) => in_job(named.read()?)?,
    }
    Ok(Exit::Right)
}

/// A site as text: its name and its file.
pub fn described(site: &Site) -> String {
    match &site.origin.path {
        Some(path) => format!("{} ({})", site.origin.name, inputs::described(path)),
        None => format!("{} (no file; defaults)", site.origin.name),
    }
}

/// Version of [`Checked`] as JSON.
const SCHEMA: u32 = 1;

/// A site file beside what Slurm says.
#[derive(Serialize, JsonSchema)]
pub struct Checked {
    /// Version of this structure.
    schema: u32,
    /// The site's name and file.
    site: String,
    /// Why nothing was compared; null: it was.
    not_compared: Option<String>,
    /// Each key.
    findings: Vec<CheckedKey>,
}

/// One key of a site file.
#[derive(Serialize, JsonSchema)]
struct CheckedKey {
    /// The key, or the topic.
    key: String,
    /// Its value in the file.
    site: String,
    /// What Slurm says.
    slurm: String,
    /// They contradict each other.
    contradicts: bool,
    /// What that means.
    verdict: String,
}

fn check(site: &Site, printed: Printed) -> Result<Exit> {
    let answers = Answers::now();
    let findings = answers.as_ref().map_or(Vec::new(), |answers| compare(site, answers));
    let contradicts = |finding: &Finding| matches!(finding.verdict, Verdict::Contradicts(_));
    let count = findings.iter().filter(|finding| contradicts(finding)).count();
    if printed.is_text() {
        println!("site {}: {}", described(site), site.about);
        match &answers {
            Ok(_) => print!("{}", table(&findings)),
            Err(error) => println!("the file is valid; nothing was compared: {error}"),
        }
        if count > 0 {
            println!("{count} of {} contradict Slurm", findings.len());
        }
    }
    let key = |finding: &Finding| CheckedKey {
        key: finding.key.into(),
        site: finding.site.clone(),
        slurm: finding.slurm.clone(),
        contradicts: contradicts(finding),
        verdict: finding.verdict.to_string(),
    };
    let checked = Checked {
        schema: SCHEMA,
        site: described(site),
        not_compared: answers.as_ref().err().map(|error| error.to_string()),
        findings: findings.iter().map(key).collect(),
    };
    printed.print(&checked, "/findings")?;
    Ok(match (answers, count) {
        (Err(_), _) => Exit::Inconclusive,
        (Ok(_), 0) => Exit::Right,
        (Ok(_), _) => Exit::Wrong,
    })
}

fn table(findings: &[Finding]) -> String {
    let heading = ["key", "site file", "Slurm reports", "verdict"].map(str::to_string);
    let rows = findings.iter().map(|finding| {
        let Finding { key, site, slurm, verdict } = finding;
        [key.to_string(), site.clone(), slurm.clone(), verdict.to_string()]
    });
    let rows: Vec<[String; 4]> = [heading].into_iter().chain(rows).collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (key, site, slurm) = (width(0), width(1), width(2));
    let text = |row: &[String; 4]| {
        let [a, b, c, d] = row;
        format!("{a:<key$}  {b:<site$}  {c:<slurm$}  {d}\n")
    };
    rows.iter().map(text).collect()
}

/// The site files that have a name.
#[derive(Serialize, JsonSchema)]
pub struct Sites {
    /// Version of this structure.
    schema: u32,
    /// Each of them.
    sites: Vec<Listed>,
}

/// A site file that has a name.
#[derive(Serialize, JsonSchema)]
struct Listed {
    /// Its name.
    name: String,
    /// What it describes; null: it is invalid.
    about: Option<String>,
    /// Why it is invalid; null: it is not.
    invalid: Option<String>,
}

fn list(printed: Printed) -> Result<()> {
    let listed = |name: String| {
        let site = Site::named(&name);
        Listed {
            about: site.as_ref().ok().map(|site| site.about.clone()),
            invalid: site.err().map(|error| error.to_string()),
            name,
        }
    };
    let sites = Sites { schema: SCHEMA, sites: Site::names().into_iter().map(listed).collect() };
    if printed.is_text() {
        for Listed { name, about, invalid } in &sites.sites {
            let problem = invalid.as_ref().map(|why| format!("invalid: {why}"));
            println!("{name:<16} {}", problem.or(about.clone()).unwrap_or_default());
        }
    }
    printed.print(&sites, "/sites")
}

/// Ranks per node are those that the job requested (`--ntasks-per-node`), or those of the site; GPUs are requested
/// if the job has some.
fn in_job(site: Site) -> Result<()> {
    let job = Job::this().map_err(usage)?;
    let job = job.ok_or_else(|| usage("not inside a Slurm job: SLURM_JOB_ID is not set"))?;
    let ranks_per_node = ranks_per_node(&site);
    let site = match env::var_os("SLURM_GPUS_PER_NODE") {
        Some(_) => site.with_gpus(ranks_per_node),
        None => site,
    };
    let shape = Shape { nodes: job.nodes.len(), ranks_per_node };
    println!("{}", line(&step(&site, shape, &[], &[])));
    Ok(())
}

/// Ranks on each node of a job: those that were requested, or those of the site.
pub fn ranks_per_node(site: &Site) -> usize {
    let asked = env::var("SLURM_NTASKS_PER_NODE").ok().and_then(|count| count.parse().ok());
    asked.filter(|&count| count > 0).unwrap_or(site.ranks_per_node)
}

/// Variables that are already set, by the user or a module, take precedence.
fn shell_env(site: &Site) {
    for (name, value) in site.variables() {
        println!("[ -n \"${{{name}+set}}\" ] || export {}", line(&[format!("{name}={value}")]));
    }
}
