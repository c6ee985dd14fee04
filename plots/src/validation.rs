//! Simulated relative to measured values: points that others published, and algorithms that were
//! measured on the same machine.

use crate::drawing::Drawing;
use crate::page::Entry;
use crate::rows::Rows;
use crate::view::View;
use crate::{Figure, Sheet, prediction, published, published_efficiency, theme};

pub(crate) const FIGURE: Figure = Figure { name: "validation", sheets };

/// The largest error to either side with which a simulation meets its goal.
pub(crate) const GOAL_PERCENT: f64 = 15.0;

fn sheets(rows: &Rows, view: View) -> Vec<Sheet> {
    let training = published_efficiency::draw(view, &rows.published);
    let training = training.map(|drawing| ("efficiency", drawing));
    let others = published::draw(view, &rows.published).map(|drawing| ("published", drawing));
    let own = prediction::draw(view, &rows.predictions).map(|drawing| ("local", drawing));
    let drawn = training.into_iter().chain(others).chain(own);
    Sheet::all(drawn.map(|(suffix, drawing)| (suffix.to_string(), drawing)).collect(), || {
        "neither published.csv nor validation.csv is among the results; `kolo validate` writes them"
            .to_string()
    })
}

/// The legend entry of the band of the goal.
pub(crate) fn band() -> Entry<'static> {
    Entry {
        sign: Box::new(|drawing: &mut Drawing, (x, y)| {
            drawing.rectangle(x - 30.0, y - 15.0, 60.0, 30.0, theme::BAND);
        }),
        label: format!("within {GOAL_PERCENT} %"),
    }
}

/// The median: the mean of the middle two of an even number of values. `None` if there are none.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) =
        (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, published, validation};

    /// The pictures of some tables, each looked through for texts that collide or are cut off.
    fn pictures(tables: &[&str]) -> Vec<(String, Drawing)> {
        let sheet = |sheet| match sheet {
            Sheet::Drawn { suffix, drawing } => {
                assert_eq!(drawing.faults(), Vec::<String>::new());
                (suffix, drawing)
            }
            Sheet::Skipped { reason } => panic!("{reason}"),
        };
        sheets(&Rows::of_all(tables), View::default()).into_iter().map(sheet).collect()
    }

    #[test]
    fn each_table_is_a_picture_beside_rows_too() {
        let rows = synthetic::table(&[synthetic::step("ring", "coordinator", 64.0, 5.0)]);
        let both = pictures(&[&rows, &validation(), &published()]);
        let suffixes: Vec<&str> = both.iter().map(|(suffix, _)| suffix.as_str()).collect();
        assert_eq!(suffixes, ["efficiency", "published", "local"]);
        let one = pictures(&[&validation()]);
        assert_eq!((one.len(), one[0].0.as_str()), (1, ""));
        let reason = "neither published.csv nor validation.csv is among the results; `kolo \
                      validate` writes them";
        assert_eq!(FIGURE.refusal(&[]), reason);
    }

    #[test]
    fn a_median_lies_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
