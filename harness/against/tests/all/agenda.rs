//! The order of promises and their rounds.

use against::agenda::{Agenda, Next};
use against::plan::{Plan, Turn};

use crate::{CONFIG, plan};

/// Tunes the next configuration, with processors that far apart, after so many waits.
fn tune_after(waits: usize, agenda: &mut Agenda, plan: &Plan, here_ns: Option<f64>) -> usize {
    for _ in 0..waits {
        assert_eq!(agenda.next(here_ns), Next::Wait);
    }
    let Next::Tune(origin) = agenda.next(here_ns) else { panic!("nothing is tuned") };
    agenda.add(plan, origin, here_ns);
    origin
}

fn tune(agenda: &mut Agenda, plan: &Plan, here_ns: Option<f64>) -> usize {
    tune_after(0, agenda, plan, here_ns)
}

fn measure(agenda: &mut Agenda, here_ns: Option<f64>) -> (usize, Vec<Turn>) {
    let Next::Measure(origin, turns) = agenda.next(here_ns) else { panic!("nothing is measured") };
    (origin, turns)
}

/// Where processors do not move, the rounds of a configuration follow its promise in their order.
#[test]
fn rounds_follow_a_promise_at_once() {
    let plan = plan(&[CONFIG, CONFIG]);
    let mut agenda = Agenda::new(2);
    for origin in 0..2 {
        assert_eq!(tune(&mut agenda, &plan, None), origin);
        let mut all = Vec::new();
        for block in 0..6 {
            let (of, turns) = measure(&mut agenda, None);
            assert!(of == origin && turns.iter().all(|turn| turn.block == block));
            all.extend(turns);
            agenda.measured(&plan, origin, Vec::new());
        }
        assert_eq!(all, plan.order_of(origin));
    }
    assert_eq!(agenda.next(None), Next::End);
}

#[test]
fn a_promise_waits_for_its_processors() {
    let plan = plan(&[CONFIG, CONFIG]);
    let mut agenda = Agenda::new(2);
    let (near, far) = (Some(30.0), Some(190.0));
    assert_eq!(tune(&mut agenda, &plan, near), 0);
    assert_eq!(measure(&mut agenda, Some(25.0)).0, 0);
    agenda.measured(&plan, 0, vec![1, 2]);
    assert_eq!(agenda.next(far), Next::Wait, "the first does not fit");
    let (origin, turns) = measure(&mut agenda, near);
    assert!(origin == 0 && turns.iter().all(|turn| turn.block == 1), "the processors are back");
    assert_eq!(tune_after(40, &mut agenda, &plan, far), 1, "they are not back for 40 s");
    assert_eq!(measure(&mut agenda, far).0, 1);
    assert_eq!(measure(&mut agenda, near).0, 0);
    for _ in 0..6 {
        agenda.measured(&plan, 1, Vec::new());
    }
    assert_eq!(agenda.next(far), Next::Wait);
    assert!(measure(&mut agenda, near).1.iter().all(|turn| turn.block == 1));
    // After its six rounds, cases with few blocks that count get more, until there are eight times as many.
    for _ in 1..6 {
        agenda.measured(&plan, 0, vec![1, 2]);
    }
    let mut rounds = 6;
    while let Next::Measure(0, turns) = agenda.next(near) {
        let mut cases: Vec<usize> = turns.iter().map(|turn| turn.case).collect();
        cases.sort_unstable();
        assert_eq!(cases, [1, 2]);
        assert!(turns.iter().all(|turn| turn.block == rounds));
        rounds += 1;
        agenda.measured(&plan, 0, vec![1, 2]);
    }
    assert_eq!((rounds, agenda.next(near)), (48, Next::End));
}

/// A run does not wait for ever.
#[test]
fn a_promise_whose_processors_stay_away_is_given_up() {
    let plan = plan(&[CONFIG]);
    let mut agenda = Agenda::new(1);
    tune(&mut agenda, &plan, Some(30.0));
    let waits = (0..10_000).take_while(|_| agenda.next(Some(190.0)) == Next::Wait).count();
    assert_eq!((waits, agenda.next(Some(190.0))), (600, Next::End));
}

/// All promises are measured soon, and those that need many blocks get the rest of them in the end.
#[test]
fn the_next_configuration_is_tuned_before_the_blocks_of_an_uncertain_gain_are_complete() {
    let plan = plan(&[CONFIG, CONFIG]);
    let (mut agenda, near) = (Agenda::new(2), Some(30.0));
    for origin in 0..2 {
        assert_eq!(tune(&mut agenda, &plan, near), origin);
        // Its six rounds, and six more. The last configuration has all 48 at once.
        for block in 0..if origin == 0 { 12 } else { 48 } {
            let (of, turns) = measure(&mut agenda, near);
            assert!(of == origin && turns.iter().all(|turn| turn.block == block));
            agenda.measured(&plan, origin, vec![if origin == 0 { 1 } else { 4 }]);
        }
    }
    let (of, turns) = measure(&mut agenda, near);
    assert!(of == 0 && turns.iter().all(|turn| (turn.case, turn.block) == (1, 12)), "{turns:?}");
    agenda.measured(&plan, 0, Vec::new());
    assert_eq!(agenda.next(near), Next::End);
}
