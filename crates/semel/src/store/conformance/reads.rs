//! Pages, prefixes, values, waiting for a change.

use std::time::Duration;

use semel_core::record::{Expect, RecordKey, VALUE_LIMIT, Version};

use super::{Bench, LONG, Verdict, put, said};
use crate::clock::boottime;
use crate::store::Change;

pub(super) async fn a_load_answers_in_the_order_asked(bench: Bench) -> Verdict {
    for name in ["a", "b", "c"] {
        bench.create(name, name, None).await?;
    }
    let names = ["c", "none", "a", "b", "a"];
    let loaded = bench.store.load(&names.map(|name| bench.key(name))).await.map_err(said)?;
    check!(loaded.records.len() == names.len(), "five keys answered {} records", loaded.records.len());
    for (name, record) in names.iter().zip(&loaded.records) {
        let wanted = Some(bench.key(name)).filter(|_| *name != "none");
        let found = record.as_ref().map(|record| record.key.clone());
        check!(found == wanted, "{found:?} stands where {wanted:?} was asked for");
    }
    Ok(())
}

pub(super) async fn a_scan_pages_in_order(bench: Bench) -> Verdict {
    let prefix = format!("{}/", bench.room);
    check!(
        bench.store.scan(&prefix, None, 10).await.map_err(said)?.is_empty(),
        "a scan of nothing found something"
    );
    // written out of order, and in the order of bytes upper case comes first
    let mut keys = Vec::new();
    for i in 0..25 {
        let name = format!("{}{:02}", if i % 2 == 0 { "k" } else { "K" }, (i * 7) % 25);
        bench.create(&name, &name, Some(LONG).filter(|_| i % 3 == 0)).await?;
        keys.push(bench.key(&name));
    }
    keys.sort();
    let mut found: Vec<RecordKey> = Vec::new();
    loop {
        let page = bench.store.scan(&prefix, found.last(), 10).await.map_err(said)?;
        check!(page.len() <= 10, "a page of at most 10 has {}", page.len());
        if page.is_empty() {
            break;
        }
        for record in page {
            check!(
                bench.key(&String::from_utf8_lossy(&record.value)) == record.key,
                "{} has another's value",
                record.key
            );
            let loaded = bench.store.load(std::slice::from_ref(&record.key)).await.map_err(said)?;
            let same = loaded.records[0].as_ref().is_some_and(|loaded| {
                loaded.version == record.version && loaded.standing.is_some() == record.standing.is_some()
            });
            check!(same, "{} is another in a scan than in a load", record.key);
            found.push(record.key);
        }
        check!(found.len() <= keys.len(), "the pages do not end");
    }
    check!(found == keys, "the pages hold {found:?} instead of {keys:?}");
    let before = RecordKey::from_stored(bench.room.clone());
    let first = bench.store.scan(&prefix, Some(&before), 1).await.map_err(said)?;
    check!(
        first.first().map(|record| &record.key) == keys.first(),
        "a start before the prefix hides its first record"
    );
    Ok(())
}

pub(super) async fn a_prefix_reaches_nothing_else(bench: Bench) -> Verdict {
    let subject = bench.subject.isolated().await?;
    let store = subject.open().await?;
    let names = ["a", "a-b", "a.b", "a/", "a/1", "a/2", "a0", "a_", "b/1", "A/1", "a%2F1", "aa/1"];
    let keys = names.map(|name| RecordKey::from_stored(name.to_owned()));
    for key in &keys {
        let change = put(key, Expect::Absent, "x", None);
        store.swap(&[change], super::Durability::Durable).await.map_err(said)?;
    }
    for prefix in ["a", "a/", "a_", "a%", "b/", "c/", "A", "a/1", ""] {
        let mut wanted: Vec<&str> = names.into_iter().filter(|name| name.starts_with(prefix)).collect();
        wanted.sort_unstable();
        let page = store.scan(prefix, None, 100).await.map_err(said)?;
        let found: Vec<&str> = page.iter().map(|record| record.key.as_str()).collect();
        check!(found == wanted, "prefix {prefix:?} finds {found:?} instead of {wanted:?}");
    }
    let none = store.scan("a", None, 0).await.map_err(said)?;
    check!(none.is_empty(), "a page of at most none has {}", none.len());
    Ok(())
}

