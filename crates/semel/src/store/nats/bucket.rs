//! The bucket: a stream that keeps the last message of each subject, and what is asked of it.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{HeaderMap, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use semel_core::record::{Standing, Version};
use serde::Deserialize;
use serde_json::json;

use super::address::Address;
use super::link::{ApiError, Fault, Link, NOBODY};
use super::subject::Subjects;

/// The write came too late: another message stands there.
pub(super) const WRONG_LAST_SEQUENCE: u64 = 10071;
/// The same, said by a cluster while the other message is still under way.
const WRONG_LAST_SEQUENCE_YET: u64 = 10164;
/// The write before it in the same swap is not the last message of the stream.
pub(super) const WRONG_LAST_ID: u64 = 10070;
const NO_STREAM: u64 = 10059;
const NAME_IN_USE: u64 = 10058;
/// Another stream has these subjects; also said to who comes second while the first is still at it.
const SUBJECTS_OVERLAP: u64 = 10065;

/// How long who finds nobody listening waits before it asks again: twice as long each time, four seconds in all.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LAST_PAUSE: Duration = Duration::from_secs(4);

/// Headers of ours.
pub(super) const VERSION: &str = "Semel-Version";
pub(super) const FIRST: &str = "Semel-First";
pub(super) const TTL: &str = "Semel-Ttl-Us";
/// What other clients of such buckets read of a removed record.
pub(super) const OPERATION: &str = "KV-Operation";
pub(super) const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
pub(super) const ID: &str = "Nats-Msg-Id";
pub(super) const EXPECTED_ID: &str = "Nats-Expected-Last-Msg-Id";

/// The stream of a bucket, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stream {
    pub(super) config: Config,
    #[serde(default)]
    pub(super) cluster: Option<Cluster>,
    /// When the server said this; not from 2.9.
    #[serde(default)]
    ts: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    pub(super) subjects: Vec<String>,
    pub(super) retention: String,
    pub(super) storage: String,
    pub(super) discard: String,
    pub(super) num_replicas: usize,
    pub(super) max_msgs: i64,
    pub(super) max_bytes: i64,
    pub(super) max_age: i64,
    pub(super) max_msg_size: i64,
    pub(super) max_msgs_per_subject: i64,
    pub(super) allow_direct: bool,
    pub(super) deny_purge: bool,
}

impl Config {
    /// May who has the record be asked, whoever it is?
    fn has_one_copy(&self) -> bool {
        self.allow_direct && self.num_replicas <= 1
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) replicas: Vec<Peer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Peer {
    pub(super) current: bool,
    pub(super) offline: bool,
}

/// A bucket on a connection.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) link: Link,
    pub(super) stream: String,
    /// May any server that has a copy answer? Only where there is one copy.
    direct: AtomicBool,
}

/// The last message of a subject.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) seq: u64,
    pub(super) version: Version,
    pub(super) value: Vec<u8>,
    pub(super) is_removed: bool,
    pub(super) ttl_us: Option<i64>,
    time_us: i64,
}

impl Found {
    /// The mark of a removal that has lain there for so long.
    pub(super) fn is_mark_older_than(&self, age: Duration, now_us: i64) -> bool {
        let us = u64::try_from(now_us.saturating_sub(self.time_us)).unwrap_or(0);
        self.is_removed && Duration::from_micros(us) >= age
    }

    /// What the server's clock says of it.
    pub(super) fn standing(&self, now_us: i64) -> Option<Standing> {
        let ttl = self.ttl_us?;
        // a message that came after the server was asked for the time
        let age = now_us.saturating_sub(self.time_us).max(0);
        Some(match ttl.saturating_sub(age) {
            // rounded up: whoever waits so long finds it lapsed
            left @ 1.. => Standing::Live { left_ms: u64::try_from((left - 1) / 1000 + 1).unwrap_or(0) },
            over => Standing::Lapsed { for_ms: u64::try_from(over.saturating_neg() / 1000).unwrap_or(0) },
        })
    }
}

impl Bucket {
    /// The bucket of this address, made if it is missing.
    pub(super) async fn open(link: Link, address: &Address) -> Result<Bucket, Fault> {
        let stream = format!("KV_{}", address.bucket);
        let found: Result<Stream, Fault> = link.api(&format!("STREAM.INFO.{stream}"), &json!(null)).await;
        let found = match found {
            Err(Fault::Rejected { code: NO_STREAM, .. }) => Bucket::make(&link, &stream, address).await?,
            other => other?,
        };
        usable(&found.config, &address.bucket).map_err(Fault::rejected)?;
        let direct = AtomicBool::new(found.config.has_one_copy());
        Ok(Bucket { link, stream, direct })
    }

