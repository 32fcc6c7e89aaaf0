//! The bounds of each search.

use semel_core::policy::OnLost;

use super::config::Config;
use super::items::Items;
use super::slots::{Fault, Slots};
use super::store::{Changes, Timeline};
use super::worker::Role;

pub const A: Role = Role { key: Some(0), then: None, resources: &[0], host: "one" };
pub const B: Role = Role { key: Some(1), host: "two", ..A };
pub const B_NEARBY: Role = Role { key: Some(1), ..A };
pub const A_THEN_B: Role = Role { then: Some(1), ..A };
pub const A_HERE_OR_THERE: Role = Role { resources: &[0, 1], ..A };
pub const A_THERE_OR_HERE: Role = Role { resources: &[1, 0], ..A };
pub const A_THEN_B_HERE_OR_THERE: Role = Role { resources: &[0, 1], ..A_THEN_B };
pub const B_THERE_OR_HERE: Role = Role { resources: &[1, 0], ..B_NEARBY };
pub const SCRIPT: Role = Role { key: None, ..A };

/// Two workers for one key; any two troubles.
pub const TWO_WORKERS: Config = Config {
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
    failovers: 0,
    timeline: Timeline::Unknown,
    changes: Changes::AllOrNothing,
};

/// Three workers, two of them for the same key, one resource; any one trouble. The third is on another host.
pub const THREE_WORKERS: Config = Config {
    name: "three workers, two keys, one resource",
    roles: &[A, A, B],
    troubles: 1,
    unknowns: 0,
    forward: 0,
    renewals: 0,
    ..TWO_WORKERS
};

/// A lost attempt waits for a person, and so does one that failed.
pub const HELD_FOR_A_PERSON: Config = Config {
    name: "held for a person, cap 1",
    on_lost: OnLost::Hold,
    verdicts: 1,
    fails: true,
    forward: 0,
    ..TWO_WORKERS
};

