//! Every algorithm by its name: the one spelling used in configurations, CSV files and legends.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::algorithm::{Algorithm, DEFAULT_INNER};
use crate::auto::{self, Auto, Candidate};
use crate::bine::Bine;
use crate::cost::{Cost, Machine};
use crate::direct::{OneShot, TwoShot};
use crate::double_tree::DoubleTree;
use crate::grouped::Grouped;
use crate::grouping::Packing;
use crate::halving_doubling::HalvingDoubling;
use crate::halving_doubling_halves::HalvingDoublingHalves;
use crate::hierarchical::Hierarchical;
use crate::leader::Leader;
use crate::parameter_server::ParameterServer;
use crate::pat::Pat;
use crate::recursive_doubling::RecursiveDoubling;
use crate::ring::Ring;
use crate::swing::{Swing, SwingLatency};
use crate::topology::Topology;
use crate::torus::Torus;
use crate::tree::Tree;

/// One line of the registry.
pub struct Entry {
    /// The name.
    pub name: &'static str,
    /// A line for `--help` and `kolo info`.
    pub about: &'static str,
    build: Build,
}

enum Build {
    Plain(fn() -> Arc<dyn Algorithm>),
    /// Chooses among the schedules of the others.
    Choosing,
    /// Works over another algorithm: `name:inner`, ring by default.
    Over(fn(Arc<dyn Algorithm>) -> Arc<dyn Algorithm>),
    /// Takes a number of at least 1: `name:4`; its own choice by default.
    Numbered(fn(Option<NonZeroUsize>) -> Arc<dyn Algorithm>),
}

/// Every registered algorithm. A new one is a file and a line here.
#[rustfmt::skip]
pub const ALL: &[Entry] = &[
    Entry::plain("ring", "reduce-scatter, then all-gather, around one ring", || Arc::new(Ring)),
    Entry::plain("tree", "reduce up a binomial tree, broadcast down it", || Arc::new(Tree)),
    Entry::plain("double-tree", "half of the buffer over each of two complementary binary trees", || Arc::new(DoubleTree)),
    Entry::plain("recursive-doubling", "swap everything at doubling distances", || Arc::new(RecursiveDoubling)),
    Entry::plain("halving-doubling", "Rabenseifner: swap halves, then gather them", || Arc::new(HalvingDoubling)),
    Entry::plain("halving-doubling-halves", "halving-doubling, with half the additions while folding", || Arc::new(HalvingDoublingHalves)),
    Entry::plain("swing-latency", "swap everything at swinging distances", || Arc::new(SwingLatency)),
    Entry::plain("swing", "reduce-scatter and all-gather at swinging distances", || Arc::new(Swing)),
    Entry::plain("bine", "halving-doubling with swing's partners and contiguous halves", || Arc::new(Bine)),
    Entry::plain("pat", "reduce-scatter, then all-gather, over one binomial tree per rank", || Arc::new(Pat)),
    Entry::plain("one-shot", "everything to every rank, in one step", || Arc::new(OneShot)),
    Entry::plain("two-shot", "each chunk to its owner, and back to every rank", || Arc::new(TwoShot)),
    Entry::plain("torus", "rings along the rows and columns of a grid", || Arc::new(Torus)),
    Entry::numbered("parameter-server", "push chunks to a server per node, or to K of them, pull the sums", |servers| Arc::new(ParameterServer { servers })),
    Entry::choosing("auto", "whichever of the others suits the size and the world"),
    Entry::over("hierarchical", "reduce-scatter inside nodes, INNER across them, all-gather inside", |inner| Arc::new(Hierarchical { inner })),
    Entry::over("leader", "to the first rank of each node, INNER among those, and back", |inner| Arc::new(Leader { inner })),
    Entry::over("grouped", "tensors released in groups, packed into the fusion buffer, INNER", |inner| Arc::new(Grouped { inner, packing: Packing::Packed })),
    Entry::over("grouped-scattered", "tensors released in groups, reduced where they lie, INNER", |inner| Arc::new(Grouped { inner, packing: Packing::Scattered })),
];

impl Entry {
    const fn plain(
        name: &'static str,
        about: &'static str,
        build: fn() -> Arc<dyn Algorithm>,
    ) -> Entry {
        Entry { name, about, build: Build::Plain(build) }
    }

    const fn over(
        name: &'static str,
        about: &'static str,
        build: fn(Arc<dyn Algorithm>) -> Arc<dyn Algorithm>,
    ) -> Entry {
        Entry { name, about, build: Build::Over(build) }
    }

    const fn choosing(name: &'static str, about: &'static str) -> Entry {
        Entry { name, about, build: Build::Choosing }
    }

    const fn numbered(
        name: &'static str,
        about: &'static str,
        build: fn(Option<NonZeroUsize>) -> Arc<dyn Algorithm>,
    ) -> Entry {
        Entry { name, about, build: Build::Numbered(build) }
    }

