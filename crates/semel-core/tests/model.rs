//! The rules, model-checked: every order of every step within the bounds of each search.
//!
//! The store, the workers, the requests between them, a person and a fenced sink are abstract; every decision is
//! made by the functions that the engine calls: `claim::claim`, `Claim::writes`, `claim::conclude`,
//! `Conclusion::writes`, `claim::verdict`, `step::claim`, `step::guarded`, `entry::settle`, `lease::renew`,
//! `lease::release`, `policy::trust_ms` and `policy::trust_counts_from`. Whether a step was right is judged without them, by what stood in the store before
//! and after (`facts.rs`).
//!
//! # What is modelled
//!
//! - Requests that are taken at once, late (past any number of lapses and takeovers), never, or taken and their
//!   answer lost; a sender that gives up looks again with the same nonce, and its request may still arrive.
//! - Workers that pause anywhere for any time, and look at their own watch before they act; that crash anywhere
//!   and come back as another process; that renew, settle, release; commands that fail.
//! - Effects under way that arrive after their worker was stopped or is gone, at a sink that accepts what
//!   `Grant::against` accepts. They are counted outside the ledger.
//! - A store's clock that is set back, and forward by no more than the margin. Time itself is unbounded: what is
//!   kept of it is how much is left.
//! - Neighbours that know a dead owner at once, and another host that knows nothing.
//! - A person whose verdict takes its time too.
//! - Two works in a row under one lease (`row.rs`): settled without a release, claimed under the same nonce, let go,
//!   or left by a crash in between; the lease may lapse, or be taken from a dead owner, at any time.
//! - Runs with steps (`walk.rs`): each is claimed, done and settled in order, by every holder from the first one on;
//!   a step's process may vanish, and a run that is stopped may ask for a step at any time after. Their effects
//!   are counted outside the ledger, and no sink guards them.
//!
//! A request counts as sent when the store takes it, or when its sender gives up: time on the way to the store only
//! shortens the trust, so this is the worst case.
//!
//! # What is not
//!
//! Stores that cannot write two records at once; probes of runs, and probes that cannot tell; lock delays and rests;
//! payloads; outputs; retention; tries inside one invocation. Watches that run at another speed than the store's clock: the margin is
//! for them as for steps, and the model spends it on steps.
//!
//! Slots that pass without a run have a search of their own (`slots.rs`), also on a store that makes one change after
//! another.
//!
//! # When the store's clock leaps
//!
//! A store's clock that leaps ahead ends a lease whose holder still trusts it, by its own honest watch. No rule
//! can prevent that, so in that search ([`LEAPING_CLOCK`]) nothing is claimed about who believes what. What still
//! holds, and is checked, is what rests on the token: the ledger refuses the old holder's outcome and the fenced
//! sink its effect.
//!
//! # What is true of a fenced sink
//!
//! It accepts at most one effect per grant and key, in the order of the tokens. Once a run is recorded as done, it accepts
//! no other effect of that key. Where a lost attempt is held for a person, it accepts one effect per key, and one
//! more per verdict. Where it is retried, each lost attempt may have had its effect: that is the policy's choice.
//!
//! # What is true of a lease that is kept
//!
//! It is nobody else's until it lapses, and what has lapsed is used again only under a fresh token. To the sink, the
//! works of a row are one holder: an effect of the first that comes late is not fenced off by the second, only by the
//! next grant.
//!
//! # What is true of a step
//!
//! Where lost steps are held, its effect is begun once, and once more per verdict; a lost one is put in doubt. No
//! step is claimed but under a live lease that carries its run's grant, by the run that is on record; also with
//! several resources and a store's clock that is set back ([`STEPS_ELSEWHERE`]), when a lease that had lapsed and was
//! passed over is live again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, unreachable_pub)]

mod model {
    pub mod check;
    pub mod config;
    pub mod facts;
    pub mod requests;
    pub mod row;
    pub mod shared;
    pub mod slots;
    pub mod store;
    pub mod walk;
    pub mod worker;
    pub mod world;
}

use std::sync::{Mutex, PoisonError};

use model::config::Config;
use model::slots::{Changes, Fault, Found, MISSED_OVER, SILENT, Slots, UNTOLD};
use model::worker::Role;
use semel_core::mutant::{self, Mutant};
use semel_core::policy::OnLost;
use stateright::{Checker, Expectation, HasDiscoveries, Model};

