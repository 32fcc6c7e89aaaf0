//! `--payload`: a file's content, as the fingerprint that is bound to the key.

use semel_core::canonical::{self, Pointer};
use semel_core::payload::Fingerprint;

use crate::args::RunArgs;
use crate::plan::{quoted, read_bounded};
use crate::trouble::Trouble;

/// Fields of nothing.
pub(crate) fn volatile_alone() -> Trouble {
    Trouble::config("--volatile names fields of a payload: say --payload FILE too")
}

/// The largest payload file.
const PAYLOAD_LIMIT: u64 = 64 * 1024 * 1024;

/// The payload that is bound to the key.
pub(crate) fn payload(args: &RunArgs) -> Result<Option<Fingerprint>, Trouble> {
    let volatile = args
        .volatile
        .iter()
        .map(|text| {
            Pointer::new(text).map_err(|why| Trouble::config(format!("--volatile {}: {why}", quoted(text))))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let Some(path) = &args.payload else {
        if volatile.is_empty() {
            return Ok(None);
        }
        return Err(volatile_alone());
    };
    let wrong = |why: String| Trouble::input(format!("--payload {}: {why}; nothing was run", path.display()));
    let bytes = read_bounded(path, PAYLOAD_LIMIT).map_err(wrong)?;
    match std::str::from_utf8(&bytes).ok().map(canonical::parse) {
        Some(Ok(value)) => {
            Fingerprint::of_json(&value, &volatile).map(Some).map_err(|why| wrong(why.to_string()))
        }
        // a file that sets out to be JSON and fails should be said; any other is bytes
        Some(Err(why)) if !volatile.is_empty() || path.extension().is_some_and(|ext| ext == "json") => {
            Err(wrong(why.to_string()))
        }
        _ => Ok(Some(Fingerprint::of_bytes(&bytes))),
    }
}
