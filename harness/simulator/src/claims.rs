//! Compares published ratios with simulated ones: with intervals over seeds, and with the range when each assumed
//! parameter is at either end of its range in the machine file. No parameter is fitted to a claim. For a claim
//! that is out of range, it computes the parameter values that would reproduce it.

use std::fmt::Write as _;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::{Case, Config, Model};
use super::data_plane::DataPlane;
use super::sweep::{CaseError, Plan};
use super::training::{self, Drive};
use results::statistics::Summary;
use results::toml_file::{Invalid, within};

/// A published ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// A short name.
    pub name: String,
    /// The ratio.
    pub published: f64,
    /// The relative tolerance for agreement with the published ratio.
    #[serde(default = "default_tolerance")]
    pub tolerance: f64,
    /// The publication.
    pub source: String,
    /// Its throughput over ...
    pub policy: String,
    /// ... that of another policy at the same ranks; left out: over its own per rank at
    /// `simulate.base_ranks`, which is scaling efficiency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The number of ranks.
    pub ranks: usize,
    /// For this model only; left out: for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
}

fn default_tolerance() -> f64 {
    0.1
}

/// A claim with its simulated ratio for one model; a line of `claims.csv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Compared {
    /// The claim.
    pub claim: String,
    /// The model.
    pub workload: String,
    /// GPUs.
    pub ranks: usize,
    /// The ratio that was published.
    pub published: f64,
    /// The simulated ratio, with its 95 % interval over seeds.
    pub simulated: f64,
    /// See `simulated`.
    pub simulated_low: f64,
    /// See `simulated`.
    pub simulated_high: f64,
    /// The ratio with each parameter at its ends, and with other jitter: the least and the most.
    pub range_low: f64,
    /// See `range_low`.
    pub range_high: f64,
    /// `agrees`, `possible` or `out of range`.
    pub verdict: &'static str,
    /// What would have to be true for the claim to hold.
    pub would_have_to_be: String,
}

/// The simulated ratio is the published one, within its tolerance.
const AGREES: &str = "agrees";

/// Within the range of the assumptions.
const POSSIBLE: &str = "possible";

/// It is not.
const OUT_OF_RANGE: &str = "out of range";

impl Claim {
    /// Refuses a claim about a policy or model that the configuration does not have.
    ///
    /// # Errors
    /// The key, the value found, the value expected.
    pub fn check(&self, config: &Config) -> Result<(), Invalid> {
        let key = |field: &str| format!("claim \"{}\": {field}", self.name);
        let known: Vec<&str> = config.policy.iter().map(|policy| policy.name.as_str()).collect();
        for (field, name) in [("policy", Some(&self.policy)), ("against", self.against.as_ref())] {
            if let Some(name) = name.filter(|name| !known.contains(&name.as_str())) {
                return Err(Invalid::name(key(field), name, known));
            }
        }
        if !(self.published > 0.0 && self.published < 1e3) {
            let expected = "a ratio above 0 and below 1000";
            return Err(Invalid::value(key("published"), self.published, expected));
        }
        within(&key("tolerance"), self.tolerance, 0.0, 1.0)?;
        match &self.workload {
            Some(name) if !config.model.iter().any(|model| model.workload == *name) => {
                let models = config.model.iter().map(|model| &model.workload);
                Err(Invalid::name(key("workload"), name, models))
            }
            _ => Ok(()),
        }
    }
}

/// A parameter that a claim may depend on: a machine's, or a condition of the job.
#[derive(Clone, Debug)]
enum Change {
    None,
    /// A parameter of the machine file.
    Parameter(String, f64),
    /// All computation takes this many times as long.
    Compute(f64),
    /// The deviation from step to step.
    Jitter(f64),
    /// No lasting differences between GPUs.
    EqualGpus,
}

/// Every claim for each of its models.
///
/// # Errors
/// When a case cannot be simulated.
pub fn compare(plan: &Plan) -> Result<Vec<Compared>, CaseError> {
    let pairs: Vec<(&Claim, &Model)> = (plan.config.claim.iter())
        .flat_map(|claim| {
            let is_for = |model: &&Model| {
                claim.workload.as_ref().is_none_or(|workload| *workload == model.workload)
            };
            plan.config.model.iter().filter(is_for).map(move |model| (claim, model))
        })
        .collect();
    pairs.par_iter().with_max_len(1).map(|(claim, model)| one(plan, claim, model)).collect()
}

