//! Gradients from a timeline of a real run, Horovod's or ours.
//!
//! A gradient is a tensor that is reduced in every step: its n-th `NEGOTIATE_ALLREDUCE` belongs to the
//! n-th step, and begins when the first rank is ready, so that a timeline must begin with the training.
//! Tensors that are reduced less or more often, such as a metric once an epoch, are left out. Horovod
//! notices readiness at the beginning of a cycle, and a cycle lasts as long as its allreduces: times are
//! as exact as those are short.
//!
//! The backward pass is assumed to last from the first gradient to the last. The first fifth of the steps, at
//! least one, is left out, and so is the incomplete last step of a cut file. Parameters are assumed to be defined
//! in the reverse of the order in which their gradients become ready.

use std::collections::HashMap;
use std::path::Path;

use algorithms::control::DataType;

use super::{Gradient, Workload, WorkloadError};
use crate::trace::names;
use crate::trace::read::{EventError, TimelineError, Trace};
use results::statistics::Summary;
use thiserror::Error;

/// A training job, as seen in a timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Its gradients, named as in the file.
    pub workload: Workload,
    /// Their element type, if the file has it and all are equal.
    pub dtype: Option<DataType>,
    /// Steps that the ready times are medians of.
    pub steps: usize,
    /// From the first gradient of a step to its last, in ms: median over steps.
    pub backward_ms: f64,
}

/// Information that a timeline lacks and a workload needs.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum TimelineGap {
    /// No tensor is reduced.
    #[error(
        "no tensor in it is negotiated for an allreduce ({}){}; expected a timeline of training with \
         gradients", names::NEGOTIATE_ALLREDUCE, cut(*is_cut)
    )]
    NoAllreduce {
        /// The file's end is missing.
        is_cut: bool,
    },
    /// There are too few training steps.
    #[error(
        "it has {whole} whole step{}{}, expected at least 2, since the first one warms up; let the job \
         train for 10 steps or more", if *whole == 1 { "" } else { "s" }, cut(*is_cut)
    )]
    TooFewSteps {
        /// Training steps that are whole.
        whole: usize,
        /// The file's end is missing.
        is_cut: bool,
    },
    /// A gradient is negotiated before the step before is over.
    #[error(
        "its steps cannot be told apart: \"{early}\" is negotiated for step {step} at {early_us} us, \
         before \"{late}\" is for step {} at {late_us} us (steps are counted from 0); begin the timeline \
         with the training, and reduce every gradient once a step", step - 1
    )]
    StepsOverlap {
        /// The later of the two steps, from 0.
        step: usize,
        /// A gradient of that step.
        early: String,
        /// Start of its negotiation.
        early_us: f64,
        /// A gradient of the step before.
        late: String,
        /// Start of its negotiation.
        late_us: f64,
    },
    /// Negotiations begin together, in every step.
    #[error(
        "all {gradients} gradients of a step begin their negotiation at the same moment, so the times when \
         they became ready are unknown; set HOROVOD_CYCLE_TIME to 1 or less for the run that writes \
         the timeline"
    )]
    AllAtOnce {
        /// The number of gradients.
        gradients: usize,
    },
    /// No event has a gradient's shape.
    #[error(
        "no event has the shape of \"{gradient}\"; expected args with \"shape\" where its ALLREDUCE \
         ends; write the timeline anew, or list names and shapes in a CSV file \
         (configs/workloads/README.md)"
    )]
    NoShape {
        /// The gradient.
        gradient: String,
    },
}

fn cut(is_cut: bool) -> &'static str {
    if is_cut { "; the file's end is missing" } else { "" }
}

