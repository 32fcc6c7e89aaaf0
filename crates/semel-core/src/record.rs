//! How records are named and written in a store.
//!
//! A store keeps bytes under a name; this module decides both. Names are built from escaped parts, so that no
//! job, slot or resource can reach into another's range, and sort so that a prefix selects one job or one slot.
//!
//! ```text
//! lease/<resource>
//! entry/<job>/<slot or nothing>/<key>
//! item/<job>/<slot or nothing>/<key of the batch>/<key of the item>
//! step/<job>/<slot or nothing>/<key of the run>/<key of the step>
//! output/<job>/<slot or nothing>/<key of the run>/<key of the step>/<attempt>/<piece>
//! journal/<job>/<slot or nothing>/<key>/<time>-<nonce>
//! calendar/<job>/<key of the job with its parameters>
//! alarm/<job>
//! alarm//check
//! ```

use std::cmp::Ordering;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::name::{Name, escape};
use crate::token::Nonce;
use crate::work::{Fields, Work};

/// The version of the records that this build writes.
pub const FORMAT: u32 = 1;

/// The longest value that a store is asked to keep.
pub const VALUE_LIMIT: usize = 512 * 1024;

/// The name of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(String);

impl RecordKey {
    /// Everything that a ledger consists of, by the beginning of its names; leases first.
    pub const PREFIXES: &'static [&'static str] =
        &["lease/", "entry/", "item/", "step/", "output/", "journal/", "calendar/", "alarm/"];

    /// The lease of a resource.
    pub fn lease(resource: &Name) -> RecordKey {
        RecordKey(format!("lease/{}", resource.escaped()))
    }

    /// The entry of a work. Those of steps lie apart, by their run, and those of items, by their batch: a run may have
    /// thousands, a batch millions.
    pub fn entry(work: &Work) -> RecordKey {
        if let Some(run) = work.run() {
            return RecordKey(format!("step/{}/{}", Self::work_path(&run), work.key()));
        }
        match work.batch() {
            None => RecordKey(format!("entry/{}", Self::work_path(work))),
            Some(batch) => RecordKey(format!("{}{}", Self::items_of(&batch), work.key())),
        }
    }

    /// The items of a batch, by its work.
    pub fn items_of(batch: &Work) -> String {
        format!("item/{}/", Self::work_path(batch))
    }

    /// The items of a job, or of all jobs.
    pub fn items_of_job(job: Option<&Name>) -> String {
        job.map_or("item/".to_owned(), |job| format!("item/{}/", job.escaped()))
    }

    /// A piece of what a step wrote; `of` is the attempt's own.
    pub fn output(work: &Work, of: &Nonce, piece: u32) -> RecordKey {
        let entry = Self::entry(work).0;
        let path = entry.split_once('/').map_or(entry.as_str(), |(_, path)| path);
        RecordKey(format!("output/{path}/{of}/{piece:06x}"))
    }

    /// What the steps of a work wrote.
    pub fn outputs_of(work: &Work) -> String {
        format!("output/{}/", Self::work_path(work))
    }

    /// The step that a piece of output is of, and the attempt that wrote it.
    pub fn step_of_output(&self) -> Option<(RecordKey, Nonce)> {
        let (path, _piece) = self.0.strip_prefix("output/")?.rsplit_once('/')?;
        let (path, of) = path.rsplit_once('/')?;
        Some((RecordKey(format!("step/{path}")), of.parse().ok()?))
    }

    /// Everything that steps wrote.
    pub fn outputs() -> &'static str {
        "output/"
    }

    /// The steps of a work, or of all works.
    pub fn steps_of(work: Option<&Work>) -> String {
        work.map_or("step/".to_owned(), |work| format!("step/{}/", Self::work_path(work)))
    }

    /// A note in the journal of a work; `now_ms` orders it, `nonce` makes it unique.
    pub fn journal(work: &Work, now_ms: u64, nonce: &Nonce) -> RecordKey {
        RecordKey(format!("journal/{}/{now_ms:012x}-{nonce}", Self::work_path(work)))
    }

    /// Everything in the journal of a work.
    pub fn journal_of(work: &Work) -> String {
        format!("journal/{}/", Self::work_path(work))
    }

    /// The entries of a job, or of all jobs.
    pub fn entries_of(job: Option<&Name>) -> String {
        job.map_or("entry/".to_owned(), |job| format!("entry/{}/", job.escaped()))
    }

    /// The calendar of the schedule that this work is a slot of: one for each job and set of parameters.
    pub fn calendar(job: &Name, with: &Fields) -> RecordKey {
        let series = Work::with(job.clone(), with.clone()).unwrap_or_else(|_| Work::once(job.clone()));
        RecordKey(format!("calendar/{}/{}", job.escaped(), series.key()))
    }

    /// The calendars of a job, or of all jobs.
    pub fn calendars_of(job: Option<&Name>) -> String {
        job.map_or("calendar/".to_owned(), |job| format!("calendar/{}/", job.escaped()))
    }

    /// All leases.
    pub fn leases() -> &'static str {
        "lease/"
    }

    /// The journal of a job, or of all jobs.
    pub fn journals_of(job: Option<&Name>) -> String {
        job.map_or("journal/".to_owned(), |job| format!("journal/{}/", job.escaped()))
    }

    /// The alarm of a job.
    pub fn alarm(job: &Name) -> RecordKey {
        RecordKey(format!("alarm/{}", job.escaped()))
    }

    /// The alarm of `semel check`: an escaped name holds no slash, so no job has it.
    pub fn check_alarm() -> RecordKey {
        RecordKey("alarm//check".to_owned())
    }

    /// All alarms.
    pub fn alarms() -> &'static str {
        "alarm/"
    }

    fn work_path(work: &Work) -> String {
        let slot = work.slot().map(|slot| escape(slot.as_str())).unwrap_or_default();
        format!("{}/{slot}/{}", work.job().escaped(), work.key())
    }

    /// A name as a store hands it back.
    pub fn from_stored(name: String) -> RecordKey {
        RecordKey(name)
    }

    /// The name as a store keeps it: ASCII, without control characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The version of a record, as the store that wrote it chose it. Opaque: only equality means something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(Box<str>);

