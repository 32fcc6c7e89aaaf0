//! What this process was started into. The only reader of the environment, and once.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use jiff::Timestamp;
use semel::clock::{Clock, SystemClock};

use crate::args::Common;
use crate::config::search::Places;
use crate::config::{Config, Reference};
use crate::trouble::Trouble;

/// What this process was started into, read once.
#[derive(Debug)]
pub(crate) struct Surroundings {
    vars: Vec<(OsString, OsString)>,
    /// The file with the jobs, once it was looked for.
    config: OnceCell<Option<Config>>,
}

impl Surroundings {
    #[allow(clippy::disallowed_methods)] // the one place
    pub(crate) fn read() -> Surroundings {
        Surroundings { vars: std::env::vars_os().collect(), config: OnceCell::new() }
    }

    /// As if started into these.
    #[cfg(test)]
    pub(crate) fn of(vars: &[(&str, &str)]) -> Surroundings {
        let vars = vars.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Surroundings { vars, config: OnceCell::new() }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.vars.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str).filter(|value| !value.is_empty())
    }

    /// An absolute path in a variable.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// Where `semel.toml` is looked for.
    pub(crate) fn places(&self, common: &Common) -> Places {
        let flag = common.config.clone().map(|path| ("--config", path));
        let variable = || self.get("SEMEL_CONFIG").filter(|path| !path.is_empty());
        let home = || self.absolute("HOME").map(|home| home.join(".config"));
        Places {
            named: flag.or_else(|| variable().map(|path| ("SEMEL_CONFIG", path.into()))),
            from: std::env::current_dir().ok(),
            config_dir: self.absolute("XDG_CONFIG_HOME").or_else(home),
        }
    }

    /// `semel.toml`, if there is one: looked for once, and perhaps with faults.
    pub(crate) fn config(&self, common: &Common) -> Result<Option<&Config>, Trouble> {
        if self.config.get().is_none() {
            let found = self.places(common).find()?;
            // nobody else can have set it: there is one thread
            let _ = self.config.set(found.map(|found| Config::read(found.path, &found.text)));
        }
        Ok(self.config.get().and_then(Option::as_ref))
    }

    /// What a reference of a file stands for.
    pub(crate) fn resolve<'a>(
        &'a self,
        what: &str,
        reference: &'a Reference,
    ) -> Result<Cow<'a, OsStr>, Trouble> {
        match reference {
            Reference::Plain(text) => Ok(Cow::Borrowed(OsStr::new(text))),
            Reference::Variable(name) => self.get(name).map(Cow::Borrowed).ok_or_else(|| {
                Trouble::config(format!(
                    "{what} is {{ env = \"{name}\" }}, and {name} is not set: set it where Semel is started"
                ))
            }),
        }
    }

    /// Everything, for a command that stays inside the same run.
    pub(crate) fn all(&self) -> &[(OsString, OsString)] {
        &self.vars
    }

    /// What a command inherits: everything but what Semel sets itself, and never what the file keeps out of itself
    /// (the store's address, addresses and secrets of lanes and pings).
    pub(crate) fn inheritable(&self) -> impl Iterator<Item = &(OsString, OsString)> {
        let config = self.config.get().and_then(Option::as_ref);
        let secret: Vec<&str> = config.iter().flat_map(|config| config.variables()).collect();
        self.vars.iter().filter(move |(name, _)| {
            let is_secret = secret.iter().any(|secret| name == secret);
            let name = name.as_bytes();
            (!name.starts_with(b"SEMEL_") || name == b"SEMEL_HELD") && !is_secret
        })
    }

    /// Where Semel keeps what is this user's alone.
    pub(crate) fn state_dir(&self) -> Result<PathBuf, Trouble> {
        self.absolute("XDG_STATE_HOME")
            .or_else(|| self.absolute("HOME").map(|home| home.join(".local/state")))
            .map(|state| state.join("semel"))
            .ok_or_else(|| {
                Trouble::config(
                    "neither XDG_STATE_HOME nor HOME is set: say --store sqlite:PATH, and set HOME",
                )
            })
    }

    /// The leases that the runs around this one hold, innermost last.
    pub(crate) fn held(&self) -> Vec<(String, u64)> {
        let pairs = self.text("SEMEL_HELD").unwrap_or_default().split(',');
        pairs
            .filter_map(|pair| pair.split_once('='))
            .filter_map(|(r, t)| Some((r.to_owned(), t.parse().ok()?)))
            .collect()
    }

    /// Now, by the wall clock: it says which slot is due, and nothing else.
    pub(crate) fn now(&self) -> Result<Timestamp, Trouble> {
        // a test says another time; no released binary knows the word
        #[cfg(feature = "crash-points")]
        if let Some(text) = self.text("SEMEL_NOW") {
            return text.parse().map_err(|why| Trouble::config(format!("SEMEL_NOW {text:?}: {why}")));
        }
        let ms = i64::try_from(SystemClock.wall_ms()).ok();
        ms.and_then(|ms| Timestamp::from_millisecond(ms).ok())
            .ok_or_else(|| Trouble::config("the machine's clock shows a time that no calendar has: set it"))
    }

    /// Who gives a verdict.
    pub(crate) fn person(&self) -> String {
        let name = self.text("SUDO_USER").or_else(|| self.text("USER")).or_else(|| self.text("LOGNAME"));
        name.map_or_else(|| format!("uid {}", uid()), str::to_owned)
    }
}

fn uid() -> u32 {
    // SAFETY: it cannot fail and touches no memory.
    unsafe { libc::getuid() }
}
