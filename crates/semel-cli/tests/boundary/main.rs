//! Every boundary of a real run: killed at each system call, and with the power cut between any two.
//!
//! Theory. What a process leaves behind when it is killed depends only on which of its calls that change the world were
//! made. So a run that is killed before its first such call, before its second, and so on, has been killed everywhere. A
//! tracer (ptrace) stops the whole tree at each call, counts, and kills. Then the run is tried again until it is done,
//! and its effects are counted outside of Semel, as lines of a file.
//!
//! A power cut forgets more: of what was written since the last sync, any part may be missing. The same tracer writes
//! down all writes and syncs, and the folder is built again as a machine without power could have left it, at each
//! point of that log.
//!
//! Both have *controls*, which must double or lose something in the same harness: so it is known to be able to fail.
//!
//! | module | what it knows |
//! |---|---|
//! | `tracer` | the tree of a command, stopped at every call |
//! | `calls` | which calls change the world, and their names |
//! | `home` | a folder for each round, and what is started in it |
//! | `crash` | killed at a boundary, and tried again |
//! | `scenes` | what is killed: runs by policy, steps, a batch, and the ways without Semel |
//! | `record` | from calls to what happened to the disk |
//! | `disk` | what of it survives without power |
//! | `power` | cut, opened again, and what must be there |
//!
//! What is not shown: calls between two that change the world (the world is the same there), a kernel that dies, and
//! disks that lose what they were told to sync.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]
// the rooms are the product's: a test starts processes and looks at the clock
#![allow(clippy::disallowed_methods)]

mod calls;
mod crash;
mod disk;
mod home;
mod power;
mod record;
mod scenes;
mod tracer;
