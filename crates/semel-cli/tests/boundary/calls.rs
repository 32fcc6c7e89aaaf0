//! Which system calls change the world, and their names.

use crate::tracer::Stop;

macro_rules! names {
    ($($name:ident)*) => {
        &[$((libc::$name, stringify!($name))),*]
    };
}

/// What makes, changes, links, moves, removes or syncs; what forks, ends, signals, locks or speaks.
const CHANGING: &[(i64, &str)] = names! {
    SYS_write SYS_writev SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_ftruncate SYS_truncate SYS_fallocate
    SYS_copy_file_range SYS_sendfile SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_msync SYS_syncfs
    SYS_mknodat SYS_mkdirat SYS_linkat SYS_symlinkat SYS_renameat SYS_renameat2 SYS_unlinkat
    SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat SYS_flock
    SYS_clone SYS_clone3 SYS_execve SYS_exit_group SYS_kill SYS_tgkill SYS_pidfd_send_signal SYS_wait4 SYS_waitid
    SYS_prctl SYS_setpgid SYS_setsid SYS_bind SYS_listen SYS_connect SYS_accept4 SYS_shutdown
    SYS_sendto SYS_sendmsg SYS_recvmsg
};

/// Those that newer machines have in one form only.
#[cfg(target_arch = "x86_64")]
const OLDER: &[(i64, &str)] = names! {
    SYS_creat SYS_mknod SYS_mkdir SYS_rmdir SYS_link SYS_symlink SYS_rename SYS_unlink SYS_chmod SYS_chown
    SYS_fork SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[(i64, &str)] = &[];

/// The name of a call if it changes the world.
pub(crate) fn changes(stop: &Stop) -> Option<&'static str> {
    let flag = |arg: u64, flag: i32| i32::try_from(arg & 0x7fff_ffff).unwrap_or(0) & flag != 0;
    match stop.call {
        libc::SYS_openat => {
            return flag(stop.args[2], libc::O_CREAT | libc::O_TRUNC).then_some("openat to create");
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => {
            return flag(stop.args[1], libc::O_CREAT | libc::O_TRUNC).then_some("open to create");
        }
        libc::SYS_fcntl => {
            let command = i32::try_from(stop.args[1]).unwrap_or(0);
            let locks = [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW];
            return locks.contains(&command).then_some("fcntl to lock");
        }
        _ => {}
    }
    let found = CHANGING.iter().chain(OLDER).find(|(call, _)| *call == stop.call);
    found.map(|(_, name)| name.trim_start_matches("SYS_"))
}
