//! `bench_leases DIR LEASES [TTL_S [PERIODS]]`: what it costs one process to keep so many leases alive.
//!
//! Called by `cargo xtask bench leases`. The leases are acquired evenly over one heartbeat, so that their renewals
//! are as far apart as they can be: renewals that fall together share a commit, and would look cheaper. Then
//! processor time and memory are taken over whole heartbeats. At the end every lease must still be held.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // a bench that cannot go on should say where

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use semel::core::record::{RecordKey, Standing};
use semel::{Held, Semel};
use tokio::sync::watch;
use tokio::task::JoinSet;

fn main() {
    let mut words = std::env::args().skip(1);
    let dir = words.next().unwrap();
    let mut number = |default: u32| words.next().map_or(default, |word| word.parse().unwrap());
    let (leases, ttl_s, periods) = (number(10_000), number(60), number(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(bench(Path::new(&dir), leases, Duration::from_secs(ttl_s.into()), periods));
}

async fn bench(dir: &Path, leases: u32, ttl: Duration, periods: u32) {
    let semel = Semel::sqlite(dir.join(format!("leases-{leases}.db"))).unwrap();
    let empty_kib = status("VmRSS:");
    let heartbeat = ttl / 3;
    let (stop, stopped) = watch::channel(false);
    let (ready, mut all_ready) = tokio::sync::mpsc::unbounded_channel();
    let mut holders = JoinSet::new();
    let began = tokio::time::Instant::now();
    for n in 0..leases {
        tokio::time::sleep_until(began + heartbeat * n / leases).await;
        let (semel, mut stopped, ready) = (semel.clone(), stopped.clone(), ready.clone());
        holders.spawn(async move {
            let lease = semel.lease(&format!("resource-{n}")).ttl(ttl);
            let body = |_| {
                ready.send(()).unwrap();
                let mut stopped = stopped.clone();
                async move { drop(stopped.wait_for(|stop| *stop).await) }
            };
            let held = lease.hold(body).await;
            stopped.mark_unchanged();
            matches!(held, Held::Released(()))
        });
    }
    for _ in 0..leases {
        all_ready.recv().await.unwrap();
    }
    mark("the window begins");
    let (cpu, at, written) = (cpu_s(), Instant::now(), written());
    tokio::time::sleep(heartbeat * periods).await;
    let (cpu_s, wall_s) = (cpu_s() - cpu, at.elapsed().as_secs_f64());
    let (writes, kib) = (written.0.abs_diff(self::written().0), written.1.abs_diff(self::written().1) >> 10);
    mark("the window ends");
    let (rss_kib, descriptors) = (status("VmRSS:"), fs::read_dir("/proc/self/fd").unwrap().count());
    let live = live(&semel, leases).await;
    stop.send(true).unwrap();
    let released = holders.join_all().await.into_iter().filter(|held| *held).count();
    assert_eq!((live, released), (leases as usize, leases as usize), "leases were lost");
    println!(
        "leases {leases} ttl_s {} cpu_percent {:.3} cpu_us_per_renewal {:.1} rss_kib {rss_kib} empty_kib {empty_kib} \
         descriptors {descriptors} writes_per_s {:.1} written_kib_per_s {:.1}",
        ttl.as_secs(),
        cpu_s / wall_s * 100.0,
        cpu_s * 1e6 / f64::from(leases * periods),
        writes as f64 / wall_s,
        kib as f64 / wall_s,
    );
}

/// For whoever traces this process: a call that cannot be missed.
fn mark(what: &str) {
    let _ = fs::metadata(what);
}

/// How many are live by the store's own clock.
async fn live(semel: &Semel, leases: u32) -> usize {
    let mut live = 0;
    let mut after: Option<RecordKey> = None;
    loop {
        let page = semel.engine().store.scan("lease/", after.as_ref(), 500).await.unwrap();
        let Some(last) = page.last() else { return live };
        after = Some(last.key.clone());
        live += page.iter().filter(|record| matches!(record.standing, Some(Standing::Live { .. }))).count();
        assert!(live <= leases as usize);
    }
}

/// Seconds of processor time of this process, both kinds.
fn cpu_s() -> f64 {
    // SAFETY: all zeros is a valid value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the kernel to write to.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) }, 0);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap()
}

/// Calls that wrote, and bytes.
fn written() -> (u64, u64) {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let number =
        |name| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap();
    (number("syscw:"), number("wchar:"))
}
