//! What an address says: where the server is, as whom, in which schema, and how far its certificate is checked.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::{OpenError, Settings};
use super::{schema, tls};

/// An address that was read.
#[derive(Clone)]
pub(super) struct Address {
    /// One for each host, in their order.
    pub(super) hosts: Vec<Config>,
    /// How long one of them may take, TLS and the password's exchange included: the next must still have its turn.
    pub(super) patience: Duration,
    /// The one that took the last connection.
    pub(super) last: Arc<AtomicUsize>,
    pub(super) tls: MakeRustlsConnect,
    pub(super) schema: String,
    pub(super) user: String,
    pub(super) database: String,
    /// Host, port and database, for people. No secret.
    pub(super) place: String,
    pub(super) trust: tls::Trust,
}

/// What stands in the address and is ours to read.
#[derive(Default)]
struct Options {
    schema: Option<String>,
    sslmode: Option<String>,
    sslrootcert: Option<String>,
}

/// The options that the driver reads itself.
const DRIVER: [&str; 17] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
];

/// The longest that a connection may leave what was sent unanswered: the system takes no more than so much.
const LONGEST_SILENCE: Duration = Duration::from_secs(24 * 3600);

impl Address {
    /// Read it. What is said of a wrong one never repeats it.
    pub(super) fn read(url: &str, settings: &Settings) -> Result<Address, OpenError> {
        let wrong = |why: String| OpenError::Configuration(why);
        let (rest, options) = split(url)?;
        let mut config = Config::from_str(&rest).map_err(|why| {
            let said = std::error::Error::source(&why).map(ToString::to_string).unwrap_or_default();
            // only what names an option of its own; the rest may hold a part of the password
            let named = Some(said).filter(|said| said.starts_with("invalid value for option"));
            let named = named.map(|said| format!(" ({said})")).unwrap_or_default();
            wrong(format!(
                "the address is no PostgreSQL address{named}: write it as in postgres://USER@HOST:5432/DATABASE; characters such as @ : / in a password are written as %40 %3A %2F"
            ))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(wrong(
                "the address names no host: write it as in postgres://USER@HOST:5432/DATABASE, or a socket's folder as %2Fvar%2Frun%2Fpostgresql".to_owned(),
            ));
        }
        // a piece of a password, more likely than a name: it must not be said, nor asked for in the DNS
        let odd = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(odd) || config.get_dbname().is_some_and(|name| name.contains('@')) {
            return Err(wrong(
                "the address has more than one @: one that belongs to the password is written as %40"
                    .to_owned(),
            ));
        }
        if config.get_password().is_none()
            && let Some(password) = settings.variable("PGPASSWORD")
        {
            config.password(password);
        }
        if config.get_application_name().is_none() {
            config.application_name("semel");
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(settings.deadline.min(LONGEST_SILENCE));
        }
        if !named(&rest, "keepalives_idle") {
            config.keepalives_idle(Duration::from_secs(60));
        }
        let schema = options.schema.unwrap_or_else(|| schema::DEFAULT_SCHEMA.to_owned());
        schema::check(&schema)?;
        let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)))
            && config.get_hostaddrs().is_empty();
        let (mode, trust) = mode(options.sslmode.as_deref(), options.sslrootcert.as_deref(), local)?;
        config.ssl_mode(mode);
        let authorities = options.sslrootcert.as_deref().filter(|path| *path != "system");
        let tls = MakeRustlsConnect::new(Arc::unwrap_or_clone(tls::config(trust, authorities)?));
        let user = config.get_user().unwrap_or("the user of this process").to_owned();
        let database = config.get_dbname().unwrap_or(&user).to_owned();
        let place = place(&config, &database);
        let many = config.get_hosts().len().max(config.get_hostaddrs().len());
        let share = share(settings.deadline, many);
        if config.get_connect_timeout().is_none() {
            // a name may stand for several machines: one that takes no connection must not keep from the next
            config.connect_timeout(share.min(settings.deadline / 2));
        }
        let hosts = (0..many).map(|i| alone(&config, i)).collect();
        Ok(Address {
            hosts,
            patience: share,
            last: Arc::default(),
            tls,
            schema,
            user,
            database,
            place,
            trust,
        })
    }
}

