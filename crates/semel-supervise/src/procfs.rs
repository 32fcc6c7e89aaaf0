//! `/proc`, read without allocating. Linux only; elsewhere everything answers "nothing there".

use crate::sys;

/// A short path in a fixed buffer, always ending in NUL. What does not fit is cut (and then does not exist).
#[derive(Clone, Copy)]
pub(crate) struct ShortPath {
    bytes: [u8; 64],
    len: usize,
}

impl ShortPath {
    pub(crate) fn proc(pid: i32, rest: &[u8]) -> ShortPath {
        ShortPath { bytes: [0; 64], len: 0 }.text(b"/proc/").number(pid).text(rest)
    }

    pub(crate) fn text(mut self, text: &[u8]) -> ShortPath {
        // The last byte stays NUL.
        let room = self.bytes.len().saturating_sub(1);
        for &byte in text {
            if self.len < room
                && let Some(slot) = self.bytes.get_mut(self.len)
            {
                *slot = byte;
                self.len = self.len.saturating_add(1);
            }
        }
        self
    }

    pub(crate) fn number(self, number: i32) -> ShortPath {
        let mut digits = [0u8; 10];
        let mut rest = number.unsigned_abs();
        let mut used = 0;
        for slot in digits.iter_mut().rev() {
            *slot = b'0'.wrapping_add((rest % 10) as u8);
            rest /= 10;
            used += 1;
            if rest == 0 {
                break;
            }
        }
        self.text(digits.get(digits.len().saturating_sub(used)..).unwrap_or(&[]))
    }

    fn open(&self, flags: i32) -> Option<i32> {
        // SAFETY: the buffer ends in NUL.
        let fd = unsafe { libc::open(self.bytes.as_ptr().cast(), flags | libc::O_CLOEXEC) };
        (fd >= 0).then_some(fd)
    }
}

fn read(fd: i32, buffer: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: `buffer` is valid for writes of its length.
    let n = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
    buffer.get(..usize::try_from(n).ok()?)
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: i32,
    pub(crate) flags: u64,
    pub(crate) threads: u64,
    /// Clock ticks after boot.
    pub(crate) start: u64,
}

impl Stat {
    pub(crate) fn read(pid: i32) -> Option<Stat> {
        let fd = ShortPath::proc(pid, b"/stat").open(libc::O_RDONLY)?;
        let mut buffer = [0; 1024];
        let stat = read(fd, &mut buffer).and_then(Stat::parse);
        sys::close(fd);
        stat
    }

    /// The name (field 2) may hold anything, spaces and parentheses too: count from the last `)`.
    pub(crate) fn parse(line: &[u8]) -> Option<Stat> {
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = line.get(end.checked_add(2)?..)?.split(|byte| *byte == b' ');
        let state = *fields.next()?.first()?; // 3
        let parent = number(fields.next()?)?; // 4
        let flags = number(fields.nth(4)?)?; // 9
        let threads = number(fields.nth(10)?)?; // 20
        let start = number(fields.nth(1)?)?; // 22
        Some(Stat { state, parent: i32::try_from(parent).ok()?, flags, threads, start })
    }

    /// Nothing of it runs any more. A zombie leader whose threads live on still does.
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!text.is_empty()).then_some(value)
}

/// The children of all threads of `pid` into `out`; `None` if this kernel does not list them.
/// What does not fit is left out.
pub(crate) fn children(pid: i32, threads: u64, out: &mut [i32]) -> Option<usize> {
    let mut count = 0;
    if threads <= 1 {
        task_children(pid, pid, out, &mut count)?;
        return Some(count);
    }
    let mut listed = None;
    numeric_entries(&ShortPath::proc(pid, b"/task"), &mut |task| {
        listed = listed.or(task_children(pid, task, out, &mut count));
    });
    listed.map(|()| count)
}

fn task_children(pid: i32, task: i32, out: &mut [i32], count: &mut usize) -> Option<()> {
    let fd = ShortPath::proc(pid, b"/task/").number(task).text(b"/children").open(libc::O_RDONLY)?;
    let mut buffer = [0; 1024];
    let mut value = 0i32;
    while let Some(bytes) = read(fd, &mut buffer) {
        if bytes.is_empty() {
            break;
        }
        for &byte in bytes {
            // The kernel ends each pid with a space, so a number cut by the buffer simply goes on.
            if byte.is_ascii_digit() {
                value = value.saturating_mul(10).saturating_add(i32::from(byte.wrapping_sub(b'0')));
            } else {
                if value > 0
                    && let Some(slot) = out.get_mut(*count)
                {
                    *slot = value;
                    *count = count.saturating_add(1);
                }
                value = 0;
            }
        }
    }
    sys::close(fd);
    Some(())
}

/// Call `each` for every entry of the directory that is a number. `false`: it could not be read.
pub(crate) fn numeric_entries(dir: &ShortPath, each: &mut dyn FnMut(i32)) -> bool {
    let Some(fd) = dir.open(libc::O_RDONLY | libc::O_DIRECTORY) else { return false };
    entries(fd, &mut |name, _| {
        if let Some(pid) = number(name).and_then(|n| i32::try_from(n).ok()) {
            each(pid);
        }
    });
    sys::close(fd);
    true
}

/// Call `each` with name and type of every entry of the open directory.
#[cfg(target_os = "linux")]
pub(crate) fn entries(fd: i32, each: &mut dyn FnMut(&[u8], u8)) {
    #[repr(align(8))]
    struct Buffer([u8; 4096]);
    let mut buffer = Buffer([0; 4096]);
    loop {
        // SAFETY: the buffer is valid for writes of its length and aligned for the kernel's records.
        let n = unsafe { libc::syscall(libc::SYS_getdents64, fd, buffer.0.as_mut_ptr(), buffer.0.len()) };
        let Some(mut rest) = usize::try_from(n).ok().filter(|n| *n > 0).and_then(|n| buffer.0.get(..n))
        else {
            return;
        };
        // inode (8), offset (8), record length (2), type (1), name, NUL
        while let (Some(&[low, high]), Some(&kind)) = (rest.get(16..18), rest.get(18)) {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let Some(name) = rest.get(19..length) else { return };
            each(name.split(|byte| *byte == 0).next().unwrap_or(&[]), kind);
            rest = rest.get(length..).unwrap_or(&[]);
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn entries(_fd: i32, _each: &mut dyn FnMut(&[u8], u8)) {}

/// `/proc` itself.
pub(crate) fn root() -> ShortPath {
    ShortPath { bytes: [0; 64], len: 0 }.text(b"/proc")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = b"7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 12345 1 2\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            (stat.state, stat.parent, stat.flags, stat.threads, stat.start),
            (b'S', 3, 4194560, 9, 12345)
        );
    }

    #[test]
    fn our_own_children_are_listed_whichever_thread_made_them() {
        let mut child = std::thread::spawn(|| std::process::Command::new("sleep").arg("60").spawn().unwrap())
            .join()
            .unwrap();
        let me = std::process::id().cast_signed();
        let mut out = [0; 64];
        let count = children(me, Stat::read(me).unwrap().threads, &mut out).unwrap();
        let listed = out[..count].contains(&child.id().cast_signed());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(listed);
    }
}
