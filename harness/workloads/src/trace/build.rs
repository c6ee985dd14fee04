//! Builds a trace from the events of a file.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::rc::Rc;

use algorithms::topology::Rank;
use serde_json::{Map, Value};
use thiserror::Error;

use super::read::{Description, Span, Tick, Trace, Track};
use super::{Category, names};

/// Why an event of a timeline is malformed.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum EventError {
    /// It is no JSON object.
    #[error("found {found}, expected an object with ph, name, ts and pid")]
    NoObject {
        /// The kind of the value.
        found: &'static str,
    },
    /// A field is missing.
    #[error("there is no {key}; expected {expected}")]
    Missing {
        /// The field.
        key: &'static str,
        /// The value expected.
        expected: &'static str,
    },
    /// A field has a wrong value.
    #[error("{key} is {found}, expected {expected}")]
    Value {
        /// The field.
        key: &'static str,
        /// Its value.
        found: String,
        /// The value expected.
        expected: &'static str,
    },
    /// A span ends before it begins.
    #[error("{name} ends at {end_us} us, expected {begin_us} us or later")]
    EndsEarly {
        /// The span.
        name: String,
        /// Its start.
        begin_us: f64,
        /// Its end.
        end_us: f64,
    },
    /// A shape cannot be read.
    #[error("the shape of \"{name}\" is \"{found}\", expected as in [64, 3]")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: String,
    },
    /// A tensor changes its shape.
    #[error("the shape of \"{name}\" is {found}, expected {before:?} as before")]
    ShapeChanges {
        /// The tensor.
        name: String,
        /// Its shape.
        found: String,
        /// Its shape in an earlier event.
        before: Vec<u64>,
    },
    /// It is no JSON.
    #[error("{said}; expected `,` and an event, or `]`")]
    Json {
        /// The parser's message.
        said: String,
    },
}

impl EventError {
    fn missing(key: &'static str, expected: &'static str) -> EventError {
        EventError::Missing { key, expected }
    }

    fn value(key: &'static str, found: impl Display, expected: &'static str) -> EventError {
        EventError::Value { key, found: found.to_string(), expected }
    }
}

/// A trace that is being read.
#[derive(Default)]
pub struct Builder {
    /// The trace so far.
    pub trace: Trace,
    processes: HashMap<u64, String>,
    /// Names of tracks by process and thread.
    threads: HashMap<(u64, Option<u64>), String>,
    /// Numbers of tracks.
    tracks: HashMap<(u64, Option<u64>), usize>,
    /// Marks of cycles, whose rank is known after all names have been read.
    cycle_starts: Vec<(Option<usize>, f64)>,
    /// Spans that have begun, by track.
    open: HashMap<usize, Vec<usize>>,
    /// The last description of each track.
    described: HashMap<usize, usize>,
    /// Events that were taken.
    events: usize,
    names: HashSet<Rc<str>>,
    /// First and last moment.
    range_us: Option<(f64, f64)>,
}

impl Builder {
    /// Adds the next event.
    ///
    /// # Errors
    /// When it is not an event, or a field of it is missing or has a wrong value.
    pub fn event(&mut self, event: &Value) -> Result<(), EventError> {
        let fields = Fields::of(event)?;
        self.phase(&fields)?;
        self.describe(&fields)?;
        self.events += 1;
        Ok(())
    }

    fn phase(&mut self, fields: &Fields) -> Result<(), EventError> {
        match fields.text("ph")?.ok_or(EventError::missing("ph", "a phase such as \"B\""))? {
            "M" => self.metadata(fields),
            "B" => {
                let span = self.span(fields)?;
                self.open.entry(span.track).or_default().push(self.trace.spans.len());
                self.trace.spans.push(Span { end_us: f64::INFINITY, ..span });
                Ok(())
            }
            "E" => {
                let (track, time_us) = (self.track(fields)?, self.time(fields)?);
                match self.open.get_mut(&track).and_then(Vec::pop) {
                    Some(index) => self.end(index, time_us),
                    None => {
                        self.trace.flaws.unopened += 1;
                        Ok(())
                    }
                }
            }
            "X" => self.complete(fields),
            "i" | "I" => self.mark(fields),
            _ => Ok(()),
        }
    }

