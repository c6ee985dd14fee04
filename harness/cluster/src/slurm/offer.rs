//! Compares a site file with Slurm.

use std::fmt;

use super::ask::{AskError, ask};
use super::job::field;
use super::site::{Launcher, Site};
use super::time_limit;

/// The answers of Slurm's clients.
#[derive(Clone, Debug)]
pub struct Answers {
    /// `sinfo`, a line per partition and kind of node: name, state, nodes, CPUs, GRES.
    pub sinfo: String,
    /// `scontrol show config`.
    pub config: Result<String, AskError>,
    /// `scontrol show partition`, of all partitions, each on a line.
    pub partitions: Result<String, AskError>,
    /// `srun --mpi=list`.
    pub mpi: Result<String, AskError>,
}

impl Answers {
    /// Queries the clients.
    ///
    /// # Errors
    /// When there is no Slurm, or it does not answer at all.
    pub fn now() -> Result<Answers, AskError> {
        Ok(Answers {
            sinfo: ask(&["sinfo", "-h", "-e", "-o", "%P|%a|%F|%c|%G"])?,
            config: ask(&["scontrol", "show", "config"]),
            partitions: ask(&["scontrol", "--oneliner", "show", "partition"]),
            mpi: ask(&["srun", "--mpi=list"]),
        })
    }
}

/// One key of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The site file's key, or the topic.
    pub key: &'static str,
    /// The value in the file.
    pub site: String,
    /// The value in Slurm.
    pub slurm: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The file fits.
    Fits,
    /// The file has no such key; its meaning for a sweep.
    Reported(String),
    /// It cannot be checked here; why.
    Unknown(String),
    /// The file is wrong; what to do.
    Contradicts(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Fits => f.write_str("fits"),
            Verdict::Reported(meaning) if meaning.is_empty() => f.write_str("-"),
            Verdict::Reported(meaning) => write!(f, "- {meaning}"),
            Verdict::Unknown(why) => write!(f, "not checked: {why}"),
            Verdict::Contradicts(advice) => write!(f, "CONTRADICTS: {advice}"),
        }
    }
}

/// Nodes of one kind in a partition.
struct Nodes<'a> {
    partition: &'a str,
    is_default: bool,
    is_up: bool,
    total: usize,
    usable: usize,
    cpus: usize,
    gpus: usize,
}

/// Compares.
pub fn compare(site: &Site, answers: &Answers) -> Vec<Finding> {
    let all: Vec<Nodes<'_>> = answers.sinfo.lines().filter_map(nodes).collect();
    let wanted = |nodes: &&Nodes<'_>| match &site.partition {
        Some(name) => nodes.partition == name,
        None => nodes.is_default,
    };
    let nodes: Vec<&Nodes<'_>> = all.iter().filter(wanted).collect();
    let mut findings = vec![partition(site, &all, &nodes)];
    if !nodes.is_empty() {
        findings.extend(hardware(site, &nodes));
        let name = nodes[0].partition;
        findings.extend(policy(site, name, &answers.partitions));
    }
    findings.extend(preemption(answers, nodes.first().map(|nodes| nodes.partition)));
    findings.push(mpi_plugin(site, &answers.mpi));
    findings.extend(unchecked(site));
    findings
}

fn nodes(line: &str) -> Option<Nodes<'_>> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, state, counts, cpus, gres] = fields[..] else { return None };
    let counts: Vec<usize> = counts.split('/').map_while(|count| count.parse().ok()).collect();
    let [allocated, idle, _, total] = counts[..] else { return None };
    Some(Nodes {
        partition: name.trim_end_matches('*'),
        is_default: name.ends_with('*'),
        is_up: state == "up",
        total,
        usable: allocated + idle,
        cpus: cpus.trim_end_matches('+').parse().ok()?,
        gpus: gpus(gres),
    })
}

/// GPUs in `gpu:a100:4(S:0-1),nvme:1`.
fn gpus(gres: &str) -> usize {
    let (mut plain, mut depth) = (String::new(), 0);
    for character in gres.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => plain.push(character),
            _ => {}
        }
    }
    let count = |entry: &str| {
        let (name, rest) = entry.split_once(':').unwrap_or((entry, "1"));
        let last = rest.rsplit(':').next().unwrap_or(rest);
        if name == "gpu" { last.parse().unwrap_or(1) } else { 0 }
    };
    plain.split(',').map(count).sum()
}