    /// Whether it chooses among the schedules of the others.
    pub fn chooses(&self) -> bool {
        matches!(self.build, Build::Choosing)
    }

    /// Whether the name may be followed by `:` and an inner algorithm.
    pub fn takes_inner(&self) -> bool {
        matches!(self.build, Build::Over(_))
    }

    /// Whether the name may be followed by `:` and a number.
    pub fn takes_number(&self) -> bool {
        matches!(self.build, Build::Numbered(_))
    }
}

/// The algorithm of that name: `ring`, `hierarchical`, `hierarchical:tree`, `parameter-server:4`, ...
/// `auto` is the one for [`auto::ASSUMED`].
///
/// # Errors
/// When there is no such algorithm, or when the part after a colon does not suit it.
pub fn find(name: &str) -> Result<Arc<dyn Algorithm>, UnknownAlgorithm> {
    find_with(name, &|| Arc::new(auto_by_cost(auto::ASSUMED)))
}

/// As [`find`], with `auto` made by the given function.
///
/// # Errors
/// As [`find`].
pub fn find_with(
    name: &str,
    auto: &dyn Fn() -> Arc<dyn Algorithm>,
) -> Result<Arc<dyn Algorithm>, UnknownAlgorithm> {
    let unknown = |part: &str, why: Option<String>| UnknownAlgorithm {
        name: name.to_string(),
        part: part.to_string(),
        why,
    };
    let (outer, argument) = match name.split_once(':') {
        Some((outer, argument)) => (outer, Some(argument)),
        None => (name, None),
    };
    let entry = ALL.iter().find(|entry| entry.name == outer).ok_or_else(|| unknown(outer, None))?;
    match (&entry.build, argument) {
        (Build::Plain(build), None) => Ok(build()),
        (Build::Choosing, None) => Ok(auto()),
        (Build::Plain(_) | Build::Choosing, Some(_)) => {
            Err(unknown(outer, Some(format!("{outer} takes no parameter"))))
        }
        (Build::Over(build), inner) => {
            let named = inner.unwrap_or(DEFAULT_INNER);
            let chooses = ALL.iter().any(|entry| entry.chooses() && entry.name == named);
            let inner = find_with(named, auto).map_err(|inner| unknown(&inner.part, inner.why))?;
            // Groups are a property of the buffer, so they can only be outermost.
            if inner.grouping().is_some() {
                return Err(unknown(named, Some("groups can only be outermost".into())));
            }
            let built = build(inner);
            if chooses && built.grouping().is_none() {
                let why = format!(
                    "{named} chooses by size, which {outer} hides from it; by itself it considers \
                     {outer}, too"
                );
                return Err(unknown(named, Some(why)));
            }
            Ok(built)
        }
        (Build::Numbered(build), None) => Ok(build(None)),
        (Build::Numbered(build), Some(number)) => match number.parse() {
            Ok(number) => Ok(build(Some(number))),
            Err(_) => Err(unknown(
                outer,
                Some(format!("{outer} takes a number of at least 1, but {number:?} was found")),
            )),
        },
    }
}

/// `auto` that chooses by cost on this machine.
pub fn auto_by_cost(machine: Machine) -> Auto {
    Auto::by_cost(eligible, machine)
}

/// `auto` that chooses as measurements say: names of algorithms, each with the smallest size in bytes
/// that it is for, ascending from 0.
///
/// # Panics
/// When the first size is not 0, or when a name is not registered.
pub fn auto_by_measurement(table: Vec<(usize, String)>) -> Auto {
    let entry = |(from_bytes, name)| (from_bytes, candidate(name));
    Auto::by_measurement(table.into_iter().map(entry).collect())
}

/// The algorithms of which one is the best for some size on some machine, by name and with their
/// cost: see [`auto::pareto_front`].
pub fn candidates(topology: &Topology) -> Vec<(String, Cost)> {
    let front = auto::pareto_front(eligible(topology), topology);
    front.into_iter().map(|(candidate, cost)| (candidate.name, cost)).collect()
}

/// Every algorithm among which `auto` may choose: all that neither group nor choose; on nodes of
/// several ranks also `hierarchical` and `leader` over each of them.
pub(crate) fn eligible(topology: &Topology) -> Vec<Candidate> {
    let plain = || ALL.iter().filter(|entry| !entry.takes_inner() && !entry.chooses());
    let mut names: Vec<_> = plain().map(|entry| entry.name.to_string()).collect();
    if topology.nodes() > 1 && topology.ranks() > topology.nodes() {
        for outer in ["hierarchical", "leader"] {
            names.extend(plain().map(|inner| format!("{outer}:{}", inner.name)));
        }
    }
    names.into_iter().map(candidate).collect()
}

fn candidate(name: String) -> Candidate {
    let algorithm = find(&name).unwrap_or_else(|error| panic!("{error}"));
    Candidate { name, algorithm }
}

