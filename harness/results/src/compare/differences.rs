//! Facts of two runs that may be the reason of a difference.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Difference, Run, work};

/// Where a run's launch says what may make it faster or slower.
const FACTS: [(&str, &str); 10] = [
    ("program", "/interleaved/program"),
    ("with", "/interleaved/environment"),
    ("commit", "/commit"),
    ("version", "/version"),
    ("build", "/build"),
    ("cores", "/machine/cores"),
    ("kernel", "/machine/kernel"),
    ("clock source", "/machine/clock_source"),
    ("frequency governor", "/machine/frequency_governor"),
    ("GPU driver", "/inventory/driver"),
];

/// Variables that differ from job to job: Slurm's, and those that Open MPI's launcher sets.
const OF_JOBS: [&str; 3] = ["SLURM_", "OMPI_MCA_ess_", "OMPI_MCA_orte_"];

/// Processors whose median frequencies differ by a larger share run at another clock.
const CLOCK: f64 = 0.03;

/// What begins the line of a launch's GPUs that names NCCL.
const NCCL: &str = "NCCL ";

impl Run {
    /// Facts in which the runs differ; those that one of them does not have are left out.
    pub fn differences(&self, other: &Run) -> Vec<Difference> {
        let mut differences = Vec::new();
        let mut add = |what: &str, both: Option<(String, String)>| {
            let both = both.filter(|(first, second)| first != second);
            differences.extend(both.map(|(first, second)| Difference {
                what: what.into(),
                first,
                second,
            }));
        };
        add("compression", work::compression(self, other));
        if let Some((first, second)) = self.launch.as_ref().zip(other.launch.as_ref()) {
            let both = |of: &dyn Fn(&Value) -> Option<String>| of(first).zip(of(second));
            for (what, pointer) in FACTS {
                add(what, both(&|launch| launch.pointer(pointer).map(in_words)));
            }
            add("nodes", both(&|launch| Some(nodes(launch).len().to_string())));
            add("hosts", hosts(first, second));
            add("processors", both(&|launch| kinds(&nodes(launch), "/machine/cpu")));
            add("MPI library", both(&|launch| kinds(&nodes(launch), "/library")));
            add(
                "GPUs",
                both(&|launch| {
                    let gpus = launch.pointer("/inventory/gpus")?.as_array()?;
                    in_numbers(counts(&gpus.iter().collect::<Vec<_>>(), "/name")?)
                }),
            );
            add("NCCL", both(&nccl));
        }
        add("processors' clock", clocks(self.frequency_mhz, other.frequency_mhz));
        if let Some((first, second)) = self.launch.as_ref().zip(other.launch.as_ref()) {
            differences.extend(environment(first, second));
        }
        differences
    }
}

/// The nodes of a job; of a run on one machine the launch itself.
fn nodes(launch: &Value) -> Vec<&Value> {
    let nodes = launch.get("nodes").and_then(Value::as_array).filter(|nodes| !nodes.is_empty());
    nodes.map_or_else(|| vec![launch], |nodes| nodes.iter().collect())
}

/// Every value, with the number of its occurrences if there are several; none if it is not known.
fn kinds(all: &[&Value], pointer: &str) -> Option<String> {
    let kinds = counts(all, pointer)?;
    let only = (kinds.len() == 1).then(|| kinds.keys().next().cloned());
    only.unwrap_or_else(|| in_numbers(kinds))
}

/// Every value with the number of its occurrences; none if it is not known.
fn counts(all: &[&Value], pointer: &str) -> Option<BTreeMap<String, usize>> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for one in all {
        *counts.entry(in_words(one.pointer(pointer)?)).or_default() += 1;
    }
    Some(counts)
}