const A: Role = Role { key: Some(0), then: None, resources: &[0], host: "one" };
const B: Role = Role { key: Some(1), host: "two", ..A };
const B_NEARBY: Role = Role { key: Some(1), ..A };
const A_THEN_B: Role = Role { then: Some(1), ..A };
const A_HERE_OR_THERE: Role = Role { resources: &[0, 1], ..A };
const A_THERE_OR_HERE: Role = Role { resources: &[1, 0], ..A };
const A_THEN_B_HERE_OR_THERE: Role = Role { resources: &[0, 1], ..A_THEN_B };
const B_THERE_OR_HERE: Role = Role { resources: &[1, 0], ..B_NEARBY };
const SCRIPT: Role = Role { key: None, ..A };

/// Two workers for one key; any two troubles.
const TWO_WORKERS: Config = Config {
    name: "two workers, one key",
    roles: &[A, A],
    resources: 1,
    ttl: 2,
    on_lost: OnLost::Retry,
    max_failures: 1,
    runs: 1,
    troubles: 2,
    crashes: 1,
    unknowns: 1,
    late: 1,
    back: 1,
    forward: 1,
    forward_by: 1,
    verdicts: 0,
    renewals: 1,
    fails: false,
    steps: 0,
    step_on_lost: OnLost::Hold,
};

/// Three workers, two of them for the same key, one resource; any one trouble. The third is on another host.
const THREE_WORKERS: Config = Config {
    name: "three workers, two keys, one resource",
    roles: &[A, A, B],
    troubles: 1,
    unknowns: 0,
    forward: 0,
    renewals: 0,
    ..TWO_WORKERS
};

/// A lost attempt waits for a person, and so does one that failed.
const HELD_FOR_A_PERSON: Config = Config {
    name: "held for a person, cap 1",
    on_lost: OnLost::Hold,
    verdicts: 1,
    fails: true,
    forward: 0,
    ..TWO_WORKERS
};

/// One worker that crashes and fails and comes back, again and again.
const AGAIN: Config = Config {
    name: "one worker, again and again, cap 2",
    roles: &[A],
    runs: 3,
    max_failures: 2,
    crashes: 2,
    verdicts: 1,
    fails: true,
    renewals: 0,
    back: 0,
    forward: 0,
    ..TWO_WORKERS
};

/// The same key under either of two resources.
const TWO_RESOURCES: Config = Config {
    name: "one key, two resources",
    roles: &[A_HERE_OR_THERE, A_THERE_OR_HERE],
    resources: 2,
    forward: 0,
    ..TWO_WORKERS
};

/// Leases without a ledger, renewed and released by who knows only the token.
const SCRIPTS: Config =
    Config { name: "leases for scripts", roles: &[SCRIPT, SCRIPT], ttl: 3, renewals: 2, ..TWO_WORKERS };

/// The store's clock leaps ahead by a whole lease.
const LEAPING_CLOCK: Config =
    Config { name: "a store's clock that leaps", back: 0, forward_by: 2, ..TWO_WORKERS };

/// Two workers for one key, whose run has two steps; a lost step waits for a person.
const STEPS_HELD: Config = Config {
    name: "a run of two steps, held when lost",
    steps: 2,
    back: 0,
    forward: 0,
    renewals: 0,
    ..TWO_WORKERS
};

/// A lost step is done again.
const STEPS_RETRIED: Config = Config {
    name: "a run of a step, done again when lost",
    steps: 1,
    step_on_lost: OnLost::Retry,
    ..STEPS_HELD
};

/// The world is asked whether a lost step happened.
const STEPS_PROBED: Config =
    Config { name: "a run of a step, probed when lost", steps: 1, step_on_lost: OnLost::Probe, ..STEPS_HELD };

/// One worker that comes back, again and again, and a person who says what became of a step.
const STEPS_JUDGED: Config = Config {
    name: "a run of two steps, again and again, and a person",
    roles: &[A],
    runs: 3,
    max_failures: 2,
    unknowns: 0,
    late: 0,
    verdicts: 1,
    fails: true,
    ..STEPS_HELD
};

/// A run whose steps may have begun under the lease of another resource.
const STEPS_ELSEWHERE: Config = Config {
    name: "a run of a step, two resources",
    roles: &[A_HERE_OR_THERE, A_THERE_OR_HERE],
    resources: 2,
    steps: 1,
    back: 1,
    ..STEPS_HELD
};

/// Two works in a row under one lease, and another worker at the second of them.
const IN_A_ROW: Config = Config {
    name: "two works in a row",
    roles: &[A_THEN_B, B_NEARBY],
    ttl: 3,
    renewals: 0,
    forward: 0,
    ..TWO_WORKERS
};