    /// Stores an event's description of its tensor, if it is new.
    fn describe(&mut self, fields: &Fields) -> Result<(), EventError> {
        let arg = |key| fields.get("args").and_then(|args| args.get(key)?.as_str());
        let Some(shape) = arg("shape") else { return Ok(()) };
        let (track, dtype) = (self.track(fields)?, arg("dtype"));
        let known = self.described.get(&track).map(|&index| &self.trace.described[index]);
        if known.is_none_or(|known| known.shape != shape || known.dtype.as_deref() != dtype) {
            self.described.insert(track, self.trace.described.len());
            let (dtype, shape) = (dtype.map(str::to_string), shape.to_string());
            let description = Description { track, event: self.events, dtype, shape };
            self.trace.described.push(description);
        }
        Ok(())
    }

    fn metadata(&mut self, fields: &Fields) -> Result<(), EventError> {
        let args = fields.get("args").and_then(Value::as_object);
        let arg = |key| args.and_then(|args| args.get(key)).and_then(Value::as_str);
        match (fields.text("name")?, arg("name"), arg("case")) {
            (Some("process_name"), Some(name), _) => {
                self.processes.insert(fields.process()?, name.into());
            }
            (Some("thread_name"), Some(name), _) => {
                let place = (fields.process()?, fields.whole("tid")?);
                self.threads.insert(place, name.into());
            }
            (Some(names::HEADER), _, Some(case)) => {
                self.trace.case = Some(case.into());
                let error_us = args.and_then(|args| args.get("clock_error_us"));
                self.trace.clock_error_us =
                    error_us.map(|error_us| error_us.as_f64().unwrap_or(f64::INFINITY));
            }
            _ => {}
        }
        Ok(())
    }

    fn complete(&mut self, fields: &Fields) -> Result<(), EventError> {
        let span = self.span(fields)?;
        let time_us = fields.number("dur", "a duration in microseconds")?.unwrap_or(0.0);
        if time_us < 0.0 {
            return Err(EventError::value("dur", time_us, "0 or more"));
        }
        if time_us == 0.0 && span.name.parse::<Rank>().is_ok() {
            return self.mark(fields);
        }
        let end_us = span.begin_us + time_us;
        self.reach(end_us);
        self.trace.spans.push(Span { end_us, ..span });
        Ok(())
    }

    /// A cycle or a tick; other marks are ignored.
    fn mark(&mut self, fields: &Fields) -> Result<(), EventError> {
        let time_us = self.time(fields)?;
        let name = fields.text("name")?.unwrap_or_default();
        if name == names::CYCLE_START {
            // Horovod's belongs to no process.
            let track = fields.get("pid").map(|_| self.track(fields)).transpose()?;
            self.cycle_starts.push((track, time_us));
        } else if let Ok(rank) = name.parse() {
            let track = self.track(fields)?;
            self.trace.ticks.push(Tick { track, rank, time_us });
        }
        Ok(())
    }

    /// A span that has begun, without an end.
    fn span(&mut self, fields: &Fields) -> Result<Span, EventError> {
        let name = fields.text("name")?.ok_or(EventError::missing("name", "what begins"))?;
        let name = match self.names.get(name) {
            Some(name) => name.clone(),
            None => {
                let name: Rc<str> = name.into();
                self.names.insert(name.clone());
                name
            }
        };
        let category = match fields.text("cat")? {
            Some("step") => Category::Step,
            Some("cycle") => Category::Cycle,
            Some("message") => Category::Message,
            _ => Category::Tensor,
        };
        let tensors = fields.get("args").and_then(|args| args.get("tensors")?.as_u64());
        let (track, begin_us) = (self.track(fields)?, self.time(fields)?);
        Ok(Span { track, category, name, begin_us, end_us: begin_us, tensors, is_open: false })
    }

