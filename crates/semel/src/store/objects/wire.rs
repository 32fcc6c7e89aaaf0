//! The HTTP below the services: our TLS, and an ear for what their clients keep to themselves.
//!
//! The time of a service is the `Date` of its answers, and its name is their `Server`; the client of a service hands
//! back neither. So each answer carries both with it, as an extension.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};

use crate::clock::boottime;
use crate::store::{OpenError, tls};

/// How many connections may wait for their next use. As many as a load or a page asks at once.
const IDLE: usize = 16;
/// A service closes what is idle; it is closed here before.
const IDLE_FOR: Duration = Duration::from_secs(4);

/// What an answer said of its moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    /// The service's clock when it answered, in milliseconds since 1970, rounded down to a second.
    pub(super) date_ms: i64,
    /// When its request was sent, on our own watch.
    pub(super) sent: Duration,
}

/// What was heard of a service.
#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<(Option<String>, Option<Answered>)>);

impl Heard {
    /// What it calls itself.
    pub(super) fn name(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The moment of its last answer.
    pub(super) fn last(&self) -> Option<Answered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn hear(&self, name: Option<&str>, answered: Option<Answered>) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = name.filter(|name| heard.0.as_deref() != Some(name)) {
            heard.0 = Some(name.chars().filter(|c| !c.is_control()).take(64).collect());
        }
        heard.1 = answered.or(heard.1);
    }
}

/// Makes the clients of a service speak through us.
#[derive(Clone)]
pub(super) struct Wire {
    client: reqwest::Client,
    heard: Arc<Heard>,
}

impl Wire {
    /// TLS by these authorities; `patience` is how long a connection may take.
    pub(super) fn new(authorities: Option<&str>, patience: Duration) -> Result<Wire, OpenError> {
        let tls = tls::client(authorities)?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured((*tls).clone())
            .user_agent(concat!("semel/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(patience)
            .pool_max_idle_per_host(IDLE)
            .pool_idle_timeout(IDLE_FOR)
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            // who asks again decides that elsewhere
            .retry(reqwest::retry::never())
            .build()
            .map_err(|why| OpenError::Configuration(format!("HTTP cannot be set up: {why}")))?;
        Ok(Wire { client, heard: Arc::default() })
    }

    /// What is heard from now on.
    pub(super) fn heard(&self) -> Arc<Heard> {
        Arc::clone(&self.heard)
    }

    /// The client itself, for the one verb that the services' clients lack.
    pub(super) fn client(&self) -> &reqwest::Client {
        &self.client
    }
}

/// Nothing of a request: it carries signatures.
impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl HttpConnector for Wire {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Wire {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let sent = boottime();
            let mut response = HttpService::call(&self.client, request).await?;
            let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            let answered = text("date").and_then(date_ms).map(|date_ms| Answered { date_ms, sent });
            self.heard.hear(text("server"), answered);
            if let Some(answered) = answered {
                response.extensions_mut().insert(answered);
            }
            Ok(response)
        })
    }
}

/// A date as HTTP writes it.
fn date_ms(text: &str) -> Option<i64> {
    static READ: jiff::fmt::rfc2822::DateTimeParser = jiff::fmt::rfc2822::DateTimeParser::new();
    READ.parse_timestamp(text).ok().map(jiff::Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_as_http_writes_them() {
        assert_eq!(date_ms("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        assert_eq!(date_ms("yesterday"), None);
    }
}
