//! What a service's failure means: did the write happen, and what can a person do?

use std::error::Error;

use object_store::client::{HttpError, HttpErrorKind};

use super::address::{Kind, Place};
use crate::store::StoreError;

/// A request that was not answered with a success.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// There is no such object.
    Absent,
    /// The condition does not hold (412).
    Condition,
    /// Another write was under way (409): it may be asked again.
    Busy,
    /// It was surely not done.
    Refused(String),
    /// It was perhaps done.
    Unclear(String),
}

impl Failure {
    /// As a verb that writes nothing tells it.
    pub(super) fn of_a_read(self) -> StoreError {
        StoreError::Unavailable(match self {
            Failure::Refused(why) | Failure::Unclear(why) => why,
            Failure::Absent => "an object was removed while it was read".to_owned(),
            Failure::Condition | Failure::Busy => "the service refused to read".to_owned(),
        })
    }
}

/// Who gives a machine of a cloud its own credentials.
const METADATA: [&str; 3] = ["//169.254.169.254", "//169.254.170.2", "//metadata"];

/// What this error of a service's client means.
pub(super) fn failure(place: &Place, error: &object_store::Error) -> Failure {
    let text = error.to_string();
    let (code, status) = (code(&text), status(&text));
    let bucket_is_missing = matches!(code, Some("NoSuchBucket" | "ContainerNotFound"));
    match error {
        _ if bucket_is_missing => Failure::Refused(no_bucket(place)),
        // it was not the service that was asked, but the machine, for credentials
        _ if METADATA.iter().any(|host| text.contains(host)) => Failure::Refused(no_credentials(place)),
        object_store::Error::Precondition { .. } | object_store::Error::NotModified { .. } => {
            Failure::Condition
        }
        object_store::Error::AlreadyExists { .. } if status == Some(409) && !is_there(code) => Failure::Busy,
        object_store::Error::AlreadyExists { .. } => Failure::Condition,
        object_store::Error::NotFound { .. } => Failure::Absent,
        _ => match status {
            Some(status @ 300..500) => Failure::Refused(refusal(place, status, code)),
            Some(status) => {
                Failure::Unclear(format!("{} answers {status} {}", place.host, code.unwrap_or("")))
            }
            None => unanswered(place, error),
        },
    }
}

/// Does a 409 say that the object is there, as Azure does?
fn is_there(code: Option<&str>) -> bool {
    code == Some("BlobAlreadyExists")
}

/// What to say of an answer that refuses.
fn refusal(place: &Place, status: u16, code: Option<&str>) -> String {
    let Place { host, bucket, kind, .. } = place;
    let told = code.map_or(status.to_string(), |code| format!("{status} {code}"));
    match (status, code.unwrap_or("")) {
        (_, "RequestTimeTooSkewed" | "RequestExpired") => {
            format!("{host} refuses the time of this machine ({told}): set its clock")
        }
        (300..=399, _) | (_, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
            format!("{bucket} lies in another region than asked for ({told} of {host}): set the region")
        }
        (401, _)
        | (
            _,
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "AuthenticationFailed"
            | "InvalidToken"
            | "ExpiredToken",
        ) => {
            format!("{host} does not accept the credentials ({told}): set {}", kind.credentials())
        }
        (403, "AuthorizationFailure") => format!(
            "{host} does not accept the credentials, or not from this network ({told}): set {}",
            kind.credentials()
        ),
        (403, _) => format!(
            "{host} forbids it in {bucket} ({told}): these credentials must be allowed to read, write, list and delete there"
        ),
        _ => format!("{host} refuses ({told})"),
    }
}

fn no_bucket(place: &Place) -> String {
    let noun = if place.kind == Kind::Azure { "container" } else { "bucket" };
    format!("{} has no {noun} {}: create it, or mend the address", place.host, place.bucket)
}

/// No answer came: was the request sent?
fn unanswered(place: &Place, error: &object_store::Error) -> Failure {
    let (mut http, mut connecting, mut deepest) = (None, false, None);
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        http = http.or_else(|| error.downcast_ref::<HttpError>());
        connecting |= error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect);
        deepest = Some(error);
        cause = error.source();
    }
    let host = &place.host;
    let deepest: String = deepest.map(line).unwrap_or_default();
    let Some(http) = http else {
        // not sent: the client could not even make the request
        return Failure::Refused(format!("{host} cannot be asked: {deepest}"));
    };
    if connecting || http.kind() == HttpErrorKind::Connect {
        return Failure::Refused(match () {
            () if deepest.contains("certificate") => format!(
                "{host} shows a certificate that is not trusted here ({deepest}): give its authority with ?ca=FILE"
            ),
            () => format!("{host} cannot be reached: {deepest}"),
        });
    }
    Failure::Unclear(match http.kind() {
        HttpErrorKind::Timeout => format!("{host} does not answer in time"),
        _ => format!("the connection to {host} was lost: {deepest}"),
    })
}

fn no_credentials(place: &Place) -> String {
    format!(
        "{} cannot be asked without credentials, and this machine has none of its own: set {}",
        place.host,
        place.kind.credentials()
    )
}

fn line(error: &(dyn Error + 'static)) -> String {
    error.to_string().split(['\n', '\r']).next().unwrap_or_default().chars().take(200).collect()
}

/// The code in the XML that a service answers with.
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric())).then_some(code)
}

/// The status in what the client says.
fn status(text: &str) -> Option<u16> {
    if text.contains("Received redirect without LOCATION") {
        return Some(301);
    }
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_statuses_are_found() {
        let text = "x - Server returned non-2xx status code: 403 Forbidden: <Error><Code>AccessDenied</Code>";
        assert_eq!((status(text), code(text)), (Some(403), Some("AccessDenied")));
        assert_eq!((status("nothing"), code("<Code>a b</Code>")), (None, None));
    }
}
