//! The summary of a simulated sweep.

use std::fmt::Write as _;

use super::sweep::Plan;
use results::row::SimulatedStepRow;

/// Throughput and efficiency of each policy, by model, and the assumptions.
pub fn text(plan: &Plan, rows: &[SimulatedStepRow]) -> String {
    let mut text = String::new();
    let simulate = &plan.config.simulate;
    let _ = writeln!(
        text,
        "SIMULATED on {} ({}); {} seeds{}; {}",
        plan.machine.name,
        plan.machine.about,
        simulate.seeds,
        if simulate.vary_parameters {
            ", intervals with all parameters at either end of their ranges"
        } else {
            ""
        },
        plan.jitter.in_words()
    );
    for model in &plan.config.model {
        let _ = writeln!(text, "\n{}: {}", model.workload, model.source);
        let _ = write!(text, "{:>7}", "ranks");
        plan.config.policy.iter().for_each(|policy| {
            let _ = write!(text, "  {:>20}", policy.name);
        });
        text.push('\n');
        // One base for all: the fastest policy there.
        let throughput = |row: &SimulatedStepRow| row.outcome.right()?.throughput_samples_s_p50;
        let is_base = |row: &&SimulatedStepRow| {
            row.key.ranks == simulate.base_ranks && row.training.workload == model.workload
        };
        let base = rows.iter().filter(is_base).filter_map(throughput).reduce(f64::max);
        let of_one = base.map(|all| all / simulate.base_ranks as f64);
        for &ranks in &simulate.ranks {
            let _ = write!(text, "{ranks:>7}");
            for policy in &plan.config.policy {
                let row = rows.iter().find(|row| {
                    row.key.ranks == ranks
                        && row.policy == policy.name
                        && row.training.workload == model.workload
                });
                let cell = row.and_then(|row| {
                    let throughput = throughput(row)?;
                    let efficiency = of_one.map_or("-".into(), |of_one| {
                        format!("{:.3}", throughput / of_one / ranks as f64)
                    });
                    Some(format!("{throughput:.0}/s {efficiency}"))
                });
                let _ = write!(text, "  {:>20}", cell.unwrap_or("-".into()));
            }
            text.push('\n');
        }
    }
    let _ = writeln!(
        text,
        "\n(samples per second, and scaling efficiency relative to the fastest policy on {} ranks)",
        simulate.base_ranks
    );
    assumed(plan, &mut text);
    if let Some(sentence) = plan.machine.leaves_out() {
        let _ = writeln!(text, "{sentence}");
    }
    for complaint in rows.iter().filter_map(|row| row.outcome.complaint(&row.key.case)) {
        let _ = writeln!(text, "{complaint}");
    }
    text
}

/// Every parameter of the machine without measurement or documentation.
fn assumed(plan: &Plan, text: &mut String) {
    let mut machine = plan.machine.clone();
    let assumed: Vec<String> = (machine.parameters().into_iter())
        .filter(|(_, parameter)| parameter.is_assumed())
        .map(|(key, parameter)| format!("{key} {}", parameter.value))
        .collect();
    if !assumed.is_empty() {
        let _ = writeln!(text, "assumed of {}: {}", plan.machine.name, assumed.join(", "));
    }
}
