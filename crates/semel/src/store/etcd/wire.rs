//! One HTTP/2 connection to one member of the cluster, made when it is needed and made again when it broke; everything
//! that a process says to etcd goes over it.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream;
use prost::Message;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Uri};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::address::Address;
use super::fault::{self, Trouble};
use super::messages::{AuthenticateRequest, AuthenticateResponse, LeaseRequest, LeaseResponse};
use crate::clock::boottime;

pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// The largest answer: a page of a scan, or a load, of records of the largest size.
const ANSWER_LIMIT: usize = 96 * 1024 * 1024;

/// The path in the type that the client wants, which has no name here.
macro_rules! path_of {
    ($path:expr) => {
        Uri::from_static($path)
            .into_parts()
            .path_and_query
            .ok_or_else(|| Status::invalid_argument("no path"))?
    };
}

/// The most requests that are under way at once. etcd gives up on a request that it could not get to within some
/// seconds, and whether such a write was made is not known: better that it waits here, where it was surely not sent.
const UNDER_WAY: usize = 128;
/// How long to wait before a look that etcd could not answer is asked for again.
const PAUSE: Duration = Duration::from_millis(50);

/// When a verb must have ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    end: Duration,
    whole: Duration,
}

impl Deadline {
    /// From now on.
    pub(super) fn after(whole: Duration) -> Deadline {
        Deadline { end: boottime().saturating_add(whole), whole }
    }

    fn left(self) -> Duration {
        self.end.saturating_sub(boottime())
    }
}

/// A connection.
#[derive(Clone)]
struct Link {
    number: usize,
    peer: String,
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
}

/// Where it leads; the token is as good as a password.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("number", &self.number).field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// What a process says goes over this.
#[derive(Debug)]
pub(super) struct Wire {
    address: Address,
    /// Held while a connection is made, so that a crowd makes one.
    connecting: tokio::sync::Mutex<()>,
    link: Mutex<Option<Link>>,
    made: AtomicUsize,
    turns: tokio::sync::Semaphore,
}

impl Wire {
    pub(super) fn new(address: Address) -> Wire {
        Wire {
            address,
            connecting: tokio::sync::Mutex::default(),
            link: Mutex::default(),
            made: AtomicUsize::new(0),
            turns: tokio::sync::Semaphore::new(UNDER_WAY),
        }
    }

    /// Under which all our keys lie.
    pub(super) fn prefix(&self) -> &str {
        &self.address.prefix
    }

