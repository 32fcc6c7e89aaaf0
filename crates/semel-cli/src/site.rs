//! Where a command runs, and with which variables: what only `semel.toml` can say.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::config::Place;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// Where a command runs, and what it is told on top of what it inherits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site {
    pub(crate) directory: Option<PathBuf>,
    pub(crate) env: Vec<(OsString, OsString)>,
}

impl Site {
    /// What the file says of it, resolved.
    pub(crate) fn new(job: &str, place: &Place, around: &Surroundings) -> Result<Site, Trouble> {
        let mut env = Vec::new();
        for (name, reference) in &place.env {
            let value = around.resolve(&format!("{name} of job {job}"), reference)?;
            env.push((OsString::from(name), value.into_owned()));
        }
        if let Some(directory) = &place.directory {
            let wrong = |why: &str| {
                Trouble::config(format!(
                    "directory {} of job {job} {why}; nothing was run",
                    directory.display()
                ))
            };
            match std::fs::metadata(directory) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(wrong("is no folder")),
                Err(why) => return Err(wrong(&format!("cannot be used: {why}"))),
            }
        }
        Ok(Site { directory: place.directory.clone(), env })
    }

    /// Where its program is searched.
    pub(crate) fn path<'a>(&'a self, around: &'a Surroundings) -> Option<&'a OsStr> {
        let own = self.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        own.or_else(|| around.get("PATH"))
    }
}
