//! Ends a process that is stuck inside a call into a library, from where nobody can call it back.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use algorithms::topology::Rank;

/// So often it is looked whether a call has returned.
const LOOK: Duration = Duration::from_millis(250);

/// Watches the calls of one rank.
pub struct Alarm {
    under_way: Arc<Mutex<Option<(Instant, &'static str)>>>,
}

impl Alarm {
    /// For a rank, whose calls may take so long.
    pub fn new(rank: Rank, longest: Duration) -> Alarm {
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
                thread::sleep(LOOK);
            }
        });
        Alarm { under_way }
    }

    /// Calls, and sees to it that it is not for ever.
    pub fn during<R>(&self, call: &'static str, function: impl FnOnce() -> R) -> R {
        let set = |value| *self.under_way.lock().expect("nobody panics in between") = value;
        set(Some((Instant::now(), call)));
        let returned = function();
        set(None);
        returned
    }
}

/// What the process would do in order may be just what is stuck, so it ends without.
fn end(rank: Rank, call: &str, longest: Duration) -> ! {
    eprintln!(
        "kolo: rank {rank}: {call} has not returned for {:.1} s, so a rank that it waits for is gone or stuck; \
         the process ends",
        longest.as_secs_f64()
    );
    // SAFETY: it does not return, and runs nothing of this process.
    unsafe { nix::libc::_exit(1) }
}
