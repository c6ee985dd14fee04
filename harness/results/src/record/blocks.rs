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

/// So many blocks of a table are read at once, in parallel.
const BATCH: usize = 256;

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

/// Where a block is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// Its position in its round.
    pub order: usize,
    /// Its lines in each table.
    pub lines: [Lines; 5],
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
    Place,
    /// How many ranks there are.
    Ranks(usize),
    Conditions(Option<Box<Conditions>>),
    /// The outline without ranks and conditions, and the number of messages.
    Samples {
        outline: Box<Outline>,
        messages: usize,
    },
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
    let FoundInTable { mut blocks, mut dropped, mut latency_log } = FoundInTable::default();
    if table == Table::Latencies {
        let header = |line: &[u8]| latency_log.read(line);
        file.each_interval(header, &mut dropped, |key, lines| {
            blocks.push((key, lines, Told::Place));
        })?;
        return Ok(FoundInTable { blocks, dropped, latency_log });
    }
    let mut batch = Vec::with_capacity(BATCH);
    let mut read = |batch: &mut Vec<(Key, Lines, Vec<u8>)>| {
        let told = batch.par_iter().map(|(_, lines, text)| told(table, file, *lines, text));
        // The first problem of the file, if there are several.
        let told: Vec<Result<Told, RecordError>> = told.collect();
        for ((key, lines, _), told) in batch.drain(..).zip(told) {
            blocks.push((key, lines, told?));
        }
        Ok(())
    };
    file.each_block(&table.header(), &mut dropped, |key, lines, text| {
        batch.push((key, lines, text));
        if batch.len() == BATCH { read(&mut batch) } else { Ok(()) }
    })?;
    read(&mut batch)?;
    Ok(FoundInTable { blocks, dropped, latency_log })
}

/// Reads the lines of a block in a table of CSV.
fn told(table: Table, file: &Appended, lines: Lines, text: &[u8]) -> Result<Told, RecordError> {
    Ok(match table {
        Table::Samples => {
            let samples: Vec<Sample> = file.parse(text, lines.start)?;
            let messages = samples.iter().map(|sample| sample.messages).sum();
            Told::Samples { outline: Box::new(Outline::of(&samples, 0, None)), messages }
        }
        Table::Ranks => {
            // Each says how many there are.
            let first = text.split_inclusive(|&byte| byte == b'\n').next();
            let first: Vec<RankBlock> = file.parse(first.unwrap_or_default(), lines.start)?;
            Told::Ranks(first.first().map_or(0, |first| first.ranks))
        }
        Table::Conditions => Told::Conditions(file.parse(text, lines.start)?.pop().map(Box::new)),
        Table::Messages | Table::Latencies => Told::Place,
    })
}
