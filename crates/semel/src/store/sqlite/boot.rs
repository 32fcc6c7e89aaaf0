//! The clock of the database's host: time since boot, together with which boot.
//!
//! A lease's start is kept as `CLOCK_BOOTTIME`, which no one can set and which goes on through suspend, and means
//! something only within one boot: so the boot's id is kept with it, and a reboot ends every lease.

use std::time::Duration;

use crate::clock::boottime;

/// The running boot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Boot {
    /// The kernel's id of it.
    pub(super) id: [u8; 16],
    /// How far this process's time namespace is ahead of the host's clock. Two processes in different namespaces
    /// that share a database must agree on when a lease ends.
    ahead_ns: i64,
}

impl Boot {
    /// Ask the kernel. Without an id no lease can be told from one of before a reboot, so there is no fallback.
    pub(super) fn read() -> Result<Boot, String> {
        Ok(Boot { id: boot_id()?, ahead_ns: ahead_ns()? })
    }

    /// Nanoseconds since boot on the host's clock.
    pub(super) fn now_ns(&self) -> i64 {
        nanos(boottime()).saturating_sub(self.ahead_ns)
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// The 16 bytes of a UUID in its usual spelling.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32).map(u128::to_be_bytes)
}

#[cfg(target_os = "linux")]
fn boot_id() -> Result<[u8; 16], String> {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    let text =
        std::fs::read_to_string(FILE).map_err(|why| format!("cannot read {FILE} ({why}): mount /proc"))?;
    parse_uuid(&text).ok_or_else(|| format!("{FILE} holds no boot id"))
}

#[cfg(target_os = "macos")]
fn boot_id() -> Result<[u8; 16], String> {
    let mut text = [0u8; 64];
    let mut size = text.len();
    // SAFETY: the name ends with a nul, and `size` says how much room there is.
    let failed = unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            text.as_mut_ptr().cast(),
            &mut size,
            std::ptr::null_mut(),
            0,
        )
    } != 0;
    let text = text.get(..size.saturating_sub(1)).and_then(|text| std::str::from_utf8(text).ok());
    text.filter(|_| !failed).and_then(parse_uuid).ok_or_else(|| "cannot read kern.bootsessionuuid".to_owned())
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn boot_id() -> Result<[u8; 16], String> {
    Err("no boot id on this system: use another store".to_owned())
}

#[cfg(target_os = "linux")]
fn ahead_ns() -> Result<i64, String> {
    /// The kernel's fixed inode number of the first time namespace, whose clock is the host's.
    const HOST: &str = "time:[4026531834]";
    const FILE: &str = "/proc/self/timens_offsets";
    match std::fs::read_link("/proc/self/ns/time") {
        // a kernel without time namespaces has but the host's clock
        Err(_) => Ok(0),
        Ok(namespace) if namespace.as_os_str() == HOST => Ok(0),
        Ok(_) => {
            let text = std::fs::read_to_string(FILE).map_err(|why| format!("cannot read {FILE} ({why})"))?;
            parse_offset(&text).ok_or_else(|| format!("{FILE} holds no offset of the boot clock"))
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn ahead_ns() -> Result<i64, String> {
    Ok(0)
}

/// The line `boottime SECONDS NANOSECONDS`.
#[cfg(target_os = "linux")]
fn parse_offset(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_id_is_a_uuid() {
        let id = parse_uuid("7f2b1c00-0000-4000-8000-0000000000ff\n").unwrap();
        assert_eq!((id[0], id[15]), (0x7f, 0xff));
        for bad in ["", "7f2b", "zz2b1c00-0000-4000-8000-0000000000ff", "+f2b1c00-0000-4000-8000-0000000000f"]
        {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
        assert_eq!(Boot::read().unwrap().id, Boot::read().unwrap().id);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        assert_eq!(
            parse_offset("monotonic           0         0\nboottime       86400       500\n"),
            Some(86_400_000_000_500)
        );
        assert_eq!(parse_offset("boottime -1 0"), Some(-1_000_000_000));
        assert_eq!(parse_offset("monotonic 0 0"), None);
    }
}
