//! Who holds a lease.
//!
//! Never a bare pid: pids are reused, and mean nothing on another machine or in another namespace. Where host,
//! boot and pid namespace are all ours, a process that is gone is known to be gone; from anywhere else nothing
//! is concluded, and the lease's clock decides.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A process, told apart from every other process on every machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The host's name, for people.
    pub host: String,
    /// The kernel's boot id: a reboot makes every process of before another one.
    pub boot: String,
    /// The pid namespace's id, within which `pid` has a meaning.
    pub pidns: u64,
    /// The process id.
    pub pid: i32,
    /// When the process started, in the kernel's ticks since boot: tells a reused pid from the first.
    pub start: u64,
}

impl Owner {
    /// May we conclude anything from the process table that `me` sees?
    pub fn is_neighbour_of(&self, me: &Owner) -> bool {
        !self.boot.is_empty() && self.host == me.host && self.boot == me.boot && self.pidns == me.pidns
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} on {}", self.pid, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner { host: "a".into(), boot: "b".into(), pidns: 1, pid: 2, start: 3 }
    }

    #[test]
    fn only_the_same_host_boot_and_namespace_are_neighbours() {
        let me = owner();
        assert!(Owner { pid: 9, start: 9, ..owner() }.is_neighbour_of(&me));
        assert!(!Owner { host: "x".into(), ..owner() }.is_neighbour_of(&me));
        assert!(!Owner { boot: "x".into(), ..owner() }.is_neighbour_of(&me));
        assert!(!Owner { pidns: 9, ..owner() }.is_neighbour_of(&me));
        let unknown = Owner { boot: String::new(), ..owner() };
        assert!(!unknown.is_neighbour_of(&unknown.clone()));
    }
}
