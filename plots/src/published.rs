//! Simulated relative to published values of allreduces, a row per point.

use crate::axis::Axis;
use crate::caption::Caption;
use crate::comparison::Published;
use crate::drawing::{Align, Drawing, HARD_SPACE, Point, Text, text_width};
use crate::frame::Frame;
use crate::page::{Entry, Page};
use crate::panels;
use crate::theme;
use crate::validation::{GOAL_PERCENT, band, median};
use crate::view::View;

const ROW: f64 = 38.0;
/// The height of a machine's heading.
const HEADING: f64 = 46.0;
/// Room left of the frame for names.
const LEFT: f64 = 560.0;
/// Room right of the frame for numbers.
const RIGHT: f64 = 430.0;
const RADIUS: f64 = 12.0;

/// How a point is marked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Look {
    Met,
    Missed,
    Fitted,
}

impl Look {
    fn of(point: &Published) -> Look {
        if point.fitted {
            Look::Fitted
        } else if point.met {
            Look::Met
        } else {
            Look::Missed
        }
    }

    fn draw(self, drawing: &mut Drawing, at: Point) {
        match self {
            Look::Met => theme::marker(drawing, 0, at, RADIUS, false),
            Look::Missed => {
                theme::marker_in(drawing, 0, at, RADIUS + 2.0, true, theme::WARNING);
            }
            Look::Fitted => theme::marker_in(drawing, 3, at, RADIUS, false, theme::SOFT),
        }
    }

    fn entry(self) -> Entry<'static> {
        let label = match self {
            Look::Met => "met",
            Look::Missed => "missed",
            Look::Fitted => "for calibration",
        };
        Entry { sign: Box::new(move |drawing, at| self.draw(drawing, at)), label: label.into() }
    }
}

/// `None` if there is no allreduce among the points.
pub(crate) fn draw(view: View, points: &[Published]) -> Option<Drawing> {
    let points: Vec<Published> = points.iter().filter(|it| it.perfect.is_none()).cloned().collect();
    let points = &points[..];
    if points.is_empty() {
        return None;
    }
    let title = "Simulated over published, point by point";
    let mut page = Page::new(view, title, &finding(points));
    let looks = [Look::Met, Look::Missed, Look::Fitted];
    let there = |look: &Look| points.iter().any(|point| Look::of(point) == *look);
    let looks = looks.into_iter().filter(there).map(Look::entry);
    page.legend(&looks.chain([band()]).collect::<Vec<_>>());
    let machines = by_machine(points);
    let names = points.iter().map(|it| text_width(&it.point, view.small(), true));
    let names = names.fold(LEFT - 30.0, f64::max) + 30.0;
    let (left, right) = (theme::MARGIN + names, view.width() - theme::MARGIN - RIGHT);
    let top = page.y + 44.0;
    let bottom = top + HEADING * machines.len() as f64 + ROW * points.len() as f64 + 14.0;
    let frame = Frame::new(left, top, right, bottom);
    let ratios: Vec<f64> = points.iter().map(Published::ratio).collect();
    let x = Axis::around(1.0, 0.3, &ratios, 10.0, (left, right));
    let drawing = &mut page.drawing;
    let (low, high) = (x.at(1.0 - GOAL_PERCENT / 100.0), x.at(1.0 + GOAL_PERCENT / 100.0));
    drawing.rectangle(low, top, high - low, bottom - top, theme::BAND);
    x.draw_below(drawing, frame, "simulated / published");
    drawing.dashes((x.at(1.0), top), (x.at(1.0), bottom), theme::INK, 3.0);
    let columns = Text::new("published → simulated", (right + 14.0, top - 16.0), drawing.small());
    drawing.text(Text { color: theme::SOFT, ..columns });
    let mut y = top;
    for (machine, points) in machines {
        let heading = Text::new(machine, (left - 14.0, y + HEADING / 2.0), theme::TICK).centered();
        drawing.text(Text { align: Align::Right, bold: true, ..heading });
        y += HEADING;
        for point in points {
            draw_point(point, drawing, &x, y + ROW / 2.0);
            y += ROW;
        }
    }
    frame.draw(drawing);
    page.y = bottom + panels::BELOW;
    Some(page.finish(&caption(points)))
}

fn draw_point(point: &Published, drawing: &mut Drawing, x: &Axis, y: f64) {
    let look = Look::of(point);
    let bold = look == Look::Missed;
    let (left, right) = x.pixels();
    let name = Text::new(&point.point, (left - 14.0, y), drawing.small()).centered();
    drawing.text(Text { align: Align::Right, bold, ..name });
    let at = x.at(point.ratio());
    drawing.line(&[(x.at(1.0), y), (at, y)], theme::SOFT, 2.0);
    look.draw(drawing, (at, y));
    let [published, simulated] =
        [point.published, point.simulated].map(|value| theme::significant(value, 3));
    let numbers = format!("{published} → {simulated} {}", point.unit);
    let numbers = Text::new(numbers, (right + 14.0, y), drawing.small()).centered();
    drawing.text(Text { align: Align::Left, bold, ..numbers });
}

