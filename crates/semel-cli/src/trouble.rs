//! A command that cannot go on: one line for the person (several if several things are wrong with a file), one code
//! for the script.

use semel::engine::view::LookError;
use semel::store::{OpenError, StoreError};

use crate::exit;

/// What went wrong, and the code to leave with.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) code: u8,
    pub(crate) line: String,
    /// What else is wrong.
    pub(crate) more: Vec<String>,
}

impl Trouble {
    pub(crate) fn config(line: impl Into<String>) -> Trouble {
        Trouble::with_code(exit::CONFIG, line)
    }

    pub(crate) fn input(line: impl Into<String>) -> Trouble {
        Trouble::with_code(exit::INPUT, line)
    }

    pub(crate) fn store(line: impl Into<String>) -> Trouble {
        Trouble::with_code(exit::STORE, line)
    }

    pub(crate) fn with_code(code: u8, line: impl Into<String>) -> Trouble {
        Trouble { code, line: line.into(), more: Vec::new() }
    }

    /// Wrong configuration in all these ways; nothing if there are none.
    pub(crate) fn config_all(lines: Vec<String>) -> Option<Trouble> {
        let mut lines = lines.into_iter();
        let first = lines.next()?;
        Some(Trouble { more: lines.collect(), ..Trouble::config(first) })
    }
}

impl From<OpenError> for Trouble {
    fn from(why: OpenError) -> Trouble {
        match why {
            OpenError::Configuration(line) => Trouble::config(line),
            OpenError::Unavailable(line) => Trouble::store(line),
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(why: StoreError) -> Trouble {
        Trouble::store(why.to_string())
    }
}

impl From<LookError> for Trouble {
    fn from(why: LookError) -> Trouble {
        match why {
            LookError::Store(why) => why.into(),
            LookError::Record(why) => Trouble::config(why.to_string()),
        }
    }
}