/// How long each of so many hosts may take, so that all of them fit into the deadline with a share left for the verb. One
/// alone has all of it, and a verb's own deadline ends before that.
fn share(deadline: Duration, hosts: usize) -> Duration {
    match u32::try_from(hosts) {
        Ok(hosts @ 2..) => deadline / hosts.saturating_add(1),
        _ => deadline.saturating_mul(2),
    }
}

/// The same, for this host alone.
fn alone(config: &Config, i: usize) -> Config {
    let mut one = Config::new();
    let _ = match config.get_hosts().get(i) {
        Some(Host::Tcp(name)) => one.host(name),
        Some(Host::Unix(path)) => one.host_path(path),
        None => &mut one,
    };
    if let Some(address) = config.get_hostaddrs().get(i) {
        one.hostaddr(*address);
    }
    if let Some(port) = config.get_ports().get(i).or(config.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(database) = config.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(patience) = config.get_connect_timeout() {
        one.connect_timeout(*patience);
    }
    if let Some(silence) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*silence);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding());
    one
}

/// Does the address have this option?
fn named(url: &str, option: &str) -> bool {
    let pairs = url.split_once('?').map_or("", |(_, query)| query).split('&');
    pairs.filter_map(|pair| pair.split_once('=')).any(|(name, _)| name == option)
}

/// Take our own options out of the address.
fn split(url: &str) -> Result<(String, Options), OpenError> {
    let mut options = Options::default();
    let Some((head, query)) = url.split_once('?') else { return Ok((url.to_owned(), options)) };
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = match name {
            "schema" => &mut options.schema,
            "sslmode" => &mut options.sslmode,
            "sslrootcert" => &mut options.sslrootcert,
            name if DRIVER.contains(&name) => {
                rest.push(pair);
                continue;
            }
            _ => {
                return Err(OpenError::Configuration(format!(
                    "the address has an option that is not known (a ? in a password is written as %3F): there are schema, sslmode, sslrootcert, {}",
                    DRIVER.join(", ")
                )));
            }
        };
        *place = Some(decoded(value));
    }
    let rest = if rest.is_empty() { head.to_owned() } else { format!("{head}?{}", rest.join("&")) };
    Ok((rest, options))
}

fn decoded(value: &str) -> String {
    // a plus is a plus here
    let value = value.replace('+', "%2B");
    url::form_urlencoded::parse(value.as_bytes())
        .next()
        .map(|(name, _)| name.into_owned())
        .unwrap_or_default()
}

/// As libpq means it.
fn mode(
    sslmode: Option<&str>,
    sslrootcert: Option<&str>,
    local: bool,
) -> Result<(SslMode, tls::Trust), OpenError> {
    use tls::Trust;
    let verify = if sslrootcert.is_some() { Trust::Authority } else { Trust::Anyone };
    if sslrootcert.is_some() && matches!(sslmode, None | Some("prefer" | "disable")) {
        let default = sslmode.is_none() && sslrootcert == Some("system") && !local;
        if !default {
            return Err(OpenError::Configuration(
                "sslrootcert= of the address is looked at only with sslmode=verify-full, verify-ca or require: add one of them"
                    .to_owned(),
            ));
        }
    }
    Ok(match sslmode {
        // a socket on this machine has none
        None | Some("prefer" | "disable") if local => (SslMode::Disable, Trust::Anyone),
        Some("disable") => (SslMode::Disable, Trust::Anyone),
        None if sslrootcert == Some("system") => (SslMode::Require, Trust::AuthorityAndName),
        None | Some("prefer") => (SslMode::Prefer, Trust::Anyone),
        Some("require") => (SslMode::Require, verify),
        Some("verify-ca") => (SslMode::Require, Trust::Authority),
        Some("verify-full") => (SslMode::Require, Trust::AuthorityAndName),
        Some(_) => {
            return Err(OpenError::Configuration(
                "sslmode= of the address is wrong: it is disable, prefer, require, verify-ca or verify-full"
                    .to_owned(),
            ));
        }
    })
}

fn place(config: &Config, database: &str) -> String {
    let port = |i: usize| config.get_ports().get(i).or(config.get_ports().first()).copied().unwrap_or(5432);
    let hosts: Vec<String> = match config.get_hosts() {
        [] => config.get_hostaddrs().iter().enumerate().map(|(i, ip)| format!("{ip}:{}", port(i))).collect(),
        hosts => hosts
            .iter()
            .enumerate()
            .map(|(i, host)| match host {
                Host::Tcp(name) => format!("{name}:{}", port(i)),
                Host::Unix(path) => socket(path),
            })
            .collect(),
    };
    format!("{}/{database}", hosts.join(","))
}