/// One worker that crashes and fails and comes back, again and again.
pub const AGAIN: Config = Config {
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
pub const TWO_RESOURCES: Config = Config {
    name: "one key, two resources",
    roles: &[A_HERE_OR_THERE, A_THERE_OR_HERE],
    resources: 2,
    forward: 0,
    ..TWO_WORKERS
};

/// Leases without a ledger, renewed and released by who knows only the token.
pub const SCRIPTS: Config =
    Config { name: "leases for scripts", roles: &[SCRIPT, SCRIPT], ttl: 3, renewals: 2, ..TWO_WORKERS };

/// The store's clock leaps ahead by a whole lease.
pub const LEAPING_CLOCK: Config =
    Config { name: "a store's clock that leaps", back: 0, forward_by: 2, ..TWO_WORKERS };

/// Two workers for one key, whose run has two steps; a lost step waits for a person.
pub const STEPS_HELD: Config = Config {
    name: "a run of two steps, held when lost",
    steps: 2,
    back: 0,
    forward: 0,
    renewals: 0,
    ..TWO_WORKERS
};

/// A lost step is done again.
pub const STEPS_RETRIED: Config = Config {
    name: "a run of a step, done again when lost",
    steps: 1,
    step_on_lost: OnLost::Retry,
    ..STEPS_HELD
};

/// The world is asked whether a lost step happened.
pub const STEPS_PROBED: Config =
    Config { name: "a run of a step, probed when lost", steps: 1, step_on_lost: OnLost::Probe, ..STEPS_HELD };

/// One worker that comes back, again and again, and a person who says what became of a step.
pub const STEPS_JUDGED: Config = Config {
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
pub const STEPS_ELSEWHERE: Config = Config {
    name: "a run of a step, two resources",
    roles: &[A_HERE_OR_THERE, A_THERE_OR_HERE],
    resources: 2,
    steps: 1,
    back: 1,
    ..STEPS_HELD
};

/// Two works in a row under one lease, and another worker at the second of them.
pub const IN_A_ROW: Config = Config {
    name: "two works in a row",
    roles: &[A_THEN_B, B_NEARBY],
    ttl: 3,
    renewals: 0,
    forward: 0,
    ..TWO_WORKERS
};

/// Two works in a row under one lease, and another worker at the first of them; commands that fail.
pub const IN_A_ROW_BESIDE_THE_FIRST: Config = Config {
    name: "two works in a row, and another at the first",
    roles: &[A_THEN_B, A],
    renewals: 0,
    back: 0,
    troubles: 1,
    fails: true,
    ..TWO_WORKERS
};

/// The store falls back to an older state, and knows its epoch.
pub const FAILOVER: Config = Config {
    name: "a store that falls back",
    back: 0,
    forward: 0,
    renewals: 0,
    failovers: 1,
    timeline: Timeline::Known,
    ..TWO_WORKERS
};

/// Two workers for one key, on a store that makes one change after another.
pub const IN_ORDER: Config = Config {
    name: "two workers, one key, in order",
    changes: Changes::OneAfterAnother,
    back: 0,
    forward: 0,
    renewals: 0,
    ..TWO_WORKERS
};

/// The same, where a lost attempt waits for a person.
pub const IN_ORDER_HELD: Config = Config {
    name: "two workers, one key, held for a person, in order",
    on_lost: OnLost::Hold,
    verdicts: 1,
    ..IN_ORDER
};

/// The same, with a step; any one trouble.
pub const STEPS_IN_ORDER: Config =
    Config { name: "a run of a step, in order", steps: 1, troubles: 1, ..IN_ORDER };

/// Two runners on one host share two items; a lost one is done again.
pub const SHARED: Items = Items {
    name: "two runners, two items",
    runners: 2,
    items: 2,
    own: 0,
    changes: Changes::AllOrNothing,
    ttl: 2,
    on_lost: OnLost::Retry,
    max_failures: 0,
    runs: 1,
    troubles: 0,
    crashes: 0,
    unknowns: 0,
    late: 0,
    back: 0,
    verdicts: 0,
    renewals: 0,
    fails: false,
    twice: false,
    neighbours: true,
    closes: 64,
};

/// Swaps that are late, or not answered.
pub const SHARED_UNANSWERED: Items = Items {
    name: "two runners, an item, swaps without an answer",
    items: 1,
    troubles: 2,
    crashes: 1,
    unknowns: 1,
    late: 1,
    ..SHARED
};

/// Three runners at one item.
pub const THREE_RUNNERS: Items = Items { name: "three runners, an item", runners: 3, items: 1, ..SHARED };

/// A lost item waits for a person.
pub const SHARED_HELD: Items = Items {
    name: "three runners, an item, held when lost",
    runners: 3,
    items: 1,
    on_lost: OnLost::Hold,
    troubles: 2,
    crashes: 1,
    verdicts: 1,
    ..SHARED
};

/// The world is asked whether a lost item happened.
pub const SHARED_PROBED: Items =
    Items { name: "three runners, an item, probed when lost", on_lost: OnLost::Probe, ..THREE_RUNNERS };

/// Items that fail, of which one comes twice; a failure too many is for a person.
pub const SHARED_FAILS: Items = Items {
    name: "two runners, an item that fails and comes twice, cap 2",
    items: 1,
    max_failures: 2,
    troubles: 1,
    crashes: 1,
    fails: true,
    twice: true,
    ..SHARED
};

/// Runners on two hosts, which know nothing of each other's dead, and a store's clock that is set back.
pub const SHARED_BY_HOSTS: Items = Items {
    name: "two runners on two hosts, an item, a clock set back",
    items: 1,
    neighbours: false,
    troubles: 1,
    back: 1,
    renewals: 1,
    ..SHARED
};

/// Both items name the same resource.
pub const SHARED_OWN: Items = Items { name: "two runners, two items of one resource", own: 0b11, ..SHARED };

/// On a store that makes one change after another.
pub const SHARED_IN_ORDER: Items =
    Items { name: "two runners, an item, in order", changes: Changes::OneAfterAnother, ..SHARED_UNANSWERED };

/// The same, and the item names a resource.
pub const SHARED_OWN_IN_ORDER: Items = Items {
    name: "two runners, an item with a resource, in order",
    own: 0b11,
    troubles: 1,
    late: 0,
    ..SHARED_IN_ORDER
};

/// A runner alone, with heartbeats while its swap is under way.
pub const ALONE_RENEWED: Items = Items {
    name: "a runner, an item with a resource, in order, renewed",
    runners: 1,
    ttl: 3,
    troubles: 0,
    renewals: 2,
    ..SHARED_OWN_IN_ORDER
};

/// Two runners that each fire twice at some of four ticks, on a store that makes all changes or none.
pub const SLOTS: Slots =
    Slots { changes: Changes::AllOrNothing, piece: 2, firings: [2, 2], troubles: 1, fault: Fault::None };

/// On one that makes one after another; the second fires once.
pub const SLOTS_ONE_BY_ONE: Slots = Slots { changes: Changes::OneAfterAnother, firings: [2, 1], ..SLOTS };
