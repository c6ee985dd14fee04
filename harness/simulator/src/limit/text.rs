//! The answer as text.

use std::fmt::Write as _;

use super::{Answer, Question, Reach, World};
use crate::published::Group;

impl Answer {
    /// For people.
    pub fn text(&self, question: &Question) -> String {
        let Question { machine, workload, policy, residuals, .. } = question;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "SIMULATED on {} ({}): {}, {}, {}, {} MiB, {} ms",
            machine.name,
            machine.about,
            workload.name,
            policy.control_plane,
            policy.data_plane,
            policy.fusion_threshold_mib,
            policy.cycle_time_ms
        );
        let _ = writeln!(
            text,
            "efficiency: throughput / (GPUs x that of one); range: seeds, each parameter's range, and how far published \
             points are from their simulation"
        );
        let groups = [Group::OneNode, Group::across(machine.node.network)];
        for line in groups.into_iter().filter_map(|group| residuals.in_words(group)) {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(text, "{:>7}  {:>10}  range", "GPUs", "efficiency");
        for World { ranks, efficiency, range: (low, high) } in &self.worlds {
            let _ = writeln!(text, "{ranks:>7}  {efficiency:>10.3}  [{low:.3}, {high:.3}]");
        }
        let _ = writeln!(text, "{}", self.verdict());
        if let Some(sentence) = machine.leaves_out() {
            let _ = writeln!(text, "{sentence}");
        }
        let World { ranks, efficiency, .. } = self.at;
        let _ =
            writeln!(text, "lost at {ranks} GPUs: {:.1} % of a step", 100.0 * (1.0 - efficiency));
        for loss in self.losses.iter().filter(|loss| loss.share >= 5e-4) {
            let _ = writeln!(text, "  {:<42}  {:>5.1} %", loss.what, 100.0 * loss.share);
        }
        let _ = writeln!(text, "one change at {ranks} GPUs: efficiency, and points gained");
        for changed in &self.changes {
            let gain = 100.0 * (changed.efficiency - efficiency);
            let _ =
                writeln!(text, "  {:<42}  {:.3}  {gain:>+5.1}", changed.what, changed.efficiency);
        }
        text
    }

    fn verdict(&self) -> String {
        let [median, low, high] = self.reach;
        let largest = self.worlds.last().map_or(0, |world| world.ranks);
        let target = self.target;
        let most = match median {
            Reach::Nowhere => format!("efficiency {target:.2} is reached by no simulated size"),
            Reach::UpTo(ranks) => format!("efficiency {target:.2} up to {ranks} GPUs"),
            Reach::Everywhere => format!("efficiency {target:.2} up to all {largest} GPUs"),
        };
        let end = |reach| match reach {
            Reach::Nowhere => "less than one node".into(),
            Reach::UpTo(ranks) => format!("{ranks}"),
            Reach::Everywhere => format!("{largest} or more"),
        };
        format!("{most} [{}, {}]", end(low), end(high))
    }
}
