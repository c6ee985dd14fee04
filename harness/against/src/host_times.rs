//! How long Horovod's framework is busy with each gradient on the host.
//!
//! Handing over a gradient and fetching its result are work of the framework's thread: Python, the binding, the lock of
//! Horovod's queue. Where ranks have few cores it takes time from the background loop. The engine has a thread that is
//! as busy. How busy, is measured before the comparison as time on a core; it is not fitted to step times.

use std::collections::BTreeMap;
use std::path::Path;

use measure::config::Step;
use results::files::write_whole;
use serde::{Deserialize, Serialize};

use crate::engine::BlockError;
use crate::horovod::Horovod;
use crate::plan::{Origin, Plan};

/// The file in a folder of results.
const FILE: &str = "host_times.json";

const WHAT: &str = "times of the framework's thread";

/// Per gradient, in us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostTimes {
    /// Waking up for it.
    pub wake_us: f64,
    /// Handing it over.
    pub hand_over_us: f64,
    /// Fetching its result.
    pub take_back_us: f64,
}

impl HostTimes {
    /// From the time on a core until the backward pass ends, the part of it in Horovod's call, and fetching.
    pub(crate) fn of(busy_us: f64, hand_over_us: f64, take_back_us: f64) -> HostTimes {
        let rounded = |us: f64| (10.0 * us).round() / 10.0;
        HostTimes {
            wake_us: rounded((busy_us - hand_over_us).max(0.0)),
            hand_over_us: rounded(hand_over_us),
            take_back_us: rounded(take_back_us),
        }
    }

    /// What a configuration says.
    pub(crate) fn configured(step: &Step) -> HostTimes {
        let &Step { wake_us, hand_over_us, take_back_us, .. } = step;
        HostTimes { wake_us, hand_over_us, take_back_us }
    }
}

/// Measures the times for each configuration that does not state them, or reads what an earlier launch has measured.
///
/// # Errors
/// When a block of Horovod fails, or the file cannot be read or written.
pub fn measure(plan: &mut Plan, horovod: &mut Horovod, folder: &Path) -> Result<(), BlockError> {
    let path = folder.join(FILE);
    let earlier: BTreeMap<String, HostTimes> = if path.exists() {
        let text = std::fs::read_to_string(&path).map_err(BlockError::file(WHAT))?;
        serde_json::from_str(&text).map_err(BlockError::file(WHAT))?
    } else {
        BTreeMap::new()
    };
    let mut times = BTreeMap::new();
    for index in 0..plan.origins.len() {
        let Origin { name, host_times, .. } = &plan.origins[index];
        let of_origin = match earlier.get(name) {
            Some(&earlier) => earlier,
            None if *host_times != HostTimes::default() => *host_times,
            None => horovod.host_times(plan, index)?,
        };
        times.insert(name.clone(), of_origin);
        plan.origins[index].host_times = of_origin;
    }
    let text = serde_json::to_string_pretty(&times).expect("plain data");
    write_whole(&path, (text + "\n").as_bytes()).map_err(BlockError::file(WHAT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_up_is_the_rest_of_being_busy() {
        let times = HostTimes::of(51.26, 10.0, 1.32);
        assert_eq!(times, HostTimes { wake_us: 41.3, hand_over_us: 10.0, take_back_us: 1.3 });
        assert_eq!(HostTimes::of(1.0, 2.0, 0.0).wake_us, 0.0);
    }
}
