use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::*;
use crate::threads::{ControlChannel, Links, run_ranks};

/// The true time in seconds: of the machine, with what a test has let pass at once.
struct Time {
    start: Instant,
    passed_ms: AtomicU64,
}

impl Time {
    fn new() -> Arc<Time> {
        Arc::new(Time { start: Instant::now(), passed_ms: AtomicU64::new(0) })
    }

    fn now_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64() + self.passed_ms.load(Ordering::SeqCst) as f64 * 1e-3
    }

    fn pass(&self, ms: u64) {
        self.passed_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// A clock that was `by_s` ahead at the beginning, and is `drift` fast.
    fn clock(self: &Arc<Time>, system: Option<u64>, (by_s, drift): (f64, f64)) -> Clock {
        let time = self.clone();
        Clock::new(system, move || by_s + (1.0 + drift) * time.now_s())
    }
}

fn compare(clocks: &[Mutex<Clock>]) {
    let links = Links::new(clocks.len(), Duration::from_secs(20));
    let compared = run_ranks(&[&links], |rank| {
        let mut post = ControlChannel::new(links.join(rank));
        clocks[rank].lock().unwrap().compare(&mut post, (rank, clocks.len()))
    });
    compared.unwrap();
}

/// The bound holds at, between, and long after the comparisons.
#[test]
fn clocks_that_drift_are_known_within_the_bound() {
    let of_ranks = [(5.0, -30e-6), (0.1, 20e-6), (-2.0, -80e-6), (1e4, 0.0)];
    let time = Time::new();
    let clocks = of_ranks.map(|of| Mutex::new(time.clock(None, of)));
    let [(by0_s, drift0), ..] = of_ranks;
    let mut before_s = time.now_s();
    for round in 0..6 {
        compare(&clocks);
        let now_s = time.now_s();
        for (rank, &(by_s, drift)) in of_ranks.iter().enumerate() {
            let clock = clocks[rank].lock().unwrap();
            for at_s in [before_s, now_s, now_s + 0.5, now_s + 20.0] {
                let [own_s, rank0_s] = [by_s + (1.0 + drift) * at_s, by0_s + (1.0 + drift0) * at_s];
                let error_s = clock.error_s(own_s);
                // What f64 holds of 10,000 s.
                let most_s = error_s + 1e-11;
                let off_s = [clock.own_s(rank0_s) - own_s, clock.rank0_s(own_s) - rank0_s];
                assert!(
                    off_s.iter().all(|off_s| off_s.abs() <= most_s),
                    "round {round}: rank {rank} is {off_s:?} s off, promised {error_s}"
                );
                assert!(error_s.is_finite() && (rank == 0) == (error_s == 0.0));
            }
        }
        before_s = now_s;
        time.pass(2000);
    }
    // Comparisons of 10 s on one machine leave little doubt about the drift.
    let clock = clocks[2].lock().unwrap();
    let (found, truth) = (clock.line.drift, (-80e-6 + 30e-6) / (1.0 - 80e-6));
    assert!((found - truth).abs() <= clock.line.drift_error, "{clock:?}");
    assert!(clock.line.drift_error < MOST_DRIFT / 2.0, "{clock:?}");
}

/// Ranks 1 and 3 read one clock, and rank 4 reads rank 0's.
#[test]
fn ranks_of_one_system_are_compared_once() {
    let time = Time::new();
    let own = |system, of| Mutex::new(time.clock(Some(system), of));
    let clocks = [own(7, (1.0, 0.0)), own(8, (3.0, 5e-5)), own(9, (2.0, 0.0))];
    let [first, second, third] = clocks;
    let (same, mine) = (own(8, (3.0, 5e-5)), own(7, (1.0, 0.0)));
    let clocks = [first, second, third, same, mine];
    compare(&clocks);
    compare(&clocks);
    let compared = clocks.map(|clock| clock.into_inner().unwrap().compared);
    assert_eq!(compared.each_ref().map(Vec::len), [0, FIRST + 1, FIRST + 1, FIRST + 1, 0]);
    assert_eq!(compared[1], compared[3]);
    assert_ne!(compared[1], compared[2]);
}

#[test]
#[cfg(target_os = "linux")]
fn processes_of_one_system_have_one_clock() {
    for clock in [Clock::default, Clock::monotonic] {
        let clocks = [clock(), clock(), clock()].map(Mutex::new);
        compare(&clocks);
        for clock in clocks {
            let clock = clock.into_inner().unwrap();
            assert_eq!((clock.own_s(7.0), clock.rank0_s(7.0), clock.error_s(1e9)), (7.0, 7.0, 0.0));
        }
    }
}