    fn end(&mut self, index: usize, end_us: f64) -> Result<(), EventError> {
        let span = &mut self.trace.spans[index];
        if end_us < span.begin_us {
            let Span { name, begin_us, .. } = span;
            let (name, begin_us) = (name.to_string(), *begin_us);
            return Err(EventError::EndsEarly { name, begin_us, end_us });
        }
        span.end_us = end_us;
        Ok(())
    }

    fn track(&mut self, fields: &Fields) -> Result<usize, EventError> {
        let (place, next) = ((fields.process()?, fields.whole("tid")?), self.tracks.len());
        Ok(*self.tracks.entry(place).or_insert(next))
    }

    fn time(&mut self, fields: &Fields) -> Result<f64, EventError> {
        let expected = "a time in microseconds";
        let time_us = fields.number("ts", expected)?;
        let time_us = time_us.ok_or(EventError::missing("ts", expected))?;
        self.reach(time_us);
        Ok(time_us)
    }

    fn reach(&mut self, time_us: f64) {
        let (first, last) = self.range_us.unwrap_or((time_us, time_us));
        self.range_us = Some((first.min(time_us), last.max(time_us)));
    }

    /// The end of the file: assigns names to tracks, and ends open spans. None if the trace is empty.
    pub fn finish(mut self) -> Option<Trace> {
        let (first_us, last_us) = self.range_us?;
        let trace = &mut self.trace;
        (trace.first_us, trace.last_us) = (first_us, last_us);
        for span in trace.spans.iter_mut().filter(|span| span.end_us.is_infinite()) {
            span.end_us = last_us;
            span.is_open = true;
            trace.flaws.open += 1;
        }
        trace.tracks.resize_with(self.tracks.len(), Track::default);
        for (&place, &number) in &self.tracks {
            let process = self.processes.get(&place.0);
            let rank = process.and_then(|name| name.strip_prefix(names::RANK_PREFIX)?.parse().ok());
            let rank = rank.filter(|_| trace.case.is_some());
            let name = self.threads.get(&place).or(process).cloned();
            let name = name.unwrap_or_else(|| format!("process {}", place.0));
            trace.tracks[number] = Track { name, rank };
        }
        let tracks = &trace.tracks;
        let rank = |(track, time_us): (Option<usize>, _)| {
            (track.and_then(|track| tracks[track].rank), time_us)
        };
        trace.cycle_starts = self.cycle_starts.into_iter().map(rank).collect();
        Some(self.trace)
    }
}

/// One event's keys and values.
struct Fields<'v>(&'v Map<String, Value>);

impl<'v> Fields<'v> {
    fn of(event: &'v Value) -> Result<Self, EventError> {
        let found = match event {
            Value::Object(fields) => return Ok(Fields(fields)),
            Value::Array(_) => "an array",
            Value::String(_) => "a text",
            Value::Number(_) => "a number",
            Value::Bool(_) | Value::Null => "no event",
        };
        Err(EventError::NoObject { found })
    }

    fn get(&self, key: &str) -> Option<&'v Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &'static str) -> Result<Option<&'v str>, EventError> {
        let text = |value: &'v Value| {
            value.as_str().ok_or_else(|| EventError::value(key, value, "a text"))
        };
        self.get(key).map(text).transpose()
    }

    fn number(&self, key: &'static str, expected: &'static str) -> Result<Option<f64>, EventError> {
        let number =
            |value: &Value| value.as_f64().ok_or_else(|| EventError::value(key, value, expected));
        self.get(key).map(number).transpose()
    }

    fn whole(&self, key: &'static str) -> Result<Option<u64>, EventError> {
        let whole = |value: &Value| {
            value.as_u64().ok_or_else(|| EventError::value(key, value, "a whole number"))
        };
        self.get(key).map(whole).transpose()
    }

    fn process(&self) -> Result<u64, EventError> {
        self.whole("pid")?.ok_or(EventError::missing("pid", "a whole number"))
    }
}