/// Two works in a row under one lease, and another worker at the first of them; commands that fail.
const IN_A_ROW_BESIDE_THE_FIRST: Config = Config {
    name: "two works in a row, and another at the first",
    roles: &[A_THEN_B, A],
    renewals: 0,
    back: 0,
    troubles: 1,
    fails: true,
    ..TWO_WORKERS
};

/// One search at a time: a mutant is on in the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// Every state within the bounds is reached, every property holds in all of them, and what must be reached is.
fn holds(config: Config) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    mutant::activate(None);
    let checker = config.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{}: {states} unique states, depth {depth}", config.name);
    for property in config.properties().iter().filter(|p| p.expectation == Expectation::Always) {
        if let Some(path) = checker.discovery(property.name) {
            panic!("{}: not so: {}\n{:#?}", config.name, property.name, path.into_actions());
        }
    }
    checker.assert_properties();
    assert!(checker.is_done(), "the search was cut off");
}

/// With this rule broken, some property does not hold; or this very one, where several rules share a fault.
fn finds(mutant: Mutant, config: Config, by: Option<&'static str>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    mutant::activate(Some(mutant));
    let enough = by.map_or(HasDiscoveries::AnyFailures, |name| HasDiscoveries::AnyOf([name].into()));
    let checker = config.checker().finish_when(enough).spawn_bfs().join();
    // a path is found again by taking its steps again, so the rule must still be broken
    let properties = config.properties();
    let always = properties.iter().filter(|property| property.expectation == Expectation::Always);
    let always = always.filter(|property| by.is_none_or(|name| property.name == name));
    let found = always.filter_map(|property| Some((property.name, checker.discovery(property.name)?)));
    let found: Vec<_> =
        found.map(|(name, path)| format!("\"{name}\" in {} steps", path.into_actions().len())).collect();
    mutant::activate(None);
    println!("{mutant:?} breaks {} ({})", found.join(" and "), config.name);
    assert!(!found.is_empty(), "{mutant:?} was not found in {} states", checker.unique_state_count());
}