fn partition(site: &Site, all: &[Nodes<'_>], nodes: &[&Nodes<'_>]) -> Finding {
    let mut names: Vec<&str> = all.iter().map(|nodes| nodes.partition).collect();
    names.dedup();
    let there = || format!("choose from {}", names.join(", "));
    let (slurm, verdict) = match nodes.first() {
        None if site.partition.is_none() => {
            ("no default".to_string(), Verdict::Contradicts(format!("name one; {}", there())))
        }
        None => ("there is none".into(), Verdict::Contradicts(there())),
        Some(nodes) if !nodes.is_up => {
            (format!("{} is down", nodes.partition), Verdict::Contradicts(there()))
        }
        Some(nodes) => (nodes.partition.to_string(), Verdict::Fits),
    };
    let site = site.partition.clone().unwrap_or("(default)".into());
    Finding { key: "partition", site, slurm, verdict }
}

fn hardware(site: &Site, nodes: &[&Nodes<'_>]) -> Vec<Finding> {
    let each = |what: fn(&Nodes<'_>) -> usize| {
        let mut values: Vec<usize> = nodes.iter().map(|nodes| what(nodes)).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    let words = |values: &[usize]| {
        let values: Vec<String> = values.iter().map(usize::to_string).collect();
        values.join(" or ")
    };
    let (cpus, gpus) = (each(|nodes| nodes.cpus), each(|nodes| nodes.gpus));
    let (least, most) = (cpus[0], gpus[gpus.len() - 1]);
    let total: usize = nodes.iter().map(|nodes| nodes.total).sum();
    let usable: usize = nodes.iter().map(|nodes| nodes.usable).sum();
    let needed = site.ranks_per_node * site.cpus_per_rank;
    vec![
        Finding {
            key: "nodes",
            site: "-".into(),
            slurm: format!("{total}, {usable} usable"),
            verdict: match usable {
                0 => Verdict::Contradicts("no node can run anything; see sinfo -R".into()),
                _ => Verdict::Reported(String::new()),
            },
        },
        Finding {
            key: "cpus_per_node",
            site: site.cpus_per_node.map_or("-".into(), |count| count.to_string()),
            slurm: words(&cpus),
            verdict: match site.cpus_per_node {
                None => Verdict::Reported(String::new()),
                Some(count) if cpus == [count] => Verdict::Fits,
                Some(_) => Verdict::Contradicts("write the number that Slurm reports".into()),
            },
        },
        Finding {
            key: "ranks_per_node",
            site: format!("{} of {} CPUs", site.ranks_per_node, site.cpus_per_rank),
            slurm: format!("{least} CPUs"),
            verdict: if needed <= least || site.overcommit {
                Verdict::Fits
            } else {
                Verdict::Contradicts(format!(
                    "{needed} CPUs are needed; fewer ranks, or overcommit = true"
                ))
            },
        },
        Finding {
            key: "gpus_per_node",
            site: site.gpus_per_node.to_string(),
            slurm: words(&gpus),
            verdict: match site.gpus_per_node {
                0 if most > 0 => Verdict::Reported("jobs do not ask for them".into()),
                count if count <= most => Verdict::Fits,
                _ => Verdict::Contradicts(format!("a node has at most {most}")),
            },
        },
    ]
}

/// The limits of the partition.
fn policy(site: &Site, name: &str, partitions: &Result<String, AskError>) -> Vec<Finding> {
    let Some(shown) = shown(name, partitions) else {
        let said = partitions.as_ref().err().map(AskError::to_string);
        let why = said.unwrap_or(format!("scontrol does not show partition {name}"));
        let (key, site) = ("account, qos, time", "-".to_string());
        return vec![Finding { key, site, slurm: "?".into(), verdict: Verdict::Unknown(why) }];
    };
    let list = |key: &'static str, value: &Option<String>, allowed: &str| {
        let slurm = field(shown, allowed).unwrap_or("?");
        let verdict = match value {
            None => Verdict::Reported(String::new()),
            Some(_) if slurm == "?" => Verdict::Unknown(format!("scontrol shows no {allowed}")),
            Some(name) if slurm == "ALL" || slurm.split(',').any(|allowed| allowed == name) => {
                Verdict::Fits
            }
            Some(_) => Verdict::Contradicts("the partition does not allow it".into()),
        };
        let (site, slurm) = (value.clone().unwrap_or("-".into()), format!("{slurm} allowed"));
        Finding { key, site, slurm, verdict }
    };
    let limit = field(shown, "MaxTime").unwrap_or("?");
    let meaning = match time_limit::parse(limit) {
        Ok(Some(seconds)) if seconds < 3600 => "give --time, since the script asks for an hour",
        _ => "",
    };
    vec![
        list("account", &site.account, "AllowAccounts"),
        list("qos", &site.qos, "AllowQos"),
        Finding {
            key: "time limit",
            site: "-".into(),
            slurm: format!("{limit} at most"),
            verdict: Verdict::Reported(meaning.into()),
        },
    ]
}

fn shown<'a>(name: &str, partitions: &'a Result<String, AskError>) -> Option<&'a str> {
    let text = partitions.as_ref().ok()?;
    text.lines().find(|line| field(line, "PartitionName") == Some(name))
}