/// As long as Semel makes them, alike for most of their length, and found page by page.
pub(super) async fn long_names_keep_their_order(bench: Bench) -> Verdict {
    let subject = bench.subject.isolated().await?;
    let store = subject.open().await?;
    let part = |byte: &str, length: usize| byte.repeat(length);
    let mut names = Vec::new();
    for room in ["x/", "x.y/"] {
        for tail in ["", "!", ".", "/", "/1", "0", "z", "%2F"] {
            names.push(format!("{room}{}{tail}", part("a", 700)));
            names.push(format!("{room}{}{tail}", part("a", 1_450)));
            names.push(format!("{room}{}{tail}", part("b.c/", 360)));
        }
    }
    for name in &names {
        let change = put(&RecordKey::from_stored(name.clone()), Expect::Absent, name, None);
        store.swap(&[change], super::Durability::Durable).await.map_err(said)?;
    }
    names.sort_unstable();
    let prefixes = ["x", "x/", "x.", "x/a", "x/b.c/b", "y"].map(str::to_owned);
    let long = [format!("x/{}", part("a", 1_450)), format!("x.y/{}", part("b.c/", 350)), part("x", 1_500)];
    for prefix in prefixes.into_iter().chain(long) {
        let wanted: Vec<&String> = names.iter().filter(|name| name.starts_with(&prefix)).collect();
        let mut found: Vec<RecordKey> = Vec::new();
        loop {
            let page = store.scan(&prefix, found.last(), 5).await.map_err(said)?;
            check!(
                page.iter().all(|record| record.value == record.key.as_str().as_bytes()),
                "another's value"
            );
            if page.is_empty() {
                break;
            }
            found.extend(page.into_iter().map(|record| record.key));
            check!(found.len() <= names.len(), "a scan does not end");
        }
        let short = prefix.get(..prefix.len().min(20)).unwrap_or_default();
        check!(
            found.iter().map(RecordKey::as_str).eq(wanted.iter().map(|name| name.as_str())),
            "prefix {short:?}: {} of {} long names are found, or in another order",
            found.len(),
            wanted.len()
        );
    }
    Ok(())
}

async fn comes_back(bench: &Bench, name: &str, value: Vec<u8>) -> Verdict {
    let key = bench.key(name);
    let change = Change::Put { key: key.clone(), expect: Expect::Absent, value: value.clone(), ttl: None };
    bench.swap(&[change]).await.map_err(said)?;
    let loaded = bench.reopened().await?.load(name).await?.ok_or("the record is missing")?;
    check!(
        loaded.value == value,
        "{name}: {} bytes came back as {}, or others",
        value.len(),
        loaded.value.len()
    );
    let page = bench.store.scan(key.as_str(), None, 1).await.map_err(said)?;
    check!(page.first().is_some_and(|record| record.value == value), "{name}: a scan hands back other bytes");
    Ok(())
}

pub(super) async fn every_byte_comes_back(bench: Bench) -> Verdict {
    comes_back(&bench, "empty", Vec::new()).await?;
    comes_back(&bench, "all", (0..=255).collect()).await?;
    comes_back(&bench, "nul", vec![0; 3]).await?;
    comes_back(&bench, "lines", b"a\r\nb\n\xff\xfe".to_vec()).await
}

pub(super) async fn a_large_value_comes_back(bench: Bench) -> Verdict {
    let noise = |seed: usize| (0..VALUE_LIMIT).map(|i| ((i * 31 + seed) >> 3) as u8).collect::<Vec<u8>>();
    comes_back(&bench, "large", noise(1)).await?;
    // and shrinks and grows again
    let mut expect = Expect::Version(bench.load("large").await?.ok_or("the record is missing")?.version);
    for value in [b"small".to_vec(), noise(2)] {
        let change = Change::Put { key: bench.key("large"), expect, value: value.clone(), ttl: None };
        let versions = bench.swap(&[change]).await.map_err(said)?;
        expect = Expect::Version(versions[0].clone());
        let loaded = bench.load("large").await?.ok_or("the record is missing")?;
        check!(loaded.value == value, "{} bytes came back as {}, or others", value.len(), loaded.value.len());
    }
    Ok(())
}