fn socket(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(url: &str) -> Result<Address, String> {
        Address::read(url, &Settings::default()).map_err(|why| why.to_string())
    }

    #[test]
    fn an_address_is_read() {
        let read = read("postgres://me:hunter2@db:6000/work?schema=other&sslmode=require&connect_timeout=3")
            .unwrap();
        assert_eq!(
            (read.schema.as_str(), read.user.as_str(), read.database.as_str()),
            ("other", "me", "work")
        );
        assert_eq!(read.place, "db:6000/work");
        assert_eq!((read.hosts[0].get_ssl_mode(), read.trust), (SslMode::Require, tls::Trust::Anyone));
    }

    #[test]
    fn every_host_has_its_share_of_the_deadline() {
        let two = read("postgres://me:x@one:6000,two:6001/work?target_session_attrs=read-write&options=-cx")
            .unwrap();
        let ports: Vec<u16> = two.hosts.iter().map(|host| host.get_ports()[0]).collect();
        assert_eq!((ports, two.patience), (vec![6000, 6001], Settings::DEADLINE / 3));
        for host in &two.hosts {
            assert_eq!(
                (host.get_hosts().len(), host.get_user(), host.get_options()),
                (1, Some("me"), Some("-cx"))
            );
            assert_eq!(host.get_connect_timeout(), Some(&(Settings::DEADLINE / 3)));
            assert_eq!(
                format!("{:?}", host.get_target_session_attrs()),
                format!("{:?}", tokio_postgres::config::TargetSessionAttrs::ReadWrite)
            );
        }
        let one = read("postgres://me@db/work").unwrap();
        assert!(one.patience > Settings::DEADLINE, "one alone has all the time that a verb has");
    }

    #[test]
    fn a_socket_is_an_escaped_folder_and_has_no_tls() {
        let read = read("postgresql://me@%2Ftmp%2Fa/work").unwrap();
        assert_eq!((read.place.as_str(), read.hosts[0].get_ssl_mode()), ("/tmp/a/work", SslMode::Disable));
    }

    #[test]
    fn the_password_may_come_from_a_variable() {
        let variables = [("PGPASSWORD".to_owned(), "x".to_owned())].into();
        let settings = Settings { variables, ..Settings::default() };
        let read = Address::read("postgres://me@db/work", &settings).unwrap();
        assert_eq!(read.hosts[0].get_password(), Some(&b"x"[..]));
    }

    #[test]
    fn what_the_address_says_of_silence_counts() {
        let silence = |options: &str| {
            let config = read(&format!("postgres://me@db/work{options}")).unwrap().hosts.remove(0);
            (config.get_tcp_user_timeout().copied(), config.get_keepalives_idle())
        };
        let seconds = Duration::from_secs;
        assert_eq!(silence(""), (Some(Settings::DEADLINE), seconds(60)));
        assert_eq!(silence("?tcp_user_timeout=3&keepalives_idle=7200"), (Some(seconds(3)), seconds(7200)));
    }

    #[test]
    fn authorities_that_would_not_be_asked_are_refused() {
        for options in [
            "sslrootcert=/ca.pem",
            "sslmode=prefer&sslrootcert=system",
            "sslmode=disable&sslrootcert=/ca.pem",
        ] {
            let why = read(&format!("postgres://me@db/work?{options}")).err().unwrap_or_default();
            assert!(why.contains("sslmode=verify-full"), "{options}: {why}");
        }
    }

    #[test]
    fn what_is_said_of_a_wrong_address_repeats_no_secret() {
        for url in [
            "postgres://me:hunter2@db:port/work",
            "postgres://me:p@hunter2@db/work",
            "postgres://me:p@db/hunter2@x",
            "postgres://me:p?hunter2@db/work",
            "postgres://me:p@db/work?hunter2=1",
            "postgres://me:p@db/work?schema=hunter2-",
            "postgres://me:p@db/work?sslmode=hunter2",
            "postgres:///hunter2",
        ] {
            let why = read(url).err().unwrap_or_default();
            assert!(!why.is_empty() && !why.contains("hunter2"), "{url}: {why}");
        }
    }
}
