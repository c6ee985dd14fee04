//! Groups of gradients: which belong together, and when a group is complete.
//!
//! A group is handed over as a unit when the last of its gradients is ready, so that the control plane sees all of
//! it or nothing. This is Horovod v0.21's `DistributedOptimizer(groups=...)`; groups of layers are those of the
//! earlier runs on Summit.

use std::collections::HashMap;
use std::fmt;

use algorithms::control::TensorId;
use algorithms::grouped::split;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::workload::Workload;

/// How gradients are split into groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "\"layers\", a number of groups, or a list of lists of names")]
pub enum Groups {
    /// Evenly, in order of definition; the first have one more.
    Even(usize),
    /// A named rule: `layers`, one group for each layer.
    Named(String),
    /// As listed; a gradient that is not listed is a group by itself.
    Listed(Vec<Vec<String>>),
}

/// The rule by which gradients whose names are equal up to the last dot form a group.
const LAYERS: &str = "layers";

/// Why gradients cannot be split into groups.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GroupsError {
    /// The number of groups is 0.
    #[error("found 0 groups, expected at least 1; leave the key out for no groups")]
    Zero,
    /// No rule has that name.
    #[error(
        "\"{name}\" is unknown, expected \"{LAYERS}\", a number of groups, or a list of lists of names"
    )]
    UnknownRule {
        /// The name.
        name: String,
    },
    /// A list holds an empty list.
    #[error("a group is empty, expected at least one gradient in each")]
    EmptyGroup,
    /// A gradient is listed twice.
    #[error("gradient \"{name}\" is listed twice, expected at most once")]
    Twice {
        /// The gradient.
        name: String,
    },
    /// The workload has no gradient of that name.
    #[error(
        "workload {workload} has no gradient \"{name}\"; its {count} gradients begin with \"{first}\""
    )]
    UnknownGradient {
        /// The gradient that is listed.
        name: String,
        /// The workload.
        workload: String,
        /// How many gradients it has.
        count: usize,
        /// The first gradient of the workload.
        first: String,
    },
}

