//! NCCL's own allreduces, by name.

use std::{env, fmt};

use thiserror::Error;

/// `ncclAllReduce`, as spelled in configurations and CSV files.
pub const ALL_REDUCE: &str = "nccl-allreduce";

/// Horovod's hierarchical allreduce, likewise.
pub const HIERARCHICAL: &str = "nccl-hierarchical";

/// Values of `NCCL_ALGO` for an allreduce.
const ALGORITHMS: [&str; 6] = ["Ring", "Tree", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree"];

/// Values of `NCCL_PROTO`.
const PROTOCOLS: [&str; 3] = ["Simple", "LL", "LL128"];

/// A name that begins as one of NCCL's own ways, and is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// NCCL knows no such algorithm or protocol, or the name has several.
    #[error(
        "{ALL_REDUCE} takes one algorithm of NCCL ({}) and one protocol ({}), found \"{part}\"",
        ALGORITHMS.join(", "),
        PROTOCOLS.join(", ")
    )]
    Tuning {
        /// The part of the name.
        part: String,
    },
    /// It stands inside another name, or something follows it.
    #[error(
        "\"{name}\" is unknown: NCCL's allreduces cannot be nested, and {HIERARCHICAL} takes no parameter; write \
         {HIERARCHICAL}, or {ALL_REDUCE} with an algorithm and a protocol of NCCL, as in {ALL_REDUCE}:Ring:LL"
    )]
    Nested {
        /// The name.
        name: String,
    },
}

/// Who combines gradients, if it is NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Native {
    /// `ncclAllReduce`.
    AllReduce(Tuning),
    /// As Horovod with `HOROVOD_HIERARCHICAL_ALLREDUCE`: reduce-scatter within each node, allreduce between ranks
    /// with the same local rank, all-gather within each node. The remainder of the division by the ranks of a node
    /// is reduced to the last of them, joins its part, and is broadcast. Where nodes differ in size, everything is
    /// reduced to the first rank of each node. Horovod's middle step uses MPI and host memory; this one uses NCCL.
    /// Horovod also rounds the size of its fusion buffer up to a multiple; this project does not.
    Hierarchical,
}

/// Restricts NCCL's choice. NCCL reads both variables when it creates a communicator, so each combination has its
/// own communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// For `NCCL_ALGO`.
    pub algorithm: Option<&'static str>,
    /// For `NCCL_PROTO`. NCCL accepts LL128 even where it is unsupported, and results are then wrong.
    pub protocol: Option<&'static str>,
}

impl Tuning {
    /// The variables, with their values.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let algorithm = self.algorithm.map(|value| ("NCCL_ALGO", value));
        algorithm.into_iter().chain(self.protocol.map(|value| ("NCCL_PROTO", value)))
    }

    /// Runs `act`, for example the creation of a communicator, with the variables set.
    pub fn during<R>(&self, act: impl FnOnce() -> R) -> R {
        let before: Vec<_> = self.variables().map(|(name, _)| (name, env::var_os(name))).collect();
        for (name, value) in self.variables() {
            // SAFETY: this project's threads read no variables while communicators are created, and NCCL's threads
            // are idle; an MPI library's threads are assumed to be.
            unsafe { env::set_var(name, value) };
        }
        let done = act();
        for (name, value) in before {
            // SAFETY: as above.
            unsafe {
                match value {
                    Some(value) => env::set_var(name, value),
                    None => env::remove_var(name),
                }
            }
        }
        done
    }

    fn parse<'p>(parts: impl Iterator<Item = &'p str>) -> Result<Tuning, NameError> {
        let mut tuning = Tuning::default();
        for part in parts {
            let one_of = |all: &[&'static str]| {
                all.iter().copied().find(|known| known.eq_ignore_ascii_case(part))
            };
            match (one_of(&ALGORITHMS), one_of(&PROTOCOLS)) {
                (Some(found), _) if tuning.algorithm.is_none() => tuning.algorithm = Some(found),
                (_, Some(found)) if tuning.protocol.is_none() => tuning.protocol = Some(found),
                _ => return Err(NameError::Tuning { part: part.into() }),
            }
        }
        Ok(tuning)
    }
}

