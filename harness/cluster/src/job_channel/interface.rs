//! The addresses on which rank 0 listens.

use std::net::IpAddr;

use thiserror::Error;

use crate::nodes::INTERFACE;

/// More addresses are not offered.
const MAX_ADDRESSES: usize = 16;

/// Why this node has no address that others can reach.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// The interface that the user names has no address.
    #[error("{INTERFACE}={chosen} names no interface with an address; this node has {}", names.join(", "))]
    Unknown {
        /// The interface.
        chosen: String,
        /// Those that have an address.
        names: Vec<String>,
    },
    /// There is no other interface.
    #[error("this node has no network interface besides loopback")]
    LoopbackAlone,
}

/// Addresses of this node that other nodes can reach; those of the interface that `KOLO_INTERFACE` names, if it is set.
///
/// # Errors
/// When the interface has no address, or the node has no interface besides loopback.
pub fn own_addresses() -> Result<Vec<IpAddr>, InterfaceError> {
    let chosen = std::env::var(INTERFACE).ok().filter(|name| !name.is_empty());
    choose(chosen.as_deref(), all())
}

/// Every interface with each of its addresses.
fn all() -> Vec<(String, IpAddr)> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let with_address = |one: nix::ifaddrs::InterfaceAddress| {
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        let v6 = || address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip()));
        Some((one.interface_name, v4.or_else(v6)?))
    };
    interfaces.filter_map(with_address).collect()
}

fn choose(chosen: Option<&str>, all: Vec<(String, IpAddr)>) -> Result<Vec<IpAddr>, InterfaceError> {
    // A peer would have to know the interface by which it reaches a link-local address.
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    let fits = |(name, address): &&(String, IpAddr)| {
        is_usable(address) && chosen.map_or(!address.is_loopback(), |chosen| chosen == name)
    };
    let found: Vec<_> = all.iter().filter(fits).map(|(_, address)| *address).collect();
    match chosen {
        Some(chosen) if found.is_empty() => {
            let mut names: Vec<_> = all.into_iter().map(|(name, _)| name).collect();
            names.dedup();
            Err(InterfaceError::Unknown { chosen: chosen.into(), names })
        }
        None if found.is_empty() => Err(InterfaceError::LoopbackAlone),
        _ => Ok(found.into_iter().take(MAX_ADDRESSES).collect()),
    }
}

/// Whether this node has an address.
pub fn is_own(address: IpAddr) -> bool {
    all().iter().any(|(_, own)| *own == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_interface_alone_is_used() {
        let all = || {
            [("lo", "127.0.0.1"), ("eth0", "10.0.0.1"), ("eth0", "fe80::1"), ("ib0", "10.1.0.1")]
                .map(|(name, address)| (name.to_string(), address.parse().unwrap()))
                .to_vec()
        };
        let addresses =
            |list: &[&str]| list.iter().map(|one| one.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(choose(None, all()).unwrap(), addresses(&["10.0.0.1", "10.1.0.1"]));
        assert_eq!(choose(Some("ib0"), all()).unwrap(), addresses(&["10.1.0.1"]));
        assert_eq!(choose(Some("lo"), all()).unwrap(), addresses(&["127.0.0.1"]));
        let error = choose(Some("ib1"), all()).unwrap_err().to_string();
        assert!(error.ends_with("this node has lo, eth0, ib0"), "{error}");
    }
}