    fn current(&self) -> Option<Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// This connection is no good: the next who needs one makes another.
    fn drop_link(&self, number: usize) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if link.as_ref().is_some_and(|link| link.number == number) {
            *link = None;
        }
    }

    async fn link(&self, deadline: Deadline) -> Result<Link, Trouble> {
        if let Some(link) = self.current() {
            return Ok(link);
        }
        let made = tokio::time::timeout(deadline.left(), async {
            let _one_at_a_time = self.connecting.lock().await;
            match self.current() {
                Some(link) => Ok(link),
                None => self.connect(deadline).await,
            }
        });
        let peers =
            || self.address.endpoints.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        made.await.unwrap_or_else(|_| {
            let whole = deadline.whole;
            Err(Trouble::unsent(format!("etcd at {} cannot be reached: no answer within {whole:?}", peers())))
        })
    }

    /// Connect to the first member that takes us, beginning with the one after the last.
    async fn connect(&self, deadline: Deadline) -> Result<Link, Trouble> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let endpoints = &self.address.endpoints;
        let mut said = Trouble::unsent("etcd:// has no host".to_owned());
        for i in 0..endpoints.len() {
            let (peer, endpoint) = &endpoints[(number + i) % endpoints.len()];
            // a member that swallows everything must leave time for the next
            let tries = u32::try_from(endpoints.len() - i).unwrap_or(1);
            let channel = match tokio::time::timeout(deadline.left() / tries, endpoint.connect()).await {
                Ok(Ok(channel)) => channel,
                Ok(Err(why)) => {
                    said = Trouble::unsent(fault::connection_words(&fault::deepest(&why), peer));
                    continue;
                }
                Err(_) => {
                    said = Trouble::unsent(format!("etcd at {peer} cannot be reached: no answer"));
                    continue;
                }
            };
            let mut link = Link { number, peer: peer.clone(), channel, token: None };
            match self.authenticate(&link, deadline).await {
                Ok(token) => link.token = token,
                Err(why) => {
                    said = why;
                    continue;
                }
            }
            *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.clone());
            return Ok(link);
        }
        // whatever it was, nothing that a caller wanted was sent
        said.sent = false;
        Err(said)
    }

    async fn authenticate(
        &self,
        link: &Link,
        deadline: Deadline,
    ) -> Result<Option<MetadataValue<Ascii>>, Trouble> {
        let Some(user) = &self.address.user else { return Ok(None) };
        let ask = AuthenticateRequest { name: user.name.clone(), password: user.password.clone() };
        let answered: Result<AuthenticateResponse, Trouble> =
            self.once(link, AUTHENTICATE, ask, deadline).await;
        match answered {
            Ok(answer) => answer.token.parse().map(Some).map_err(|_| {
                Trouble::unsent(format!("etcd at {} answers with a token that is none", link.peer))
            }),
            // as etcd's own client does
            Err(why) if why.is_without_users() => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Ask once, over this connection.
    async fn once<Q, A>(
        &self,
        link: &Link,
        path: &'static str,
        ask: Q,
        deadline: Deadline,
    ) -> Result<A, Trouble>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let asked = async {
            let mut grpc = link.grpc().await?;
            let codec = ProstCodec::<Q, A>::default();
            grpc.unary(link.request(ask), path_of!(path), codec).await.map(tonic::Response::into_inner)
        };
        self.within(link, deadline, asked).await
    }

    async fn within<A>(
        &self,
        link: &Link,
        deadline: Deadline,
        asked: impl Future<Output = Result<A, Status>>,
    ) -> Result<A, Trouble> {
        let trouble = match tokio::time::timeout(deadline.left(), asked).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => {
                let user = self.address.user.as_ref().map(|user| user.name.as_str());
                Trouble::of(status, &link.peer, user, &self.address.prefix)
            }
            Err(_) => Trouble::late(&link.peer, deadline.whole),
        };
        if trouble.is_of_the_connection() || trouble.is_old_token() {
            self.drop_link(link.number);
        }
        Err(trouble)
    }

    /// Wait until it is our turn.
    async fn turn(&self, deadline: Deadline) -> Result<tokio::sync::SemaphorePermit<'_>, Trouble> {
        match tokio::time::timeout(deadline.left(), self.turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Trouble::unsent(format!("etcd is too slow: no turn came within {:?}", deadline.whole))),
        }
    }

    /// Ask what changes nothing: again and again, while etcd says that it cannot answer now.
    pub(super) async fn look<Q, A>(
        &self,
        path: &'static str,
        ask: Q,
        deadline: Deadline,
    ) -> Result<A, Trouble>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        loop {
            match self.ask(path, ask.clone(), deadline).await {
                Err(why) if why.is_passing() && deadline.left() > PAUSE => tokio::time::sleep(PAUSE).await,
                answer => return answer,
            }
        }
    }

    /// Ask, and ask again if only the token was too old: then nothing was executed.
    pub(super) async fn ask<Q, A>(&self, path: &'static str, ask: Q, deadline: Deadline) -> Result<A, Trouble>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let _turn = self.turn(deadline).await?;
        let link = self.link(deadline).await?;
        if link.token.is_none() {
            return self.once(&link, path, ask, deadline).await;
        }
        match self.once(&link, path, ask.clone(), deadline).await {
            Err(why) if why.is_old_token() => {
                let link = self.link(deadline).await?;
                self.once(&link, path, ask, deadline).await
            }
            answer => answer,
        }
    }

    /// Restart an etcd lease's clock: the seconds that it has again, 0 if it is gone.
    pub(super) async fn keep_alive(&self, id: i64, deadline: Deadline) -> Result<i64, Trouble> {
        match self.keep_alive_once(id, deadline).await {
            Err(why) if why.is_old_token() => self.keep_alive_once(id, deadline).await,
            answer => answer,
        }
    }

    async fn keep_alive_once(&self, id: i64, deadline: Deadline) -> Result<i64, Trouble> {
        let _turn = self.turn(deadline).await?;
        let link = self.link(deadline).await?;
        let asked = async {
            let mut grpc = link.grpc().await?;
            let codec = ProstCodec::<LeaseRequest, LeaseResponse>::default();
            let ask = link.request(stream::iter([LeaseRequest { id }]));
            let mut answers = grpc.streaming(ask, path_of!(KEEP_ALIVE), codec).await?.into_inner();
            let answer = answers.message().await?;
            answer.ok_or_else(|| Status::unavailable("a renewal was not answered"))
        };
        self.within(&link, deadline, asked).await.map(|answer| answer.ttl)
    }

    /// Be told of what happens from now on.
    pub(super) async fn watch<Q, A>(
        &self,
        ask: impl stream::Stream<Item = Q> + Send + 'static,
        deadline: Deadline,
    ) -> Result<Streaming<A>, Trouble>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let link = self.link(deadline).await?;
        let asked = async {
            let mut grpc = link.grpc().await?;
            let codec = ProstCodec::<Q, A>::default();
            grpc.streaming(link.request(ask), path_of!(WATCH), codec).await.map(tonic::Response::into_inner)
        };
        self.within(&link, deadline, asked).await
    }
}

impl Link {
    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_LIMIT);
        grpc.ready().await.map_err(|why| Status::from_error(Box::new(why)))?;
        Ok(grpc)
    }

    fn request<Q>(&self, ask: Q) -> Request<Q> {
        let mut request = Request::new(ask);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_not_shown() {
        let channel = Channel::from_static("http://127.0.0.1:1").connect_lazy();
        let token = Some(MetadataValue::from_static("hunter2"));
        let link = Link { number: 3, peer: "127.0.0.1:1".to_owned(), channel, token };
        let shown = format!("{:?} {link:#?}", Mutex::new(Some(link.clone())));
        assert!(shown.contains("127.0.0.1:1") && !shown.contains("hunter2"), "{shown}");
    }
}
