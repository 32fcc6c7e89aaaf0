//! Conditions, guards, order, all or nothing.

use semel_core::record::{Expect, Version};

use super::{Bench, LONG, Verdict, conflict, put, said};
use crate::store::{Change, Durability, Swaps};

pub(super) async fn a_record_is_created_once(bench: Bench) -> Verdict {
    check!(bench.load("a").await?.is_none(), "a record stands where nothing was written");
    let version = bench.create("a", "first", None).await?;
    let second = bench.swap(&[put(&bench.key("a"), Expect::Absent, "second", None)]).await;
    let conflict = conflict("a second creation", second)?;
    let stands = conflict.stands.ok_or("the refusal does not say what stands there")?;
    check!(stands.value == b"first" && stands.version == version, "the refusal tells of {stands:?}");
    check!(bench.value("a").await?.as_deref() == Some("first"), "the second creation was written");
    Ok(())
}

pub(super) async fn what_is_posted_is_made_on_its_condition(bench: Bench) -> Verdict {
    let key = bench.key("a");
    check!(bench.load("a").await?.is_none(), "a record stands where nothing was written");
    let post = |value: &str| [put(&key, Expect::Absent, value, None)];
    bench.store.post(&post("first")).await.map_err(said)?;
    let other = bench.reopened().await?;
    check!(other.store.changed(&key, None, LONG).await.map_err(said)?, "what was posted is not made");
    check!(other.value("a").await?.as_deref() == Some("first"), "something else was made than was posted");
    // refused, whether anybody is told or not; what the same handle asks next comes after it
    let _ = bench.store.post(&post("second")).await;
    bench.create("b", "later", None).await?;
    check!(bench.value("a").await?.as_deref() == Some("first"), "a post ignored its condition");
    Ok(())
}

pub(super) async fn another_version_is_refused_with_what_stands_there(bench: Bench) -> Verdict {
    let key = bench.key("a");
    let first = bench.create("a", "1", None).await?;
    let second = bench.swap(&[put(&key, Expect::Version(first.clone()), "2", None)]).await.map_err(said)?;
    check!(second.len() == 1 && second[0] != first, "the version did not change with the record: {second:?}");
    let stale = bench.swap(&[put(&key, Expect::Version(first), "3", None)]).await;
    let conflict = conflict("a swap with a stale version", stale)?;
    check!(
        conflict.index == 0 && conflict.key == key,
        "the refusal names {} at {}",
        conflict.key,
        conflict.index
    );
    let stands = conflict.stands.ok_or("the refusal does not say what stands there")?;
    check!(
        stands.value == b"2" && stands.version == second[0] && stands.key == key,
        "it tells of {stands:?}"
    );
    check!(bench.load("a").await? == Some(stands), "a load tells otherwise than the refusal");
    let absent = bench.swap(&[put(&bench.key("none"), Expect::Version(second[0].clone()), "x", None)]).await;
    check!(
        super::conflict("a version of nothing", absent)?.stands.is_none(),
        "the refusal tells of a record that is not there"
    );
    check!(bench.load("none").await?.is_none(), "a refused swap made a record");
    Ok(())
}

/// Where a store makes one change after another, what came before a refusal may stand.
fn in_order(bench: &Bench, name: &str) -> bool {
    bench.store.swaps() == Swaps::InOrder && name != "c"
}

