//! What Horovod's autotuner tried: the time of a million bytes, over the fusion threshold and over the cycle time.
//!
//! The tuner chooses its settings one after the other, so they are no grid. Each is a mark in both panels.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::distinct::in_order;
use crate::drawing::{Drawing, HARD_SPACE};
use crate::frame::Frame;
use crate::page::{Entry, Page};
use crate::panels::{self, Shape};
use crate::rows::Rows;
use crate::trials::{Trial, Trials};
use crate::view::View;
use crate::{Figure, Sheet, theme};

pub(crate) const FIGURE: Figure = Figure { name: "autotune", sheets };

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let several = rows.trials.len() > 1;
    let drawn = rows.trials.iter().enumerate().map(|(index, trials)| {
        let suffix = if several { (index + 1).to_string() } else { String::new() };
        (suffix, draw(view, trials))
    });
    Sheet::all(drawn.collect(), || {
        "no log of Horovod's autotuner (HOROVOD_AUTOTUNE_LOG) is among the results".to_string()
    })
}

/// One of the panels.
struct Panel {
    /// Of its horizontal axis.
    title: &'static str,
    /// Of a setting, on that axis.
    value: fn(&Trial) -> f64,
}

const PANELS: [Panel; 2] = [
    Panel { title: "fusion threshold (MiB)", value: |trial| trial.fusion_threshold_mib },
    Panel { title: "cycle time (ms)", value: |trial| trial.cycle_time_ms },
];

/// The radius of the star around the shortest time, in pixels.
const STAR: f64 = 20.0;

fn draw(view: View, trials: &Trials) -> Drawing {
    let title = "Time of a million bytes with the settings that Horovod's autotuner tried";
    let mut page = Page::new(view, title, &finding(trials));
    let kinds = in_order(trials.tried.iter().map(|trial| trial.switches.as_str()));
    let of_kinds = kinds.iter().enumerate().map(|(style, kind)| Entry {
        sign: Box::new(move |drawing: &mut Drawing, at| {
            theme::marker(drawing, style, at, theme::MARKER, false);
        }),
        label: kind.to_string(),
    });
    let best = Entry {
        sign: Box::new(|drawing: &mut Drawing, at| theme::star(drawing, at, STAR)),
        label: "shortest time".to_string(),
    };
    page.legend(&of_kinds.chain([best]).collect::<Vec<_>>());
    let untitled = [const { String::new() }; PANELS.len()];
    // Panels with axes of their own, each of which needs its title.
    let shape = Shape { left: 160.0, right: 30.0, height: 620.0, is_elastic: false };
    panels::lay(&mut page, &untitled, shape, |drawing, index, frame| {
        PANELS[index].draw(trials, &kinds, drawing, frame);
    });
    let ended = match &trials.answer {
        Some(answer) => format!("The tuner ended with {}.", answer.setting()),
        None => "The log ends before the tuner did.".to_string(),
    };
    let note = "A mark is a setting, in both panels; its score is the median of five samples, without an interval. Times are \
                a million bytes over the score, which is in bytes per microsecond.";
    let origin = format!("{}. {ended}", trials.name);
    page.finish(&Caption::plain(
        "MEASURED by Horovod's autotuner".to_string(),
        vec![origin, note.to_string()],
    ))
}

impl Panel {
    fn draw(&self, trials: &Trials, kinds: &[&str], drawing: &mut Drawing, frame: Frame) {
        let values = trials.tried.iter().map(self.value).collect::<Vec<f64>>();
        let times = trials.tried.iter().map(|trial| trial.us_per_mb).collect::<Vec<f64>>();
        let x = Axis::measured(&values, frame.left, frame.right);
        let y = Axis::measured(&times, frame.bottom, frame.top);
        x.draw_below(drawing, frame, self.title);
        y.draw_left(drawing, frame, "time of a million bytes (µs)");
        let at = |trial: &Trial| (x.at((self.value)(trial)), y.at(trial.us_per_mb));
        if let Some(best) = trials.best() {
            theme::star(drawing, at(best), STAR);
        }
        for trial in &trials.tried {
            let style = kinds.iter().position(|kind| *kind == trial.switches).unwrap_or_default();
            // Smaller than the star below the best one.
            theme::marker(drawing, style, at(trial), 0.8 * theme::MARKER, false);
        }
        frame.draw(drawing);
    }
}

