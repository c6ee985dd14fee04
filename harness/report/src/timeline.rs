//! One training step of the fastest case, in the largest world, that has a timeline.

use std::path::{Path, PathBuf};

use serde::Serialize;
use workloads::trace::read::{Span, Trace};
use workloads::trace::{Category, names};

use crate::ReportError;
use crate::run::{Run, TIMELINES};

/// A step to look at.
#[derive(Debug, Serialize)]
pub struct Timeline {
    /// The case.
    pub case: String,
    /// Its file.
    pub file: String,
    /// How many timelines the run has beside this one.
    pub others: usize,
    /// The length of the step in milliseconds.
    pub step_ms: f64,
    /// What the picture shows, in words.
    pub words: String,
    /// A lane for each rank and kind of span.
    pub lanes: Vec<Lane>,
    /// Allreduces of the first rank.
    pub messages: Vec<Message>,
}

/// The spans of one kind on one rank.
#[derive(Debug, Serialize)]
pub struct Lane {
    /// `rank 0`; empty if the lane above is of the same rank.
    pub rank: String,
    /// What it shows.
    pub what: &'static str,
    /// Its spans, by time.
    pub bars: Vec<Bar>,
}

/// A span.
#[derive(Debug, Serialize)]
pub struct Bar {
    /// Start, in milliseconds from the beginning of the step.
    pub begin_ms: f64,
    /// Length in milliseconds.
    pub time_ms: f64,
    /// Its kind, in lower case: `forward`.
    pub kind: String,
    /// In words.
    pub words: String,
}

/// An allreduce.
#[derive(Debug, Serialize)]
pub struct Message {
    /// Start, in milliseconds from the beginning of the step.
    pub begin_ms: f64,
    /// Length in milliseconds.
    pub time_ms: f64,
    /// Tensors in it.
    pub tensors: Option<u64>,
}

/// Lanes of a rank: what they show, the category of their spans, and which of those.
const LANES: [(&str, Category, &[&str]); 3] = [
    ("computation", Category::Step, &[names::FORWARD, names::BACKWARD, names::OPTIMIZER]),
    ("negotiation", Category::Cycle, &[names::NEGOTIATE]),
    ("allreduce", Category::Message, &[names::MESSAGE]),
];

/// A step of the fastest case, or the reason why there is none.
pub fn of(run: &Run) -> Result<Timeline, String> {
    if run.timelines.is_empty() {
        return Err("the run wrote no timelines; kolo sweep --timeline writes them".into());
    }
    let (case, path) = fastest(run).ok_or("no case that was measured has a timeline")?;
    let trace = Trace::read(&path).map_err(|error| error.to_string())?;
    let others = run.timelines.len() - 1;
    let none = || format!("{}: no training step in it", path.display());
    Timeline::of(&trace, case, &path, others).ok_or_else(none)
}

/// The timeline of the fastest case, in the largest world, of a folder of results that has one.
///
/// # Errors
/// When the folder has no results, or a file of it cannot be read.
pub fn fastest_timeline(folder: &Path) -> Result<Option<PathBuf>, ReportError> {
    // Without timelines nothing needs to be read.
    if !folder.join(TIMELINES).is_dir() {
        return Ok(None);
    }
    Ok(fastest(&Run::read(folder)?).map(|(_, path)| path))
}

/// The case with the least median time, of those with the most ranks that have timelines, and its file.
fn fastest(run: &Run) -> Option<(String, PathBuf)> {
    let records = run.files.iter().filter(|file| file.is_of_rows()).flat_map(|file| file.records());
    let timed = records.filter(|row| row.text("kind") == "step").filter_map(|row| {
        // As the sweep names them.
        let name = row.text("case").replace('/', "_").replace(':', "-") + ".json";
        let path =
            run.timelines.iter().find(|path| path.file_name().is_some_and(|it| *it == *name))?;
        let key = (row.number("ranks")?, row.number("time_us_p50")?);
        Some((key, row.text("case").to_string(), path.clone()))
    });
    let (_, case, path) = timed.min_by(|((a, one_us), ..), ((b, other_us), ..)| {
        b.total_cmp(a).then(one_us.total_cmp(other_us))
    })?;
    Some((case, path))
}

