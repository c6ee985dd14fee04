//! One rank's programs, chosen by the size of the buffer.

use algorithms::algorithm::Choice;
use algorithms::program::Program;
use algorithms::schedule::Schedule;
use algorithms::segments::{in_segments, most_segments, ops, pipelined, segments_up_to};
use algorithms::topology::Rank;

/// Up to this many operations over all ranks, every rank compiles the programs of all ranks to find the transfers
/// that can be puts.
const MOST_WORLD_OPS: usize = 1 << 17;

/// The programs of an algorithm's schedules by size, each in 1, 2, 4, ... segments, compiled on first use.
pub struct Programs<'s> {
    rank: Rank,
    /// The transport supports puts.
    puts: bool,
    choices: &'s [Choice],
    segment_bytes: usize,
    compiled: Vec<Compiled>,
    /// The size of the last request, and the index of its program.
    last: Option<(usize, (usize, usize))>,
}

/// The programs of one choice.
struct Compiled {
    most_segments: usize,
    /// In 2^i segments.
    programs: Vec<Option<Program>>,
}

impl<'s> Programs<'s> {
    /// Nothing is compiled yet. Large buffers are cut into segments of about `segment_bytes`; 0 leaves them whole.
    /// Whether the transport supports puts must be equal on all ranks.
    pub fn new(
        rank: Rank,
        choices: &'s [Choice],
        segment_bytes: usize,
        puts: bool,
    ) -> Programs<'s> {
        let compiled = |choice: &Choice| {
            let most_segments = most_segments(&*choice.schedule, puts);
            let programs = vec![None; most_segments.ilog2() as usize + 1];
            Compiled { most_segments, programs }
        };
        let compiled = choices.iter().map(compiled).collect();
        Programs { rank, puts, choices, segment_bytes, compiled, last: None }
    }

    /// The program for buffers of that size. It depends on schedule and size only, so that all ranks choose the
    /// same one.
    pub fn of(&mut self, size_bytes: usize) -> &Program {
        let (choice, doublings) = match self.last {
            Some((size, at)) if size == size_bytes => at,
            _ => {
                let choice = index_for(self.choices, size_bytes);
                (choice, self.doublings(choice, size_bytes))
            }
        };
        self.last = Some((size_bytes, (choice, doublings)));
        self.program(choice, doublings)
    }

    /// Compiles the programs for buffers of at most `most_bytes`, and passes each to `show` with the size of the
    /// largest buffer that it will run on.
    pub fn prepare(&mut self, most_bytes: usize, mut show: impl FnMut(&Program, usize)) {
        for choice in 0..self.choices.len() {
            let from_bytes = self.choices[choice].from_bytes;
            let next = self.choices.get(choice + 1).map(|next| next.from_bytes - 1);
            let largest = next.map_or(most_bytes, |next| next.min(most_bytes));
            if from_bytes > most_bytes {
                break;
            }
            let most = self.doublings(choice, largest);
            for doublings in self.doublings(choice, from_bytes)..=most {
                // From here on, buffers are cut into twice as many segments.
                let bytes =
                    if doublings < most { (2 << doublings) * self.segment_bytes } else { largest };
                show(self.program(choice, doublings), bytes);
            }
        }
    }

    fn doublings(&self, choice: usize, size_bytes: usize) -> usize {
        let most = self.compiled[choice].most_segments;
        segments_up_to(most, size_bytes, self.segment_bytes).ilog2() as usize
    }

    fn program(&mut self, choice: usize, doublings: usize) -> &Program {
        let (schedule, rank, puts) = (&*self.choices[choice].schedule, self.rank, self.puts);
        self.compiled[choice].programs[doublings].get_or_insert_with(|| {
            let pipelined = in_segments(schedule, 1 << doublings, puts);
            let world_ops = (schedule.ranks() * ops(schedule)) << doublings;
            if puts && world_ops <= MOST_WORLD_OPS {
                Program::compile_world(&pipelined).swap_remove(rank)
            } else {
                Program::compile(&pipelined, rank)
            }
        })
    }
}

/// The programs of all ranks for a buffer of that size, without puts.
pub fn of_all_ranks(choices: &[Choice], size_bytes: usize, segment_bytes: usize) -> Vec<Program> {
    let schedule = &*choice_for(choices, size_bytes).schedule;
    let schedule = pipelined(schedule, size_bytes, segment_bytes, false);
    (0..schedule.ranks()).map(|rank| Program::compile(&schedule, rank)).collect()
}

/// The choice for buffers of that size.
pub fn choice_for(choices: &[Choice], size_bytes: usize) -> &Choice {
    &choices[index_for(choices, size_bytes)]
}

fn index_for(choices: &[Choice], size_bytes: usize) -> usize {
    choices.partition_point(|choice| choice.from_bytes <= size_bytes) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use algorithms::algorithm::Algorithm;
    use algorithms::registry;
    use algorithms::topology::Topology;

    #[test]
    fn each_size_has_the_program_of_its_choice_and_segments() {
        let auto = registry::auto_by_measurement(vec![(0, "tree".into()), (1000, "ring".into())]);
        let choices = auto.choices(&Topology::flat(4)).unwrap();
        let mut programs = Programs::new(1, &choices, 1000, true);
        let (tree, ring) = (1, 4);
        for (size_bytes, chunks) in
            [(0, tree), (999, tree), (1000, ring), (1999, ring), (2000, 2 * ring), (4100, 4 * ring)]
        {
            for _ in 0..2 {
                assert_eq!(programs.of(size_bytes).chunks, chunks, "{size_bytes} B");
            }
        }
        let mut shown = Vec::new();
        programs.prepare(5000, |program, bytes| shown.push((program.chunks, bytes)));
        assert_eq!(shown, [(tree, 999), (ring, 2000), (2 * ring, 4000), (4 * ring, 5000)]);
    }
}
