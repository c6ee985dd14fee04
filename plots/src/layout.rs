//! The number of ranks and their distribution over nodes.

use std::fmt;

use crate::drawing::HARD_SPACE;
use crate::rows::Row;
use crate::theme;

/// The numbers of ranks and nodes, as far as they are known. Layouts are ordered by ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Layout {
    ranks: Option<u64>,
    nodes: Option<u64>,
    local_size: Option<u64>,
}

impl Layout {
    /// Rows of logs that do not say their ranks have none of them.
    pub fn of(row: &Row) -> Layout {
        let count = |value: Option<f64>| value.map(|value| value as u64).filter(|count| *count > 0);
        let [ranks, nodes, local_size] = [row.ranks, row.nodes, row.local_size].map(count);
        Layout { ranks, nodes, local_size }
    }

    /// For example `6 to 27600 ranks`, from this layout to `last`.
    pub fn to_ranks(self, last: &Layout) -> String {
        let [few, many] = [self.ranks, last.ranks].map(|ranks| ranks.unwrap_or_default());
        format!("{few} to {many} ranks")
    }
}

impl fmt::Display for Layout {
    /// For example `4 ranks = 2 nodes × 2`, or `4 ranks on 2 nodes` if nodes have different numbers of
    /// ranks, with spaces that do not break. Empty if the number of ranks is not known.
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Some(ranks) = self.ranks else { return Ok(()) };
        let counted = |number: u64, noun| theme::count(number as usize, noun);
        let mut text = counted(ranks, "rank");
        match (self.nodes.map(|nodes| counted(nodes, "node")), self.local_size) {
            (Some(nodes), Some(local)) => text += &format!(" = {nodes} × {local}"),
            (Some(nodes), None) => text += &format!(" on {nodes}"),
            (None, _) => {}
        }
        out.write_str(&text.replace(' ', &HARD_SPACE.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_said_and_few_ranks_come_first() {
        let layout = |ranks, nodes, local_size| Layout { ranks, nodes, local_size };
        let two = layout(Some(2), Some(1), Some(2));
        let uneven = layout(Some(4), Some(2), None);
        let sixteen = layout(Some(16), Some(4), Some(4));
        let mut all = [sixteen, uneven, two];
        all.sort();
        let said = all.map(|layout| layout.to_string().replace(HARD_SPACE, " "));
        assert_eq!(said, ["2 ranks = 1 node × 2", "4 ranks on 2 nodes", "16 ranks = 4 nodes × 4"]);
        assert_eq!(layout(Some(1), None, None).to_string(), "1\u{a0}rank");
        assert_eq!(layout(None, Some(2), Some(2)).to_string(), "");
        assert_eq!(two.to_ranks(&sixteen), "2 to 16 ranks");
    }
}