impl fmt::Display for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Native::AllReduce(tuning) => {
                write!(f, "{ALL_REDUCE}")?;
                tuning.variables().try_for_each(|(_, value)| write!(f, ":{value}"))
            }
            Native::Hierarchical => write!(f, "{HIERARCHICAL}"),
        }
    }
}

/// Parses a name. Returns none if it is not one of NCCL's.
///
/// # Errors
/// What is wrong with it.
pub fn parse(name: &str) -> Result<Option<Native>, NameError> {
    let mut parts = name.split(':');
    let is_ours = |part: &str| part == ALL_REDUCE || part == HIERARCHICAL;
    match parts.next() {
        Some(ALL_REDUCE) => Tuning::parse(parts).map(|tuning| Some(Native::AllReduce(tuning))),
        Some(HIERARCHICAL) if parts.next().is_none() => Ok(Some(Native::Hierarchical)),
        _ if name.split(':').any(is_ours) => Err(NameError::Nested { name: name.into() }),
        _ => Ok(None),
    }
}

/// The names of all combinations of algorithms and protocols. An empty list leaves the choice to NCCL.
///
/// # Errors
/// What NCCL does not know.
pub fn combinations(algorithms: &[String], protocols: &[String]) -> Result<Vec<String>, NameError> {
    let or_any = |list: &[String]| {
        if list.is_empty() {
            vec![String::new()]
        } else {
            list.iter().map(|value| format!(":{value}")).collect()
        }
    };
    let (algorithms, protocols) = (or_any(algorithms), or_any(protocols));
    let pairs = algorithms.iter().flat_map(|algorithm| {
        protocols.iter().map(move |protocol| format!("{ALL_REDUCE}{algorithm}{protocol}"))
    });
    pairs.map(|name| Ok(parse(&name)?.map_or(name, |native| native.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelt_as_nccl_does() {
        let spelt = |name| parse(name).unwrap().unwrap().to_string();
        assert_eq!(spelt("nccl-allreduce"), "nccl-allreduce");
        assert_eq!(spelt("nccl-allreduce:ring:ll128"), "nccl-allreduce:Ring:LL128");
        assert_eq!(spelt("nccl-allreduce:simple:TREE"), "nccl-allreduce:Tree:Simple");
        assert_eq!(spelt("nccl-hierarchical"), HIERARCHICAL);
        assert_eq!(parse("hierarchical:ring"), Ok(None));
        for name in ["grouped:nccl-allreduce", "nccl-hierarchical:ring"] {
            assert!(
                parse(name).unwrap_err().to_string().contains("as in nccl-allreduce:Ring:LL"),
                "{name}"
            );
        }
        for name in ["nccl-allreduce:ring:tree", "nccl-allreduce:PAT", "nccl-allreduce:LL:LL"] {
            assert!(
                parse(name)
                    .unwrap_err()
                    .to_string()
                    .contains("takes one algorithm of NCCL (Ring, Tree,")
            );
        }
    }

    #[test]
    fn factors_are_combined() {
        let list =
            |values: &[&str]| values.iter().map(|value| value.to_string()).collect::<Vec<_>>();
        let names = combinations(&list(&["ring", "Tree"]), &list(&["LL", "Simple"])).unwrap();
        let expected = ["Ring:LL", "Ring:Simple", "Tree:LL", "Tree:Simple"];
        assert_eq!(names, expected.map(|rest| format!("nccl-allreduce:{rest}")));
        assert_eq!(combinations(&[], &list(&["LL"])).unwrap(), ["nccl-allreduce:LL"]);
        assert!(
            combinations(&list(&["rign"]), &[])
                .unwrap_err()
                .to_string()
                .ends_with("found \"rign\"")
        );
    }
}