fn one(plan: &Plan, claim: &Claim, model: &Model) -> Result<Compared, CaseError> {
    let seeds = plan.config.simulate.seeds;
    let ratios = ratios(plan, claim, model, &Change::None, seeds)?;
    let nominal = Summary::of(&ratios).expect("there is a seed");
    let few = 3.min(seeds);
    let median = |change: &Change| -> Result<f64, CaseError> {
        let ratios = self::ratios(plan, claim, model, change, few)?;
        Ok(Summary::of(&ratios).expect("there is a seed").p50)
    };
    // One at a time, to either end.
    let (mut low, mut high) = (nominal.p50, nominal.p50);
    for change in ends(plan) {
        let found = median(&change)?;
        (low, high) = (low.min(found), high.max(found));
    }
    let (least, most) =
        (claim.published * (1.0 - claim.tolerance), claim.published * (1.0 + claim.tolerance));
    let verdict = match nominal.p50 {
        found if (least..=most).contains(&found) => AGREES,
        _ if low <= most && high >= least => POSSIBLE,
        _ => OUT_OF_RANGE,
    };
    let would_have_to_be = match verdict {
        AGREES => String::new(),
        _ => would_have_to_be(plan, claim, &median)?,
    };
    let interval = nominal.p50_interval.unwrap_or((nominal.min, nominal.max));
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    Ok(Compared {
        claim: claim.name.clone(),
        workload: model.workload.clone(),
        ranks: claim.ranks,
        published: claim.published,
        simulated: rounded(nominal.p50),
        simulated_low: rounded(interval.0),
        simulated_high: rounded(interval.1),
        range_low: rounded(low),
        range_high: rounded(high),
        verdict,
        would_have_to_be,
    })
}

/// Each parameter with a range at either end, jitter from none to twice as much, and equal GPUs.
fn ends(plan: &Plan) -> Vec<Change> {
    let mut changes = Vec::new();
    for (key, parameter) in plan.machine.clone().parameters() {
        for end in [parameter.low, parameter.high].into_iter().flatten() {
            if end != parameter.value {
                changes.push(Change::Parameter(key.clone(), end));
            }
        }
    }
    changes.push(Change::Jitter(0.0));
    changes.push(Change::Jitter(2.0 * plan.jitter.cv()));
    if !plan.jitter.gpu_factors.is_empty() {
        changes.push(Change::EqualGpus);
    }
    changes
}

/// The ratio for each seed.
fn ratios(
    plan: &Plan,
    claim: &Claim,
    model: &Model,
    change: &Change,
    seeds: usize,
) -> Result<Vec<f64>, CaseError> {
    let changed = plan.changed(change);
    let simulate = &plan.config.simulate;
    let (name, ranks) = match &claim.against {
        Some(against) => (against, claim.ranks),
        None => (&claim.policy, simulate.base_ranks),
    };
    let is_it = |other: &&Model| other.workload == model.workload;
    let model =
        changed.config.model.iter().find(is_it).expect("the model is of this configuration");
    let side = |policy: &str, ranks: usize| -> Result<(Case, DataPlane), CaseError> {
        let policy = changed.config.policy(policy).expect("the configuration was checked");
        let segment_bytes = policy.segment_bytes();
        let data = DataPlane::new(
            &policy.data_plane,
            &changed.machine,
            ranks,
            segment_bytes,
            changed.config.simulate.engine,
        )?;
        Ok((Case { model, policy, ranks }, data))
    };
    let per_rank = |(case, data): &(Case, DataPlane), seed: u64| -> Result<f64, CaseError> {
        let job = changed.job(case, data, seed, Drive::Classes)?;
        let steps = training::simulate(&job, simulate.warmup_steps + simulate.steps)?;
        let counted = &steps[simulate.warmup_steps..];
        Ok(counted.len() as f64 / counted.iter().map(|step| step.time).sum::<f64>())
    };
    let (own, other) = (side(&claim.policy, claim.ranks)?, side(name, ranks)?);
    (simulate.seed..simulate.seed + seeds as u64)
        .map(|seed| Ok(per_rank(&own, seed)? / per_rank(&other, seed)?))
        .collect()
}

