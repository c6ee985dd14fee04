//! Writes a file from the records of all ranks.

use std::collections::BTreeMap;
use std::io::{self, Write};

use algorithms::control::DataType;
use serde::Serialize;
use serde_json::{Value, json};

use super::history::{History, Reduction};
use super::record::Record;
use workloads::replay::StepTimes;
use workloads::trace::{Category, names};
use workloads::workload::Gradient;

/// The job that a timeline shows.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Name of the case.
    pub case: &'a str,
    /// Name of the data plane's algorithm.
    pub algorithm: &'a str,
    /// Tensors by their number in the records.
    pub gradients: &'a [Gradient],
    /// Element type of all gradients.
    pub dtype: DataType,
    /// The parts of a step besides communication.
    pub times: StepTimes,
}

/// Writes the records of all ranks as one timeline; see [the layout](super).
///
/// # Errors
/// Those of `out`.
pub fn write(out: impl Write, job: &Shown, ranks: &[Vec<Record>]) -> io::Result<()> {
    let histories: Vec<History> = ranks.iter().map(|records| History::of(records)).collect();
    let mut writer = Writer { out, job, ranks: ranks.len(), first: true };
    writer.header(&histories)?;
    writer.all_ranks(&histories)?;
    for (rank, history) in histories.iter().enumerate() {
        writer.rank(rank + 2, history)?;
    }
    writer.out.write_all(b"\n]\n")?;
    writer.out.flush()
}

/// One event, with the format's keys.
#[derive(Serialize)]
struct Event<'e> {
    ph: &'static str,
    name: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<Category>,
    pid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<usize>,
    /// Microseconds, as `dur`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of a mark: its track.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Value::is_null")]
    args: Value,
}

/// A line of the picture within a process.
#[derive(Clone, Copy)]
enum Line {
    Steps,
    Cycles,
    Messages,
    Tensor(usize),
}

impl Line {
    fn index(self) -> usize {
        match self {
            Line::Steps => 0,
            Line::Cycles => 1,
            Line::Messages => 2,
            Line::Tensor(tensor) => 3 + tensor,
        }
    }

    fn category(self) -> Category {
        match self {
            Line::Steps => Category::Step,
            Line::Cycles => Category::Cycle,
            Line::Messages => Category::Message,
            Line::Tensor(_) => Category::Tensor,
        }
    }
}

/// A process and one of its lines.
type Place = (usize, Line);

struct Writer<'w, W> {
    out: W,
    job: &'w Shown<'w>,
    ranks: usize,
    first: bool,
}

