//! Reads timelines: ours, and those that Horovod writes.
//!
//! Horovod 0.28 has a process for each tensor and no tracks; its spans are pairs of `B` and `E`, its ticks `X`
//! without duration. Kolo has a process for each rank and a track for each tensor. Both become spans and ticks of
//! tensors here, with their rank if the file has it. Other phases are ignored. A file without its end, as after a
//! kill, is read as far as it goes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use algorithms::topology::Rank;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Value};
use thiserror::Error;

use super::build::Builder;
pub use super::build::EventError;
use super::{Category, names};

/// The contents of a file.
#[derive(Debug, Default)]
pub struct Trace {
    /// The case, if the file is ours.
    pub case: Option<String>,
    /// The bound of the errors of the ranks' clocks in microseconds, infinite where there is none; of our files.
    pub clock_error_us: Option<f64>,
    /// Stretches of time, in the order of the file.
    pub spans: Vec<Span>,
    /// Times at which a rank was ready, by tensor.
    pub ticks: Vec<Tick>,
    /// Starts of cycles, by rank if the file has it.
    pub cycle_starts: Vec<(Option<Rank>, f64)>,
    /// By number.
    pub tracks: Vec<Track>,
    /// Descriptions of tensors, once for each track, and again where they change.
    pub described: Vec<Description>,
    /// First moment, in microseconds.
    pub first_us: f64,
    /// Last moment, in microseconds.
    pub last_us: f64,
    /// Defects of the file.
    pub flaws: Flaws,
}

/// Incomplete parts of a file, and how they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flaws {
    /// The end of the file is missing.
    pub cut: bool,
    /// Spans that never end; they are taken to last until the last moment.
    pub open: usize,
    /// Ends of spans that have not begun; passed over.
    pub unopened: usize,
}

/// A line of the picture.
#[derive(Debug, Default)]
pub struct Track {
    /// The name of the tensor, if it belongs to one.
    pub name: String,
    /// The rank, if it belongs to one.
    pub rank: Option<Rank>,
}

/// A stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Number of its track.
    pub track: usize,
    /// Its category.
    pub category: Category,
    /// Its name.
    pub name: Rc<str>,
    /// Beginning, in microseconds.
    pub begin_us: f64,
    /// End, in microseconds.
    pub end_us: f64,
    /// Tensors, if it is a message.
    pub tensors: Option<u64>,
    /// It has no end in the file, and is taken to last until the last moment.
    pub is_open: bool,
}

impl Span {
    /// How long it is, in microseconds.
    pub fn time_us(&self) -> f64 {
        self.end_us - self.begin_us
    }
}

/// A rank was ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick {
    /// Number of the tensor's track.
    pub track: usize,
    /// The rank.
    pub rank: Rank,
    /// The time in microseconds.
    pub time_us: f64,
}

/// A file's description of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Number of the tensor's track.
    pub track: usize,
    /// The index of the event in the array, from 0.
    pub event: usize,
    /// Element type, as the file calls it.
    pub dtype: Option<String>,
    /// Dimensions, as the file writes them: `[64, 3, 7, 7]`.
    pub shape: String,
}

/// Why a timeline cannot be read. The text begins with the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TimelineError {
    /// The file is not there or cannot be read.
    #[error("{}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The file is no timeline.
    #[error(
        "{}: {}; expected an array of trace events, as `kolo sweep --timeline` or \
         HOROVOD_TIMELINE writes it", path.display(), no_array(cause)
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// The JSON parser's message; none if the array is empty.
        #[source]
        cause: Option<serde_json::Error>,
    },
    /// A malformed event.
    #[error("{}: event {event}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Its place in the array, from 0.
        event: usize,
        /// The value found, and the value expected.
        #[source]
        problem: EventError,
    },
}

