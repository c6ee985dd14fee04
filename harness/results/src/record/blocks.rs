//! The tables of blocks: where a block is in each, and whether it is complete.

use super::appended::{Appended, header};
use super::lines::{Key, Lines};
use crate::block::{Message, Outline, RankBlock, Sample};
use crate::conditions::Conditions;
use crate::error::RecordError;

pub(super) const SAMPLES: &str = "samples.csv";
pub(super) const MESSAGES: &str = "messages.csv";
pub(super) const RANKS: &str = "ranks.csv";
pub(super) const CONDITIONS: &str = "conditions.csv";
pub(super) const LATENCIES: &str = "latencies.hlog";

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
    /// Adds what another table has.
    pub fn add(&mut self, other: Found) {
        let Found { outline, lines, messages, ranks } = other;
        for (own, lines) in self.lines.iter_mut().zip(lines).filter(|(_, lines)| lines.count() > 0)
        {
            *own = lines;
        }
        (self.messages, self.ranks) = (self.messages.max(messages), self.ranks.max(ranks));
        let conditions = self.outline.conditions.take().or(outline.conditions.clone());
        if !outline.times_us.is_empty() {
            self.outline = outline;
        }
        (self.outline.conditions, self.outline.ranks) = (conditions, self.ranks);
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

/// What a table has of its blocks.
#[derive(Default)]
pub(super) struct FoundInTable {
    /// Of each block.
    pub blocks: Vec<(Key, Found)>,
    /// What was cut off, in sentences.
    pub dropped: Vec<String>,
}

/// Reads a table.
pub(super) fn found_in(table: Table, file: &Appended) -> Result<FoundInTable, RecordError> {
    let mut all = FoundInTable::default();
    file.each_block(&table.header(), &mut all.dropped, |key, lines, text| {
        let mut found = Found::default();
        found.lines[table as usize] = lines;
        match table {
            Table::Samples => {
                let samples: Vec<Sample> = file.parse(text, lines.start)?;
                found.messages = samples.iter().map(|sample| sample.messages).sum();
                found.outline = Outline::of(&samples, 0, None);
            }
            Table::Ranks => {
                // Each says how many there are.
                let first = text.split_inclusive(|&byte| byte == b'\n').next();
                let first: Vec<RankBlock> = file.parse(first.unwrap_or_default(), lines.start)?;
                found.ranks = first.first().map_or(0, |first| first.ranks);
            }
            Table::Conditions => {
                found.outline.conditions = file.parse(text, lines.start)?.pop();
            }
            Table::Messages | Table::Latencies => {}
        }
        all.blocks.push((key, found));
        Ok(())
    })?;
    Ok(all)
}
