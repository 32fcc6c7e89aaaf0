//! The other half of the mutual watch: K is gone, and its orphans have come to S.
//!
//! S is a subreaper too, so K's death makes every process of the tree that loses its parent a child of S.
//! Which of S's children are these? All but the living keepers of other trees, and all but those that are older
//! than the dead keeper. A child that the caller started by other means *after* it cannot be told apart: a
//! process that wants to keep such children must start them as trees as well.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cgroup::Leaf;
use crate::process::Process;
use crate::procfs::{self, Stat};
use crate::sweep::Sweep;
use crate::sys;

/// The keepers of this process.
static KEEPERS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// Held over the fork, so that no sweep meets a keeper that is not yet on the list.
pub(crate) fn keepers() -> MutexGuard<'static, Vec<i32>> {
    KEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn forget_keeper(pid: i32) {
    keepers().retain(|keeper| *keeper != pid);
}

/// Kill what the dead keeper left to us, and reap it. `true`: nothing was found any more.
pub(crate) fn end(keeper: &Process, leaf: Option<&Leaf>) -> bool {
    if let Some(leaf) = leaf {
        leaf.kill();
    }
    if cfg!(not(target_os = "linux")) {
        return true;
    }
    let spare = keepers();
    let me = std::process::id().cast_signed();
    let sweep = Sweep { root: me, signals: &[libc::SIGKILL], spare: &spare, since: keeper.start };
    let alive = sweep.run();
    let mut children = vec![0; 4096];
    let threads = Stat::read(me).map_or(1, |stat| stat.threads);
    let count = procfs::children(me, threads, &mut children).unwrap_or(0);
    children.truncate(count);
    for pid in children {
        let adopted = Stat::read(pid).is_some_and(|stat| stat.parent == me && stat.start >= keeper.start);
        if adopted && !spare.contains(&pid) {
            let _ = sys::wait(pid, libc::WNOHANG | sys::WAIT_ALL);
        }
    }
    alive == 0 && leaf.is_none_or(Leaf::remove)
}
