//! Double binary tree: half of the buffer up and down one tree, the other half up and down a second
//! tree in which leaves and inner ranks have changed places.
//!
//! The buffer is two chunks, one per tree. Tree A is the in-order binary tree: odd ranks are leaves,
//! and rank r, whose lowest set bit is 2^k, adds its chunk to its parent's in step k; rank 0 is the
//! root. Tree B is the same tree on renamed ranks: mirrored for an even number of ranks, turned by one
//! for an odd one. So nearly every rank is a leaf in one tree and has two children in the other, and
//! both directions of its link are busy.
//!
//! Cost: 2 ceil(log2 n) steps. A rank sends each chunk once to its parent and once to each child, at
//! most 2 buffers in all; in segments (see [`crate::combinators::Pipelined`]) up and down overlap.
//!
//! After P. Sanders, J. Speck and J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast,
//! reduction and scan", Parallel Computing 35 (2009), in NCCL's construction.

use crate::algorithm::{Algorithm, Unsupported, Volume};
use crate::schedule::{Action, Move, Part, Schedule};
use crate::topology::{Rank, Topology};

/// Two complementary binary trees.
pub struct DoubleTree;

impl Algorithm for DoubleTree {
    fn name(&self) -> String {
        "double-tree".into()
    }

    fn formula(&self, topology: &Topology) -> Result<Box<dyn Schedule>, Unsupported> {
        Ok(Box::new(TwoTrees { n: topology.ranks() }))
    }

    fn steps(&self, topology: &Topology) -> usize {
        2 * TwoTrees { n: topology.ranks() }.depth()
    }

    fn volume(&self, topology: &Topology, rank: Rank) -> Volume {
        let trees = TwoTrees { n: topology.ranks() };
        let family = |tree| {
            let member = trees.rename(rank, tree);
            trees.children(member).count() + usize::from(member > 0)
        };
        let family = family(0) + family(1);
        Volume { sent: family, received: family }
    }
}

struct TwoTrees {
    n: usize,
}

impl TwoTrees {
    /// ceil(log2 n).
    fn depth(&self) -> usize {
        self.n.next_power_of_two().trailing_zeros() as usize
    }

    /// The number of a rank in a tree.
    fn rename(&self, rank: Rank, tree: usize) -> Rank {
        match tree {
            0 => rank,
            _ if self.n.is_multiple_of(2) => self.n - 1 - rank,
            _ => (rank + self.n - 1) % self.n,
        }
    }

    /// The rank of a number in a tree.
    fn rank(&self, name: Rank, tree: usize) -> Rank {
        match tree {
            0 => name,
            _ if self.n.is_multiple_of(2) => self.n - 1 - name,
            _ => (name + 1) % self.n,
        }
    }

    /// Of a member that is not the root: one bit up, or, beyond the world, straight up.
    fn parent(&self, member: Rank) -> Rank {
        let bit = member & member.wrapping_neg();
        match (member ^ bit) | (bit << 1) {
            up if up < self.n => up,
            _ => member ^ bit,
        }
    }

    /// At most two, each at a lower level.
    fn children(&self, member: Rank) -> impl Iterator<Item = Rank> {
        let bit = match member {
            0 => self.n.next_power_of_two(),
            _ => member & member.wrapping_neg(),
        };
        let half = bit / 2;
        let below = (half > 0).then(|| if member == 0 { half } else { member - half });
        let below = below.filter(|_| self.n > 1);
        let distances = std::iter::successors(Some(half), |distance| Some(distance / 2));
        let above = distances
            .take_while(|&distance| distance > 0)
            .map(|distance| member + distance)
            .find(|&child| child < self.n)
            .filter(|_| member > 0);
        below.into_iter().chain(above)
    }
}

impl Schedule for TwoTrees {
    fn ranks(&self) -> usize {
        self.n
    }

    fn chunks(&self) -> usize {
        2
    }

    fn steps(&self) -> usize {
        2 * self.depth()
    }

    fn part(&self, rank: Rank, step: usize, part: &mut Part) {
        // On the way down the steps of the way up run backwards.
        let (level, action) = match step.checked_sub(self.depth()) {
            None => (step, Action::Reduce),
            Some(down) => (self.depth() - 1 - down, Action::Copy),
        };
        for tree in 0..2 {
            let member = self.rename(rank, tree);
            let meets_parent =
                |member: Rank| member > 0 && member.trailing_zeros() as usize == level;
            let (to_parent, to_child) = match action {
                Action::Reduce => (&mut part.sends, &mut part.receives),
                Action::Copy => (&mut part.receives, &mut part.sends),
            };
            if meets_parent(member) {
                let parent = self.rank(self.parent(member), tree);
                to_parent.push(Move::new(parent, tree..tree + 1, action));
            }
            if level >= member.trailing_zeros() as usize {
                continue;
            }
            for child in self.children(member).filter(|&child| meets_parent(child)) {
                to_child.push(Move::new(self.rank(child, tree), tree..tree + 1, action));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Drawing;

    #[test]
    fn parents_and_children_agree() {
        for n in 1..200 {
            let trees = TwoTrees { n };
            for member in 0..n {
                let children: Vec<_> = trees.children(member).collect();
                assert!(
                    children.iter().all(|&child| trees.parent(child) == member),
                    "{n} {member}"
                );
                assert!(children.len() <= 2);
            }
            let all: usize = (0..n).map(|member| trees.children(member).count()).sum();
            assert_eq!(all, n - 1);
        }
    }

    #[test]
    fn a_rank_is_inner_in_one_tree_only() {
        for n in (2..100).step_by(2) {
            let trees = TwoTrees { n };
            let inner = |rank, tree| trees.children(trees.rename(rank, tree)).next().is_some();
            assert!((0..n).all(|rank| !(inner(rank, 0) && inner(rank, 1))), "{n}");
        }
    }

    #[test]
    fn four_ranks_step_by_step() {
        let schedule = DoubleTree.schedule(&Topology::flat(4)).unwrap();
        assert_eq!(
            Drawing(&*schedule).to_string(),
            "\
step 0:  0+>1 c1  1+>2 c0  2+>1 c1  3+>2 c0
step 1:  1+>3 c1  2+>0 c0
step 2:  0->2 c0  3->1 c1
step 3:  1->2 c1  1->0 c1  2->1 c0  2->3 c0
"
        );
    }
}