/// Every store but a poorly one wakes a waiter far sooner; a loaded machine may not.
const PROMPT: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(60);

pub(super) async fn a_change_wakes_who_waits(bench: Bench) -> Verdict {
    let old = bench.create("a", "1", Some(LONG)).await?;
    let at_once =
        bench.store.changed(&bench.key("a"), Some(&Version::new("another")), WAIT).await.map_err(said)?;
    check!(at_once, "a record that is another already did not wake its waiter");
    for elsewhere in [false, true] {
        // the writer is the waiter's own handle first, then another one
        let writer = if elsewhere { bench.reopened().await? } else { bench.clone() };
        let (name, key) = (format!("b{elsewhere}"), bench.key(&format!("b{elsewhere}")));
        let version = bench.create(&name, "1", None).await?;
        wakes(
            &bench,
            &key,
            Some(&version),
            writer.swap(&[put(&key, Expect::Version(version.clone()), "2", None)]),
        )
        .await?;
        let (name, key) = (format!("c{elsewhere}"), bench.key(&format!("c{elsewhere}")));
        wakes(&bench, &key, None, async {
            writer.create(&name, "1", None).await.map(|_| Vec::new()).map_err(unavailable)
        })
        .await?;
        let version = bench.load(&name).await?.ok_or("the record is missing")?.version;
        let remove = [Change::Remove { key: key.clone(), expect: Expect::Version(version.clone()) }];
        wakes(&bench, &key, Some(&version), writer.swap(&remove)).await?;
    }
    bench.store.touch(&bench.key("a"), &old).await.map_err(said)
}

fn unavailable(why: String) -> crate::store::StoreError {
    crate::store::StoreError::Unavailable(why)
}

async fn wakes(
    bench: &Bench,
    key: &RecordKey,
    version: Option<&Version>,
    write: impl Future<Output = Result<Vec<Version>, crate::store::StoreError>>,
) -> Verdict {
    let begun = boottime();
    let write = async {
        // let the waiter wait first; if it is not so far yet, it finds the record changed, which is right as well
        tokio::time::sleep(Duration::from_millis(20)).await;
        let written = write.await;
        (written, boottime())
    };
    let wait = async {
        let mut woken = bench.store.changed(key, version, WAIT).await;
        // a waiter may be woken for nothing: then it waits again
        while let Ok(true) = woken {
            let record =
                bench.store.load(std::slice::from_ref(key)).await.map_err(said)?.records.pop().flatten();
            if record.map(|record| record.version).as_ref() != version {
                break;
            }
            check!(boottime() - begun < WAIT, "the waiter for {key} is woken again and again, for nothing");
            tokio::task::yield_now().await;
            woken = bench.store.changed(key, version, WAIT).await;
        }
        Ok::<_, String>((woken, boottime()))
    };
    let ((written, at), woken) = tokio::join!(write, wait);
    written.map_err(said)?;
    let (woken, awake) = woken?;
    check!(woken.map_err(said)?, "the waiter for {key} was not woken");
    let took = awake.saturating_sub(at);
    check!(took < PROMPT, "the waiter for {key} woke {took:?} after the change");
    Ok(())
}

pub(super) async fn a_wait_without_a_change_ends(bench: Bench) -> Verdict {
    let version = bench.create("a", "1", Some(LONG)).await?;
    let begun = boottime();
    for (name, version) in [("a", Some(&version)), ("none", None)] {
        let woken =
            bench.store.changed(&bench.key(name), version, Duration::from_millis(60)).await.map_err(said)?;
        let same = bench.load(name).await?.map(|record| record.version).as_ref() == version;
        check!(same, "{name} changed while nobody wrote it");
        check!(!woken || boottime() - begun < PROMPT, "a waiter for {name} was woken for nothing, and late");
    }
    check!(boottime() - begun < PROMPT, "two waits of 60 ms took {:?}", boottime() - begun);
    Ok(())
}
