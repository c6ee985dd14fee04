//! The tables of blocks: where a block is in each, and whether it is complete.

use rayon::prelude::*;

use super::appended::{Appended, header};
use super::latency_log::LatencyLog;
use super::lines::{Key, Lines};
use crate::block::{Message, Outline, RankBlock, Sample};
use crate::conditions::Conditions;
use crate::error::RecordError;

pub(super) const SAMPLES: &str = "samples.csv";
pub(super) const MESSAGES: &str = "messages.csv";
pub(super) const RANKS: &str = "ranks.csv";
pub(super) const CONDITIONS: &str = "conditions.csv";
pub(super) const LATENCIES: &str = "latencies.hlog";

/// So many blocks of a table are parsed at once, in parallel, or fewer with so many bytes.
const BATCH_BLOCKS: usize = 256;
const BATCH_BYTES: usize = 4 << 20;

/// The tables of blocks, in the order in which a block is appended: with its samples it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Messages,
    Ranks,
    Conditions,
    Latencies,
    Samples,
}

impl Table {
    pub const ALL: [Table; 5] =
        [Table::Messages, Table::Ranks, Table::Conditions, Table::Latencies, Table::Samples];

    pub fn file(self) -> &'static str {
        match self {
            Table::Messages => MESSAGES,
            Table::Ranks => RANKS,
            Table::Conditions => CONDITIONS,
            Table::Latencies => LATENCIES,
            Table::Samples => SAMPLES,
        }
    }

    /// The names of its columns; latencies have a header of their own.
    pub fn header(self) -> String {
        match self {
            Table::Messages => header::<Message>(),
            Table::Ranks => header::<RankBlock>(),
            Table::Conditions => header::<Conditions>(),
            Table::Latencies => String::new(),
            Table::Samples => header::<Sample>(),
        }
    }
}

/// What the tables have of a block, and what they should have.
#[derive(Default)]
pub(super) struct Found {
    pub outline: Outline,
    pub lines: [Lines; 5],
    messages: usize,
    ranks: usize,
}

impl Found {
    /// Adds what one table has.
    pub fn add(&mut self, table: Table, lines: Lines, told: Told) {
        self.lines[table as usize] = lines;
        match told {
            Told::Place => {}
            Told::Ranks(ranks) => {
                self.ranks = ranks;
                self.outline.ranks = ranks;
            }
            Told::Conditions(conditions) => self.outline.conditions = conditions.map(|it| *it),
            Told::Samples { outline, messages } => {
                let conditions = self.outline.conditions.take();
                self.outline = Outline { conditions, ranks: self.ranks, ..*outline };
                self.messages = messages;
            }
        }
    }

    pub fn is_complete(&self, steps: usize) -> bool {
        let count = |table: Table| self.lines[table as usize].count();
        count(Table::Samples) == steps
            && count(Table::Messages) == self.messages
            && count(Table::Ranks) == self.ranks
            && self.ranks > 0
            && count(Table::Latencies) > 0
    }
}

/// What the lines of a block in one table tell, beside where they are.
pub(super) enum Told {
    /// Nothing else is needed.
    Place,
    /// How many ranks there are.
    Ranks(usize),
    /// What the system did besides.
    Conditions(Option<Box<Conditions>>),
    /// The outline without ranks and conditions, and the number of messages.
    Samples { outline: Box<Outline>, messages: usize },
}

/// What a table has of its blocks.
#[derive(Default)]
pub(super) struct FoundInTable {
    /// Of each block.
    pub blocks: Vec<(Key, Lines, Told)>,
    /// What was cut off, in sentences.
    pub dropped: Vec<String>,
    /// What the log of latencies has above its blocks.
    pub latency_log: LatencyLog,
}

/// Reads a table.
pub(super) fn found_in(table: Table, file: &Appended) -> Result<FoundInTable, RecordError> {
    let mut found = FoundInTable::default();
    if table == Table::Latencies {
        let header = |line: &[u8]| found.latency_log.read(line);
        file.each_interval(header, &mut found.dropped, |key, lines| {
            found.blocks.push((key, lines, Told::Place));
        })?;
        return Ok(found);
    }
    let (mut batch, mut batch_bytes) = (Vec::new(), 0);
    let mut read = |batch: &mut Vec<(Key, Lines, Vec<u8>)>| {
        let parsed =
            batch.par_iter().map(|(_, lines, text)| parse_block(table, file, *lines, text));
        let parsed: Vec<Result<Told, RecordError>> = parsed.collect();
        for ((key, lines, _), told) in batch.drain(..).zip(parsed) {
            found.blocks.push((key, lines, told?));
        }
        Ok(())
    };
    let ended = file.each_block(&table.header(), &mut found.dropped, |key, lines, mut text| {
        text.truncate(needed_bytes(table, &text));
        text.shrink_to_fit();
        batch_bytes += text.len();
        batch.push((key, lines, text));
        if batch.len() < BATCH_BLOCKS && batch_bytes < BATCH_BYTES {
            return Ok(());
        }
        batch_bytes = 0;
        read(&mut batch)
    });
    // A problem in what was read before comes first.
    read(&mut batch)?;
    ended?;
    Ok(found)
}

/// So much of the text of a block is to be parsed.
fn needed_bytes(table: Table, text: &[u8]) -> usize {
    match table {
        Table::Messages | Table::Latencies => 0,
        // Each line says how many ranks there are.
        Table::Ranks => text.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1),
        Table::Samples | Table::Conditions => text.len(),
    }
}

/// Parses what is needed of a block's lines.
fn parse_block(
    table: Table,
    file: &Appended,
    lines: Lines,
    text: &[u8],
) -> Result<Told, RecordError> {
    Ok(match table {
        Table::Samples => {
            let samples: Vec<Sample> = file.parse(text, lines.start)?;
            let messages = samples.iter().map(|sample| sample.messages).sum();
            Told::Samples { outline: Box::new(Outline::of(&samples, 0, None)), messages }
        }
        Table::Ranks => {
            let first: Vec<RankBlock> = file.parse(text, lines.start)?;
            Told::Ranks(first.first().map_or(0, |first| first.ranks))
        }
        Table::Conditions => Told::Conditions(file.parse(text, lines.start)?.pop().map(Box::new)),
        Table::Messages | Table::Latencies => Told::Place,
    })
}
