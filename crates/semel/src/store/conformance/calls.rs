//! The verbs as lines of text, so that one process can have another call them: a client that may be killed.
//!
//! A line in is a [`Call`], a line out is what [`Call::make`] answers. Values are text here: tests choose them.

use std::time::Duration;

use semel_core::record::{Expect, RecordKey, Standing, Version};
use serde::{Deserialize, Serialize};

use crate::store::{Change, Durability, Loaded, Record, Store, StoreError};

/// A verb with what it is asked.
#[derive(Debug, Serialize, Deserialize)]
pub enum Call {
    /// [`Store::load`].
    Load(Vec<String>),
    /// [`Store::swap`], durable.
    Swap(Vec<Told>),
    /// [`Store::touch`].
    Touch(String, String),
}

/// A change, told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Told {
    key: String,
    expect: Condition,
    act: Act,
}

#[derive(Debug, Serialize, Deserialize)]
enum Condition {
    Absent,
    Version(String),
    Live(String),
    Lapsed(String),
}

#[derive(Debug, Serialize, Deserialize)]
enum Act {
    Put { value: String, ttl_ms: Option<u64> },
    Guard,
    Remove,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    key: String,
    version: String,
    value: String,
    live_ms: Option<u64>,
    lapsed_ms: Option<u64>,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Loaded(Vec<Option<Row>>),
    Swapped(Vec<String>),
    Touched,
    Refused { index: usize, key: String, stands: Option<Row> },
    Unavailable(String),
    Unknown(String),
}

impl Call {
    /// A load.
    pub fn load(keys: &[RecordKey]) -> Call {
        Call::Load(keys.iter().map(|key| key.as_str().to_owned()).collect())
    }

    /// A swap.
    pub fn swap(changes: &[Change]) -> Call {
        Call::Swap(changes.iter().map(Told::of).collect())
    }

    /// A touch.
    pub fn touch(key: &RecordKey, version: &Version) -> Call {
        Call::Touch(key.as_str().to_owned(), version.as_str().to_owned())
    }

    /// As one line.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Make the call that this line is, and answer with another.
    pub async fn make(store: &dyn Store, line: &str) -> Result<String, String> {
        let call: Call = serde_json::from_str(line).map_err(|why| format!("no call: {why}"))?;
        let answer = match call {
            Call::Load(keys) => {
                let keys: Vec<RecordKey> = keys.into_iter().map(RecordKey::from_stored).collect();
                let row = |record: Option<Record>| record.as_ref().map(Row::of);
                store
                    .load(&keys)
                    .await
                    .map(|found| Answer::Loaded(found.records.into_iter().map(row).collect()))
            }
            Call::Swap(changes) => {
                let changes: Vec<Change> = changes.into_iter().map(Told::change).collect();
                let text = |version: &Version| version.as_str().to_owned();
                let swapped = store.swap(&changes, Durability::Durable).await;
                swapped.map(|versions| Answer::Swapped(versions.iter().map(text).collect()))
            }
            Call::Touch(key, version) => {
                let touched = store.touch(&RecordKey::from_stored(key), &Version::new(version)).await;
                touched.map(|()| Answer::Touched)
            }
        };
        serde_json::to_string(&answer.unwrap_or_else(Answer::of)).map_err(|why| why.to_string())
    }
}

/// What the line says that answered a load.
pub fn loaded(line: &str) -> Result<Loaded, StoreError> {
    match read(line)? {
        Answer::Loaded(rows) => {
            Ok(Loaded { records: rows.into_iter().map(|row| row.map(Row::record)).collect(), token_floor: 0 })
        }
        other => Err(strange(&other)),
    }
}

/// What the line says that answered a swap.
pub fn swapped(line: &str) -> Result<Vec<Version>, StoreError> {
    match read(line)? {
        Answer::Swapped(versions) => Ok(versions.into_iter().map(Version::new).collect()),
        other => Err(strange(&other)),
    }
}

/// What the line says that answered a touch.
pub fn touched(line: &str) -> Result<(), StoreError> {
    match read(line)? {
        Answer::Touched => Ok(()),
        other => Err(strange(&other)),
    }
}

fn read(line: &str) -> Result<Answer, StoreError> {
    match serde_json::from_str(line) {
        Ok(Answer::Refused { index, key, stands }) => {
            Err(StoreError::refused(index, RecordKey::from_stored(key), stands.map(Row::record)))
        }
        Ok(Answer::Unavailable(why)) => Err(StoreError::Unavailable(why)),
        Ok(Answer::Unknown(why)) => Err(StoreError::Unknown(why)),
        Ok(answer) => Ok(answer),
        // it ended in the middle of a line, or before it
        Err(why) => Err(StoreError::Unknown(why.to_string())),
    }
}

fn strange(answer: &Answer) -> StoreError {
    StoreError::Unknown(format!("another verb was answered: {answer:?}"))
}

impl Answer {
    fn of(error: StoreError) -> Answer {
        match error {
            StoreError::Refused(conflict) => Answer::Refused {
                index: conflict.index,
                key: conflict.key.as_str().to_owned(),
                stands: conflict.stands.as_ref().map(Row::of),
            },
            StoreError::Unavailable(why) => Answer::Unavailable(why),
            StoreError::Unknown(why) => Answer::Unknown(why),
        }
    }
}

impl Told {
    fn of(change: &Change) -> Told {
        let text = |version: &Version| version.as_str().to_owned();
        let expect = match change.expect() {
            Expect::Absent => Condition::Absent,
            Expect::Version(version) => Condition::Version(text(version)),
            Expect::Live(version) => Condition::Live(text(version)),
            Expect::Lapsed(version) => Condition::Lapsed(text(version)),
        };
        let act = match change {
            Change::Put { value, ttl, .. } => Act::Put {
                value: String::from_utf8_lossy(value).into_owned(),
                ttl_ms: ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            },
            Change::Guard { .. } => Act::Guard,
            Change::Remove { .. } => Act::Remove,
        };
        Told { key: change.key().as_str().to_owned(), expect, act }
    }

    fn change(self) -> Change {
        let key = RecordKey::from_stored(self.key);
        let expect = match self.expect {
            Condition::Absent => Expect::Absent,
            Condition::Version(version) => Expect::Version(Version::new(version)),
            Condition::Live(version) => Expect::Live(Version::new(version)),
            Condition::Lapsed(version) => Expect::Lapsed(Version::new(version)),
        };
        match self.act {
            Act::Put { value, ttl_ms } => {
                Change::Put { key, expect, value: value.into_bytes(), ttl: ttl_ms.map(Duration::from_millis) }
            }
            Act::Guard => Change::Guard { key, expect },
            Act::Remove => Change::Remove { key, expect },
        }
    }
}

impl Row {
    fn of(record: &Record) -> Row {
        let (live_ms, lapsed_ms) = match record.standing {
            Some(Standing::Live { left_ms }) => (Some(left_ms), None),
            Some(Standing::Lapsed { for_ms }) => (None, Some(for_ms)),
            None => (None, None),
        };
        Row {
            key: record.key.as_str().to_owned(),
            version: record.version.as_str().to_owned(),
            value: String::from_utf8_lossy(&record.value).into_owned(),
            live_ms,
            lapsed_ms,
        }
    }

    fn record(self) -> Record {
        let live = self.live_ms.map(|left_ms| Standing::Live { left_ms });
        Record {
            key: RecordKey::from_stored(self.key),
            version: Version::new(self.version),
            value: self.value.into_bytes(),
            standing: live.or(self.lapsed_ms.map(|for_ms| Standing::Lapsed { for_ms })),
        }
    }
}
