//! From an address to a store.
//!
//! Theory. Opening a store over the network connects nothing: the driver reads its address, and its first verb
//! connects. So a wrong address is told before anything else happens, a store that is down is told by the verb that
//! needed it, and a connection that breaks later is made again in the same way.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{OpenError, Store};

/// What a driver may need beyond the address.
#[derive(Clone)]
pub struct Settings {
    /// Variables that the service's own clients read, such as `AWS_ACCESS_KEY_ID` or `PGPASSWORD`. Secrets.
    pub variables: BTreeMap<String, String>,
    /// The longest that one verb may take, connecting included.
    pub deadline: Duration,
    /// May a SQLite store live on the caller's thread? Right for a process with one thread that waits anyway.
    pub in_place: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { variables: BTreeMap::new(), deadline: Settings::DEADLINE, in_place: false }
    }
}

impl Settings {
    /// How long a verb may take unless somebody says otherwise.
    pub const DEADLINE: Duration = Duration::from_secs(10);

    /// The variables that some driver reads.
    pub const VARIABLES: [&'static str; 22] = [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ROLE_ARN",
        "AWS_ROLE_SESSION_NAME",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_ENDPOINT",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "PGPASSWORD",
        "REDIS_PASSWORD",
        "NATS_CREDS",
    ];

    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

/// Only the names: the values are secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.variables.keys().collect();
        f.debug_struct("Settings").field("variables", &names).field("deadline", &self.deadline).finish()
    }
}

/// What an address means, before anything is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `memory:`
    Memory,
    /// `sqlite:PATH`
    Sqlite(PathBuf),
    /// `dir:PATH`
    Dir(PathBuf),
    /// A service, by the scheme of its address.
    Service(&'static str),
}

/// The schemes of services, and what each is called.
const SERVICES: [(&str, &str); 10] = [
    ("postgres", "PostgreSQL"),
    ("postgresql", "PostgreSQL"),
    ("redis", "Redis"),
    ("rediss", "Redis"),
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("nats", "NATS"),
    ("s3", "S3"),
    ("gs", "GCS"),
    ("az", "Azure"),
];

/// As it is said to people who gave something else.
pub(crate) const KNOWN: &str =
    "sqlite:PATH, dir:PATH, postgres://, redis://, etcd://, nats://, s3://, gs:// or az://";

impl Address {
    /// Read an address. What is said of a wrong one never repeats it: it may hold a password.
    pub fn parse(url: &str) -> Result<Address, OpenError> {
        let wrong = |why: String| Err(OpenError::Configuration(why));
        let Some((scheme, rest)) = url.split_once(':') else {
            return wrong("it is no address: write it as in sqlite:/var/lib/semel/ledger.db".to_owned());
        };
        let path = || PathBuf::from(rest.strip_prefix("//").unwrap_or(rest));
        match scheme {
            "memory" => Ok(Address::Memory),
            "sqlite" if path().as_os_str().is_empty() => {
                wrong("sqlite: has no path: write its path, as in sqlite:/var/lib/semel/ledger.db".to_owned())
            }
            "dir" if path().as_os_str().is_empty() => {
                wrong("dir: has no path: write its path, as in dir:/mnt/shared/semel".to_owned())
            }
            // an option that was meant would begin another store beside the right one
            "dir" if rest.contains('?') => {
                wrong("dir: takes a path and no options: leave out the question mark".to_owned())
            }
            "sqlite" => Ok(Address::Sqlite(path())),
            "dir" => Ok(Address::Dir(path())),
            _ => match SERVICES.iter().find(|(known, _)| *known == scheme) {
                Some((known, _)) if rest.starts_with("//") => Ok(Address::Service(known)),
                Some((known, name)) => wrong(format!("{name} is reached by {known}://HOST/…")),
                // a name only if it can be one: anything else may be a part of a secret
                None if scheme.len() <= 16 && scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                    wrong(format!("there is no store {scheme:?}: use {KNOWN}"))
                }
                None => wrong(format!("it is no address: use {KNOWN}")),
            },
        }
    }

    /// The path on this machine, for a store that lies there.
    pub fn path(&self) -> Option<&PathBuf> {
        match self {
            Address::Sqlite(path) | Address::Dir(path) => Some(path),
            Address::Memory | Address::Service(_) => None,
        }
    }
}

/// The store of this address. Nothing is connected yet.
pub fn open(url: &str, settings: &Settings) -> Result<Arc<dyn Store>, OpenError> {
    match Address::parse(url)? {
        Address::Memory => Ok(Arc::new(super::memory::Memory::new())),
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) if settings.in_place => {
            Ok(Arc::new(super::sqlite::Sqlite::open_in_place(&path)?))
        }
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => Ok(Arc::new(super::sqlite::Sqlite::open(&path)?)),
        #[cfg(feature = "dir")]
        Address::Dir(path) => Ok(Arc::new(super::dir::Dir::open(&path, settings)?)),
        Address::Service(scheme) => service(scheme, url, settings),
        #[cfg(not(all(feature = "sqlite", feature = "dir")))]
        _ => Err(missing("this store")),
    }
}

#[cfg_attr(
    not(any(
        feature = "postgres",
        feature = "redis",
        feature = "etcd",
        feature = "nats",
        feature = "objects"
    )),
    allow(unused_variables)
)]
fn service(scheme: &'static str, url: &str, settings: &Settings) -> Result<Arc<dyn Store>, OpenError> {
    match scheme {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(super::postgres::Postgres::new(url, settings)?)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => Ok(Arc::new(super::redis::Redis::new(url, settings)?)),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => Ok(Arc::new(super::etcd::Etcd::new(url, settings)?)),
        #[cfg(feature = "nats")]
        "nats" => Ok(Arc::new(super::nats::Nats::new(url, settings)?)),
        #[cfg(feature = "objects")]
        "s3" | "gs" | "az" => Ok(Arc::new(super::objects::Objects::new(url, settings)?)),
        _ => Err(missing(scheme)),
    }
}

#[allow(dead_code)] // not where every store is in
fn missing(scheme: &str) -> OpenError {
    OpenError::Configuration(format!(
        "this build of semel was made without {scheme}: use one with all stores"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!(Address::parse("memory:").unwrap(), Address::Memory);
        assert_eq!(Address::parse("sqlite:/a/b").unwrap(), Address::Sqlite("/a/b".into()));
        assert_eq!(Address::parse("sqlite:///a/b").unwrap(), Address::Sqlite("/a/b".into()));
        assert_eq!(Address::parse("dir:a").unwrap(), Address::Dir("a".into()));
        assert_eq!(Address::parse("postgres://u:p@h/d").unwrap(), Address::Service("postgres"));
    }

    #[test]
    fn a_folder_has_no_options() {
        let why = Address::parse("dir:/mnt/semel?mode=0770").unwrap_err().to_string();
        assert!(why.contains("no options"), "{why}");
    }

    #[test]
    fn what_is_said_of_a_wrong_address_repeats_no_secret() {
        for url in ["hunter2", "x y:hunter2", "mysql://me:hunter2@h", "redis:hunter2", "hunter2hunter2!:x"] {
            let why = Address::parse(url).unwrap_err().to_string();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
