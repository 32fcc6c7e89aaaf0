//! What `semel doctor` is told of a bucket.

use semel_core::record::VALUE_LIMIT;

use super::bucket::{Config, Stream};
use super::link::Link;
use super::{Failure, Nats};
use crate::clock::{Clock, SystemClock};
use crate::store::Finding;

/// What a record has beside its value.
const HEADERS: usize = 8 * 1024;
/// More than this, and people read times that confuse them.
const OFFSET_MS: i64 = 2_000;

impl Nats {
    pub(super) async fn examine_now(&self) -> Result<Vec<Finding>, Failure> {
        let bucket = self.bucket().await?;
        let before = SystemClock.wall_ms();
        let now_us = bucket.now_us().await.map_err(Failure::of_read)?;
        let after = SystemClock.wall_ms();
        let stream = bucket.stream().await.map_err(Failure::of_read)?;
        let link = &bucket.link;
        Ok(vec![
            Finding::good("server", format!("NATS {} at {}", link.info.version, self.address.place())),
            storage(&stream.config),
            sync(link, &stream.config),
            replicas(&stream),
            payload(link, &stream.config),
            history(&stream.config),
            Finding::note("swap", "one record after the other: a crash may leave the first of them", ""),
            clock(now_us / 1000, before, after, link),
        ])
    }
}

fn storage(config: &Config) -> Finding {
    match config.storage.as_str() {
        "file" => Finding::good("storage", "files"),
        _ => Finding::wrong(
            "storage",
            "the bucket lies in memory: a restart of the server forgets everything",
            "make a bucket with storage file, or let Semel make it",
        ),
    }
}

fn sync(link: &Link, config: &Config) -> Finding {
    let has_copies = config.num_replicas > 1;
    if link.is_at_least((2, 10)) {
        return Finding::note(
            "sync",
            "a client cannot see whether the server syncs each write",
            "set sync_interval: always in the server's jetstream block, else a power cut may lose two minutes",
        );
    }
    let what =
        format!("NATS {} syncs every two minutes: a power cut may lose what was answered", link.info.version);
    let mend = "use NATS 2.10 or later with sync_interval: always";
    match has_copies {
        true => Finding::note("sync", format!("{what}, on all replicas at once"), mend),
        false => Finding::wrong("sync", what, mend),
    }
}

fn replicas(stream: &Stream) -> Finding {
    let wanted = stream.config.num_replicas.max(1);
    let cluster = stream.cluster.as_ref();
    let behind = cluster
        .map_or(0, |cluster| cluster.replicas.iter().filter(|peer| peer.offline || !peer.current).count());
    let name = cluster.map(|cluster| cluster.name.as_str()).filter(|name| !name.is_empty());
    match (wanted, name) {
        (1, None) => Finding::note(
            "replicas",
            "one server keeps the records",
            "make the bucket with replicas=3 on a cluster",
        ),
        (1, Some(name)) => Finding::note(
            "replicas",
            format!("one server of the cluster {name} keeps the records"),
            "raise the replicas of the stream to 3",
        ),
        (many, _) if behind > 0 => Finding::note(
            "replicas",
            format!("{many}, of which {behind} are offline or behind"),
            "see to the servers that are missing",
        ),
        (many, _) => Finding::good("replicas", format!("{many}, all current")),
    }
}

fn payload(link: &Link, config: &Config) -> Finding {
    let needed = VALUE_LIMIT + HEADERS;
    let largest = usize::try_from(config.max_msg_size).ok().filter(|size| *size > 0);
    let takes = largest.map_or(link.info.max_payload, |largest| largest.min(link.info.max_payload));
    match takes >= needed {
        true => Finding::good("size", format!("takes messages of {takes} bytes")),
        false => Finding::wrong(
            "size",
            format!("takes messages of {takes} bytes; the largest record needs {needed}"),
            "raise max_payload of the server and max_msg_size of the stream to 1MB",
        ),
    }
}

fn history(config: &Config) -> Finding {
    if config.deny_purge {
        return Finding::note(
            "space",
            "removed records leave a mark for ever: the stream denies purge",
            "make a bucket without deny_purge",
        );
    }
    match config.max_msgs_per_subject {
        1 => Finding::good("space", "the last version of each record is kept"),
        _ => Finding::note(
            "space",
            "old versions are kept as well",
            "set max_msgs_per_subject of the stream to 1",
        ),
    }
}

fn clock(server_ms: i64, before: u64, after: u64, link: &Link) -> Finding {
    let ours = i64::try_from(before / 2 + after / 2).unwrap_or(i64::MAX);
    let offset = server_ms.saturating_sub(ours);
    let who = match link.is_at_least((2, 10)) {
        true => "the server that leads the bucket",
        false => "a server of the account",
    };
    match offset.abs() <= OFFSET_MS {
        true => Finding::good("clock", format!("{who} is {offset} ms from this machine")),
        false => Finding::note(
            "clock",
            format!("{who} is {offset} ms from this machine; leases go by the server's"),
            "set both clocks by NTP",
        ),
    }
}