impl Version {
    /// A version by its text.
    pub fn new(text: impl Into<Box<str>>) -> Version {
        Version(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<i64> for Version {
    fn from(number: i64) -> Version {
        Version(number.to_string().into())
    }
}

/// What a record must be like for a change to be made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expect {
    /// It does not exist.
    Absent,
    /// It is at this version.
    Version(Version),
    /// It is at this version and its clock has not run out.
    Live(Version),
    /// It is at this version and its clock has run out: asked again at the write, because a store's clock that
    /// is set back may make a lapsed lease live, and renewed, between the look and the write.
    Lapsed(Version),
}

/// What the store's own clock says of a record that has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It runs out in so many milliseconds.
    Live {
        /// Milliseconds left.
        left_ms: u64,
    },
    /// It ran out so many milliseconds ago.
    Lapsed {
        /// Milliseconds since.
        for_ms: u64,
    },
}

/// A record's value as somebody saw it, with what is needed to replace it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen<T> {
    /// What stood there.
    pub value: T,
    /// At which version.
    pub version: Version,
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A later Semel wrote it.
    #[error(
        "record {key} was written by a newer Semel (format {found}, this one reads {FORMAT}): upgrade this one"
    )]
    Newer {
        /// Which record.
        key: String,
        /// Its format.
        found: u64,
    },
    /// It cannot be read.
    #[error("record {key} is damaged: {why}")]
    Damaged {
        /// Which record.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// It would be larger than a store is asked to keep.
    #[error("record {key} would hold {size} bytes, more than {VALUE_LIMIT}")]
    TooLarge {
        /// Which record.
        key: String,
        /// Its size.
        size: usize,
    },
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    v: u32,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Deserialize)]
struct Format {
    v: u64,
}

/// Most records fit in so many bytes.
const USUAL: usize = 1_024;

/// The bytes of a record.
pub fn encode<T: Serialize>(key: &RecordKey, value: &T) -> Result<Vec<u8>, RecordError> {
    let mut bytes = Vec::with_capacity(USUAL);
    serde_json::to_writer(&mut bytes, &Envelope { v: FORMAT, value })
        .map_err(|why| RecordError::Damaged { key: key.to_string(), why: why.to_string() })?;
    if bytes.len() > VALUE_LIMIT {
        return Err(RecordError::TooLarge { key: key.to_string(), size: bytes.len() });
    }
    Ok(bytes)
}

/// The value of a record's bytes.
pub fn decode<T: DeserializeOwned>(key: &RecordKey, bytes: &[u8]) -> Result<T, RecordError> {
    let damaged =
        |why: serde_json::Error| RecordError::Damaged { key: key.to_string(), why: why.to_string() };
    let format: Format = serde_json::from_slice(bytes).map_err(damaged)?;
    match format.v.cmp(&u64::from(FORMAT)) {
        Ordering::Equal => {}
        Ordering::Greater => return Err(RecordError::Newer { key: key.to_string(), found: format.v }),
        Ordering::Less => {
            let why = format!("it has format {}, which no Semel wrote", format.v);
            return Err(RecordError::Damaged { key: key.to_string(), why });
        }
    }
    serde_json::from_slice(bytes).map_err(damaged)
}
