//! What S and K say to each other: fixed-size messages over a stream socket.
//!
//! Sixteen bytes, native order (both ends are the same binary on the same machine): kind, flags, two unused
//! bytes, a 32-bit and a 64-bit number. A short read is possible in theory, so [`Inbox`] collects.

use std::os::fd::RawFd;

pub(crate) const SIZE: usize = 16;

/// S to K.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// To the command (to its group, when it has its own).
    Signal(i32),
    /// TERM, then CONT, to every process of the tree.
    TermTree,
    /// KILL until nothing is left.
    KillTree,
    /// CLOCK_BOOTTIME in nanoseconds; 0: none.
    Deadline(u64),
    /// To one that stays: start what lies in the shared memory, with this deadline.
    Launch(u64),
}

/// K to S.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Started {
        pid: i32,
        in_cgroup: bool,
    },
    Failed {
        stage: u8,
        errno: i32,
    },
    Exited {
        status: i32,
        by_deadline: bool,
    },
    /// The last word, unless the keeper stays for the next command.
    Gone {
        leftovers: u32,
        by_deadline: bool,
        stays: bool,
    },
}

fn pack(kind: u8, flag: u8, small: i32, big: u64) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let [k, f, _, _, rest @ ..] = &mut bytes;
    (*k, *f) = (kind, flag);
    let (low, high) = rest.split_at_mut(4);
    low.copy_from_slice(&small.to_ne_bytes());
    high.copy_from_slice(&big.to_ne_bytes());
    bytes
}

fn unpack(bytes: [u8; SIZE]) -> (u8, u8, i32, u64) {
    let [kind, flag, _, _, a, b, c, d, e @ ..] = bytes;
    (kind, flag, i32::from_ne_bytes([a, b, c, d]), u64::from_ne_bytes(e))
}

impl Order {
    pub(crate) fn encode(self) -> [u8; SIZE] {
        match self {
            Order::Signal(signo) => pack(1, 0, signo, 0),
            Order::TermTree => pack(2, 0, 0, 0),
            Order::KillTree => pack(3, 0, 0, 0),
            Order::Deadline(at) => pack(4, 0, 0, at),
            Order::Launch(deadline) => pack(5, 0, 0, deadline),
        }
    }

    pub(crate) fn decode(bytes: [u8; SIZE]) -> Option<Order> {
        match unpack(bytes) {
            (1, _, signo, _) => Some(Order::Signal(signo)),
            (2, ..) => Some(Order::TermTree),
            (3, ..) => Some(Order::KillTree),
            (4, _, _, at) => Some(Order::Deadline(at)),
            (5, _, _, deadline) => Some(Order::Launch(deadline)),
            _ => None,
        }
    }
}

impl News {
    pub(crate) fn encode(self) -> [u8; SIZE] {
        match self {
            News::Started { pid, in_cgroup } => pack(1, in_cgroup.into(), pid, 0),
            News::Failed { stage, errno } => pack(2, stage, errno, 0),
            News::Exited { status, by_deadline } => pack(3, by_deadline.into(), status, 0),
            News::Gone { leftovers, by_deadline, stays } => {
                pack(4, by_deadline.into(), stays.into(), leftovers.into())
            }
        }
    }

    pub(crate) fn decode(bytes: [u8; SIZE]) -> Option<News> {
        match unpack(bytes) {
            (1, flag, pid, _) => Some(News::Started { pid, in_cgroup: flag != 0 }),
            (2, stage, errno, _) => Some(News::Failed { stage, errno }),
            (3, flag, status, _) => Some(News::Exited { status, by_deadline: flag != 0 }),
            (4, flag, stays, n) => Some(News::Gone {
                leftovers: u32::try_from(n).unwrap_or(u32::MAX),
                by_deadline: flag != 0,
                stays: stays != 0,
            }),
            _ => None,
        }
    }
}

/// What one attempt to read gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Message([u8; SIZE]),
    /// Nothing (more) for now.
    Nothing,
    /// The other side is gone.
    Closed,
}

/// Collects the bytes of one message.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: [u8; SIZE],
    have: usize,
}