macro_rules! searches {
    ($($name:ident: $config:expr;)*) => { $(#[test] fn $name() { holds($config); })* };
}

searches! {
    two_workers_hold: TWO_WORKERS;
    three_workers_hold: THREE_WORKERS;
    held_for_a_person_holds: HELD_FOR_A_PERSON;
    again_holds: AGAIN;
    two_resources_hold: TWO_RESOURCES;
    scripts_hold: SCRIPTS;
    a_leaping_clock_holds: LEAPING_CLOCK;
    held_steps_hold: STEPS_HELD;
    retried_steps_hold: STEPS_RETRIED;
    probed_steps_hold: STEPS_PROBED;
    judged_steps_hold: STEPS_JUDGED;
    steps_elsewhere_hold: STEPS_ELSEWHERE;
    works_in_a_row_hold: IN_A_ROW;
    works_in_a_row_beside_the_first_hold: IN_A_ROW_BESIDE_THE_FIRST;
}

/// Wider bounds, for an optimised build and some minutes: `cargo xtask torture`.
#[test]
#[ignore = "takes minutes, and only in an optimised build"]
fn wider_bounds_hold() {
    holds(Config { unknowns: 1, forward: 1, ..THREE_WORKERS });
    holds(Config { troubles: 0, crashes: 0, late: 0, renewals: 1, ttl: 3, ..THREE_WORKERS });
    holds(Config { ttl: 3, troubles: 3, unknowns: 2, late: 2, renewals: 2, ..TWO_WORKERS });
    holds(Config { ttl: 3, troubles: 3, verdicts: 2, forward: 1, ..HELD_FOR_A_PERSON });
    holds(Config { ttl: 3, troubles: 3, forward: 1, ..TWO_RESOURCES });
    holds(Config { troubles: 3, back: 1, ..AGAIN });
    holds(Config { roles: &[SCRIPT, SCRIPT, SCRIPT], ..SCRIPTS });
    holds(Config { ttl: 3, forward_by: 3, back: 1, troubles: 3, ..LEAPING_CLOCK });
    holds(Config { renewals: 1, back: 1, forward: 1, ..STEPS_HELD });
    holds(Config { roles: &[A, A, A], troubles: 1, ..STEPS_HELD });
    holds(Config { steps: 2, renewals: 1, ..STEPS_RETRIED });
    holds(Config { steps: 2, crashes: 2, troubles: 3, ..STEPS_PROBED });
    holds(Config { unknowns: 1, late: 1, troubles: 3, ..STEPS_JUDGED });
    holds(Config { steps: 2, forward: 1, ..STEPS_ELSEWHERE });
    holds(Config { troubles: 3, renewals: 1, forward: 1, ..IN_A_ROW });
    holds(Config { roles: &[A_THEN_B, A_THEN_B], ..IN_A_ROW });
    holds(Config { troubles: 2, back: 1, renewals: 1, ..IN_A_ROW_BESIDE_THE_FIRST });
    holds(Config { roles: &[A_THEN_B_HERE_OR_THERE, B_THERE_OR_HERE], resources: 2, ..IN_A_ROW });
    slots_hold(&[
        Slots { firings: [2, 2], troubles: 2, ..SLOTS_ONE_BY_ONE },
        Slots { firings: [2, 2], piece: 1, ..SLOTS_ONE_BY_ONE },
        Slots { troubles: 3, ..SLOTS },
    ]);
}

macro_rules! mutants {
    ($($name:ident: $mutant:ident in $config:ident $(by $property:literal)?;)*) => {
        $(#[test] fn $name() { finds(Mutant::$mutant, $config, None$(.or(Some($property)))?); })*

        #[test]
        fn every_mutant_is_looked_for() {
            // what is wrong with a calendar is found below
            let looked_for = [$(Mutant::$mutant,)* Mutant::CalendarFirst];
            assert!(Mutant::ALL.iter().all(|mutant| looked_for.contains(mutant)));
        }
    };
}

mutants! {
    finds_a_token_that_stays_on_grant: TokenStaysOnGrant in TWO_WORKERS;
    finds_a_grant_over_a_live_lease: GrantOverLiveLease in SCRIPTS;
    finds_a_release_that_forgets_the_token: ReleaseForgetsToken in SCRIPTS;
    finds_a_release_by_anyone: ReleaseByAnyone in SCRIPTS;
    finds_a_renewal_by_a_stale_token: RenewByStaleToken in SCRIPTS;
    finds_a_takeover_without_a_lapse_check: TakeoverWithoutLapseCheck in SCRIPTS;
    finds_a_settle_by_anyone: SettleByAnyone in TWO_WORKERS;
    finds_a_settle_of_what_does_not_run: SettleWhenNotRunning in AGAIN;
    finds_an_attempt_known_by_its_token_alone: AttemptByTokenAlone in TWO_RESOURCES;
    finds_a_claim_that_leaves_done: ClaimLeavesDone in AGAIN;
    finds_a_claim_beside_a_live_run: ClaimIgnoresLiveRun in TWO_RESOURCES;
    finds_a_claim_without_intent: ClaimWithoutIntent in AGAIN;
    finds_a_claim_without_guards: ClaimWithoutGuards in TWO_RESOURCES;
    finds_a_grant_that_keeps_its_clock: OwnGrantKeepsItsClock in SCRIPTS;
    finds_a_run_kept_alive_by_another_s_lease: AliveByLeaseAlone in THREE_WORKERS;
    finds_a_lapse_that_is_not_asked_again: LapseGuardedByVersion in HELD_FOR_A_PERSON;
    finds_a_verdict_over_a_live_run: VerdictOverLiveRun in HELD_FOR_A_PERSON;
    finds_trust_to_the_last_moment: TrustToTheLastMoment in SCRIPTS;
    finds_trust_from_the_reply: TrustFromTheReply in SCRIPTS;
    finds_an_ignored_cap: FailureCapIgnored in AGAIN;
    finds_in_doubt_running_again: InDoubtRunsAgain in HELD_FOR_A_PERSON;
    finds_a_plan_that_moves_on: PlanMovesOn in AGAIN;
    finds_a_lease_used_after_its_lapse: OwnGrantAfterItsLapse in IN_A_ROW
        by "a lease that has lapsed is used again only under a fresh token";
    finds_a_kept_lease_that_is_not_asked_again: OwnGrantNotAskedAgain in IN_A_ROW
        by "a lease that has lapsed is used again only under a fresh token";
    finds_a_kept_lease_that_is_released: KeptLeaseIsReleased in IN_A_ROW
        by "a lease that is kept is nobody else's until it lapses";
    finds_a_kept_lease_that_keeps_its_clock: OwnGrantKeepsItsClock in IN_A_ROW
        by "who trusts its lease holds it, by the store's record and clock";
    finds_a_step_of_a_zombie: StepWithoutRunGuard in STEPS_HELD
        by "a step is claimed only under a live lease that carries its run's grant";
    finds_a_step_repeated_that_was_not_lost: StepDoneRunsAgain in STEPS_RETRIED
        by "an effect is repeated only if its last attempt was lost";
    finds_a_step_begun_twice: StepDoneRunsAgain in STEPS_JUDGED
        by "where lost steps are held, an effect is begun once, and once more per verdict";
    finds_a_step_that_leaves_done: StepDoneRunsAgain in STEPS_JUDGED;
    finds_a_lost_step_running_again: LostStepRunsAgain in STEPS_HELD;
    finds_a_lost_step_that_is_not_probed: LostStepRunsAgain in STEPS_PROBED;
    finds_a_torn_step_running_again: TornStepRunsAgain in STEPS_HELD;
    finds_a_vanished_step_that_is_not_torn: VanishedIsNotTorn in STEPS_HELD;
    finds_a_step_in_doubt_running_again: StepInDoubtRunsAgain in STEPS_JUDGED;
    finds_a_run_that_takes_its_own_step_for_lost: OwnStepTakenForLost in STEPS_HELD;
    finds_a_step_beside_a_live_run: StepBesideLiveRun in STEPS_ELSEWHERE;
    finds_a_lost_step_without_its_guard: StepWithoutLostGuard in STEPS_ELSEWHERE;
    finds_a_step_claimed_beside_the_new_holder: StepBesideItsRun in STEPS_ELSEWHERE
        by "a step is claimed only by who is on record as running its work";
    finds_a_step_settled_by_anyone: SettleByAnyone in STEPS_RETRIED
        by "a step is settled only under the grant that runs it";
    finds_a_step_settled_that_does_not_run: SettleWhenNotRunning in STEPS_HELD
        by "a step is settled only under the grant that runs it";
}

/// Two runners that each fire twice at some of four ticks, on a store that makes all changes or none.
const SLOTS: Slots =
    Slots { changes: Changes::AllOrNothing, piece: 2, firings: [2, 2], troubles: 1, fault: Fault::None };

/// On one that makes one after another; the second fires once.
const SLOTS_ONE_BY_ONE: Slots = Slots { changes: Changes::OneAfterAnother, firings: [2, 1], ..SLOTS };

fn search(slots: Slots, broken: Option<Mutant>) -> Found {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    mutant::activate(broken);
    let found = slots.search();
    mutant::activate(None);
    println!("{slots:?}, {broken:?}: {} states, {:?}", found.states, found.broken);
    found
}

#[test]
fn every_slot_is_claimed_or_missed() {
    slots_hold(&[SLOTS, SLOTS_ONE_BY_ONE]);
}

fn slots_hold(all: &[Slots]) {
    for &slots in all {
        let found = search(slots, None);
        assert_eq!(found.broken.map(|(property, path)| format!("{property}: {path:?}")), None, "{slots:?}");
        let mut wanted = vec![
            "a slot that was missed is run after all",
            "two slots are missed",
            "every slot is done or missed",
        ];
        if slots.changes == Changes::OneAfterAnother {
            wanted.push("a calendar is left behind its entries");
        }
        wanted.retain(|name| !found.reached.contains(name));
        assert_eq!(wanted, Vec::<&str>::new(), "{slots:?}: not reached");
    }
}

fn breaks(slots: Slots, broken: Option<Mutant>) -> Option<&'static str> {
    search(slots, broken).broken.map(|(property, _)| property)
}

#[test]
fn finds_a_calendar_that_is_written_first() {
    assert_eq!(breaks(SLOTS_ONE_BY_ONE, Some(Mutant::CalendarFirst)), Some(SILENT));
    // where all changes are made or none, their order is nothing
    assert_eq!(breaks(SLOTS, Some(Mutant::CalendarFirst)), None);
}

#[test]
fn finds_a_gap_that_is_passed_over() {
    assert_eq!(breaks(Slots { fault: Fault::GapPassedOver, ..SLOTS }, None), Some(SILENT));
}

#[test]
fn finds_a_slot_that_is_missed_over_its_entry() {
    assert_eq!(breaks(Slots { fault: Fault::AbsentIgnored, ..SLOTS_ONE_BY_ONE }, None), Some(MISSED_OVER));
}

#[test]
fn finds_missed_slots_that_nobody_is_told_of() {
    assert_eq!(breaks(Slots { fault: Fault::ToldLast, ..SLOTS_ONE_BY_ONE }, None), Some(UNTOLD));
    assert_eq!(breaks(Slots { fault: Fault::ToldLast, ..SLOTS }, None), None);
}