    /// Many may do so at once: the one that comes first makes it, and the others find it made.
    async fn make(link: &Link, stream: &str, address: &Address) -> Result<Stream, Fault> {
        let config = json!({
            "name": stream,
            "subjects": [Subjects::of(&address.bucket).all()],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": address.replicas,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msg_size": -1,
            "max_msgs_per_subject": 1,
            // the shortest: ids only chain the writes of one swap
            "duplicate_window": 100_000_000,
            "allow_direct": true,
            "allow_rollup_hdrs": true,
            "deny_delete": true,
            "deny_purge": false,
        });
        let bucket = &address.bucket;
        let (code, why) = match link.api(&format!("STREAM.CREATE.{stream}"), &config).await {
            Err(Fault::Rejected { code, why }) => (code, why),
            other => return other,
        };
        let mut pause = FIRST_PAUSE;
        while matches!(code, NAME_IN_USE | SUBJECTS_OVERLAP) && pause < LAST_PAUSE {
            match link.api(&format!("STREAM.INFO.{stream}"), &json!(null)).await {
                // the first is still at it, or the subjects are another stream's
                Err(Fault::Rejected { code: NO_STREAM, .. }) => {}
                found => return found,
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2);
        }
        let why = format!("there is no bucket {bucket}, and it cannot be made: {why}");
        Err(Fault::Rejected { code, why })
    }

    pub(super) async fn stream(&self) -> Result<Stream, Fault> {
        self.link.api(&format!("STREAM.INFO.{}", self.stream), &json!(null)).await
    }

    /// What time the server has, in microseconds since 1970.
    pub(super) async fn now_us(&self) -> Result<i64, Fault> {
        if self.link.is_at_least((2, 10)) {
            // by the server that leads the stream, whose clock stamps its messages
            let stream = self.stream().await?;
            // somebody may give the stream more copies while we use it
            self.direct.store(stream.config.has_one_copy(), Ordering::Relaxed);
            return time_us(stream.ts.as_deref().unwrap_or_default());
        }
        let answer = self.link.ask("$SYS.REQ.ACCOUNT.PING.STATZ", None, Vec::new()).await.map_err(|why| match why {
            Fault::Rejected { code, .. } => Fault::Rejected {
                code,
                why: "the server does not tell the time: let this user publish to $SYS.REQ.ACCOUNT.PING.STATZ, \
                      or use NATS 2.10 or later"
                    .to_owned(),
            },
            other => other,
        })?;
        let said: Statz = serde_json::from_slice(&answer.payload)
            .map_err(|why| Fault::NoAnswer(format!("the server's time cannot be read: {why}")))?;
        time_us(&said.server.time)
    }

    /// The last message of a subject.
    pub(super) async fn get(&self, subject: &str) -> Result<Option<Found>, Fault> {
        let body = json!({ "last_by_subj": subject });
        if !self.direct.load(Ordering::Relaxed) {
            return self.get_from_leader(&body).await;
        }
        let place = format!("$JS.API.DIRECT.GET.{}", self.stream);
        let message = self.ask(&place, None, body.to_string().into_bytes()).await?;
        let status = message.status.map(|status| status.as_u16());
        match status {
            None => {}
            Some(404) => return Ok(None),
            Some(other) => {
                let why = message.description.unwrap_or_default();
                return Err(Fault::rejected(format!("the record cannot be read: {other} {why}")));
            }
        }
        let headers = message.headers.unwrap_or_default();
        let seq = number(&headers, "Nats-Sequence");
        let time = text(&headers, "Nats-Time-Stamp");
        found(&headers, seq, time_us(time)?, message.payload.to_vec()).map(Some)
    }

    /// Where there are several copies, only the leader's is sure to be the last.
    async fn get_from_leader(&self, body: &serde_json::Value) -> Result<Option<Found>, Fault> {
        const NO_MESSAGE: u64 = 10037;
        let place = format!("STREAM.MSG.GET.{}", self.stream);
        let stored: Stored = match self.link.api(&place, body).await {
            Err(Fault::Rejected { code: NO_MESSAGE, .. }) => return Ok(None),
            other => other?,
        };
        let damaged = || Fault::NoAnswer("a message cannot be read".to_owned());
        let value = STANDARD.decode(&stored.message.data).map_err(|_| damaged())?;
        let headers = STANDARD.decode(&stored.message.hdrs).map_err(|_| damaged())?;
        let headers = headers_of(&String::from_utf8_lossy(&headers));
        found(&headers, stored.message.seq, time_us(&stored.message.time)?, value).map(Some)
    }