/// The machines and their points, both in the order of the file.
fn by_machine(points: &[Published]) -> Vec<(&str, Vec<&Published>)> {
    let mut machines: Vec<(&str, Vec<&Published>)> = Vec::new();
    for point in points {
        match machines.iter_mut().find(|(machine, _)| *machine == point.machine) {
            Some((_, own)) => own.push(point),
            None => machines.push((&point.machine, vec![point])),
        }
    }
    machines
}

/// The finding of the picture in sentences.
fn finding(points: &[Published]) -> String {
    let open: Vec<&Published> = points.iter().filter(|point| !point.fitted).collect();
    let error = |point: &&Published| 100.0 * (point.ratio() - 1.0).abs();
    let Some(error) = median(open.iter().map(error).collect()) else {
        return "Every point is for calibration.".to_string();
    };
    let met = open.iter().filter(|point| point.met).count();
    let which = if open.len() == points.len() { "" } else { " that are tests" };
    format!(
        "{met} of {} points{which} are met; the median error is {}{HARD_SPACE}%.",
        open.len(),
        theme::significant(error, 2)
    )
}

fn caption(points: &[Published]) -> Caption {
    let missed = points.iter().filter(|point| Look::of(point) == Look::Missed);
    let why = |point: &Published| match point.why.as_str() {
        "" => format!("Missed: {}; not known why.", point.point),
        why => format!("Missed: {}; {why}.", point.point),
    };
    let mut paragraphs = vec![format!(
        "Right of the line, more is simulated than was published: more throughput or bandwidth, \
         or a longer time (us). A point is met within {GOAL_PERCENT} % (30 % below 1 MiB); the band \
         is {GOAL_PERCENT} % either way. Published numbers are quoted; published.csv has their \
         sources. Bold: machine files, and points that are missed."
    )];
    paragraphs.extend(missed.map(why));
    let origin = "SIMULATED, beside what others have MEASURED and published".to_string();
    Caption { simulated: true, origin, paragraphs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::Mark;
    use crate::rows::Rows;
    use crate::synthetic::published;

    fn draw(table: &str) -> Drawing {
        let drawing =
            super::draw(View::default(), &Rows::of(table).published).expect("there are points");
        assert_eq!(drawing.faults(), Vec::<String>::new());
        drawing
    }

    fn words(table: &str) -> String {
        draw(table).words().replace('\n', " ")
    }

    #[test]
    fn misses_have_their_reasons_and_fitted_points_are_not_counted() {
        let said = words(&published());
        for expected in [
            "1 of 3 points are met; the median error is 22 %. met ",
            "within 15 %",
            "dgx 8 H200, ring 366 → 370 GB/s bus 8 H200, NVLS 473 → 370 GB/s bus v100 ",
            "SIMULATED, beside what others have MEASURED and published",
            "Missed: 8 H200, NVLS; the switch reduces. Missed: 16 A100, 512 B; not known why.",
        ] {
            assert!(said.contains(expected), "{said}\nexpected {expected}");
        }
        let header = published().lines().next().unwrap().to_string();
        let fitted = format!("{header}\na,m,2,us,1,1,0,true,met,,b,allreduce,,,\n");
        assert!(words(&fitted).contains("Every point is for calibration."));
    }

    #[test]
    fn points_stand_at_their_ratio_and_missed_ones_are_hollow() {
        let drawing = draw(&published());
        let discs: Vec<(f64, bool)> = drawing
            .marks
            .iter()
            .filter_map(|mark| match mark {
                Mark::Disc { center, color, .. } => Some((center.0, *color == theme::PAPER)),
                _ => None,
            })
            .collect();
        // A hollow one is a disc of paper upon another; the legend has one of each look.
        let hollow = discs.iter().filter(|(_, hollow)| *hollow).count();
        assert_eq!((discs.len(), hollow), (2 + 2 * 3, 3));
        let below = discs.iter().filter(|(_, hollow)| *hollow).map(|(x, _)| *x);
        let one = drawing.marks.iter().find_map(|mark| match mark {
            Mark::Line { points, width: 3.0, .. } if points.len() == 2 => Some(points[0].0),
            _ => None,
        });
        let one = one.expect("the line at 1 is drawn");
        let sides: Vec<bool> = below.skip(1).map(|x| x > one).collect();
        assert_eq!(sides, [false, true], "370 of 473 and 120 of 90");
    }
}