/// Reads a timeline.
///
/// # Errors
/// When it is not a timeline, or lacks names, shapes and ready times of at least two steps.
pub fn read(path: &Path) -> Result<Observed, WorkloadError> {
    let trace = Trace::read(path)?;
    let incomplete = |problem| WorkloadError::Incomplete { path: path.into(), problem };
    let steps = Steps::of(&trace).map_err(incomplete)?;
    let (fractions, backward_ms) = steps.ready().map_err(incomplete)?;
    let described = Descriptions::of(&trace, path)?;
    let mut ready: Vec<usize> = (0..fractions.len()).collect();
    ready.sort_by(|&a, &b| fractions[a].total_cmp(&fractions[b]));
    let gradient = |&tensor: &usize| {
        let name = steps.names[tensor].to_string();
        let shape = described.shape(&name).map_err(incomplete)?;
        Ok(Gradient { name, shape, ready_fraction: fractions[tensor] })
    };
    let gradients = ready.iter().rev().map(gradient).collect::<Result<Vec<_>, WorkloadError>>()?;
    let dtype = described.dtype(&gradients);
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ready_order = (0..gradients.len()).rev().collect();
    let workload = Workload { name, gradients, ready_order, ready_assumed: false };
    Ok(Observed { workload, dtype, steps: steps.used(), backward_ms })
}

/// The starts of negotiations of gradients.
struct Steps<'t> {
    names: Vec<&'t str>,
    /// In microseconds, by gradient and step.
    begins_us: Vec<Vec<f64>>,
    /// Steps that are whole.
    whole: usize,
}

