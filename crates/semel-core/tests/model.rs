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
//! - A store that falls back to an older state, and forgets what was granted, claimed and settled since (`failover.rs`).
//! - Runs with steps (`walk.rs`): each is claimed, done and settled in order, by every holder from the first one on;
//!   a step's process may vanish, and a run that is stopped may ask for a step at any time after. Their effects
//!   are counted outside the ledger, and no sink guards them.
//!
//! A request counts as sent when the store takes it, or when its sender gives up: time on the way to the store only
//! shortens the trust, so this is the worst case.
//!
//! Runs and steps are searched also on a store that makes one change after another (`in_order.rs`). Two more worlds have
//! searches of their own, each also on such a store:
//!
//! - Runners that share a batch (`items.rs`): their claims and outcomes in groups, takeovers of the dead and of those
//!   whose lease has lapsed, items given back, items with a resource of their own.
//! - Slots that pass without a run (`slots.rs`).
//!
//! Traces of the first two worlds are replayed on real stores: `crates/semel/tests/replay`.
//!
//! # What is not
//!
//! Rows of works on stores that make one change after another; probes of runs, and probes that cannot tell; lock delays and rests;
//! payloads; outputs; retention; tries inside one invocation; the copy of a ledger; batches and slots on a store that falls back. Watches that run at another speed than the store's clock: the margin is
//! for them as for steps, and the model spends it on steps.
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
    pub mod bounds;
    pub mod check;
    pub mod config;
    pub mod facts;
    pub mod failover;
    pub mod in_order;
    pub mod items;
    pub mod requests;
    pub mod row;
    pub mod shared;
    pub mod sink;
    pub mod slots;
    pub mod store;
    pub mod walk;
    pub mod worker;
    pub mod world;
}

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use model::bounds::*;
use model::config::Config;
use model::items::Items;
use model::slots::{Fault, Found, MISSED_OVER, SILENT, Slots, UNTOLD};
use model::store::{Changes, Timeline};
use semel_core::mutant::{self, Mutant};
use semel_core::policy::OnLost;
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// One search at a time: a mutant is on in the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// A search, by its name.
trait Search:
    Model<State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static, Action: Clone + Debug + PartialEq>
    + Copy
    + Send
    + Sync
    + 'static
{
    fn name(&self) -> &'static str;
}

impl Search for Config {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl Search for Items {
    fn name(&self) -> &'static str {
        self.name
    }
}

/// Every state within the bounds is reached, every property holds in all of them, and what must be reached is.
fn holds(config: impl Search) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    mutant::activate(None);
    let checker = config.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{}: {states} unique states, depth {depth}", config.name());
    for property in config.properties().iter().filter(|p| p.expectation == Expectation::Always) {
        if let Some(path) = checker.discovery(property.name) {
            panic!("{}: not so: {}\n{:#?}", config.name(), property.name, path.into_actions());
        }
    }
    checker.assert_properties();
    assert!(checker.is_done(), "the search was cut off");
    // kept by `cargo xtask torture model --json`
    println!("counted: model at={} n={states} of=states wrong=0", config.name().replace(' ', "-"));
}

/// With this rule broken, some property does not hold; or this very one, where several rules share a fault.
fn finds(mutant: impl Into<Option<Mutant>>, config: impl Search, by: Option<&'static str>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mutant = mutant.into();
    mutant::activate(mutant);
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
    let mutant = mutant.map_or("the control".to_owned(), |mutant| format!("{mutant:?}"));
    println!("{mutant} breaks {} ({})", found.join(" and "), config.name());
    assert!(!found.is_empty(), "{mutant} was not found in {} states", checker.unique_state_count());
    println!("counted: model at=rules-broken-on-purpose n=1 of=found wrong=0");
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
    a_store_that_falls_back_holds: FAILOVER;
    runs_in_order_hold: IN_ORDER;
    held_runs_in_order_hold: IN_ORDER_HELD;
    steps_in_order_hold: STEPS_IN_ORDER;
    shared_items_hold: SHARED;
    unanswered_items_hold: SHARED_UNANSWERED;
    three_runners_hold: THREE_RUNNERS;
    held_items_hold: SHARED_HELD;
    probed_items_hold: SHARED_PROBED;
    items_that_fail_hold: SHARED_FAILS;
    items_of_two_hosts_hold: SHARED_BY_HOSTS;
    items_of_one_resource_hold: SHARED_OWN;
    items_in_order_hold: SHARED_IN_ORDER;
    items_of_one_resource_in_order_hold: SHARED_OWN_IN_ORDER;
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
    holds(Config { renewals: 1, troubles: 3, ..FAILOVER });
    holds(Config { runs: 2, failovers: 2, ..FAILOVER });
    holds(Config { ttl: 3, renewals: 1, ..IN_ORDER });
    holds(Config { roles: &[A, B_NEARBY], ..IN_ORDER });
    holds(Config { troubles: 2, ..STEPS_IN_ORDER });
    holds(Config { steps: 2, ..STEPS_IN_ORDER });
    slots_hold(&[
        Slots { firings: [2, 2], troubles: 2, ..SLOTS_ONE_BY_ONE },
        Slots { firings: [2, 2], piece: 1, ..SLOTS_ONE_BY_ONE },
        Slots { troubles: 3, ..SLOTS },
    ]);
}