/// There is no such algorithm. The text says what is wrong with the name and lists the algorithms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm {
    /// The name.
    pub name: String,
    /// The part of it that is wrong: all of it, or a part between colons.
    pub part: String,
    /// What is wrong with the part after a colon; `None` when there is no algorithm of the name.
    pub why: Option<String>,
}

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |which: fn(&Entry) -> bool| {
            let entries = ALL.iter().filter(|entry| which(entry));
            entries.map(|entry| entry.name).collect::<Vec<_>>().join(", ")
        };
        write!(f, "algorithm \"{}\" is unknown", self.name)?;
        match &self.why {
            Some(why) => write!(f, ": {why}")?,
            None if self.part != self.name => write!(f, ": there is no {:?}", self.part)?,
            None => {}
        }
        write!(
            f,
            "; choose from {} ({} may name an algorithm to run inside, as in hierarchical:tree or \
             grouped:hierarchical:tree; {} may name a number, as in parameter-server:4)",
            names(|_| true),
            names(Entry::takes_inner),
            names(Entry::takes_number),
        )
    }
}

impl std::error::Error for UnknownAlgorithm {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_one_way() {
        for (asked, name) in [
            ("ring", "ring"),
            ("hierarchical", "hierarchical"),
            ("hierarchical:ring", "hierarchical"),
            ("hierarchical:tree", "hierarchical:tree"),
            ("grouped:hierarchical:tree", "grouped:hierarchical:tree"),
            ("parameter-server:4", "parameter-server:4"),
            ("parameter-server:04", "parameter-server:4"),
            ("hierarchical:parameter-server:2", "hierarchical:parameter-server:2"),
        ] {
            assert_eq!(find(asked).unwrap().name(), name);
        }
        assert!(ALL.iter().all(|entry| find(entry.name).unwrap().name() == entry.name));
    }

    #[test]
    fn worlds_up_to_the_limit_are_accepted_and_none_beyond() {
        for entry in ALL {
            let algorithm = find(entry.name).unwrap();
            let schedule = |ranks| algorithm.schedule(&Topology::flat(ranks)).map(|_| ());
            match algorithm.limit() {
                None => assert_eq!(schedule(27_600), Ok(()), "{}", entry.name),
                Some(limit) => {
                    assert_eq!(schedule(limit.ranks), Ok(()), "{}", entry.name);
                    let Err(why) = schedule(limit.ranks + 1) else { panic!("{}", entry.name) };
                    let begins = format!(
                        "{} supports at most {} ranks, but there are {}: ",
                        entry.name,
                        limit.ranks,
                        limit.ranks + 1
                    );
                    assert!(why.to_string().starts_with(&begins), "{why}");
                    assert!(why.to_string().contains("; use "), "{why}");
                }
            }
        }
    }

    #[test]
    fn an_inner_algorithm_has_its_limit_across_nodes() {
        for outer in ["hierarchical", "leader", "grouped:hierarchical"] {
            let algorithm = find(&format!("{outer}:one-shot")).unwrap();
            algorithm.schedule(&Topology::uniform(64, 6)).unwrap();
            let Err(why) = algorithm.schedule(&Topology::uniform(65, 6)) else { panic!("{outer}") };
            assert_eq!(
                why.to_string(),
                "across nodes, one-shot supports at most 64 ranks, but there are 65: every rank \
                 sends its whole buffer to every other; use two-shot or recursive-doubling"
            );
        }
    }

    #[test]
    fn unknown_names_are_refused_with_what_exists() {
        let known = format!("{}, {}", ALL[0].name, ALL[1].name);
        for name in ["rign", "", "ring:tree", "hierarchical:", "hierarchical:grouped", "ring:"] {
            let Err(error) = find(name) else { panic!("{name:?} was found") };
            let text = error.to_string();
            assert!(text.contains(&format!("{name:?}")) && text.contains(&known), "{text}");
        }
    }

    #[test]
    fn errors_behind_a_colon_are_reported() {
        for (name, why) in [
            ("ring:4", "ring takes no parameter"),
            ("hierarchical:rnig", "there is no \"rnig\""),
            ("grouped:leader:", "there is no \"\""),
            ("grouped:grouped", "groups can only be outermost"),
            ("leader:auto", "auto chooses by size, which leader hides from it"),
            ("parameter-server:", "takes a number of at least 1, but \"\" was found"),
            ("parameter-server:0", "takes a number of at least 1, but \"0\" was found"),
            ("leader:parameter-server:x", "takes a number of at least 1, but \"x\" was found"),
        ] {
            let Err(error) = find(name) else { panic!("{name:?} was found") };
            let text = error.to_string();
            let begins = format!("algorithm {name:?} is unknown: ");
            assert!(text.starts_with(&begins) && text.contains(why), "{text}");
            assert!(
                text.ends_with("parameter-server may name a number, as in parameter-server:4)")
            );
        }
    }
}