/// The finding of the picture in a sentence: the shortest time, and how much it is below that of the first setting.
fn finding(trials: &Trials) -> String {
    let Some((best, first)) = trials.best().zip(trials.tried.first()) else {
        return String::new();
    };
    let count = theme::count(trials.tried.len(), "setting");
    let (setting, time) = (best.setting(), theme::significant(best.us_per_mb, 3));
    let less = theme::significant(100.0 * (1.0 - best.us_per_mb / first.us_per_mb), 2);
    format!(
        "Shortest of {count}: {time} µs with {setting}, {less}{HARD_SPACE}% less than with the first ({}).",
        first.setting()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::view::Medium;

    fn trial(mib: f64, ms: f64, switches: &str, us_per_mb: f64) -> Trial {
        Trial {
            fusion_threshold_mib: mib,
            cycle_time_ms: ms,
            switches: switches.to_string(),
            us_per_mb,
        }
    }

    fn trials() -> Trials {
        let best = trial(32.0, 2.5, "cache on", 2000.0);
        Trials {
            name: "tuner.csv".to_string(),
            tried: vec![
                trial(64.0, 5.0, "cache on", 2500.0),
                best.clone(),
                trial(0.0, 72.5, "cache off, hierarchical", 30_000.0),
            ],
            answer: Some(best),
        }
    }

    fn drawing(trials: Trials, view: View) -> Drawing {
        let mut rows = Rows::default();
        rows.add_trials(trials);
        match sheets(&rows, view).pop() {
            Some(Sheet::Drawn { drawing, .. }) => drawing,
            _ => panic!("it is drawn"),
        }
    }

    #[test]
    fn every_setting_is_a_mark_in_both_panels() {
        let drawing = drawing(trials(), View::default());
        assert_eq!(drawing.faults(), Vec::<String>::new());
        let discs = drawing.marks.iter().filter(|mark| matches!(mark, Mark::Disc { .. })).count();
        // Of the first kind two settings and the legend.
        assert_eq!(discs, 2 * 2 + 1);
        let said = drawing.prose();
        for words in [
            "Shortest of 3 settings: 2000 µs with 32 MiB, 2.5 ms, cache on, 20 % less than with the first (64 MiB, 5 ms, \
             cache on).",
            "cache off, hierarchical",
            "fusion threshold (MiB)",
            "cycle time (ms)",
            "MEASURED by Horovod's autotuner",
            "tuner.csv. The tuner ended with 32 MiB, 2.5 ms, cache on.",
        ] {
            assert!(said.contains(words), "{words}\n{said}");
        }
    }

    #[test]
    fn a_log_of_a_tuner_that_did_not_end_says_so_and_one_setting_is_drawn_too() {
        let one = Trials { answer: None, tried: trials().tried[..1].to_vec(), ..trials() };
        for medium in [Medium::Screen, Medium::SingleColumn, Medium::DoubleColumn] {
            let drawing = drawing(one.clone(), View { medium, ..View::default() });
            assert_eq!(drawing.faults(), Vec::<String>::new());
        }
        let said = drawing(one, View::default()).prose();
        assert!(said.contains("The log ends before the tuner did."), "{said}");
        assert!(said.contains("Shortest of 1 setting: 2500 µs"), "{said}");
    }

    #[test]
    fn without_a_log_the_reason_names_it() {
        let reason = "no log of Horovod's autotuner (HOROVOD_AUTOTUNE_LOG) is among the results";
        assert_eq!(FIGURE.refusal(&[]), reason);
    }
}
