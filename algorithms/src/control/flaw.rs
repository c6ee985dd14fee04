//! Mistakes that a control plane could have: planted with the feature `flaws`, to see that the tests find
//! them. Without it no plane has any.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Flaw {
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

impl Flaw {
    /// Every mistake.
    pub const ALL: [Flaw; 20] = [
        Flaw::RenumberingLost,
        Flaw::EvictedKeepsItsBit,
        Flaw::HitsAreNotUses,
        Flaw::UsesInAnotherOrder,
        Flaw::OrSkipped,
        Flaw::InvalidTakenForHit,
        Flaw::UncachedElsewhereIgnored,
        Flaw::RequeueDropped,
        Flaw::BitsInOrderOfReadiness,
        Flaw::ErrorsRemembered,
        Flaw::ReadyOneRankEarly,
        Flaw::MismatchIgnored,
        Flaw::ShutDownNotRaised,
        Flaw::ShutDownDropsResponses,
        Flaw::ThresholdIgnored,
        Flaw::GroupsFusedTogether,
        Flaw::OrderNotRebuilt,
        Flaw::SubtreeNotAwaited,
        Flaw::EndNotAwaited,
        Flaw::EarlyRequestLost,
    ];
}

/// The mistake of a plane, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flaws {
    #[cfg(feature = "flaws")]
    planted: Option<Flaw>,
}

impl Flaws {
    /// Plants a mistake.
    #[cfg(feature = "flaws")]
    pub fn plant(flaw: Flaw) -> Flaws {
        Flaws { planted: Some(flaw) }
    }

    #[cfg(feature = "flaws")]
    pub(crate) fn has(self, flaw: Flaw) -> bool {
        self.planted == Some(flaw)
    }

    #[cfg(not(feature = "flaws"))]
    #[inline(always)]
    pub(crate) fn has(self, _: Flaw) -> bool {
        false
    }
}
