//! Switchable faults in the rules, so that the model check is known to be able to fail.
//!
//! In every build but the one with the feature `mutants`, [`on`] is the constant `false` and nothing of this is
//! left in the program. The tests of the models turn them on one at a time and must find each.

/// A rule broken on purpose.
#[allow(missing_docs)] // the names say what breaks
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mutant {
    TokenStaysOnGrant = 1,
    GrantOverLiveLease,
    ReleaseForgetsToken,
    ReleaseByAnyone,
    RenewByStaleToken,
    TakeoverWithoutLapseCheck,
    SettleByAnyone,
    SettleWhenNotRunning,
    AttemptByTokenAlone,
    ClaimLeavesDone,
    ClaimIgnoresLiveRun,
    ClaimWithoutIntent,
    ClaimWithoutGuards,
    OwnGrantKeepsItsClock,
    AliveByLeaseAlone,
    LapseGuardedByVersion,
    VerdictOverLiveRun,
    TrustToTheLastMoment,
    TrustFromTheReply,
    FailureCapIgnored,
    InDoubtRunsAgain,
    StepWithoutRunGuard,
    StepDoneRunsAgain,
    LostStepRunsAgain,
    TornStepRunsAgain,
    VanishedIsNotTorn,
    StepInDoubtRunsAgain,
    OwnStepTakenForLost,
    StepBesideLiveRun,
    StepWithoutLostGuard,
    StepBesideItsRun,
    PlanMovesOn,
    OwnGrantAfterItsLapse,
    OwnGrantNotAskedAgain,
    KeptLeaseIsReleased,
    CalendarFirst,
    TokenBelowTheFloor,
    ItemWithoutRunnerGuard,
    ItemBesideLiveRunner,
    ItemWithoutLostGuard,
    ItemDoneRunsAgain,
    ItemInDoubtRunsAgain,
    LostItemRunsAgain,
    TornItemRunsAgain,
    RepeatedItemRunsAgain,
    OwnItemTakenForLost,
    GivenBackIsNotTorn,
    GiveBackOfAnothers,
    OwnLeaseAfterIntent,
    OneNonceForAllItems,
    ReleaseBeforeOutcome,
}

impl Mutant {
    /// Every mutant.
    pub const ALL: [Mutant; 51] = [
        Mutant::TokenStaysOnGrant,
        Mutant::GrantOverLiveLease,
        Mutant::ReleaseForgetsToken,
        Mutant::ReleaseByAnyone,
        Mutant::RenewByStaleToken,
        Mutant::TakeoverWithoutLapseCheck,
        Mutant::SettleByAnyone,
        Mutant::SettleWhenNotRunning,
        Mutant::AttemptByTokenAlone,
        Mutant::ClaimLeavesDone,
        Mutant::ClaimIgnoresLiveRun,
        Mutant::ClaimWithoutIntent,
        Mutant::ClaimWithoutGuards,
        Mutant::OwnGrantKeepsItsClock,
        Mutant::AliveByLeaseAlone,
        Mutant::LapseGuardedByVersion,
        Mutant::VerdictOverLiveRun,
        Mutant::TrustToTheLastMoment,
        Mutant::TrustFromTheReply,
        Mutant::FailureCapIgnored,
        Mutant::InDoubtRunsAgain,
        Mutant::StepWithoutRunGuard,
        Mutant::StepDoneRunsAgain,
        Mutant::LostStepRunsAgain,
        Mutant::TornStepRunsAgain,
        Mutant::VanishedIsNotTorn,
        Mutant::StepInDoubtRunsAgain,
        Mutant::OwnStepTakenForLost,
        Mutant::StepBesideLiveRun,
        Mutant::StepWithoutLostGuard,
        Mutant::StepBesideItsRun,
        Mutant::PlanMovesOn,
        Mutant::OwnGrantAfterItsLapse,
        Mutant::OwnGrantNotAskedAgain,
        Mutant::KeptLeaseIsReleased,
        Mutant::CalendarFirst,
        Mutant::TokenBelowTheFloor,
        Mutant::ItemWithoutRunnerGuard,
        Mutant::ItemBesideLiveRunner,
        Mutant::ItemWithoutLostGuard,
        Mutant::ItemDoneRunsAgain,
        Mutant::ItemInDoubtRunsAgain,
        Mutant::LostItemRunsAgain,
        Mutant::TornItemRunsAgain,
        Mutant::RepeatedItemRunsAgain,
        Mutant::OwnItemTakenForLost,
        Mutant::GivenBackIsNotTorn,
        Mutant::GiveBackOfAnothers,
        Mutant::OwnLeaseAfterIntent,
        Mutant::OneNonceForAllItems,
        Mutant::ReleaseBeforeOutcome,
    ];
}

#[cfg(feature = "mutants")]
static ACTIVE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Break this rule, and only this one, in the whole process.
#[cfg(feature = "mutants")]
pub fn activate(mutant: Option<Mutant>) {
    ACTIVE.store(mutant.map_or(0, |m| m as u8), std::sync::atomic::Ordering::SeqCst);
}

/// Is this rule broken?
#[cfg(feature = "mutants")]
pub fn on(mutant: Mutant) -> bool {
    ACTIVE.load(std::sync::atomic::Ordering::Relaxed) == mutant as u8
}

/// Is this rule broken? Never, in this build.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn on(_: Mutant) -> bool {
    false
}
