//! Findings about the network between nodes: the wrong interface may be ten times slower.

use super::Finding;
use crate::nodes::LINK_GBIT_S;

/// The bandwidth of a node's link in Gbit/s, if the site file has it.
pub fn expected_gbit_s() -> Option<f64> {
    std::env::var(LINK_GBIT_S).ok()?.parse().ok()
}

/// Links with less than half of the bandwidth that is expected. `gbit_s` are those from the first of `hosts` to each
/// of the others.
pub fn findings(gbit_s: &[f64], hosts: &[&str], expected: Option<f64>) -> Vec<Finding> {
    let Some(expected) = expected else { return Vec::new() };
    let slow = gbit_s.iter().zip(&hosts[1..]).filter(|(found, _)| **found < expected / 2.0);
    let finding = |(found, host): (&f64, &&str)| {
        Finding::refusal(format!(
            "{} reaches {host} with {found:.2} Gbit/s, and the site file says {expected}",
            hosts[0]
        ))
        .advice("if another interface was meant, name it as `interface` there")
    };
    slow.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_links_are_found() {
        let hosts = ["n1", "n2", "n3"];
        assert_eq!(findings(&[9.0, 6.0], &hosts, Some(10.0)), []);
        assert_eq!(findings(&[0.9, 0.9], &hosts, None), []);
        let found = findings(&[9.0, 0.94], &hosts, Some(10.0));
        assert_eq!(found.len(), 1);
        let words =
            "n1 reaches n3 with 0.94 Gbit/s, and the site file says 10; if another interface";
        assert!(found[0].to_string().starts_with(words), "{found:?}");
    }
}