pub(super) async fn a_swap_is_all_or_nothing(bench: Bench) -> Verdict {
    let old = bench.create("b", "old", None).await?;
    let stale = Expect::Version(Version::new("no such version"));
    let changes = |last: Expect| {
        [
            put(&bench.key("a"), Expect::Absent, "new", None),
            put(&bench.key("b"), Expect::Version(old.clone()), "new", None),
            put(&bench.key("c"), last, "new", None),
        ]
    };
    let conflict = conflict("a swap whose last change does not fit", bench.swap(&changes(stale)).await)?;
    check!(conflict.index == 2, "change {} was refused instead of the last", conflict.index);
    for (name, value) in [("a", None), ("b", Some("old")), ("c", None)] {
        check!(
            bench.value(name).await?.as_deref() == value || in_order(&bench, name),
            "a refused swap wrote {name}"
        );
    }
    check!(bench.value("c").await?.is_none(), "the change that was refused is written");
    if bench.store.swaps() == Swaps::InOrder {
        return Ok(());
    }
    let versions = bench.swap(&changes(Expect::Absent)).await.map_err(said)?;
    check!(versions.len() == 3, "three changes answered {} versions", versions.len());
    for (name, version) in ["a", "b", "c"].iter().zip(&versions) {
        let record = bench.load(name).await?.ok_or_else(|| format!("{name} is missing"))?;
        check!(
            record.value == b"new" && record.version == *version,
            "{name} is {record:?}, not at {version:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_record_that_comes_twice_in_a_swap_is_refused(bench: Bench) -> Verdict {
    let version = bench.create("a", "a", None).await?;
    let expect = || Expect::Version(version.clone());
    let twice = ["b", "c"].map(|value| put(&bench.key("a"), expect(), value, None));
    conflict("the same version twice", bench.swap(&twice).await)?;
    let created = ["b", "c"].map(|value| put(&bench.key("n"), Expect::Absent, value, None));
    conflict("two creations of one record", bench.swap(&created).await)?;
    check!(bench.value("a").await?.as_deref() != Some("c"), "the second was written over the first");
    check!(bench.value("n").await?.as_deref() != Some("c"), "the second was created over the first");
    Ok(())
}

pub(super) async fn the_first_refusal_is_the_one_told(bench: Bench) -> Verdict {
    bench.create("b", "b", None).await?;
    bench.create("c", "c", None).await?;
    let changes = ["a", "b", "c"].map(|name| put(&bench.key(name), Expect::Absent, "x", None));
    let conflict = conflict("a swap with two misfits", bench.swap(&changes).await)?;
    check!(
        conflict.index == 1 && conflict.key == bench.key("b"),
        "{} at {} was told",
        conflict.key,
        conflict.index
    );
    Ok(())
}

pub(super) async fn guards_hold_and_write_nothing(bench: Bench) -> Verdict {
    let lease = bench.create("lease", "held", Some(LONG)).await?;
    let guard = |expect: Expect| Change::Guard { key: bench.key("lease"), expect };
    let entry = |name: &str| put(&bench.key(name), Expect::Absent, "entry", None);
    for (name, expect) in [("a", Expect::Version(lease.clone())), ("b", Expect::Live(lease.clone()))] {
        let versions = bench.swap(&[guard(expect), entry(name)]).await.map_err(said)?;
        check!(
            versions.len() == 2 && versions[0] == lease,
            "a guard answered {versions:?} instead of {lease:?}"
        );
    }
    let other = Version::new("no such version");
    for expect in
        [Expect::Version(other.clone()), Expect::Live(other), Expect::Lapsed(lease.clone()), Expect::Absent]
    {
        let answer = bench.swap(&[guard(expect.clone()), entry("c")]).await;
        let conflict = conflict(&format!("a swap guarded by {expect:?}"), answer)?;
        check!(conflict.index == 0 && conflict.stands.is_some(), "{expect:?}: the refusal is {conflict:?}");
    }
    check!(bench.load("c").await?.is_none(), "a guard that does not hold let a write through");
    let nothing = Change::Guard { key: bench.key("nothing"), expect: Expect::Absent };
    bench.swap(&[nothing, entry("d")]).await.map_err(said)?;
    check!(bench.load("nothing").await?.is_none(), "a guard made a record");
    let stands = bench.load("lease").await?.ok_or("the guarded record is gone")?;
    check!(stands.version == lease && stands.value == b"held", "a guard changed its record: {stands:?}");
    // a guard may come last, too: nothing before it is written if it does not hold
    let late = [entry("e"), guard(Expect::Absent)];
    check!(
        super::conflict("a late guard", bench.swap(&late).await)?.index == 1,
        "a late guard is not the one told"
    );
    check!(
        bench.load("e").await?.is_none() || in_order(&bench, "e"),
        "a late guard did not hold back the write before it"
    );
    Ok(())
}

pub(super) async fn a_version_never_comes_back(bench: Bench) -> Verdict {
    let key = bench.key("a");
    let mut versions = Vec::new();
    for _ in 0..8 {
        // the same bytes each time: a version is not a hash of them
        let version = bench.create("a", "same", None).await?;
        check!(!versions.contains(&version), "version {version:?} came back after a removal");
        for old in &versions {
            let stale = bench.swap(&[put(&key, Expect::Version(Version::clone(old)), "x", None)]).await;
            conflict("a version of before a removal", stale)?;
        }
        let remove = Change::Remove { key: key.clone(), expect: Expect::Version(version.clone()) };
        bench.swap(&[remove]).await.map_err(said)?;
        versions.push(version);
    }
    let first = bench.create("b", "same", None).await?;
    let again = bench.swap(&[put(&bench.key("b"), Expect::Version(first.clone()), "same", None)]).await;
    check!(again.map_err(said)? != [first], "writing the same bytes again left the version as it was");
    Ok(())
}

pub(super) async fn an_empty_swap_is_nothing(bench: Bench) -> Verdict {
    let versions = bench.swap(&[]).await.map_err(said)?;
    check!(versions.is_empty(), "no change answered {versions:?}");
    let loaded = bench.store.load(&[]).await.map_err(said)?;
    check!(loaded.records.is_empty(), "a load of nothing answered {} records", loaded.records.len());
    Ok(())
}

pub(super) async fn a_removal_is_conditional(bench: Bench) -> Verdict {
    let version = bench.create("a", "a", None).await?;
    let remove = |expect| [Change::Remove { key: bench.key("a"), expect }];
    conflict(
        "a removal of another version",
        bench.swap(&remove(Expect::Version(Version::new("other")))).await,
    )?;
    check!(bench.load("a").await?.is_some(), "a refused removal was made");
    let answer = bench.swap(&remove(Expect::Version(version.clone()))).await.map_err(said)?;
    check!(answer == [version.clone()], "a removal answered {answer:?} instead of {version:?}");
    check!(bench.load("a").await?.is_none(), "a removed record still stands there");
    conflict("a second removal", bench.swap(&remove(Expect::Version(version))).await)?;
    Ok(())
}

pub(super) async fn relaxed_and_durable_swaps_keep_order(bench: Bench) -> Verdict {
    let mut expect = Expect::Absent;
    for (i, durability) in [Durability::Relaxed, Durability::Durable].into_iter().cycle().take(8).enumerate()
    {
        let change = put(&bench.key("a"), expect, &i.to_string(), None);
        let mut versions = bench.store.swap(&[change], durability).await.map_err(said)?;
        expect = Expect::Version(versions.pop().ok_or("a swap answered no version")?);
        let elsewhere = bench.reopened().await?;
        check!(
            elsewhere.value("a").await? == Some(i.to_string()),
            "a {durability:?} swap is not seen by another handle"
        );
    }
    Ok(())
}