/// The clock of a rank that names another time at each question.
#[test]
fn a_clock_that_makes_no_sense_has_no_bound_until_it_does() {
    let time = Time::new();
    let (calls, readings) = (AtomicU64::new(0), time.clone());
    let broken = Clock::new(None, move || match calls.fetch_add(1, Ordering::SeqCst) {
        // Of all comparisons of the first round, so that only the second one makes sense.
        call @ 0..500 => readings.now_s() + [0.0, 5.0][call as usize % 2],
        _ => readings.now_s(),
    });
    let clocks = [time.clock(None, (0.0, 0.0)), broken].map(Mutex::new);
    compare(&clocks);
    assert_eq!(clocks[1].lock().unwrap().error_s(3.0), f64::INFINITY);
    assert_eq!(clocks[1].lock().unwrap().own_s(3.0), 3.0);
    compare(&clocks);
    assert!(clocks[1].lock().unwrap().error_s(time.now_s()).is_finite());
}

#[test]
fn answers_that_contradict_each_other_are_noticed() {
    let trip = |asked_s, answered_s, own_s| Trip { asked_s, answered_s, own_s };
    let right = [trip(0.0, 4.0, 12.0), trip(5.0, 6.0, 15.4), trip(7.0, 10.0, 17.5)];
    let expected = Compared { at_s: 15.4, by_s: 9.9, error_s: 0.5 };
    let found = shortest(&right).unwrap();
    assert!((found.by_s - expected.by_s).abs() < 1e-12, "{found:?}");
    assert_eq!((found.at_s, found.error_s), (expected.at_s, expected.error_s));
    for (wrong, trip) in [
        ("backwards", trip(7.0, 10.0, 15.3)),
        ("from before its question", trip(7.0, 10.0, 16.0)),
        ("from after its arrival", trip(7.0, 10.0, 21.0)),
        ("before it was asked", trip(7.0, 6.5, 17.0)),
        ("no number", trip(7.0, 10.0, f64::NAN)),
    ] {
        assert_eq!(shortest(&[right[0], right[1], trip]), None, "{wrong}");
    }
}

fn of(compared: &[(f64, f64)], error_s: f64) -> Clock {
    let mut clock = Clock::new(None, || 0.0);
    compared.iter().for_each(|&(at_s, by_s)| clock.add(Compared { at_s, by_s, error_s }));
    clock
}

#[track_caller]
fn is_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-12, "{found:e}, expected {expected:e}");
}

/// Half of the round trip, the distance from the line, and what the drift may have done since.
#[test]
fn the_bound_adds_up_what_is_unknown() {
    // Of one comparison: a drift of up to 1000 ppm.
    let clock = of(&[(100.0, 3.0)], 1e-6);
    is_near(clock.own_s(120.0), 123.0);
    is_near(clock.error_s(100.0), 1e-6);
    is_near(clock.error_s(110.0), 1e-6 + 10.0 * 1e-3);
    // 100 us in 10 s, known to 2 us / 10 s.
    let clock = of(&[(100.0, 3.0), (110.0, 3.0001)], 1e-6);
    is_near(clock.line.drift, 1e-5);
    is_near(clock.line.drift_error, 2e-7);
    is_near(clock.error_s(110.0), 1e-6);
    is_near(clock.error_s(115.0), 1e-6 + 5.0 * 2e-7);
    is_near(clock.error_s(104.0), 1e-6 + 4.0 * 2e-7);
    is_near(clock.rank0_s(120.0), 120.0 - 3.0002);
    is_near(clock.own_s(120.0 - 3.0002), 120.0);
    is_near(clock.rank0_rate(), 1.0 - 1e-5);
    // The one in the middle is 0.6 us off the line of the others, and pulls it by a third of that.
    let clock = of(&[(100.0, 3.0), (105.0, 3.0 + 0.6e-6), (110.0, 3.0)], 1e-6);
    is_near(clock.line.by_s(110.0), 3.0 + 0.2e-6);
    is_near(clock.line.drift, 0.0);
    is_near(clock.error_s(110.0), 1e-6 + 0.2e-6);
}

#[test]
fn the_drift_is_taken_from_comparisons_far_apart() {
    // 2 us in 1 ms say less than what is known of all clocks.
    let clock = of(&[(100.0, 3.0), (100.001, 3.000_001)], 1e-6);
    assert_eq!(clock.line.drift, 0.0);
    is_near(clock.line.drift_error, MOST_DRIFT);
}

#[test]
fn comparisons_that_no_drift_explains_are_forgotten() {
    // Set by a second, and later slewed by 100 ppm.
    let clock = of(&[(100.0, 3.0), (101.0, 4.0)], 1e-6);
    assert_eq!(clock.compared.len(), 1);
    is_near(clock.own_s(200.0), 204.0);
    let slewed = [(100.0, 3.0), (101.0, 3.0), (102.0, 3.0001)];
    let clock = of(&slewed, 1e-6);
    assert_eq!(clock.compared.len(), 2);
    is_near(clock.line.drift, 1e-4);
    // What is old, and what is too much.
    assert_eq!(of(&[(0.0, 3.0), (1.0, 3.0), (32.0, 3.0)], 1e-6).compared.len(), 2);
    let many: Vec<_> = (0..50).map(|at| (f64::from(at) * 0.1, 3.0)).collect();
    assert_eq!(of(&many, 1e-6).compared.len(), KEPT);
}