/// For each of a few things that might be otherwise: the value at which the claim would come out.
fn would_have_to_be(
    plan: &Plan,
    claim: &Claim,
    median: &impl Fn(&Change) -> Result<f64, CaseError>,
) -> Result<String, CaseError> {
    let mut text = String::new();
    let rank0_ns = plan.machine.control.as_ref().map_or(0.0, |control| control.rank0_ns.value);
    let compares = claim.against.is_some();
    type Lever = (&'static str, &'static str, f64, f64, f64, fn(f64) -> Change);
    let levers: [Lever; 3] = [
        ("rank 0 takes", "ns per rank and tensor", rank0_ns, 0.1, 10.0, |value| {
            Change::Parameter("control.rank0_ns".into(), value)
        }),
        ("computation takes", "times as long", 1.0, 0.05, 20.0, Change::Compute),
        ("jitter is", "of the mean", plan.jitter.cv().max(1e-3), 0.1, 10.0, Change::Jitter),
    ];
    for (index, (what, unit, value, least, most, change)) in levers.into_iter().enumerate() {
        // Rank 0's time only matters with negotiation, jitter only for a single policy.
        if (index == 0 && !compares) || (index == 2 && compares) {
            continue;
        }
        let solved =
            solve(claim.published, value * least, value * most, |value| median(&change(value)))?;
        if let Some(solved) = solved {
            let comma = if text.is_empty() { "" } else { "; or " };
            let _ = write!(text, "{comma}{what} {} {unit}", three_digits(solved));
        }
    }
    Ok(text)
}

/// The parameter value at which a function crosses a target between two ends, if it does: bisection on a
/// logarithmic scale.
fn solve(
    target: f64,
    least: f64,
    most: f64,
    value: impl Fn(f64) -> Result<f64, CaseError>,
) -> Result<Option<f64>, CaseError> {
    let (mut low, mut high) = (least, most);
    let rises = value(high)? > value(low)?;
    let is_above = |found: f64| (found > target) == rises;
    if is_above(value(low)?) || !is_above(value(high)?) {
        return Ok(None);
    }
    for _ in 0..12 {
        let middle = (low * high).sqrt();
        if is_above(value(middle)?) { high = middle } else { low = middle }
    }
    Ok(Some((low * high).sqrt()))
}

fn three_digits(value: f64) -> String {
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}

/// The comparison as text.
pub fn text(compared: &[Compared]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "published ratios beside simulated ones (median and 95 % interval over seeds; range: each \
         parameter with a range at its ends, one at a time, jitter from none to twice as much, and equal GPUs)"
    );
    for (index, one) in compared.iter().enumerate() {
        if index == 0 || compared[index - 1].claim != one.claim {
            let _ = writeln!(text, "\n{}: published {}", one.claim, one.published);
        }
        let _ = writeln!(
            text,
            "  {:<20} {:>7} ranks  {:.3} [{:.3}, {:.3}]  range {:.3} to {:.3}  {}",
            one.workload,
            one.ranks,
            one.simulated,
            one.simulated_low,
            one.simulated_high,
            one.range_low,
            one.range_high,
            one.verdict,
        );
        match (one.verdict, one.would_have_to_be.as_str()) {
            (AGREES, _) => {}
            (_, "") => {
                let tried = "rank 0's time per request, computation, jitter";
                let _ = writeln!(text, "    no variation reproduces it: {tried}");
            }
            (_, what) => {
                let _ = writeln!(text, "    reproduced if {what}");
            }
        }
    }
    text
}

impl Plan {
    /// The same plan with one change.
    fn changed(&self, change: &Change) -> Plan {
        let (mut config, mut machine) = (self.config.clone(), self.machine.clone());
        match change {
            Change::None => {}
            Change::Compute(factor) => config.model.iter_mut().for_each(|model| {
                model.forward_ms *= factor;
                model.backward_ms *= factor;
            }),
            Change::Jitter(cv) => match &mut machine.variability {
                Some(variability) if config.jitter.cv.is_none() => variability.step_cv.value = *cv,
                _ => config.jitter.cv = Some(*cv),
            },
            Change::EqualGpus => {
                machine.variability.iter_mut().for_each(|it| it.gpu_factors.fill(1.0));
            }
            Change::Parameter(key, value) => {
                for (other, parameter) in machine.parameters() {
                    if other == *key {
                        parameter.value = *value;
                    }
                }
            }
        }
        Plan::of(config, machine, self.workloads.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solving_finds_a_crossing_or_none() {
        let square = |x: f64| Ok(x * x);
        let found = solve(2.0, 0.1, 10.0, square).unwrap().unwrap();
        assert!((found - 2f64.sqrt()).abs() < 0.01);
        let falling = |x: f64| Ok(1.0 / x);
        let found = solve(0.5, 0.1, 10.0, falling).unwrap().unwrap();
        assert!((found - 2.0).abs() < 0.02);
        assert_eq!(solve(1000.0, 0.1, 10.0, square).unwrap(), None);
        assert_eq!(solve(1000.0, 0.1, 10.0, falling).unwrap(), None);
    }

    #[test]
    fn three_digits_are_enough() {
        let shown: Vec<_> = [1234.5, 12.345, 0.012345, 1.0].map(three_digits).to_vec();
        assert_eq!(shown, ["1234", "12.3", "0.0123", "1.00"]);
    }
}