fn no_array(cause: &Option<serde_json::Error>) -> String {
    cause.as_ref().map_or("no events found".into(), ToString::to_string)
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// When the file is missing, is neither a JSON array nor an object with `traceEvents`, or an event in it is malformed.
    pub fn read(path: &Path) -> Result<Trace, TimelineError> {
        let unreadable = |cause| TimelineError::Unreadable { path: path.into(), cause };
        let file = File::open(path).map_err(unreadable)?;
        Trace::parse(BufReader::with_capacity(1 << 16, file), path)
    }

    /// Reads the contents of a file; `path` is for errors.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: impl Read, path: &Path) -> Result<Trace, TimelineError> {
        let mut reading = Reading::default();
        let mut json = Deserializer::from_reader(text);
        let read = Events(&mut reading).deserialize(&mut json).and_then(|()| json.end());
        let Reading { mut builder, events, problem } = reading;
        let path = path.to_path_buf();
        if let Some(problem) = problem {
            return Err(TimelineError::Malformed { path, event: events, problem });
        }
        match read {
            Ok(()) => {}
            Err(error) if error.is_io() => {
                return Err(TimelineError::Unreadable { path, cause: error.into() });
            }
            Err(error) if error.is_eof() && events > 0 => builder.trace.flaws.cut = true,
            Err(error) if events > 0 => {
                let problem = EventError::Json { said: error.to_string() };
                return Err(TimelineError::Malformed { path, event: events, problem });
            }
            Err(error) => return Err(TimelineError::Other { path, cause: Some(error) }),
        }
        builder.finish().ok_or(TimelineError::Other { path, cause: None })
    }

    /// Removes everything before the first rank's `steps`-th step, counted from 0.
    ///
    /// # Errors
    /// The number of steps, if there are not more than that.
    pub fn skip(&mut self, steps: usize) -> Result<(), usize> {
        let is_step = |span: &&Span| span.category == Category::Step && &*span.name == names::STEP;
        let mut of_ranks: BTreeMap<Option<Rank>, Vec<f64>> = BTreeMap::new();
        for step in self.spans.iter().filter(is_step) {
            of_ranks.entry(self.tracks[step.track].rank).or_default().push(step.begin_us);
        }
        let there = of_ranks.values().map(Vec::len).max().unwrap_or(0);
        let begins = of_ranks.values().filter_map(|begins| begins.get(steps)).copied();
        let first_us = begins.min_by(f64::total_cmp).ok_or(there)?;
        self.spans.retain(|span| span.begin_us >= first_us);
        self.ticks.retain(|tick| tick.time_us >= first_us);
        self.cycle_starts.retain(|&(_, time_us)| time_us >= first_us);
        self.first_us = first_us;
        Ok(())
    }
}

/// How far a file has been read.
#[derive(Default)]
struct Reading {
    builder: Builder,
    /// Events that were right.
    events: usize,
    /// The error of the next event.
    problem: Option<EventError>,
}

/// Takes the events of an array one by one, so that a file may be larger than memory would hold as
/// a whole.
struct Events<'b>(&'b mut Reading);

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// The key of the events in a file whose whole is an object, as PyTorch's profiler and merged timelines have it.
const TRACE_EVENTS: &str = "traceEvents";

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an array of events, or an object with {TRACE_EVENTS:?}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut keys: A) -> Result<(), A::Error> {
        let mut is_there = false;
        while let Some(key) = keys.next_key::<String>()? {
            if key == TRACE_EVENTS {
                keys.next_value_seed(Events(self.0))?;
                is_there = true;
            } else {
                keys.next_value::<IgnoredAny>()?;
            }
        }
        if is_there {
            Ok(())
        } else {
            Err(A::Error::custom(format!("there is no {TRACE_EVENTS:?}")))
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Value>()? {
            if let Err(problem) = self.0.builder.event(&event) {
                self.0.problem = Some(problem);
                return Err(A::Error::custom("an event is malformed"));
            }
            self.0.events += 1;
        }
        Ok(())
    }
}
