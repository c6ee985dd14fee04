//! The settings of one world size.

use std::time::Duration;

use super::answer::{LEAST_ROUNDS, Ratio};
use super::fidelity::Fidelity;
use super::search::{ForHorovod, Predict, Task};
use super::space::{Present, Space};
use measure::plan::{Plan, UnsupportedCase};
use thiserror::Error;
use transports::data_plane::{MPI_ALLREDUCE, nccl};

/// A grid of settings: some of the executor's cases.
pub struct Grid {
    /// The settings.
    pub plan: Plan,
    /// Their positions.
    pub space: Space,
    /// The place of each among all cases.
    index: Vec<usize>,
}

/// Why the settings of a grid cannot run here.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The job has too few processes.
    #[error("{reason}; name another with --topology")]
    Placement {
        /// The value found, and the value expected.
        reason: String,
    },
    /// A data plane does not run on these ranks.
    #[error(transparent)]
    DataPlane(#[from] UnsupportedCase),
}

impl Grid {
    /// The grid of a plan whose cases are among `all`; compared with Horovod's defaults, or with the current
    /// settings.
    ///
    /// # Panics
    /// When they are not.
    pub fn new(all: &Plan, plan: Plan, present: Option<&Present>) -> Grid {
        let place = |case| all.cases.iter().position(|planned| planned.case == case);
        let places = plan.cases.iter().map(|planned| place(planned.case.clone()));
        let index = places.collect::<Option<_>>().expect("all cases hold the grid's");
        let mut space = Space::of(&plan);
        if let Some(present) = present {
            space.compare_with(&plan, present);
        }
        Grid { plan, space, index }
    }

    /// Recommendations for Horovod rest on its own data plane alone.
    pub fn is_for_horovod(&self) -> bool {
        let own = [MPI_ALLREDUCE, nccl::ALL_REDUCE, nccl::HIERARCHICAL];
        self.plan.cases.iter().all(|planned| own.contains(&&*planned.case.algorithm))
    }

    /// How far Horovod's gains are from promised ones; none if nothing is recommended for Horovod.
    pub fn fidelity(&self) -> Option<Fidelity> {
        let are_sharing = || self.plan.cases.iter().any(|it| it.placement.oversubscribed);
        self.is_for_horovod().then(|| Fidelity::of(are_sharing()))
    }

    /// The ratio of the step times of two settings, with the interval that holds for Horovod; the times are in seconds. As it is
    /// if nothing is recommended for Horovod.
    pub fn for_horovod(&self, ratio: &Ratio, steps_s: [f64; 2]) -> Ratio {
        let Some(fidelity) = self.fidelity() else { return *ratio };
        let topology = self.plan.cases.first().map(|planned| &planned.case.topology);
        let computation = topology.map_or(Duration::ZERO, |it| self.plan.step_time_on(it));
        let exposed = steps_s.map(|step_s| (1.0 - computation.as_secs_f64() / step_s).max(0.0));
        fidelity.for_horovod(ratio, exposed)
    }

    /// The place of a setting among all cases.
    pub fn index(&self, setting: usize) -> usize {
        self.index[setting]
    }

    /// Takes over the placement, after all cases have their processes.
    ///
    /// # Errors
    /// When a setting cannot run here.
    pub fn settle(&mut self, all: &Plan) -> Result<(), SettleError> {
        for (planned, &at) in self.plan.cases.iter_mut().zip(&self.index) {
            planned.placement = all.cases[at].placement.clone();
            planned.left = all.cases[at].left.clone();
        }
        if let Some((reason, _)) = self.plan.left().first() {
            return Err(SettleError::Placement { reason: reason.to_string() });
        }
        let mut planes = self.plan.cases.iter().map(|planned| planned.data_plane.as_ref());
        planes.find_map(Result::err).map_or(Ok(()), |why| Err(SettleError::DataPlane(why.clone())))
    }

    /// The search task of this grid.
    pub fn task<'t>(
        &'t self,
        predict: &'t Predict<'t>,
        for_horovod: &'t ForHorovod<'t>,
    ) -> Task<'t> {
        self.space.task(predict, for_horovod)
    }

    /// A guess at the time of its longest block.
    pub fn longest_block(&self) -> Duration {
        let blocks = self.plan.cases.iter().map(|planned| self.plan.estimate(planned));
        blocks.max().unwrap_or_default()
    }

    /// Every setting that is always measured, and fresh rounds of the choice and the defaults.
    pub fn least_blocks(&self) -> usize {
        self.space.always.len() + LEAST_ROUNDS * (self.space.defaults.len() + 1)
    }
}
