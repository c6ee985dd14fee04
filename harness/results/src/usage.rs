//! Resource usage of the calling thread.

use std::time::Duration;

/// Time that this thread has been on a core.
pub fn cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        use nix::time::{ClockId, clock_gettime};
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// How often this thread has left its core so far, because it waited or because it had to.
pub fn context_switches() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        use nix::sys::resource::{UsageWho, getrusage};
        let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
        let all = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        u64::try_from(all).ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}
