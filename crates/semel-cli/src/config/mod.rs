//! `semel.toml`: jobs with all their policies, so that a crontab line can be `semel run publish`.
//!
//! ```text
//! search ──▶ read (spans, every fault) ──▶ Config ──▶ overlay onto RunArgs ──▶ plan
//! ```
//!
//! One table, [`keys::KEYS`], has every key with its kind: it drives reading, the schema for editors and what is
//! done with a value. What a value means is decided by `plan`, as for flags; here it is only known *where* it
//! stands. Flags go before the file, key by key; a job's keys go before `[defaults]`.
//!
//! A fault in one job does not stop the others: it stops that job, and `semel config check`. A fault in what all
//! share stops all. Nothing secret is in the file: the store's address and variables may be references to the
//! environment, and what looks like a secret is refused. That is a guess by names and by the form of an address: a
//! secret in a command's arguments is not found. Variables that hold the file's own secrets (the ledger, lanes, pings)
//! are not handed to commands.

use std::path::{Path, PathBuf};

use crate::args::RunArgs;
use crate::trouble::Trouble;

pub(crate) mod batches;
pub(crate) mod faults;
pub(crate) mod keys;
pub(crate) mod lanes;
mod overlay;
mod read;
pub(crate) mod schema;
pub(crate) mod search;
mod values;

#[cfg(test)]
mod any_text_tests;
#[cfg(test)]
mod batches_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod tests;

use faults::Fault;
use keys::{Given, Key};
use lanes::LaneTable;

/// What the file is called.
pub(crate) const NAME: &str = "semel.toml";

/// A file that was found, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Config {
    /// Where it was found.
    pub(crate) path: PathBuf,
    /// The ledger.
    pub(crate) store: Option<Reference>,
    /// How people are told: by their names, those with faults included.
    pub(crate) lanes: Vec<LaneTable>,
    /// For all jobs.
    defaults: Vec<(&'static Key, Given)>,
    /// By their names, those with faults included.
    pub(crate) jobs: Vec<Job>,
    /// The same, of batches.
    pub(crate) batches: Vec<Job>,
    /// All that is wrong, from top to bottom.
    pub(crate) faults: Vec<Fault>,
}

/// A job of the file.
#[derive(Debug)]
pub(crate) struct Job {
    /// What it is called.
    pub(crate) name: String,
    /// Where its name stands.
    at: std::ops::Range<usize>,
    /// Where its keys stand.
    places: Vec<(&'static str, std::ops::Range<usize>)>,
    /// What is said of it.
    keys: Vec<(&'static Key, Given)>,
}

/// A value, or the name of the variable that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    Plain(String),
    Variable(String),
}

impl Reference {
    /// The variable, if it is one.
    pub(crate) fn variable(&self) -> Option<&str> {
        if let Reference::Variable(name) = self { Some(name) } else { None }
    }
}

/// What a file says of notices, where that is more than flags can say: what is not said is told from what is said not
/// to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices {
    /// Names of lanes.
    pub(crate) lanes: Option<Vec<String>>,
    pub(crate) ping: Option<Reference>,
    pub(crate) private: Option<bool>,
    pub(crate) summary: Option<bool>,
}

/// What a command is started with besides its arguments: only a file says it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// Where it runs.
    pub(crate) directory: Option<PathBuf>,
    /// On top of what it inherits.
    pub(crate) env: Vec<(String, Reference)>,
    /// Who is told.
    pub(crate) notices: Notices,
    /// What only a batch has.
    pub(crate) batch: batches::BatchTable,
}

impl Config {
    /// The folder in which the file lies.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// What is wrong with what all commands need: the syntax, and where the ledger is.
    pub(crate) fn check_store(&self) -> Result<(), Trouble> {
        self.refuse(|fault| fault.of == faults::Of::Store || fault.of == faults::Of::Syntax)
    }

    /// What is wrong with one job, or with what all jobs share.
    fn check_job(&self, name: &str) -> Result<(), Trouble> {
        let layers = self.jobs.iter().filter(|job| job.name == name).map(|job| &job.keys);
        let told = |lane: &String| {
            let lists =
                layers.clone().chain([&self.defaults]).flatten().filter(|(key, _)| key.name == "notify");
            lists.into_iter().any(|(_, given)| matches!(given, Given::List(list) if list.contains(lane)))
        };
        self.refuse(|fault| match &fault.of {
            faults::Of::Job(job) => job == name,
            faults::Of::Batch(_) => false,
            faults::Of::Lane(lane) => told(lane),
            _ => true,
        })
    }

    /// What is wrong with one lane.
    pub(crate) fn check_lane(&self, name: &str) -> Result<(), Trouble> {
        self.refuse(|fault| match &fault.of {
            faults::Of::Lane(lane) => lane == name,
            of => *of == faults::Of::Syntax,
        })
    }

    /// The variables that hold secrets of the file's own: no command inherits them.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        let keys = self.jobs.iter().chain(&self.batches).flat_map(|job| &job.keys).chain(&self.defaults);
        let pings = keys.filter_map(|(_, given)| match given {
            Given::Reference(reference) => reference.variable(),
            _ => None,
        });
        let store = self.store.iter().filter_map(Reference::variable);
        store.chain(pings).chain(self.lanes.iter().flat_map(LaneTable::variables))
    }

    fn refuse(&self, counts: impl Fn(&Fault) -> bool) -> Result<(), Trouble> {
        let lines: Vec<String> =
            self.faults.iter().filter(|fault| counts(fault)).map(|fault| fault.line(&self.path)).collect();
        match Trouble::config_all(lines) {
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    /// The arguments of this job: what was typed, and beneath it what the file says.
    pub(crate) fn job(&self, name: &str, typed: &RunArgs) -> Result<RunArgs, Trouble> {
        self.check_job(name)?;
        let Some(job) = self.jobs.iter().find(|job| job.name == name) else {
            let names: Vec<&str> = self.jobs.iter().map(|job| job.name.as_str()).collect();
            return Err(Trouble::config(match faults::nearest(name, names.iter().copied()) {
                Some(near) => {
                    format!("{} has no job {name:?}: did you mean {near:?}?", self.path.display())
                }
                None => format!(
                    "{} has no job {name:?}: write [jobs.{name}], or list what it has with: semel jobs",
                    self.path.display()
                ),
            }));
        };
        Ok(self.filled(job, typed))
    }

    /// As [`Config::job`], of a job that is there and well.
    pub(crate) fn filled(&self, job: &Job, typed: &RunArgs) -> RunArgs {
        overlay::fill(typed, &job.name, &job.keys, &self.defaults, self.folder())
    }

    /// What all jobs share, without any job.
    pub(crate) fn defaults_alone(&self) -> RunArgs {
        overlay::fill(&RunArgs::default(), "", &[], &self.defaults, self.folder())
    }

    /// Is something wrong with this job itself?
    pub(crate) fn is_faulty(&self, job: &Job) -> bool {
        self.check_job(&job.name).is_err()
    }
}
