//! When has what a connection was given to send left this process?
//!
//! The drivers answer only when the server does. A note that nobody waits for needs to know less: that its bytes are with
//! the system, which sends them even if this process ends. So the stream tells when it could not take everything, and the
//! task that reads and writes counts its turns: a turn that began after a message was given to it has written it.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// What is known of one connection.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    begun: AtomicU64,
    ended: AtomicU64,
    /// The system took less than it was given.
    full: AtomicBool,
    /// There will be no more turns.
    over: AtomicBool,
    turned: Notify,
}

impl Outbox {
    /// Do the work of the connection, and count its turns.
    pub(super) async fn driven<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        let _over = Over(Arc::clone(&self));
        let mut work = pin!(work);
        poll_fn(|cx| {
            let turn = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let polled = work.as_mut().poll(cx);
            self.ended.store(turn, Ordering::SeqCst);
            self.turned.notify_waiters();
            polled
        })
        .await
    }

    /// Wait until all that the connection was given before is with the system. False: it broke.
    pub(super) async fn left(&self) -> bool {
        let given = self.begun.load(Ordering::SeqCst);
        loop {
            let mut turned = pin!(self.turned.notified());
            turned.as_mut().enable();
            if self.over.load(Ordering::SeqCst) {
                return false;
            }
            if self.ended.load(Ordering::SeqCst) > given && !self.full.load(Ordering::SeqCst) {
                return true;
            }
            turned.await;
        }
    }
}

/// However the work ends, whoever waits is told.
struct Over(Arc<Outbox>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.turned.notify_waiters();
    }
}

/// A stream that tells its outbox whether it takes what it is given.
#[derive(Debug)]
pub(super) struct Told<S> {
    stream: S,
    outbox: Arc<Outbox>,
}

impl<S> Told<S> {
    pub(super) fn new(stream: S, outbox: Arc<Outbox>) -> Told<S> {
        Told { stream, outbox }
    }

    fn tell<T>(&self, done: &Poll<T>) {
        self.outbox.full.store(done.is_pending(), Ordering::SeqCst);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Told<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Told<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.tell(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.tell(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_pending() {
            self.tell(&flushed);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::sync::mpsc;
    use tokio::time::{Duration, timeout};

    use super::*;

    /// A connection that writes what it is given.
    fn connection(room: usize) -> (mpsc::UnboundedSender<Vec<u8>>, Arc<Outbox>, tokio::io::DuplexStream) {
        let (near, far) = duplex(room);
        let outbox = Arc::new(Outbox::default());
        let (give, mut given) = mpsc::unbounded_channel::<Vec<u8>>();
        let mut stream = Told::new(near, Arc::clone(&outbox));
        let work = async move {
            while let Some(bytes) = given.recv().await {
                stream.write_all(&bytes).await.unwrap();
            }
        };
        tokio::spawn(Arc::clone(&outbox).driven(work));
        (give, outbox, far)
    }

    #[tokio::test]
    async fn what_was_given_has_left_when_it_is_said_so() {
        let (give, outbox, mut far) = connection(64);
        for _ in 0..3 {
            give.send(vec![7; 10]).unwrap();
            assert!(outbox.left().await);
            let mut read = [0; 64];
            // there already: nobody has to be waited for
            let many = timeout(Duration::ZERO, far.read(&mut read)).await.unwrap().unwrap();
            assert_eq!(many, 10);
        }
    }

    #[tokio::test]
    async fn what_the_system_has_no_room_for_has_not_left() {
        let (give, outbox, mut far) = connection(8);
        give.send(vec![7; 12]).unwrap();
        assert!(timeout(Duration::from_millis(50), outbox.left()).await.is_err());
        give.send(Vec::new()).unwrap();
        let mut read = [0; 64];
        let (left, many) = tokio::join!(outbox.left(), async {
            far.read(&mut read).await.unwrap() + far.read(&mut read).await.unwrap()
        });
        assert!(left && many == 12);
    }

    #[tokio::test]
    async fn a_connection_that_is_over_sends_nothing() {
        let (give, outbox, _far) = connection(8);
        drop(give);
        assert!(!timeout(Duration::from_secs(5), outbox.left()).await.unwrap());
    }
}
