//! Lapse and touch, by the store's clock.

use std::time::Duration;

use semel_core::record::{Expect, Standing, Version};

use super::{Bench, LONG, Verdict, conflict, put, said};
use crate::clock::boottime;
use crate::store::Change;

/// How long after its end a lease may still seem live: a store's ttl may be a minimum.
const GRACE: Duration = Duration::from_secs(20);

impl Bench {
    /// Wait until the store says that a record has lapsed.
    pub(super) async fn lapse(&self, name: &str) -> Result<(), String> {
        let begun = boottime();
        loop {
            let record = self.load(name).await?.ok_or_else(|| format!("{name} is gone instead of lapsed"))?;
            match record.standing {
                Some(Standing::Lapsed { .. }) => return Ok(()),
                Some(Standing::Live { left_ms }) => {
                    check!(boottime() - begun < GRACE, "{name} has not lapsed after {GRACE:?}");
                    self.subject.pass(Duration::from_millis(left_ms.clamp(1, 1000))).await;
                }
                None => return Err(format!("{name} was given a ttl and has no clock")),
            }
        }
    }

    async fn left_ms(&self, name: &str) -> Result<u64, String> {
        match self.load(name).await?.and_then(|record| record.standing) {
            Some(Standing::Live { left_ms }) => Ok(left_ms),
            other => Err(format!("{name} is {other:?} instead of live")),
        }
    }
}

pub(super) async fn a_lease_lapses_by_the_stores_clock(bench: Bench) -> Verdict {
    bench.create("long", "x", Some(LONG)).await?;
    let left = bench.left_ms("long").await?;
    let ttl_ms = 600_000;
    // two seconds of grace: some stores count in whole seconds
    check!(left <= ttl_ms + 2_000 && left > 0, "a ttl of {ttl_ms} ms leaves {left} ms");
    let begun = boottime();
    let version = bench.create("short", "x", Some(bench.subject.short_ttl())).await?;
    bench.lapse("short").await?;
    let took = boottime() - begun;
    let record = bench.load("short").await?.ok_or("a lapsed record is gone")?;
    check!(record.version == version && record.value == b"x", "a lapse changed the record: {record:?}");
    check!(took < GRACE, "it took {took:?}");
    Ok(())
}

pub(super) async fn live_and_lapsed_are_asked_at_the_write(bench: Bench) -> Verdict {
    let live = bench.create("live", "x", Some(LONG)).await?;
    let lapsed = bench.create("lapsed", "x", Some(bench.subject.short_ttl())).await?;
    bench.lapse("lapsed").await?;
    let write = |name: &str, expect: Expect| [put(&bench.key(name), expect, "y", Some(LONG))];
    let early = conflict(
        "a takeover of a live lease",
        bench.swap(&write("live", Expect::Lapsed(live.clone()))).await,
    )?;
    let stands = early.stands.ok_or("the refusal does not say what stands there")?;
    check!(
        matches!(stands.standing, Some(Standing::Live { .. })),
        "a live lease is told as {:?}",
        stands.standing
    );
    let late = conflict(
        "a lapsed lease taken for live",
        bench.swap(&write("lapsed", Expect::Live(lapsed.clone()))).await,
    )?;
    let stands = late.stands.ok_or("the refusal does not say what stands there")?;
    check!(
        matches!(stands.standing, Some(Standing::Lapsed { .. })),
        "a lapsed lease is told as {:?}",
        stands.standing
    );
    let other = Version::new("no such version");
    conflict("another version, live", bench.swap(&write("live", Expect::Live(other.clone()))).await)?;
    conflict("another version, lapsed", bench.swap(&write("lapsed", Expect::Lapsed(other))).await)?;
    for guard in [Expect::Live(lapsed.clone()), Expect::Absent] {
        let guard = Change::Guard { key: bench.key("lapsed"), expect: guard };
        let guarded = [guard, put(&bench.key("entry"), Expect::Absent, "z", None)];
        conflict("a settlement under a lapsed lease", bench.swap(&guarded).await)?;
    }
    check!(bench.load("entry").await?.is_none(), "a lapsed lease let a guarded write through");
    bench.swap(&write("live", Expect::Live(live))).await.map_err(said)?;
    bench.swap(&write("lapsed", Expect::Lapsed(lapsed))).await.map_err(said)?;
    // the takeover started the clock anew
    bench.left_ms("lapsed").await.map(drop)
}

