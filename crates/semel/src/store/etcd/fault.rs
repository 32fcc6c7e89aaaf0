//! What a trouble means for the caller: surely not applied, or perhaps.
//!
//! etcd's own words decide only where they say that a request was rejected before it was executed. A full database is
//! not among them: the write that first exceeds the quota is applied *and* answered with "database space exceeded".

use std::error::Error;
use std::time::Duration;

use tonic::{Code, ConnectError, Status};

use super::super::StoreError;

/// A request that came to nothing, as far as we know.
#[derive(Debug)]
pub(super) struct Trouble {
    /// It may have been executed.
    pub(super) sent: bool,
    /// etcd's answer, where there is one.
    status: Option<Status>,
    say: String,
}

impl Trouble {
    /// It was never sent.
    pub(super) fn unsent(say: String) -> Trouble {
        Trouble { sent: false, status: None, say }
    }

    /// No answer came in time.
    pub(super) fn late(peer: &str, deadline: Duration) -> Trouble {
        let say = format!("etcd at {peer} did not answer within {deadline:?}: look whether it has a leader");
        Trouble { sent: true, status: None, say }
    }

    /// It was answered with an error, or its connection broke.
    pub(super) fn of(status: Status, peer: &str, user: Option<&str>, prefix: &str) -> Trouble {
        let say = words(&status, peer, user, prefix);
        Trouble { sent: !surely_not_applied(&status), status: Some(status), say }
    }

    /// What to tell whoever only wanted to look.
    pub(super) fn reading(self) -> StoreError {
        StoreError::Unavailable(self.say)
    }

    /// What to tell whoever wanted to write.
    pub(super) fn writing(self) -> StoreError {
        match self.sent {
            true => StoreError::Unknown(self.say),
            false => StoreError::Unavailable(self.say),
        }
    }

    /// The lease that a key should be attached to is not there (yet); nothing was written.
    pub(super) fn is_missing_lease(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.code() == Code::NotFound && status.message().contains("lease not found")
        })
    }

    /// The token that says who we are is no longer good; nothing was executed.
    pub(super) fn is_old_token(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.code() == Code::Unauthenticated
                || status.message().contains("invalid auth token")
                || status.message().contains("revision of auth store is old")
        })
    }

    /// Users and passwords are not switched on.
    pub(super) fn is_without_users(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.message().contains("authentication is not enabled"))
    }

    /// What was asked for as of an old revision is no longer kept.
    pub(super) fn is_compacted(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.message().contains("has been compacted"))
    }

    /// etcd itself says that it cannot answer now: it has no leader, another leader, or too much to do.
    pub(super) fn is_passing(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.code() == Code::Unavailable && status.source().is_none())
    }

    /// Another connection, or another member, may do better.
    pub(super) fn is_of_the_connection(&self) -> bool {
        self.status.as_ref().is_none_or(|status| {
            matches!(
                status.code(),
                Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal | Code::DeadlineExceeded
            )
        })
    }
}

fn surely_not_applied(status: &Status) -> bool {
    match status.code() {
        // lease not found, no such service, and what a request is refused for before it is proposed
        Code::NotFound
        | Code::InvalidArgument
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => true,
        Code::ResourceExhausted => status.message().contains("too many requests"),
        Code::FailedPrecondition => status.message().contains("authentication is not enabled"),
        _ => chain(status).any(|why| why.is::<ConnectError>()),
    }
}

fn words(status: &Status, peer: &str, user: Option<&str>, prefix: &str) -> String {
    let said = status.message();
    if status.source().is_some() {
        return connection_words(&deepest(status), peer);
    }
    if said.contains("invalid user ID or password") {
        let user = user.unwrap_or_default();
        return format!("etcd at {peer} refuses the user {user}: wrong user or password");
    }
    if said.contains("user name is empty") {
        return format!("etcd at {peer} wants a user: write the address as etcd://USER:PASSWORD@HOST/PREFIX");
    }
    if said.contains("permission denied") {
        let user = user.unwrap_or("that we speak as");
        return format!(
            "the user {user} may not write under {prefix} in etcd at {peer}: grant it with etcdctl role grant-permission ROLE readwrite {prefix} --prefix"
        );
    }
    if said.contains("database space exceeded") {
        return format!(
            "etcd at {peer} has used up its quota: compact and defragment it, then etcdctl alarm disarm"
        );
    }
    if said.contains("too many operations") || said.contains("request is too large") {
        return format!(
            "etcd at {peer} takes no swap of this size ({said}): raise its --max-txn-ops and --max-request-bytes"
        );
    }
    match status.code() {
        Code::Unimplemented => format!("the server at {peer} is no etcd of version 3: {said}"),
        _ => format!("etcd at {peer} says: {said}"),
    }
}

/// The alerts by which a server refuses a client for its certificate, or for having none.
const OF_CLIENTS: [&str; 7] = [
    "CertificateRequired",
    "BadCertificate",
    "UnknownCA",
    "CertificateUnknown",
    "CertificateExpired",
    "CertificateRevoked",
    "UnsupportedCertificate",
];

/// What to say of a connection that could not be made, or broke.
pub(super) fn connection_words(why: &str, peer: &str) -> String {
    // what a server says of ours, not we of its
    if why.contains("fatal alert") && OF_CLIENTS.iter().any(|alert| why.contains(alert)) {
        return format!(
            "etcd at {peer} wants a certificate of its clients ({why}): give one that it trusts with &cert=PATH&key=PATH"
        );
    }
    if why.contains("certificate") || why.contains("UnknownIssuer") {
        return format!(
            "the TLS certificate of etcd at {peer} is not accepted ({why}): give its authority with ?ca=PATH, and a name that it is for"
        );
    }
    if ["corrupt message", "InvalidContentType", "handshake eof"].iter().any(|part| why.contains(part)) {
        return format!("etcd at {peer} does not speak TLS ({why}): if it shall not, write etcd://");
    }
    if why.contains("frame with invalid size") {
        return format!("etcd at {peer} speaks TLS: write etcds:// instead of etcd://");
    }
    let lower = why.to_lowercase();
    let hint = match ["broken pipe", "connection reset", "closed"].iter().any(|part| lower.contains(part)) {
        true => {
            "; write etcds:// if it speaks TLS, etcd:// if it does not; if it wants a certificate of its clients, give one that it trusts with &cert=PATH&key=PATH"
        }
        false => "",
    };
    format!("etcd at {peer} cannot be reached: {why}{hint}")
}

/// The innermost reason: those around it say only that there was one.
pub(super) fn deepest(why: &(dyn Error + 'static)) -> String {
    chain(why).last().map(ToString::to_string).unwrap_or_default()
}

fn chain<'a>(why: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(why), |why| Error::source(*why))
}
