//! Mutations of the control planes, for mutation testing: with the feature `mutations` a plane can be
//! given one, and the simulation tests must find it. Without the feature no plane has any.

/// One mistake in a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Mutation {
    RenumberingLost,
    EvictedKeepsItsBit,
    HitsAreNotUses,
    UsesInAnotherOrder,
    OrSkipped,
    InvalidTakenForHit,
    UncachedElsewhereIgnored,
    RequeueDropped,
    BitsInOrderOfReadiness,
    ErrorsRemembered,
    ReadyOneRankEarly,
    MismatchIgnored,
    ShutDownNotRaised,
    ShutDownDropsResponses,
    ThresholdIgnored,
    GroupsFusedTogether,
    OrderNotRebuilt,
    SubtreeNotAwaited,
    EndNotAwaited,
    EarlyRequestLost,
}

impl Mutation {
    /// Every mutation.
    pub const ALL: [Mutation; 20] = [
        Mutation::RenumberingLost,
        Mutation::EvictedKeepsItsBit,
        Mutation::HitsAreNotUses,
        Mutation::UsesInAnotherOrder,
        Mutation::OrSkipped,
        Mutation::InvalidTakenForHit,
        Mutation::UncachedElsewhereIgnored,
        Mutation::RequeueDropped,
        Mutation::BitsInOrderOfReadiness,
        Mutation::ErrorsRemembered,
        Mutation::ReadyOneRankEarly,
        Mutation::MismatchIgnored,
        Mutation::ShutDownNotRaised,
        Mutation::ShutDownDropsResponses,
        Mutation::ThresholdIgnored,
        Mutation::GroupsFusedTogether,
        Mutation::OrderNotRebuilt,
        Mutation::SubtreeNotAwaited,
        Mutation::EndNotAwaited,
        Mutation::EarlyRequestLost,
    ];
}

/// The mutation of a plane, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mutations {
    #[cfg(feature = "mutations")]
    mutation: Option<Mutation>,
}

impl Mutations {
    /// This mutation alone.
    #[cfg(feature = "mutations")]
    pub fn only(mutation: Mutation) -> Mutations {
        Mutations { mutation: Some(mutation) }
    }

    #[cfg(feature = "mutations")]
    pub(crate) fn has(self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    pub(crate) fn has(self, _: Mutation) -> bool {
        false
    }
}
