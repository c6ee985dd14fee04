//! Every control plane by its name, as in configurations and CSV files.

use std::sync::Arc;

use super::plane::ControlPlane;
use super::settings::Settings;
use super::tensors::Tensors;
use super::{bitvector, buckets, coordinator, point_to_point};

/// Names of the control planes, as in configurations and CSV files; some take a number (`tree:4`).
pub const NAMES: [&str; 6] = [
    coordinator::NAME,
    coordinator::TREE,
    point_to_point::NAME,
    bitvector::NAME,
    buckets::DDP,
    buckets::PACKS,
];

/// The control plane of one rank by its name; `None` for an unknown name.
pub fn find(
    name: &str,
    tensors: Arc<Tensors>,
    settings: &Settings,
) -> Option<Box<dyn ControlPlane>> {
    let (base, number) = match name.split_once(':') {
        Some((base, number)) => (base, Some(number.parse::<usize>().ok()?)),
        None => (name, None),
    };
    Some(match (base, number) {
        (coordinator::NAME, None) => Box::new(coordinator::Coordinator::star(tensors, settings)),
        (coordinator::TREE, None) => {
            Box::new(coordinator::Coordinator::tree(tensors, settings, coordinator::RADIX))
        }
        (coordinator::TREE, Some(radix @ 2..)) => {
            Box::new(coordinator::Coordinator::tree(tensors, settings, radix))
        }
        (point_to_point::NAME, None) => {
            Box::new(point_to_point::PointToPoint::new(tensors, settings))
        }
        (bitvector::NAME, None) => Box::new(bitvector::BitVector::new(tensors, settings)),
        (buckets::DDP | buckets::PACKS, None | Some(1..)) => {
            let size = number.map(|mib| mib << 20);
            Box::new(buckets::Buckets::new(base, size, tensors, settings))
        }
        _ => return None,
    })
}

/// The canonical spelling of a control plane's name (`tree` is `tree:4`); `None` for an unknown name.
pub fn spelling(name: &str) -> Option<String> {
    find(name, Arc::default(), &Settings::new(0, 1)).map(|plane| plane.name())
}
