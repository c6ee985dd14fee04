//! How long the threads of a rank are busy on the host, and what memory they have besides.

use std::time::Duration;

use results::toml_file::{Invalid, within};
use serde::{Deserialize, Serialize};
use workloads::replay::HostCosts;

/// More time on a core for each gradient or message is taken for a mistake.
const MOST_HOST_US: f64 = 1e6;
/// So is more memory for each rank.
const MOST_FRAMEWORK_MIB: f64 = 65536.0;
/// The key that errors name.
const LAUNCH_GRADIENT_US: &str = "launch_gradient_us";

/// How long the threads of a rank are busy on the host, in us, and what memory they have besides, in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "see `replay::HostCosts`")]
pub struct Host {
    pub wake_us: f64,
    pub hand_over_us: f64,
    pub take_back_us: f64,
    pub loop_gradient_us: f64,
    pub loop_message_us: f64,
    #[serde(skip_serializing_if = "is_0")]
    pub add_mb_us: f64,
    #[serde(skip_serializing_if = "is_0")]
    pub cast_mb_us: f64,
    #[serde(skip_serializing_if = "is_0")]
    pub cast_back_mb_us: f64,
    #[serde(skip_serializing_if = "is_0")]
    pub launch_gradient_us: f64,
    #[serde(skip_serializing_if = "is_0")]
    pub framework_mib: f64,
}

impl Host {
    /// No thread is busy with anything but gradients.
    pub fn is_idle(&self) -> bool {
        *self == Host::default()
    }

    pub(super) fn costs(&self) -> HostCosts {
        let time = |us: f64| Duration::from_secs_f64(us / 1e6);
        HostCosts {
            wake: time(self.wake_us),
            hand_over: time(self.hand_over_us),
            take_back: time(self.take_back_us),
            loop_gradient: time(self.loop_gradient_us),
            loop_message: time(self.loop_message_us),
            add_mb: time(self.add_mb_us),
            cast_mb: time(self.cast_mb_us),
            cast_back_mb: time(self.cast_back_mb_us),
            launch_gradient: time(self.launch_gradient_us),
            framework_bytes: (self.framework_mib * f64::from(1 << 20)) as usize,
        }
    }

    /// Refuses what no host takes, and launches of kernels if some transport has gradients in host memory.
    pub(super) fn check(&self, has_host_memory: bool) -> Result<(), Invalid> {
        let Host { wake_us, hand_over_us, take_back_us, loop_gradient_us, loop_message_us, .. } =
            *self;
        let Host { add_mb_us, cast_mb_us, cast_back_mb_us, launch_gradient_us, .. } = *self;
        let times = [
            ("wake_us", wake_us),
            ("hand_over_us", hand_over_us),
            ("take_back_us", take_back_us),
            ("loop_gradient_us", loop_gradient_us),
            ("loop_message_us", loop_message_us),
            ("add_mb_us", add_mb_us),
            ("cast_mb_us", cast_mb_us),
            ("cast_back_mb_us", cast_back_mb_us),
            (LAUNCH_GRADIENT_US, launch_gradient_us),
        ];
        let check = |(key, us)| within(&format!("host.{key}"), us, 0.0, MOST_HOST_US);
        times.into_iter().try_for_each(check)?;
        if launch_gradient_us > 0.0 && has_host_memory {
            let expected =
                "0, or only transports cuda and nccl: without a device no kernels are launched";
            let key = format!("host.{LAUNCH_GRADIENT_US}");
            return Err(Invalid::value(key, launch_gradient_us, expected));
        }
        within("host.framework_mib", self.framework_mib, 0.0, MOST_FRAMEWORK_MIB)
    }
}

/// A quantity that older folders of results do not have.
fn is_0(time: &f64) -> bool {
    *time == 0.0
}