/// The same, of runners that share a batch.
#[test]
#[ignore = "takes minutes, and only in an optimised build"]
fn items_in_wider_bounds_hold() {
    holds(Items { troubles: 1, crashes: 1, unknowns: 1, late: 1, ..SHARED });
    holds(Items { items: 2, troubles: 1, ..SHARED_UNANSWERED });
    holds(Items { troubles: 1, crashes: 1, unknowns: 1, late: 1, ..THREE_RUNNERS });
    holds(Items { troubles: 3, unknowns: 1, late: 1, ..SHARED_HELD });
    holds(Items { runners: 2, items: 2, ..SHARED_HELD });
    holds(Items { runners: 2, runs: 2, ..SHARED_HELD });
    holds(Items { troubles: 1, crashes: 1, ..SHARED_PROBED });
    holds(Items { items: 2, ..SHARED_FAILS });
    holds(Items { runs: 2, ..SHARED_FAILS });
    holds(Items { items: 2, ..SHARED_BY_HOSTS });
    holds(Items { troubles: 1, crashes: 1, unknowns: 1, renewals: 1, ..SHARED_OWN });
    holds(Items { on_lost: OnLost::Hold, ..SHARED_OWN });
    holds(Items { items: 2, troubles: 1, late: 0, ..SHARED_IN_ORDER });
    holds(Items { troubles: 2, late: 1, ..SHARED_OWN_IN_ORDER });
    holds(Items { items: 2, troubles: 0, unknowns: 0, ..SHARED_OWN_IN_ORDER });
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
    finds_a_token_below_the_floor: TokenBelowTheFloor in FAILOVER
        by "a token is above all tokens granted before it";
    finds_a_release_before_its_outcome: ReleaseBeforeOutcome in IN_ORDER
        by "a lease is given back only after the outcome is on record";
    finds_an_item_of_a_zombie: ItemWithoutRunnerGuard in SHARED
        by "an item is claimed only under a live lease of its runner";
    finds_an_item_beside_a_live_runner: ItemBesideLiveRunner in SHARED;
    finds_a_lost_item_without_its_guard: ItemWithoutLostGuard in SHARED_BY_HOSTS;
    finds_an_item_that_leaves_done: ItemDoneRunsAgain in SHARED;
    finds_a_done_item_begun_again: ItemDoneRunsAgain in SHARED
        by "an item that is done is never begun again";
    finds_an_item_in_doubt_running_again: ItemInDoubtRunsAgain in SHARED_HELD;
    finds_a_lost_item_running_again: LostItemRunsAgain in SHARED_HELD;
    finds_a_lost_item_that_is_not_probed: LostItemRunsAgain in SHARED_PROBED
        by "what the probe can see is not begun again";
    finds_a_torn_item_running_again: TornItemRunsAgain in SHARED_HELD;
    finds_a_repeated_item_running_again: RepeatedItemRunsAgain in SHARED_FAILS
        by "an item's effect is begun once per grant";
    finds_a_runner_that_takes_its_own_item_for_lost: OwnItemTakenForLost in SHARED_UNANSWERED;
    finds_an_item_given_back_that_was_torn: GivenBackIsNotTorn in SHARED_PROBED
        by "what the probe can see is not begun again";
    finds_an_item_of_another_given_back: GiveBackOfAnothers in SHARED;
    finds_an_intent_before_its_lease: OwnLeaseAfterIntent in SHARED_OWN_IN_ORDER
        by "an item's own lease is granted before its intent";
    finds_one_lease_for_two_items: OneNonceForAllItems in SHARED_OWN;
    finds_an_item_settled_by_anyone: SettleByAnyone in SHARED
        by "no write by another than its holder ends an attempt";
    finds_an_item_s_lease_trusted_from_the_reply: TrustFromTheReply in ALONE_RENEWED
        by "who trusts that it holds an item does, by the store";
}

/// A store that falls back and does not know its epoch grants tokens again.
#[test]
fn finds_tokens_that_come_back() {
    let unknown = Config { timeline: Timeline::Unknown, ..FAILOVER };
    finds(None::<Mutant>, unknown, Some("a token is above all tokens granted before it"));
    finds(None::<Mutant>, unknown, Some("the fenced sink refuses nobody who holds the lease"));
}

/// The floor alone is not enough: a claim that was decided before the fall may arrive after it.
#[test]
fn finds_a_grant_of_another_epoch() {
    let unasked = Config { timeline: Timeline::NotAskedAgain, ..FAILOVER };
    finds(None::<Mutant>, unasked, Some("a token is above all tokens granted before it"));
}

/// Nor is the token: versions that come back let a forgotten holder's outcome through.
#[test]
fn finds_versions_that_come_back() {
    let come_back = Config { timeline: Timeline::VersionsComeBack, renewals: 1, ..FAILOVER };
    finds(
        None::<Mutant>,
        come_back,
        Some("no settle, renewal or release under a stale grant has any effect"),
    );
}

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
        println!("counted: model at=slots n={} of=states wrong=0", found.states);
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