    /// Ask who keeps the stream. A server tells of a stream a moment before it listens for it, and nobody listens while a
    /// cluster chooses who leads it: as long as there is a stream, it is asked again. Nothing was done until then.
    async fn ask(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Vec<u8>,
    ) -> Result<Message, Fault> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.link.ask(subject, headers.clone(), payload.clone()).await {
                Err(Fault::Rejected { code: NOBODY, why }) if pause < LAST_PAUSE => {
                    if let Err(Fault::Rejected { code: NO_STREAM, .. }) = self.stream().await {
                        return Err(Fault::rejected(why));
                    }
                    tokio::time::sleep(pause).await;
                    pause = pause.saturating_mul(2);
                }
                other => return other,
            }
        }
    }

    /// Write; answers the sequence of the message.
    pub(super) async fn publish(
        &self,
        subject: &str,
        headers: HeaderMap,
        value: Vec<u8>,
    ) -> Result<u64, Fault> {
        let answer = self.ask(subject, Some(headers), value).await?;
        let said: Ack = serde_json::from_slice(&answer.payload)
            .map_err(|why| Fault::NoAnswer(format!("the answer to a write cannot be read: {why}")))?;
        match said.error {
            None if said.seq > 0 => Ok(said.seq),
            None => Err(Fault::NoAnswer("a write was answered without a number".to_owned())),
            Some(ApiError { code, err_code, description }) => {
                let why = format!("the server refused the write: {description}");
                match code {
                    400..500 if err_code == WRONG_LAST_SEQUENCE_YET => {
                        Err(Fault::Rejected { code: WRONG_LAST_SEQUENCE, why })
                    }
                    // wrong as it was asked for: nothing was done
                    400..500 => Err(Fault::Rejected { code: err_code, why }),
                    _ => Err(Fault::NoAnswer(why)),
                }
            }
        }
    }

    /// Give back the space of a removed record: of what was there up to its removal, and of nothing later.
    pub(super) async fn purge(&self, subject: &str, removal: u64) -> Result<(), Fault> {
        let body = json!({ "filter": subject, "seq": removal.saturating_add(1) });
        let _: serde_json::Value = self.link.api(&format!("STREAM.PURGE.{}", self.stream), &body).await?;
        Ok(())
    }

    /// The subjects that pass a filter, from the one at this place on: as many as the server tells at once.
    pub(super) async fn subjects(&self, filter: &str, from: usize) -> Result<Vec<String>, Fault> {
        let body = json!({ "subjects_filter": filter, "offset": from });
        let told: Told = self.link.api(&format!("STREAM.INFO.{}", self.stream), &body).await?;
        Ok(told.state.subjects.unwrap_or_default().into_keys().collect())
    }
}

/// Can records be kept in a stream like this? Somebody else may have made it.
fn usable(config: &Config, bucket: &str) -> Result<(), String> {
    let wrong = |why: &str| {
        Err(format!("the bucket {bucket} cannot be used: {why}; give another name, or let Semel make it"))
    };
    let keeps_all = |limit: i64| limit <= 0;
    if !config.subjects.contains(&Subjects::of(bucket).all()) {
        return wrong("its stream takes other subjects");
    }
    if config.retention != "limits" {
        return wrong("its stream removes what was read");
    }
    if config.max_age != 0 {
        return wrong("its records grow old and vanish (max_age)");
    }
    if config.discard != "new" && !(keeps_all(config.max_msgs) && keeps_all(config.max_bytes)) {
        return wrong("it throws old records away when it is full (discard old)");
    }
    Ok(())
}

#[derive(Deserialize)]
struct Ack {
    #[serde(default)]
    seq: u64,
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct Statz {
    server: StatzServer,
}

#[derive(Deserialize)]
struct StatzServer {
    time: String,
}

#[derive(Deserialize)]
struct Stored {
    message: StoredMessage,
}

#[derive(Deserialize)]
struct StoredMessage {
    seq: u64,
    time: String,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
}

#[derive(Deserialize)]
struct Told {
    state: ToldState,
}

#[derive(Deserialize)]
struct ToldState {
    #[serde(default)]
    subjects: Option<std::collections::BTreeMap<String, u64>>,
}

fn found(headers: &HeaderMap, seq: u64, time_us: i64, value: Vec<u8>) -> Result<Found, Fault> {
    if seq == 0 {
        return Err(Fault::NoAnswer("a message without a number".to_owned()));
    }
    // a touch writes the same record again: its version tells of the first time
    let first = Some(number(headers, FIRST)).filter(|first| *first > 0).unwrap_or(seq);
    Ok(Found {
        seq,
        version: version(text(headers, VERSION), first),
        value,
        is_removed: !text(headers, OPERATION).is_empty(),
        ttl_us: i64::try_from(number(headers, TTL)).ok().filter(|ttl| *ttl > 0),
        time_us,
    })
}

/// A version: what was drawn for it, and where it was first written, which saves a look before the next write.
pub(super) fn version(nonce: &str, first: u64) -> Version {
    Version::new(format!("{nonce}.{first}"))
}

/// What was drawn for a version, and where it was first written.
pub(super) fn parts(version: &Version) -> Option<(&str, u64)> {
    let (nonce, first) = version.as_str().rsplit_once('.')?;
    Some((nonce, first.parse().ok()?))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.as_str())
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    text(headers, name).trim().parse().unwrap_or(0)
}

/// The block of headers of a stored message.
fn headers_of(block: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in block.lines().skip(1).filter_map(|line| line.split_once(':')) {
        if let (Ok(name), Ok(value)) =
            (async_nats::HeaderName::from_str(name), async_nats::HeaderValue::from_str(value.trim()))
        {
            headers.insert(name, value);
        }
    }
    headers
}

fn time_us(text: &str) -> Result<i64, Fault> {
    text.parse::<Timestamp>()
        .map(|time| time.as_microsecond())
        .map_err(|why| Fault::NoAnswer(format!("the server's time cannot be read: {why}")))
}
