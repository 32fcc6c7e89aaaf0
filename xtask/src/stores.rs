//! The end-to-end suite on every store: the same tests, the same binary, another address.
//!
//! Each store gets one private server; each test a corner of its own in it. Left out are tests of what is SQLite's own
//! (its files, its syncs, full disks) and those that never come to a store.

use semel_testkit::{Azurite, Etcd, Moto, NatsVersion, OnDisk, PgServer, Redis, nats};

use crate::tools::{call, cargo};

/// The stores, by the names that `--store` takes.
pub(crate) const STORES: [&str; 8] = ["postgres", "redis", "etcd", "nats", "dir", "s3", "az", "gs"];

/// What every store is tried with in `cargo xtask test`: one of each kind, so that all of it takes minutes.
const SHORT: &str = "test(/^once::|^overlap::|^leases::|^doubt::|^steps::|^batch::/) or test(/^write::(it_writes|a_lease_that|a_zombie_that_wakes)|^push::(the_current|a_stale_token|in_a_run)|^watching::(first_of_a_kind|missed_and|a_check_finds)|^plan::(a_retry_gets|two_that_race)|^retry::what_is_quarantined|^stall::stopped_with/)";

/// The same where each request takes long: the servers that stand for object stores answer one at a time, so no crowds
/// meet there.
const SHORTEST: &str = "(test(/^once::|^doubt::|^steps::(a_|the_)/) and not test(/thirty_/)) or test(/^write::it_writes|^push::the_current|^watching::a_check_finds/)";

/// And of a second service by the same driver, which differs in its requests alone.
const FEWEST: &str = "test(/^once::|^write::it_writes/) and not test(/thirty_/)";

/// What a whole pass is: `cargo xtask test --store NAME`.
const WHOLE: &str = "test(/^(once|overlap|crash|doubt|stall|signals|failures|payload|steps|steps_hard|matrix|plan|write|push|schedule|retry|batch|batch_kills|batch_streams|leases|watching|history|advise|rehearsal|catch_up|year)::/)";

/// Tests of the file of the ledger: that it is missing, taken away, or may not grow.
const OF_FILES: &str = "test(/why_a_slot_was_missed_is_known|what_makes_no_sense_is_refused|a_limit_on_the_size_of_files|fifty_first_starts|the_fence_refuses_what_a_store/)";

/// A server, for as long as it is needed.
pub(crate) struct Started {
    _server: Box<dyn std::any::Any>,
    pub(crate) address: String,
    variables: Vec<(&'static str, String)>,
}

fn started<S: 'static>(server: S, address: String, variables: &[(&'static str, &str)]) -> Started {
    let variables = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Started { _server: Box::new(server), address, variables }
}

/// Start it; `{}` in its address stands for a corner of its own.
pub(crate) fn start(store: &str) -> Result<Started, String> {
    let with =
        |url: &str, option: &str| format!("{url}{}{option}", if url.contains('?') { '&' } else { '?' });
    Ok(match store {
        "postgres" => {
            let server = PgServer::start();
            let url = with(&server.url(), "schema={}");
            started(server, url, &[])
        }
        "redis" => {
            let server = Redis::start();
            let url = with(&server.url(), "prefix={}");
            started(server, url, &[])
        }
        "etcd" => {
            let server = Etcd::start();
            let url = server.url("{}");
            started(server, url, &[])
        }
        "nats" => {
            let server = nats(NatsVersion::Recent, "");
            let url = format!("nats://{}/{{}}", server.address(0));
            started(server, url, &[])
        }
        "dir" => {
            let folder = tempfile::tempdir().map_err(|why| why.to_string())?;
            let url = format!("dir:{}/{{}}", folder.path().display());
            started(folder, url, &[])
        }
        "s3" => {
            let server = Moto::start();
            let url = server.url("{}");
            started(server, url, &Moto::VARIABLES)
        }
        "az" => {
            let server = Azurite::start();
            let url = server.url("{}");
            started(server, url, &Azurite::VARIABLES)
        }
        "gs" => {
            let server = OnDisk::start();
            let url = OnDisk::gs_url_at(server.0.address(0), "{}");
            started(server, url, &[])
        }
        other => return Err(format!("there is no store {other:?} to test: use {}", STORES.join(", "))),
    })
}

/// The suite on these stores, each whatever the others came to.
pub(crate) fn test_all(stores: &[&str], is_whole: bool, more: &[String]) -> Result<(), String> {
    let tested: Vec<Result<(), String>> = stores.iter().map(|store| test(store, is_whole, more)).collect();
    let faults: Vec<String> = tested.into_iter().filter_map(Result::err).collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The suite on one store: whole, or as short as every store is tried with.
fn test(store: &str, is_whole: bool, more: &[String]) -> Result<(), String> {
    let started = start(store)?;
    let some = match store {
        _ if is_whole => WHOLE,
        "s3" | "az" => SHORTEST,
        "gs" => FEWEST,
        _ => SHORT,
    };
    let filter = format!("({some}) and not {OF_FILES}");
    println!("the end-to-end suite on {store}");
    let mut nextest = cargo();
    nextest.args(["nextest", "run", "--workspace", "--all-features", "--no-fail-fast"]);
    nextest.args(["-E", &format!("binary(e2e) and {filter}")]).args(more);
    if matches!(store, "s3" | "az" | "gs") {
        nextest.args(["--test-threads", "1"]);
    }
    nextest.env("E2E_STORE", &started.address).env("SEMEL_SERVERS", crate::servers::folder());
    for (name, value) in &started.variables {
        nextest.env(format!("E2E_VAR_{name}"), value);
    }
    call(&mut nextest).map_err(|why| format!("on {store}: {why}"))
}