fn preemption(answers: &Answers, partition: Option<&str>) -> Vec<Finding> {
    let reported = |key, slurm: String, meaning: &str| Finding {
        key,
        site: "-".into(),
        slurm,
        verdict: Verdict::Reported(meaning.into()),
    };
    let config = match &answers.config {
        Ok(config) => config,
        Err(error) => {
            let verdict = Verdict::Unknown(error.to_string());
            let (key, site) = ("preemption, requeue", "-".to_string());
            return vec![Finding { key, site, slurm: "?".into(), verdict }];
        }
    };
    let of_partition = partition.and_then(|name| shown(name, &answers.partitions));
    let of_partition = of_partition.and_then(|shown| field(shown, "PreemptMode"));
    let mode = of_partition.or(setting(config, "PreemptMode")).unwrap_or("?");
    let after = match mode.to_ascii_uppercase() {
        mode if mode.contains("REQUEUE") => "a preempted job is requeued and resumes",
        mode if mode.contains("CANCEL") => {
            "a preempted job is cancelled: submit it again with the same --out"
        }
        mode if mode.contains("SUSPEND") => "a job may be suspended, which makes its times useless",
        _ => "",
    };
    let requeue = setting(config, "JobRequeue").unwrap_or("?");
    let meaning = match requeue {
        "0" => "jobs are not requeued unless they ask, as the script does",
        _ => "",
    };
    vec![
        reported("preemption", format!("PreemptMode {mode}"), after),
        reported("requeue", format!("JobRequeue {requeue}"), meaning),
    ]
}

/// The value in `Name   = value`.
fn setting<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    let pairs = config.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|p| p.1)
}

fn mpi_plugin(site: &Site, mpi: &Result<String, AskError>) -> Finding {
    let wanted = site.mpi_plugin.name();
    let (slurm, verdict) = match mpi {
        _ if site.launcher == Launcher::Mpirun => {
            ("-".to_string(), Verdict::Reported("not used by mpirun".into()))
        }
        Err(error) => ("?".into(), Verdict::Unknown(error.to_string())),
        Ok(answer) => {
            let mut offered: Vec<&str> = answer.lines().flat_map(plugins).collect();
            offered.dedup();
            let verdict = if offered.contains(&wanted) {
                Verdict::Fits
            } else {
                Verdict::Contradicts("choose one that Slurm offers".into())
            };
            (offered.join(", "), verdict)
        }
    };
    Finding { key: "mpi_plugin", site: wanted.into(), slurm, verdict }
}

/// Plug-ins on a line of `srun --mpi=list`: one, or after a colon several.
fn plugins(line: &str) -> impl Iterator<Item = &str> {
    let heading = line.trim_end().ends_with("...");
    let names = line.rsplit(':').next().unwrap_or(line);
    let words = names.split([',', ' ', '\t']).filter(|name| !name.is_empty());
    words.filter(move |_| !heading)
}

/// Keys that only a node or a login shell could check.
fn unchecked(site: &Site) -> Vec<Finding> {
    let keys = [
        ("modules", (!site.modules.is_empty()).then(|| site.modules.join(", "))),
        ("interface", site.interface.clone()),
        ("nics_per_node", site.nics_per_node.map(|count| count.to_string())),
        ("link_gbit_s", site.link_gbit_s.map(|rate| rate.to_string())),
    ];
    let finding = |(key, value): (&'static str, Option<String>)| {
        let verdict = Verdict::Unknown("Slurm has no such setting".into());
        Some(Finding { key, site: value?, slurm: "-".into(), verdict })
    };
    keys.into_iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests;