impl<W: Write> Writer<'_, W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.out.write_all(if self.first { b"[\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    /// Unique in the file, from 1, and no process' number: viewers mix up threads that share one.
    fn tid(&self, (pid, line): Place) -> usize {
        let lines = 3 + self.job.gradients.len();
        self.ranks + 2 + (pid - 1) * lines + line.index()
    }

    fn metadata(
        &mut self,
        name: &str,
        (pid, tid): (usize, Option<usize>),
        args: Value,
    ) -> io::Result<()> {
        let (cat, ts, dur, s) = (None, None, None, None);
        self.event(&Event { ph: "M", name, cat, pid, tid, ts, dur, s, args })
    }

    fn header(&mut self, histories: &[History]) -> io::Result<()> {
        let largest_ns = histories.iter().map(|history| history.clock_error_ns).max();
        let Shown { case, algorithm, .. } = self.job;
        let args = json!({
            "case": case,
            "algorithm": algorithm,
            "ranks": self.ranks,
            "clock_error_us": bound_us(largest_ns.unwrap_or(0)),
        });
        self.metadata(names::HEADER, (1, None), args)
    }

    fn announce(&mut self, pid: usize, name: &str) -> io::Result<()> {
        self.metadata("process_name", (pid, None), json!({ "name": name }))?;
        self.metadata("process_sort_index", (pid, None), json!({ "sort_index": pid }))
    }

    fn announce_line(&mut self, place: Place, name: &str) -> io::Result<()> {
        let of = (place.0, Some(self.tid(place)));
        self.metadata("thread_name", of, json!({ "name": name }))?;
        self.metadata("thread_sort_index", of, json!({ "sort_index": place.1.index() }))
    }

    fn announce_tensors(&mut self, pid: usize) -> io::Result<()> {
        let gradients = self.job.gradients.iter().enumerate();
        { gradients }.try_for_each(|(tensor, gradient)| {
            self.announce_line((pid, Line::Tensor(tensor)), &gradient.name)
        })
    }

    /// A stretch of time; without an end it is left open.
    fn span(
        &mut self,
        place: Place,
        name: &str,
        (begin_ns, end_ns): (u64, Option<u64>),
        args: Value,
    ) -> io::Result<()> {
        let dur = end_ns.map(|end_ns| micros(end_ns.saturating_sub(begin_ns)));
        let ph = if dur.is_some() { "X" } else { "B" };
        let (cat, tid) = (Some(place.1.category()), Some(self.tid(place)));
        let ts = Some(micros(begin_ns));
        self.event(&Event { ph, name, cat, pid: place.0, tid, ts, dur, s: None, args })
    }

    /// A moment.
    fn mark(&mut self, place: Place, name: &str, time_ns: u64) -> io::Result<()> {
        let (cat, tid) = (Some(place.1.category()), Some(self.tid(place)));
        let (ts, s, args) = (Some(micros(time_ns)), Some("t"), Value::Null);
        self.event(&Event { ph: "i", name, cat, pid: place.0, tid, ts, dur: None, s, args })
    }

    /// Each negotiation as a whole, with a tick for each rank.
    fn all_ranks(&mut self, histories: &[History]) -> io::Result<()> {
        self.announce(1, names::ALL_RANKS)?;
        self.announce_tensors(1)?;
        // Per tensor and round: ready times by rank, and the last response.
        let mut rounds: BTreeMap<(u32, usize), Vec<(usize, &Reduction)>> = BTreeMap::new();
        for (rank, history) in histories.iter().enumerate() {
            for reduction in &history.reductions {
                let key = (reduction.tensor, reduction.round);
                rounds.entry(key).or_default().push((rank, reduction));
            }
        }
        for ((tensor, _), mut of_ranks) in rounds {
            of_ranks.sort_by_key(|(_, reduction)| reduction.ready_ns);
            let agreed = of_ranks.iter().map(|&(rank, one)| histories[rank].agreed_ns(one));
            let agreed_ns = agreed.collect::<Option<Vec<_>>>();
            let end_ns = agreed_ns
                .filter(|all| all.len() == self.ranks)
                .and_then(|all| all.into_iter().max());
            let place = (1, Line::Tensor(tensor as usize));
            let begin_ns = of_ranks[0].1.ready_ns;
            self.span(place, names::NEGOTIATE_ALLREDUCE, (begin_ns, end_ns), Value::Null)?;
            for (rank, reduction) in of_ranks {
                self.mark(place, &rank.to_string(), reduction.ready_ns)?;
            }
        }
        Ok(())
    }

    /// Everything of one rank.
    fn rank(&mut self, pid: usize, history: &History) -> io::Result<()> {
        self.announce(pid, &format!("{}{}", names::RANK_PREFIX, pid - 2))?;
        if history.clock_error_ns > 0 {
            let label = match bound_us(history.clock_error_ns) {
                Some(us) => format!("clock within {us:.2} us of rank 0's"),
                None => "clock not compared with rank 0's".into(),
            };
            self.metadata("process_labels", (pid, None), json!({ "labels": label }))?;
        }
        for (line, name) in
            [(Line::Steps, "steps"), (Line::Cycles, "cycles"), (Line::Messages, "messages")]
        {
            self.announce_line((pid, line), name)?;
        }
        self.announce_tensors(pid)?;
        self.steps(pid, history)?;
        self.cycles(pid, history)?;
        self.messages(pid, history)?;
        history.reductions.iter().try_for_each(|reduction| self.reduction(pid, history, reduction))
    }

    fn steps(&mut self, pid: usize, history: &History) -> io::Result<()> {
        let [forward, backward, optimizer] =
            [self.job.times.forward, self.job.times.backward, self.job.times.optimizer]
                .map(|time| time.as_nanos() as u64);
        let place = (pid, Line::Steps);
        for (index, step) in history.steps.iter().enumerate() {
            let (begin, end) = (step.begin_ns, step.end_ns);
            // The last step begins when its data are written, be the optimizer over or not.
            let next = history.steps.get(index + 1).map_or(u64::MAX, |next| next.begin_ns);
            let whole = (begin, end.map(|end| end.min(next)));
            self.span(place, names::STEP, whole, json!({ "step": index }))?;
            let until = end.unwrap_or(history.last_ns).min(next).max(begin);
            let parts = [
                (names::FORWARD, begin, begin + forward),
                (names::BACKWARD, begin + forward, begin + forward + backward),
            ];
            let last = end.map(|end| (names::OPTIMIZER, end.saturating_sub(optimizer), end));
            for (name, from, to) in parts.into_iter().chain(last) {
                let (from, to) = (from.min(until), to.min(until));
                if from < to {
                    self.span(place, name, (from, Some(to)), Value::Null)?;
                }
            }
        }
        Ok(())
    }

    fn cycles(&mut self, pid: usize, history: &History) -> io::Result<()> {
        let place = (pid, Line::Cycles);
        history.cycles.iter().try_for_each(|cycle| {
            let begin = cycle.begin_ns;
            self.mark(place, names::CYCLE_START, begin)?;
            let args = json!({ "messages": cycle.messages });
            self.span(place, names::CYCLE, (begin, cycle.end_ns), args)?;
            cycle.negotiation_ns.map_or(Ok(()), |begin| {
                self.span(place, names::NEGOTIATE, (begin, cycle.negotiated_ns), Value::Null)
            })
        })
    }

    fn messages(&mut self, pid: usize, history: &History) -> io::Result<()> {
        let place = (pid, Line::Messages);
        history.messages.iter().enumerate().try_for_each(|(index, message)| {
            let gradients = message.tensors.iter().filter_map(|&id| self.gradient(id));
            let elements: usize = gradients.map(Gradient::elements).sum();
            let args = json!({
                "message": index,
                "tensors": message.tensors.len(),
                "size_bytes": elements * self.job.dtype.size_bytes(),
                "algorithm": self.job.algorithm,
            });
            self.span(place, names::MESSAGE, (message.begin_ns, message.end_ns), args)
        })
    }

    /// One tensor, from ready to reduced.
    fn reduction(&mut self, pid: usize, history: &History, one: &Reduction) -> io::Result<()> {
        let place = (pid, Line::Tensor(one.tensor as usize));
        let agreed_ns = history.agreed_ns(one);
        self.span(place, names::NEGOTIATE_ALLREDUCE, (one.ready_ns, agreed_ns), Value::Null)?;
        let Some((agreed_ns, index)) = agreed_ns.zip(one.message) else { return Ok(()) };
        let message = &history.messages[index];
        let shape = self.gradient(one.tensor).map_or(&[][..], |gradient| &gradient.shape);
        let args = json!({
            "dtype": self.job.dtype.name(),
            "shape": format!("{shape:?}"),
            "message": index,
        });
        self.span(place, names::ALLREDUCE, (agreed_ns, message.end_ns), args)?;
        let begin_ns = message.begin_ns;
        if history.is_queued(index) {
            self.span(place, names::QUEUE, (agreed_ns, Some(begin_ns)), Value::Null)?;
        }
        let algorithm = json!({ "algorithm": self.job.algorithm });
        let Some(end_ns) = message.end_ns else {
            return self.span(place, names::KOLO_ALLREDUCE, (begin_ns, None), algorithm);
        };
        let packed_ns = (begin_ns + message.packing_ns).min(end_ns);
        let reduced_ns = end_ns.saturating_sub(message.unpacking_ns).max(packed_ns);
        if message.packing_ns > 0 {
            self.span(place, names::MEMCPY_IN, (begin_ns, Some(packed_ns)), Value::Null)?;
        }
        self.span(place, names::KOLO_ALLREDUCE, (packed_ns, Some(reduced_ns)), algorithm)?;
        if message.unpacking_ns > 0 {
            self.span(place, names::MEMCPY_OUT, (reduced_ns, Some(end_ns)), Value::Null)?;
        }
        Ok(())
    }

    fn gradient(&self, tensor: u32) -> Option<&Gradient> {
        self.job.gradients.get(tensor as usize)
    }
}

/// The bound of a clock's error, if there is one.
fn bound_us(error_ns: u64) -> Option<f64> {
    (error_ns < u64::MAX).then(|| micros(error_ns))
}

fn micros(time_ns: u64) -> f64 {
    time_ns as f64 / 1e3
}

/// A case's name as the name of its file: no slashes, and no colons, which some systems refuse.
pub fn file_name(case: &str) -> String {
    case.replace('/', "_").replace(':', "-") + ".json"
}