impl Groups {
    /// Refuses groups that no workload can have.
    ///
    /// # Errors
    /// For 0 groups, an unknown rule, an empty group, or a gradient in two groups.
    pub fn check(&self) -> Result<(), GroupsError> {
        match self {
            Groups::Even(0) => Err(GroupsError::Zero),
            Groups::Named(name) if name != LAYERS => {
                Err(GroupsError::UnknownRule { name: name.clone() })
            }
            Groups::Listed(lists) if lists.iter().any(Vec::is_empty) => {
                Err(GroupsError::EmptyGroup)
            }
            Groups::Listed(lists) => {
                let mut names: Vec<&String> = lists.iter().flatten().collect();
                names.sort();
                match names.windows(2).find(|pair| pair[0] == pair[1]) {
                    Some(pair) => Err(GroupsError::Twice { name: pair[0].clone() }),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The gradients of each group, by their positions in the workload.
    ///
    /// # Errors
    /// As [`Self::check`], or for a name that is no gradient's.
    pub fn of(&self, workload: &Workload) -> Result<Vec<Vec<TensorId>>, GroupsError> {
        self.check()?;
        let gradients = &workload.gradients;
        match self {
            Groups::Even(groups) => {
                Ok(split(gradients.len(), *groups).into_iter().map(Iterator::collect).collect())
            }
            Groups::Named(_) => Ok(layers(workload)),
            Groups::Listed(lists) => listed(lists, workload),
        }
    }

    /// The rule's name, as in rows.
    pub fn name(&self) -> &'static str {
        match self {
            Groups::Even(_) => "even",
            Groups::Named(_) => LAYERS,
            Groups::Listed(_) => "listed",
        }
    }
}

/// A name without a dot is a layer of its own.
fn layers(workload: &Workload) -> Vec<Vec<TensorId>> {
    let (mut layers, mut places) = (Vec::<Vec<TensorId>>::new(), HashMap::new());
    for (id, gradient) in workload.gradients.iter().enumerate() {
        let layer = gradient.name.rsplit_once('.').map_or(&gradient.name[..], |(layer, _)| layer);
        let place = *places.entry(layer).or_insert(layers.len());
        if place == layers.len() {
            layers.push(Vec::new());
        }
        layers[place].push(id);
    }
    layers
}

fn listed(lists: &[Vec<String>], workload: &Workload) -> Result<Vec<Vec<TensorId>>, GroupsError> {
    let gradients = workload.gradients.iter().enumerate();
    let mut left: HashMap<&str, TensorId> =
        gradients.map(|(id, gradient)| (gradient.name.as_str(), id)).collect();
    let mut id = |name: &String| {
        left.remove(name.as_str()).ok_or_else(|| GroupsError::UnknownGradient {
            name: name.clone(),
            workload: workload.name.clone(),
            count: workload.gradients.len(),
            first: workload.gradients.first().map_or(String::new(), |first| first.name.clone()),
        })
    };
    let groups = lists.iter().map(|names| names.iter().map(&mut id).collect());
    let mut groups: Vec<Vec<TensorId>> = groups.collect::<Result<_, _>>()?;
    let mut rest: Vec<TensorId> = left.into_values().collect();
    rest.sort_unstable();
    groups.extend(rest.into_iter().map(|id| vec![id]));
    Ok(groups)
}

/// A warning if groups are larger than the fusion threshold: they are cut into several messages, as in
/// Horovod (issue 2616).
///
/// `size_bytes` is the size of a gradient on the wire, in bytes.
pub fn too_large(
    groups: &[Vec<TensorId>],
    size_bytes: impl Fn(TensorId) -> usize,
    threshold_bytes: usize,
) -> Option<String> {
    let size = |group: &Vec<TensorId>| group.iter().copied().map(&size_bytes).sum();
    let sizes: Vec<usize> = groups.iter().filter(|group| group.len() > 1).map(size).collect();
    let largest = *sizes.iter().max().filter(|&&largest| largest > threshold_bytes)?;
    Some(format!(
        "{} of {} groups are larger than the fusion threshold of {threshold_bytes} bytes and are cut \
         into several messages; the largest has {largest} bytes: raise the threshold to that, or make \
         the groups smaller",
        sizes.iter().filter(|&&size| size > threshold_bytes).count(),
        groups.len(),
    ))
}

/// Collects the gradients of a step until their groups are complete.
pub struct Assembly<'g> {
    groups: &'g [Vec<TensorId>],
    /// The group of each gradient; none if it is handed over by itself.
    group_of: Vec<Option<usize>>,
    /// Which gradients of the running step are ready.
    is_ready: Vec<bool>,
    /// How many of each group are not ready.
    left: Vec<usize>,
}

impl<'g> Assembly<'g> {
    /// No gradient is ready. A gradient without a group is handed over as soon as it is ready.
    pub fn new(groups: &'g [Vec<TensorId>], gradients: usize) -> Assembly<'g> {
        let mut group_of = vec![None; gradients];
        for (group, members) in groups.iter().enumerate() {
            members.iter().for_each(|&id| group_of[id] = Some(group));
        }
        let left = groups.iter().map(Vec::len).collect();
        Assembly { groups, group_of, is_ready: vec![false; gradients], left }
    }

    /// The next step begins.
    pub fn begin(&mut self) {
        self.is_ready.fill(false);
        self.left.iter_mut().zip(self.groups).for_each(|(left, group)| *left = group.len());
    }

    /// Marks a gradient as ready; appends the gradients that are handed over now: none, or a whole group in its
    /// order.
    pub fn ready(&mut self, id: TensorId, hand_over: &mut Vec<TensorId>) {
        assert!(!std::mem::replace(&mut self.is_ready[id], true), "a gradient ready twice");
        let Some(group) = self.group_of[id] else { return hand_over.push(id) };
        self.left[group] -= 1;
        if self.left[group] == 0 {
            hand_over.extend_from_slice(&self.groups[group]);
        }
    }

    /// The first group that waits for gradients, or otherwise all missing gradients without a group; none once
    /// every gradient of the step is ready.
    pub fn missing(&self) -> Option<Missing> {
        let waits = |group: &usize| (1..self.groups[*group].len()).contains(&self.left[*group]);
        let group = (0..self.groups.len()).find(waits);
        let missing = |id: &TensorId| !self.is_ready[*id];
        let gradients: Vec<_> = match group {
            Some(group) => self.groups[group].iter().copied().filter(missing).collect(),
            None => (0..self.is_ready.len()).filter(missing).collect(),
        };
        let of = group.map(|group| (group, self.groups[group].len()));
        (!gradients.is_empty()).then_some(Missing { group: of, gradients })
    }
}

/// Gradients that do not become ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The waiting group, and the number of its gradients.
    pub group: Option<(usize, usize)>,
    /// Which.
    pub gradients: Vec<TensorId>,
}

/// The most names in an error.
const MOST_NAMES: usize = 6;

impl Missing {
    /// As text, such as `group 2 waits for 1 of its 4 gradients: "fc.bias"`.
    pub fn in_words(&self, workload: &Workload) -> String {
        let names = self.gradients.iter().take(MOST_NAMES);
        let names = names.map(|&id| format!("\"{}\"", workload.gradients[id].name));
        let names = names.collect::<Vec<_>>().join(", ");
        let more = if self.gradients.len() > MOST_NAMES { ", ..." } else { "" };
        let missing = self.gradients.len();
        let who: &dyn fmt::Display = match self.group {
            Some((group, all)) => &format!("group {group} waits for {missing} of its {all}"),
            None => &format!("the step waits for {missing} of its {}", workload.gradients.len()),
        };
        format!("{who} gradients: {names}{more}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Gradient;

    const NAMES: [&str; 5] = ["conv.weight", "conv.bias", "fc.weight", "scale", "fc.bias"];

    fn workload() -> Workload {
        let gradient =
            |name: &str| Gradient { name: name.into(), shape: vec![10], ready_fraction: 1.0 };
        Workload {
            name: "five".into(),
            gradients: NAMES.map(gradient).into(),
            ready_order: vec![4, 3, 2, 1, 0],
            ready_assumed: false,
        }
    }

    fn listed(lists: &[&[&str]]) -> Groups {
        let names = |list: &&[&str]| list.iter().map(|name| name.to_string()).collect();
        Groups::Listed(lists.iter().map(names).collect())
    }

    #[test]
    fn gradients_are_grouped_by_number_layer_or_list() {
        for (groups, expected) in [
            (Groups::Even(2), vec![vec![0, 1, 2], vec![3, 4]]),
            (Groups::Even(9), vec![vec![0], vec![1], vec![2], vec![3], vec![4]]),
            (Groups::Named("layers".into()), vec![vec![0, 1], vec![2, 4], vec![3]]),
            (listed(&[&["fc.bias", "conv.bias"]]), vec![vec![4, 1], vec![0], vec![2], vec![3]]),
        ] {
            assert_eq!(groups.of(&workload()).unwrap(), expected, "{groups:?}");
        }
    }

    #[test]
    fn mistakes_say_what_was_expected() {
        for (groups, expected) in [
            (Groups::Even(0), "found 0 groups, expected at least 1"),
            (Groups::Named("layer".into()), "\"layer\" is unknown, expected \"layers\", a number"),
            (listed(&[&["scale"], &[]]), "a group is empty, expected at least one"),
            (listed(&[&["scale", "scale"]]), "gradient \"scale\" is listed twice"),
            (listed(&[&["scale"], &["scale"]]), "gradient \"scale\" is listed twice"),
            (
                listed(&[&["fc.weight", "fc.wieght"]]),
                "workload five has no gradient \"fc.wieght\"; its 5 gradients begin with \
                 \"conv.weight\"",
            ),
        ] {
            let error = groups.of(&workload()).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_group_is_handed_over_when_its_last_gradient_is_ready() {
        let groups = [vec![4, 1], vec![0, 2]];
        let mut assembly = Assembly::new(&groups, 5);
        for _step in 0..2 {
            let mut hand_over = |id| {
                let mut handed_over = Vec::new();
                assembly.ready(id, &mut handed_over);
                handed_over
            };
            assert_eq!(hand_over(1), [0; 0]);
            assert_eq!(hand_over(3), [3], "it is in no group");
            assert_eq!(hand_over(2), [0; 0]);
            assert_eq!(hand_over(4), [4, 1]);
            let missing = assembly.missing().unwrap();
            assert_eq!(missing, Missing { group: Some((1, 2)), gradients: vec![0] });
            let words = missing.in_words(&workload());
            assert_eq!(words, "group 1 waits for 1 of its 2 gradients: \"conv.weight\"");
            assembly.ready(0, &mut Vec::new());
            assert_eq!(assembly.missing(), None);
            assembly.begin();
            let words = assembly.missing().unwrap().in_words(&workload());
            assert!(
                words.starts_with("the step waits for 5 of its 5 gradients: \"conv.w"),
                "{words}"
            );
        }
    }

    #[test]
    fn groups_above_the_threshold_are_counted() {
        let workload = workload();
        let size_bytes = |id: TensorId| 4 * workload.gradients[id].elements();
        let groups = [vec![0, 1, 2], vec![3, 4]];
        assert_eq!(too_large(&groups, size_bytes, 120), None);
        let warning = too_large(&groups, size_bytes, 100).unwrap();
        assert!(warning.starts_with("1 of 2 groups are larger"), "{warning}");
        assert!(warning.contains("the largest has 120 bytes"), "{warning}");
        assert!(too_large(&groups, size_bytes, 0).unwrap().starts_with("2 of 2"));
        assert_eq!(too_large(&[vec![0], vec![1]], size_bytes, 0), None, "never cut");
    }
}
