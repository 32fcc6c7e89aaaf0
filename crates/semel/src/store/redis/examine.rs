//! What a person should know of the server: what it forgets, and what it does not let us do.

use std::collections::HashMap;

use redis::{Cmd, FromRedisValue, Value};

use super::Redis;
use super::error::{self, Asked, COMMANDS};
use super::script::time_us;
use crate::clock::{Clock, SystemClock, boottime};
use crate::store::{Finding, StoreError};

/// Calls everything that the scripts call, in a form that does nothing, and answers what was refused.
const MAY: &str = "#!lua
local denied = {}
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then denied[#denied + 1] = string.lower((...)) end
end
local nothing, index = KEYS[1] .. 'n', KEYS[1] .. 'i'
try('TIME')
try('GET', nothing)
try('GETRANGE', nothing, 0, 0)
try('SET', nothing, '', 'XX')
try('SETRANGE', nothing, 0, '')
try('DEL', nothing)
try('ZADD', index, 'XX', 0, '')
try('ZREM', index, '')
try('ZRANGEBYLEX', index, '(a', '(a')
try('PUBLISH', nothing, '')
return denied";

/// A clock that is further off than this is worth a word.
const OFFSET_MS: u64 = 1_000;

pub(super) async fn examine(store: &Redis) -> Result<Vec<Finding>, StoreError> {
    let mut found = vec![clock(store).await?];
    match ask::<String>(store, &redis::cmd("INFO")).await {
        Ok(text) => {
            let info = Info::read(&text);
            found.push(version(&info));
            found.push(eviction(&info));
            found.extend(log(&info));
            found.extend(replication(&info));
        }
        Err(why) => found.push(unread("server", "INFO", "+info", &why)),
    }
    found.push(sync(store).await);
    found.extend(permissions(store).await?);
    Ok(found)
}

/// One command, within the deadline.
async fn ask<T: FromRedisValue>(store: &Redis, command: &Cmd) -> Result<T, StoreError> {
    let asking = async {
        let mut connection = store.link().await?.connection();
        command
            .query_async(&mut connection)
            .await
            .map_err(|why| error::answered(&store.place, Asked::Read, &why))
    };
    tokio::time::timeout(store.deadline, asking)
        .await
        .unwrap_or_else(|_| Err(error::too_late(&store.place, Some(Asked::Read), store.deadline)))
}

/// What `INFO` says, by its names; empty where it says nothing.
struct Info<'a>(HashMap<&'a str, &'a str>);

impl<'a> Info<'a> {
    fn read(text: &'a str) -> Info<'a> {
        Info(text.lines().filter_map(|line| line.split_once(':')).collect())
    }

    fn get(&self, name: &str) -> &'a str {
        self.0.get(name).map_or("", |value| value.trim())
    }
}

/// What could not be read, and why: a user who may not is told what to grant.
fn unread(name: &'static str, command: &str, rule: &str, why: &StoreError) -> Finding {
    let why = why.to_string();
    let mend = "look for yourself";
    if why.contains("does not let user") {
        let what = format!("could not be read: this user may not run {command}");
        return Finding::note(name, what, format!("grant {rule}, or {mend}"));
    }
    // a command that the server does not know; scripts, which tell its age, are tried apart
    if why.contains("is too old") {
        let what = format!("could not be read: {command} is switched off, as some services do");
        return Finding::note(name, what, mend);
    }
    Finding::note(name, format!("{command} could not be read: {why}"), mend)
}

fn version(info: &Info<'_>) -> Finding {
    let redis = info.get("redis_version");
    let what = match info.get("valkey_version") {
        "" => format!("Redis {redis}"),
        valkey => format!("Valkey {valkey}"),
    };
    match redis.split('.').next().and_then(|major| major.parse::<u32>().ok()) {
        Some(7..) => Finding::good("version", what),
        _ => Finding::wrong("version", format!("{what} is too old"), "use Redis 7.0 or newer, or Valkey"),
    }
}

fn eviction(info: &Info<'_>) -> Finding {
    let (limit, policy) = (info.get("maxmemory"), info.get("maxmemory_policy"));
    match (limit, policy) {
        (_, "noeviction") => Finding::good(
            "eviction",
            "maxmemory-policy noeviction: a full server refuses, and forgets nothing",
        ),
        // records have no expiry of Redis' own
        (_, policy) if policy.starts_with("volatile") => Finding::good(
            "eviction",
            format!("maxmemory-policy {policy}: records are not among what it evicts"),
        ),
        ("0", policy) => Finding::note(
            "eviction",
            format!("maxmemory-policy {policy}: nothing is evicted while maxmemory is 0"),
            "CONFIG SET maxmemory-policy noeviction",
        ),
        (limit, policy) => Finding::wrong(
            "eviction",
            format!(
                "maxmemory-policy {policy} at {limit} bytes: a full server forgets leases, tokens and outcomes"
            ),
            "CONFIG SET maxmemory-policy noeviction, or use a server of its own",
        ),
    }
}

fn log(info: &Info<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    match info.get("aof_enabled") {
        "1" => found.push(Finding::good("append-only file", "appendonly yes: a restart loses nothing")),
        _ => found.push(Finding::wrong(
            "append-only file",
            "appendonly no: a restart forgets every outcome since the last snapshot",
            "CONFIG SET appendonly yes, and write it into the server's configuration",
        )),
    }
    if info.get("aof_last_write_status") == "err" {
        found.push(Finding::wrong(
            "append-only file",
            "the last write to the append-only file failed",
            "look at the server's log and its disk",
        ));
    }
    found
}

fn replication(info: &Info<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    match (info.get("role"), info.get("connected_slaves")) {
        ("master", "0" | "") => found.push(Finding::good("replication", "a primary without replicas")),
        ("master", many) => found.push(Finding::note(
            "replication",
            format!(
                "a primary with {many} replicas, asynchronous: a failover may forget what was acknowledged"
            ),
            "fence the target; tokens move forward even then. min-replicas-to-write narrows the window",
        )),
        (role, _) => found.push(Finding::wrong(
            "replication",
            format!("a replica (role {role}): it takes no writes"),
            "give the address of the primary",
        )),
    }
    if info.get("cluster_enabled") == "1" {
        found.push(Finding::note(
            "cluster",
            "a node of a cluster: the whole ledger lies in one slot, so on this node",
            "give every ledger a prefix= of its own to spread them over the nodes",
        ));
    }
    found
}

async fn sync(store: &Redis) -> Finding {
    let asked =
        ask::<HashMap<String, String>>(store, redis::cmd("CONFIG").arg("GET").arg("appendfsync")).await;
    let settings = match asked {
        Ok(settings) => settings,
        Err(why) => return unread("sync", "CONFIG", "+config|get", &why),
    };
    match settings.get("appendfsync").map_or("", String::as_str) {
        "always" => Finding::good("sync", "appendfsync always: an answer survives a power cut"),
        "everysec" => Finding::note(
            "sync",
            "appendfsync everysec: an answer survives a kill; a power cut may forget the last two seconds",
            "CONFIG SET appendfsync always",
        ),
        other => Finding::note(
            "sync",
            format!("appendfsync {other}: an answer survives a kill; a power cut may forget half a minute"),
            "CONFIG SET appendfsync always",
        ),
    }
}

async fn clock(store: &Redis) -> Result<Finding, StoreError> {
    let (before, begun) = (SystemClock.wall_ms(), boottime());
    let answer = ask::<Vec<Value>>(store, &redis::cmd("TIME")).await?;
    let took = boottime().saturating_sub(begun);
    let [seconds, micros] = answer.as_slice() else { return Err(store.strange(Asked::Read)) };
    let theirs = time_us(seconds, micros).ok_or_else(|| store.strange(Asked::Read))? / 1000;
    let ours = before + u64::try_from(took.as_millis() / 2).unwrap_or(0);
    let off = theirs.abs_diff(ours);
    let side = if theirs > ours { "ahead of" } else { "behind" };
    if off <= OFFSET_MS {
        return Ok(Finding::good("clock", format!("the server's clock is {off} ms {side} this machine's")));
    }
    Ok(Finding::note(
        "clock",
        format!(
            "the server's clock is {off} ms {side} this machine's: leases are counted by the server's alone"
        ),
        "set both by NTP, and never step the server's clock while leases are held",
    ))
}

async fn permissions(store: &Redis) -> Result<Vec<Finding>, StoreError> {
    let (who, stem) = (store.place.who(), store.names.stem());
    let rule = || format!("ACL SETUSER {who} ~{stem}* &{stem}* {COMMANDS}");
    let asked = redis::cmd("EVAL").arg(MAY).arg(1).arg(stem).to_owned();
    let denied = match ask::<Vec<String>>(store, &asked).await {
        Ok(denied) => denied,
        Err(why) => return Ok(vec![Finding::wrong("permissions", why.to_string(), rule())]),
    };
    let (hints, needed): (Vec<_>, Vec<_>) = denied.iter().partition(|command| *command == "publish");
    let mut found = Vec::new();
    match needed.is_empty() {
        true => found.push(Finding::good("permissions", format!("user {who} may do all that is needed"))),
        false => {
            let list = needed.iter().map(|command| command.as_str()).collect::<Vec<_>>().join(", ");
            found.push(Finding::wrong("permissions", format!("user {who} may not do: {list}"), rule()));
        }
    }
    let channel = format!("{stem}n");
    let listening = async { store.link().await.ok()?.listen(&channel).await.ok() };
    let heard = tokio::time::timeout(store.deadline, listening).await.ok().flatten();
    if !hints.is_empty() || heard.is_none() {
        found.push(Finding::note(
            "wake-up",
            format!("user {who} may not publish and subscribe: those who wait look once a second"),
            rule(),
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_is_told_with_its_reason() {
        let of =
            |why: &str| unread("sync", "CONFIG", "+config|get", &StoreError::Unavailable(why.to_owned()));
        let denied = of("redis at h:1 does not let user x do this: ACL SETUSER x");
        assert!(
            denied.what.contains("may not run CONFIG") && denied.mend.contains("+config|get"),
            "{denied:?}"
        );
        let off = of("redis at h:1 is too old: Redis 7.0 or newer, or Valkey, is needed");
        assert!(off.what.contains("switched off") && !off.mend.contains("grant"), "{off:?}");
        let down = of("redis at h:1 did not answer within 10000 ms");
        assert!(down.what.contains("did not answer") && !down.mend.contains("grant"), "{down:?}");
    }
}
