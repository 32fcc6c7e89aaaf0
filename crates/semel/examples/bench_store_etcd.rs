//! What the etcd driver costs over the bare transactions: claim + settle, two swaps of two records each, by 1 and by 16
//! tasks, in turns with a client that sends the same bytes and nothing else. `cargo run --release -p semel --features
//! etcd --example bench_store_etcd`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prost::{Message, Oneof};
use semel::core::record::{Expect, RecordKey, Version};
use semel::store::{self, Change, Durability, Settings, Store};
use semel_testkit::{Etcd, Ratio, median};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Op>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<Op>,
}

#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, tag = "6")]
    mod_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Op {
    #[prost(oneof = "Which", tags = "1, 2, 3")]
    which: Option<Which>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Which {
    #[prost(message, tag = "1")]
    Range(Key),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Key),
}

#[derive(Clone, PartialEq, Message)]
struct Key {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

/// An answer that nobody reads.
#[derive(Clone, PartialEq, Message)]
struct Nothing {}

const VALUE: usize = 300;

async fn ask<Q: Message + 'static, A: Message + Default + 'static>(
    channel: &Channel,
    path: &'static str,
    ask: Q,
) -> A {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = Uri::from_static(path).into_parts().path_and_query.unwrap();
    grpc.unary(tonic::Request::new(ask), path, ProstCodec::<Q, A>::default()).await.unwrap().into_inner()
}

fn op(which: Which) -> Op {
    Op { which: Some(which) }
}

/// Claims and settlements by hand, of one record of its own.
async fn bare(channel: Channel, name: String, until: Instant) -> u64 {
    let id = i64::try_from(getrandom() >> 2).unwrap();
    let _: Nothing = ask(&channel, "/etcdserverpb.Lease/LeaseGrant", Lease { ttl: 60, id }).await;
    let key = |kind: &str, what: &str| format!("bench/{kind}/{what}/{name}").into_bytes();
    let (lease, mark) = (key("r", "lease"), key("a", "lease"));
    let (mut at, mut many) = (0, 0);
    while Instant::now() < until {
        let entry = key("r", &format!("entry/{many:08}"));
        let compare = |key: &Vec<u8>, mod_revision| Compare { target: 2, key: key.clone(), mod_revision };
        let put = |key: &Vec<u8>, head: usize, lease| {
            op(Which::Put(Put { key: key.clone(), value: vec![b'x'; head], lease }))
        };
        let range = |key: &Vec<u8>| op(Which::Range(Key { key: key.clone() }));
        let looks = || vec![range(&lease), range(&mark), range(&entry)];
        let claim = Txn {
            compare: vec![compare(&lease, at), compare(&entry, 0)],
            success: vec![put(&lease, VALUE + 9, 0), put(&mark, 0, id), put(&entry, VALUE + 1, 0)],
            failure: looks(),
        };
        let answer: Answer = ask(&channel, "/etcdserverpb.KV/Txn", claim).await;
        assert!(answer.succeeded);
        let held = answer.header.unwrap().revision;
        let settle = Txn {
            compare: vec![compare(&entry, held), compare(&lease, held)],
            success: vec![
                put(&entry, VALUE + 1, 0),
                put(&lease, VALUE + 1, 0),
                op(Which::Delete(Key { key: mark.clone() })),
            ],
            failure: looks(),
        };
        let answer: Answer = ask(&channel, "/etcdserverpb.KV/Txn", settle).await;
        assert!(answer.succeeded);
        at = answer.header.unwrap().revision;
        many += 1;
    }
    many
}

/// The same through the driver.
async fn ours(store: Arc<dyn Store>, name: String, until: Instant) -> u64 {
    let put = |name: String, expect: Expect, ttl: Option<Duration>| Change::Put {
        key: RecordKey::from_stored(name),
        expect,
        value: vec![b'x'; VALUE],
        ttl,
    };
    let lease = format!("lease/{name}");
    let (mut at, mut many): (Option<Version>, u64) = (None, 0);
    while Instant::now() < until {
        let entry = format!("entry/{many:08}/{name}");
        let free = at.map_or(Expect::Absent, Expect::Version);
        let claim = [
            put(lease.clone(), free, Some(Duration::from_secs(60))),
            put(entry.clone(), Expect::Absent, None),
        ];
        let mut held = store.swap(&claim, Durability::Durable).await.unwrap();
        let (running, taken) = (held.remove(1), held.remove(0));
        let settle =
            [put(entry, Expect::Version(running), None), put(lease.clone(), Expect::Version(taken), None)];
        at = store.swap(&settle, Durability::Durable).await.unwrap().pop();
        many += 1;
    }
    many
}

fn getrandom() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// How long a turn is, and how many there are of each.
const TURN: Duration = Duration::from_millis(700);
const TURNS: u32 = 8;

async fn compare(tasks: u64, url: &str, channel: &Channel) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let store = store::open(url, &Settings::default()).unwrap();
    let mut rates: [Vec<f64>; 2] = Default::default();
    for turn in 0..TURNS * 2 {
        // a, b, b, a: so that a server that grows slower is slower for both
        let is_ours = matches!(turn % 4, 0 | 3);
        let until = Instant::now() + TURN;
        let crowd: Vec<_> = (0..tasks)
            .map(|_| {
                let name = format!("{:012}", NEXT.fetch_add(1, Ordering::Relaxed));
                match is_ours {
                    true => tokio::spawn(ours(Arc::clone(&store), name, until)),
                    false => tokio::spawn(bare(channel.clone(), name, until)),
                }
            })
            .collect();
        let mut sum = 0;
        for task in crowd {
            sum += task.await.unwrap();
        }
        rates[usize::from(is_ours)].push(sum as f64 / TURN.as_secs_f64());
    }
    let [bare, ours] = &rates;
    println!(
        "claim + settle, {tasks} tasks: ours {:.0}/s, bare {:.0}/s, {}",
        median(ours),
        median(bare),
        Ratio::new(ours, bare)
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Etcd::start();
    let channel = Endpoint::from_shared(format!("http://{}", server.address()))
        .unwrap()
        .tcp_nodelay(true)
        .connect()
        .await
        .unwrap();
    for tasks in [1, 16] {
        compare(tasks, &server.url("bench"), &channel).await;
    }
}