pub(super) async fn a_record_without_a_clock_is_neither_live_nor_lapsed(bench: Bench) -> Verdict {
    let version = bench.create("a", "x", None).await?;
    let record = bench.load("a").await?.ok_or("the record is missing")?;
    check!(record.standing.is_none(), "a record without a ttl is {:?}", record.standing);
    for expect in [Expect::Live(version.clone()), Expect::Lapsed(version.clone())] {
        conflict(
            "a clock where there is none",
            bench.swap(&[put(&bench.key("a"), expect, "y", None)]).await,
        )?;
    }
    conflict("a touch of a record without a clock", bench.store.touch(&bench.key("a"), &version).await)?;
    Ok(())
}

pub(super) async fn a_touch_keeps_the_version_and_restarts_the_clock(bench: Bench) -> Verdict {
    let version = bench.create("a", "x", Some(LONG)).await?;
    let mut seen = Vec::new();
    // a slow machine may lose as much time within a try as it waited before; not in five tries
    for wait_ms in [50, 200, 1_000, 2_000, 4_000] {
        bench.subject.pass(Duration::from_millis(wait_ms)).await;
        let before = bench.left_ms("a").await?;
        bench.store.touch(&bench.key("a"), &version).await.map_err(said)?;
        let record = bench.load("a").await?.ok_or("the touched record is gone")?;
        check!(record.version == version && record.value == b"x", "a touch changed the record: {record:?}");
        let after = bench.left_ms("a").await?;
        if after > before {
            // a guard taken before the renewal still holds after it
            let guard = Change::Guard { key: bench.key("a"), expect: Expect::Live(version) };
            return bench.swap(&[guard]).await.map(drop).map_err(said);
        }
        seen.push((before, after));
    }
    Err(format!("a touch does not restart the clock: milliseconds left before and after: {seen:?}"))
}

pub(super) async fn a_touch_is_refused_when_it_comes_too_late(bench: Bench) -> Verdict {
    let touch = async |name: &str, version: &Version| bench.store.touch(&bench.key(name), version).await;
    let nothing = conflict("a touch of nothing", touch("none", &Version::new("1")).await)?;
    check!(nothing.stands.is_none(), "a touch of nothing tells of {:?}", nothing.stands);
    let old = bench.create("a", "1", Some(LONG)).await?;
    let new = bench
        .swap(&[put(&bench.key("a"), Expect::Version(old.clone()), "2", Some(LONG))])
        .await
        .map_err(said)?;
    let stale = conflict("a touch of an old version", touch("a", &old).await)?;
    check!(
        stale.stands.is_some_and(|stands| stands.version == new[0]),
        "the refusal does not tell what stands there"
    );
    let lapsed = bench.create("b", "1", Some(bench.subject.short_ttl())).await?;
    bench.lapse("b").await?;
    let late = conflict("a touch of a lapsed record", touch("b", &lapsed).await)?;
    let standing = late.stands.and_then(|stands| stands.standing);
    check!(matches!(standing, Some(Standing::Lapsed { .. })), "a lapsed record is told as {standing:?}");
    // and it stays lapsed
    bench.lapse("b").await
}

pub(super) async fn a_write_without_a_ttl_takes_the_clock_away(bench: Bench) -> Verdict {
    let held = bench.create("a", "held", Some(bench.subject.short_ttl())).await?;
    let free =
        bench.swap(&[put(&bench.key("a"), Expect::Version(held), "free", None)]).await.map_err(said)?;
    let record = bench.load("a").await?.ok_or("the record is missing")?;
    check!(record.standing.is_none(), "a released lease is {:?}", record.standing);
    let again = put(&bench.key("a"), Expect::Version(free[0].clone()), "held", Some(LONG));
    bench.swap(&[again]).await.map_err(said)?;
    bench.left_ms("a").await.map(drop)
}
