//! The socket below a connection. It is ours rather than the driver's: we must know when what was sent has left this
//! process, from which port we speak, and be able to hang up without a word.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The port of a server that names none.
const PORT: u16 = 5432;

/// Where a host may be found: a name may stand for several addresses.
pub(super) enum Spot {
    Tcp(SocketAddr),
    Unix(std::path::PathBuf),
}

/// All of them, in the order in which they are tried.
pub(super) async fn spots(host: &Config) -> io::Result<Vec<Spot>> {
    let port = host.get_ports().first().copied().unwrap_or(PORT);
    if let Some(address) = host.get_hostaddrs().first() {
        return Ok(vec![Spot::Tcp(SocketAddr::new(*address, port))]);
    }
    match host.get_hosts().first() {
        Some(Host::Tcp(name)) => Ok(lookup_host((name.as_str(), port)).await?.map(Spot::Tcp).collect()),
        Some(Host::Unix(folder)) => Ok(vec![Spot::Unix(in_folder(folder, port))]),
        None => Ok(Vec::new()),
    }
}

fn in_folder(folder: &Path, port: u16) -> std::path::PathBuf {
    folder.join(format!(".s.PGSQL.{port}"))
}

/// A socket that is connected.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connect, with what the address says of silence.
    pub(super) async fn connect(spot: &Spot, host: &Config) -> io::Result<Socket> {
        let connecting = async {
            match spot {
                Spot::Tcp(address) => TcpStream::connect(address).await.map(Socket::Tcp),
                Spot::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
            }
        };
        let socket = match host.get_connect_timeout() {
            Some(patience) => timeout(*patience, connecting)
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connection timed out"))??,
            None => connecting.await?,
        };
        if let Socket::Tcp(stream) = &socket {
            stream.set_nodelay(true)?;
            heed(stream, host)?;
        }
        Ok(socket)
    }

    /// The port from which we speak; none on a socket of this machine.
    pub(super) fn port(&self) -> Option<u16> {
        match self {
            Socket::Tcp(stream) => stream.local_addr().ok().map(|address| address.port()),
            Socket::Unix(_) => None,
        }
    }

    /// What can hang up while the driver has the socket.
    pub(super) fn receiver(&self) -> io::Result<Receiver> {
        Ok(match self {
            Socket::Tcp(stream) => Receiver::Tcp(stream.as_fd().try_clone_to_owned()?.into()),
            Socket::Unix(stream) => Receiver::Unix(stream.as_fd().try_clone_to_owned()?.into()),
        })
    }
}

fn heed(stream: &TcpStream, host: &Config) -> io::Result<()> {
    let socket = SockRef::from(stream);
    #[cfg(target_os = "linux")]
    if let Some(silence) = host.get_tcp_user_timeout() {
        socket.set_tcp_user_timeout(Some(*silence))?;
    }
    if host.get_keepalives() {
        let mut keepalive = TcpKeepalive::new().with_time(host.get_keepalives_idle());
        if let Some(interval) = host.get_keepalives_interval() {
            keepalive = keepalive.with_interval(interval);
        }
        if let Some(retries) = host.get_keepalives_retries() {
            keepalive = keepalive.with_retries(retries);
        }
        socket.set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}

/// The other end of the line that we hold in our hand.
#[derive(Debug)]
pub(super) enum Receiver {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Receiver {
    /// Say that nothing more will come. What was sent is read and done before that; a process that ends without it, with
    /// an answer unread, would break the connection instead, which the server writes into its log. Not with the
    /// protocol's own goodbye: PgBouncer throws away what it has not passed on yet when it reads one.
    pub(super) fn hang_up(&self) {
        let _ = match self {
            Receiver::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Receiver::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