impl<'t> Steps<'t> {
    fn of(trace: &'t Trace) -> Result<Steps<'t>, TimelineGap> {
        let is_cut = trace.flaws.cut;
        let (mut names, mut begins_us) = begins(trace);
        let Some(usual) = usual(begins_us.iter().map(Vec::len)) else {
            return Err(TimelineGap::NoAllreduce { is_cut });
        };
        let ends = begins_us.iter().filter(|begins| begins.len() == usual);
        let last_step_us = ends.map(|begins| begins[usual - 1]).fold(f64::INFINITY, f64::min);
        // The last step may have begun for some gradients only: the others lack that one.
        let is_gradient = |begins: &Vec<f64>| match begins.len() {
            count if count + 1 == usual => begins[count - 1] < last_step_us,
            count => count == usual || count == usual + 1,
        };
        let kept: Vec<bool> = begins_us.iter().map(is_gradient).collect();
        let mut keep = kept.iter();
        names.retain(|_| *keep.next().expect("one for each"));
        begins_us.retain(is_gradient);
        let whole = begins_us.iter().map(Vec::len).min().unwrap_or(0);
        if whole < 2 {
            return Err(TimelineGap::TooFewSteps { whole, is_cut });
        }
        let steps = Steps { names, begins_us, whole };
        (1..whole).try_for_each(|step| steps.check(step))?;
        Ok(steps)
    }

    fn in_step(&self, step: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.begins_us.iter().map(move |begins| begins[step]).enumerate()
    }

    /// First and last moment of a step.
    fn range_us(&self, step: usize) -> (f64, f64) {
        let start = (f64::INFINITY, f64::NEG_INFINITY);
        self.in_step(step).fold(start, |(first, last), (_, us)| (first.min(us), last.max(us)))
    }

    /// A step begins after the one before it.
    fn check(&self, step: usize) -> Result<(), TimelineGap> {
        let by_time = |a: &(usize, f64), b: &(usize, f64)| a.1.total_cmp(&b.1);
        let (late, late_us) = self.in_step(step - 1).max_by(by_time).expect("gradients");
        let (early, early_us) = self.in_step(step).min_by(by_time).expect("gradients");
        if late_us <= early_us {
            return Ok(());
        }
        let [early, late] = [early, late].map(|gradient| self.names[gradient].to_string());
        Err(TimelineGap::StepsOverlap { step, early, early_us, late, late_us })
    }

    fn warmup(&self) -> usize {
        (self.whole / 5).max(1)
    }

    fn used(&self) -> usize {
        self.whole - self.warmup()
    }

    /// Share of the backward pass by gradient, and its length in ms.
    fn ready(&self) -> Result<(Vec<f64>, f64), TimelineGap> {
        let median = |values: Vec<f64>| Summary::of(&values).expect("steps are left").p50;
        let steps = self.warmup()..self.whole;
        let span_us = |step| self.range_us(step).1 - self.range_us(step).0;
        let backward_ms = median(steps.clone().map(span_us).collect()) / 1e3;
        if self.names.len() == 1 {
            return Ok((vec![1.0], backward_ms));
        }
        let spread: Vec<(usize, f64, f64)> = steps
            .filter(|&step| span_us(step) > 0.0)
            .map(|step| (step, self.range_us(step).0, span_us(step)))
            .collect();
        if spread.is_empty() {
            return Err(TimelineGap::AllAtOnce { gradients: self.names.len() });
        }
        let fraction = |begins: &Vec<f64>| {
            let of_step = |&(step, first, span): &(usize, f64, f64)| (begins[step] - first) / span;
            median(spread.iter().map(of_step).collect())
        };
        Ok((self.begins_us.iter().map(fraction).collect(), backward_ms))
    }
}

/// Names of tensors, and when each was first ready, in the order of the file.
fn begins(trace: &Trace) -> (Vec<&str>, Vec<Vec<f64>>) {
    let (mut names, mut begins_us) = (Vec::new(), Vec::<Vec<f64>>::new());
    let mut indices: HashMap<&str, usize> = HashMap::new();
    for span in trace.spans.iter().filter(|span| &*span.name == names::NEGOTIATE_ALLREDUCE) {
        let track = &trace.tracks[span.track];
        if track.rank.is_some() {
            continue;
        }
        let index = *indices.entry(&track.name).or_insert_with(|| {
            names.push(track.name.as_str());
            begins_us.push(Vec::new());
            begins_us.len() - 1
        });
        begins_us[index].push(span.begin_us);
    }
    begins_us.iter_mut().for_each(|begins| begins.sort_by(f64::total_cmp));
    (names, begins_us)
}

/// The most frequent count; of several, the largest.
pub(crate) fn usual(counts: impl Iterator<Item = usize>) -> Option<usize> {
    let mut times: HashMap<usize, usize> = HashMap::new();
    counts.for_each(|count| *times.entry(count).or_default() += 1);
    times.into_iter().max_by_key(|&(count, times)| (times, count)).map(|(count, _)| count)
}

/// Shapes and element types by name.
struct Descriptions<'t>(HashMap<&'t str, (Vec<u64>, Option<&'t str>)>);

impl<'t> Descriptions<'t> {
    fn of(trace: &'t Trace, path: &Path) -> Result<Descriptions<'t>, TimelineError> {
        let mut of_names: HashMap<&str, (Vec<u64>, Option<&str>)> = HashMap::new();
        for described in &trace.described {
            let problem = |problem| TimelineError::Malformed {
                path: path.into(),
                event: described.event,
                problem,
            };
            let name = trace.tracks[described.track].name.as_str();
            let text = &described.shape;
            let shape = parse_shape(text).ok_or_else(|| {
                problem(EventError::Shape { name: name.into(), found: text.clone() })
            })?;
            let (known, _) =
                of_names.entry(name).or_insert_with(|| (shape.clone(), described.dtype.as_deref()));
            if *known != shape {
                return Err(problem(EventError::ShapeChanges {
                    name: name.into(),
                    found: text.clone(),
                    before: known.clone(),
                }));
            }
        }
        Ok(Descriptions(of_names))
    }

    fn shape(&self, name: &str) -> Result<Vec<u64>, TimelineGap> {
        let shape = self.0.get(name).map(|(shape, _)| shape.clone());
        shape.ok_or_else(|| TimelineGap::NoShape { gradient: name.into() })
    }

    fn dtype(&self, gradients: &[Gradient]) -> Option<DataType> {
        let mut dtypes = gradients.iter().map(|gradient| dtype(self.0[gradient.name.as_str()].1?));
        let first = dtypes.next()??;
        dtypes.all(|dtype| dtype == Some(first)).then_some(first)
    }
}

/// `[64, 3, 7, 7]`, or `[]` for a scalar.
pub(crate) fn parse_shape(text: &str) -> Option<Vec<u64>> {
    let dims = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    let dims = dims.split(',').filter(|_| !dims.is_empty());
    let shape: Vec<u64> = dims.map(|dim| dim.trim().parse().ok()).collect::<Option<_>>()?;
    shape.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim)).map(|_| shape)
}

/// An element type by Horovod's name or ours.
fn dtype(name: &str) -> Option<DataType> {
    let ours = match name {
        "float16" => "f16",
        "float32" => "f32",
        "float64" => "f64",
        "int32" => "i32",
        "int64" => "i64",
        "uint8" => "u8",
        other => other,
    };
    DataType::ALL.into_iter().find(|dtype| dtype.name() == ours)
}
