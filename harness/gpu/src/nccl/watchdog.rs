//! Ends a process that is stuck in a blocking call into a library, which cannot be cancelled.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use algorithms::topology::Rank;

/// Between two checks whether a call has returned.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A time limit for the calls of one rank.
pub struct Watchdog {
    under_way: Arc<Mutex<Option<(Instant, &'static str)>>>,
}

impl Watchdog {
    /// The watchdog of a rank whose calls may take up to `longest`.
    pub fn new(rank: Rank, longest: Duration) -> Watchdog {
        let under_way = Arc::new(Mutex::new(None));
        let watched = Arc::downgrade(&under_way);
        thread::spawn(move || {
            while let Some(under_way) = watched.upgrade() {
                let call: Option<(Instant, &str)> =
                    *under_way.lock().expect("nobody panics in between");
                if let Some((_, call)) = call.filter(|(begun, _)| begun.elapsed() > longest) {
                    end(rank, call, longest);
                }
                drop(under_way);
                thread::sleep(CHECK_INTERVAL);
            }
        });
        Watchdog { under_way }
    }

    /// Calls a function; ends the process if it does not return in time.
    pub fn during<R>(&self, call: &'static str, function: impl FnOnce() -> R) -> R {
        let set = |value| *self.under_way.lock().expect("nobody panics in between") = value;
        set(Some((Instant::now(), call)));
        let returned = function();
        set(None);
        returned
    }
}

/// Without running destructors, which may call the same library.
fn end(rank: Rank, call: &str, longest: Duration) -> ! {
    eprintln!(
        "kolo: rank {rank}: {call} has not returned for {:.1} s, so a rank that it waits for is gone or stuck; \
         the process ends",
        longest.as_secs_f64()
    );
    // SAFETY: it does not return, and runs nothing of this process.
    unsafe { nix::libc::_exit(1) }
}