/// The time of a step on all ranks.
#[derive(Clone, Copy)]
struct Window {
    begin_us: f64,
    end_us: f64,
}

impl Window {
    /// The last step.
    fn last(trace: &Trace) -> Option<Window> {
        let is_step = |span: &&Span| span.category == Category::Step && &*span.name == names::STEP;
        let steps = trace.spans.iter().filter(is_step);
        let last = |track: usize| steps.clone().rfind(move |span| span.track == track);
        let mut tracks: Vec<usize> = steps.clone().map(|span| span.track).collect();
        tracks.sort_unstable();
        tracks.dedup();
        let steps: Vec<&Span> = tracks.into_iter().filter_map(last).collect();
        let begin_us = steps.iter().map(|span| span.begin_us).reduce(f64::min)?;
        let end_us = steps.iter().map(|span| span.end_us).reduce(f64::max)?;
        (end_us > begin_us).then_some(Window { begin_us, end_us })
    }

    /// The part of a span within the window.
    fn clip(&self, span: &Span) -> Option<(f64, f64)> {
        let (begin_us, end_us) = (span.begin_us.max(self.begin_us), span.end_us.min(self.end_us));
        let ms = |us: f64| us.round() / 1e3;
        (begin_us < end_us).then(|| (ms(begin_us - self.begin_us), ms(end_us - begin_us)))
    }
}

impl Timeline {
    fn of(trace: &Trace, case: String, path: &Path, others: usize) -> Option<Timeline> {
        let window = Window::last(trace)?;
        let mut ranks: Vec<usize> = trace.tracks.iter().filter_map(|track| track.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut lanes = Vec::new();
        for &rank in &ranks {
            let bars_of = |category: Category, kinds: &[&str]| -> Vec<Bar> {
                let is_own = |span: &&Span| {
                    trace.tracks[span.track].rank == Some(rank)
                        && span.category == category
                        && kinds.contains(&&*span.name)
                };
                trace.spans.iter().filter(is_own).filter_map(|span| bar(span, window)).collect()
            };
            for (at, (what, category, kinds)) in LANES.into_iter().enumerate() {
                let rank = if at == 0 { format!("rank {rank}") } else { String::new() };
                lanes.push(Lane { rank, what, bars: bars_of(category, kinds) });
            }
        }
        let first = ranks.first().copied();
        let is_message = |span: &&Span| {
            span.category == Category::Message && trace.tracks[span.track].rank == first
        };
        let messages: Vec<Message> = trace
            .spans
            .iter()
            .filter(is_message)
            .filter_map(|span| {
                let (begin_ms, time_ms) = window.clip(span)?;
                Some(Message { begin_ms, time_ms, tensors: span.tensors })
            })
            .collect();
        let step_ms = ((window.end_us - window.begin_us).round()) / 1e3;
        let total = |at: usize| -> f64 {
            lanes.get(at).map_or(0.0, |lane: &Lane| lane.bars.iter().map(|bar| bar.time_ms).sum())
        };
        let words = format!(
            "One training step of {case}: {step_ms:.1} ms on {} ranks. On rank {}, computation takes {:.1} ms, {} \
             messages take {:.1} ms, and negotiation takes {:.1} ms; they overlap.",
            ranks.len(),
            first?,
            total(0),
            messages.len(),
            total(2),
            total(1),
        );
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Some(Timeline { case, file, others, step_ms, words, lanes, messages })
    }
}

fn bar(span: &Span, window: Window) -> Option<Bar> {
    let (begin_ms, time_ms) = window.clip(span)?;
    let name = span.name.to_lowercase();
    let tensors = match span.tensors {
        None => String::new(),
        Some(1) => " of 1 tensor".into(),
        Some(count) => format!(" of {count} tensors"),
    };
    let words = format!("{name}{tensors}: {time_ms:.3} ms from {begin_ms:.3} ms on");
    Some(Bar { begin_ms, time_ms, kind: name, words })
}