fn in_numbers(counts: BTreeMap<String, usize>) -> Option<String> {
    let words = |(value, count): (String, usize)| format!("{count} x {value}");
    let words: Vec<String> = counts.into_iter().map(words).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// How many hosts each run has, if they are not the same ones. Their names are nobody's business.
fn hosts(first: &Value, second: &Value) -> Option<(String, String)> {
    let names = |launch: &Value| -> Option<BTreeSet<String>> {
        let all = nodes(launch).into_iter();
        all.map(|node| node.pointer("/machine/host").and_then(Value::as_str).map(String::from))
            .collect()
    };
    let (first, second) = names(first).zip(names(second))?;
    let common = first.intersection(&second).count();
    let own = |names: &BTreeSet<String>, which: &str| match names.len() - common {
        0 => names.len().to_string(),
        own => format!("{}, {own} of them in the {which} run only", names.len()),
    };
    (first != second).then(|| (own(&first, "first"), own(&second, "second")))
}

/// The versions of NCCL that ranks loaded.
fn nccl(launch: &Value) -> Option<String> {
    let lines = launch.get("gpus")?.as_array()?.iter().filter_map(Value::as_str);
    let version = |line: &str| {
        let (_, after) = line.split_once(NCCL)?;
        after.split([',', ' ']).next().map(String::from)
    };
    let versions: BTreeSet<String> = lines.filter_map(version).collect();
    let versions: Vec<String> = versions.into_iter().collect();
    (!versions.is_empty()).then(|| versions.join(", "))
}

fn clocks(first_mhz: Option<f64>, second_mhz: Option<f64>) -> Option<(String, String)> {
    let (first, second) = first_mhz.zip(second_mhz)?;
    let share = first.max(second) / first.min(second) - 1.0;
    (share > CLOCK).then(|| (format!("{first:.0} MHz"), format!("{second:.0} MHz")))
}

/// Variables of the environment in which two launches differ, but for those of the job.
fn environment(first: &Value, second: &Value) -> Vec<Difference> {
    let variables = |launch: &Value| -> BTreeMap<String, String> {
        let pairs = launch.pointer("/environment").cloned().unwrap_or_default();
        let pairs: Vec<(String, String)> = serde_json::from_value(pairs).unwrap_or_default();
        let is_of_job = |name: &str| OF_JOBS.iter().any(|prefix| name.starts_with(prefix));
        pairs.into_iter().filter(|(name, _)| !is_of_job(name)).collect()
    };
    let (first, second) = (variables(first), variables(second));
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let value = |variables: &BTreeMap<String, String>, name: &String| {
        variables.get(name).cloned().unwrap_or("not set".into())
    };
    let difference = |name: &String| {
        let (first, second) = (value(&first, name), value(&second, name));
        (first != second).then(|| Difference { what: name.clone(), first, second })
    };
    names.into_iter().filter_map(difference).collect()
}

fn in_words(value: &Value) -> String {
    match value.as_str() {
        Some("") => "none".into(),
        Some(text) => text.into(),
        None if value.is_null() => "not known".into(),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(launch: Value, frequency_mhz: Option<f64>) -> Run {
        Run { launch: Some(launch), frequency_mhz, ..Run::default() }
    }

    fn differences(first: &Run, second: &Run) -> Vec<String> {
        let words = |it: Difference| format!("{}: {} -> {}", it.what, it.first, it.second);
        first.differences(second).into_iter().map(words).collect()
    }

    fn node(host: &str, cpu: &str, library: &str) -> Value {
        json!({"machine": {"host": host, "cpu": cpu}, "library": library})
    }

    #[test]
    fn nodes_are_counted_and_hosts_are_not_named() {
        let old = "Open MPI v4.1.4";
        let first = json!({"nodes": [node("n1", "a", old), node("n2", "a", old)]});
        let second = json!({"nodes": [node("n2", "a", old), node("n3", "b", old), node("n4", "b", "MPICH")]});
        assert_eq!(
            differences(&run(first.clone(), None), &run(second, None)),
            [
                "nodes: 2 -> 3",
                "hosts: 2, 1 of them in the first run only -> 3, 2 of them in the second run only",
                "processors: a -> 1 x a, 2 x b",
                "MPI library: Open MPI v4.1.4 -> 1 x MPICH, 2 x Open MPI v4.1.4",
            ]
        );
        let again = differences(&run(first.clone(), None), &run(first, None));
        assert!(again.is_empty(), "{again:?}");
        // Of one machine.
        let one = |host: &str| run(json!({"machine": {"host": host, "cpu": "a"}}), None);
        let said =
            "hosts: 1, 1 of them in the first run only -> 1, 1 of them in the second run only";
        assert_eq!(differences(&one("x"), &one("y")), [said]);
    }

    #[test]
    fn clocks_differ_by_more_than_three_percent() {
        let of = |mhz| run(json!({}), mhz);
        assert!(differences(&of(Some(2900.0)), &of(Some(2980.0))).is_empty());
        assert!(differences(&of(Some(2900.0)), &of(None)).is_empty());
        assert_eq!(
            differences(&of(Some(2900.0)), &of(Some(2500.0))),
            ["processors' clock: 2900 MHz -> 2500 MHz"]
        );
    }

    #[test]
    fn gpus_their_driver_and_nccl_are_compared() {
        let of = |driver: &str, names: &[&str], nccl: &str| {
            let gpus: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            let lines = [format!("NCCL {nccl}, libnccl.so.2"), "rank 0: GPU-1".into()];
            run(json!({"inventory": {"driver": driver, "gpus": gpus}, "gpus": lines}), None)
        };
        let first = of("550.1", &["A100", "A100"], "2.20.5");
        assert_eq!(
            differences(&first, &of("560.2", &["A100", "H100"], "2.27.6")),
            [
                "GPU driver: 550.1 -> 560.2",
                "GPUs: 2 x A100 -> 1 x A100, 1 x H100",
                "NCCL: 2.20.5 -> 2.27.6"
            ]
        );
        // Other numbers of the same GPU.
        assert_eq!(
            differences(&first, &of("550.1", &["A100"], "2.20.5")),
            ["GPUs: 2 x A100 -> 1 x A100"]
        );
    }
}