impl Inbox {
    /// Nothing of a message has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.have == 0
    }

    /// Read one message, if it is there. Allocates nothing and never panics: the keeper calls it too.
    pub(crate) fn receive(&mut self, fd: RawFd) -> Received {
        while self.have < SIZE {
            let Some(rest) = self.bytes.get_mut(self.have..) else { return Received::Closed };
            // SAFETY: `rest` is valid for writes of its length.
            let n = unsafe { libc::read(fd, rest.as_mut_ptr().cast(), rest.len()) };
            match usize::try_from(n) {
                Ok(0) => return Received::Closed,
                Ok(n) => self.have = self.have.saturating_add(n),
                Err(_) => match crate::sys::errno() {
                    libc::EINTR => {}
                    libc::EAGAIN => return Received::Nothing,
                    _ => return Received::Closed,
                },
            }
        }
        self.have = 0;
        Received::Message(self.bytes)
    }
}

/// Room for one descriptor beside a message.
#[repr(align(8))]
struct Beside([u8; 64]);

/// Wait for one message, and take the descriptor that came with it, or -1. `None`: the other side is gone. For the
/// keeper: allocates nothing and never panics.
pub(crate) fn receive_with_fd(socket: RawFd) -> Option<([u8; SIZE], RawFd)> {
    let (mut bytes, mut beside) = ([0u8; SIZE], Beside([0; 64]));
    let mut room = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: SIZE };
    #[cfg(target_os = "linux")]
    const FLAGS: i32 = libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITALL;
    #[cfg(not(target_os = "linux"))]
    const FLAGS: i32 = libc::MSG_WAITALL;
    // SAFETY: an all-zero msghdr is valid; the buffers it names are valid for writes of the lengths given, and the
    // kernel fills in headers that CMSG_* walk within the length it set.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut room;
        message.msg_iovlen = 1;
        message.msg_control = beside.0.as_mut_ptr().cast();
        message.msg_controllen = beside.0.len() as _;
        loop {
            match usize::try_from(libc::recvmsg(socket, &mut message, FLAGS)) {
                Ok(SIZE) => break,
                Err(_) if crate::sys::errno() == libc::EINTR => {}
                _ => return None,
            }
        }
        let head = libc::CMSG_FIRSTHDR(&message);
        let is_fd = !head.is_null()
            && (*head).cmsg_level == libc::SOL_SOCKET
            && (*head).cmsg_type == libc::SCM_RIGHTS;
        let fd = if is_fd { libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned() } else { -1 };
        Some((bytes, fd))
    }
}

/// Send one message with this descriptor beside it. The other side has a copy of it when this is done.
pub(crate) fn send_with_fd(socket: RawFd, bytes: &[u8; SIZE], fd: RawFd) -> std::io::Result<()> {
    let mut beside = Beside([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: SIZE };
    #[cfg(target_os = "linux")]
    const FLAGS: i32 = libc::MSG_NOSIGNAL;
    #[cfg(not(target_os = "linux"))]
    const FLAGS: i32 = 0;
    // SAFETY: as above; the kernel only reads them. One header for one descriptor fits the room.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = beside.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let head = libc::CMSG_FIRSTHDR(&message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(fd);
        libc::sendmsg(socket, &message, FLAGS)
    };
    match usize::try_from(sent) {
        Ok(SIZE) => Ok(()),
        Ok(_) => Err(std::io::ErrorKind::WriteZero.into()),
        Err(_) => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_the_wire() {
        for order in
            [Order::Signal(15), Order::TermTree, Order::KillTree, Order::Deadline(u64::MAX), Order::Launch(7)]
        {
            assert_eq!(Order::decode(order.encode()), Some(order));
        }
        for news in [
            News::Started { pid: 7, in_cgroup: true },
            News::Failed { stage: 3, errno: 2 },
            News::Exited { status: 256, by_deadline: false },
            News::Gone { leftovers: 3, by_deadline: true, stays: true },
        ] {
            assert_eq!(News::decode(news.encode()), Some(news));
        }
        assert_eq!(Order::decode([9; SIZE]), None);
    }
}
