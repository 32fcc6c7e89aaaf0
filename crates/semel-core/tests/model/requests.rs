//! What a worker sends, as the rules would have it written.

use semel_core::claim::{After, Write, conclude};
use semel_core::entry::{Ending, Entry, Settle, Stale};
use semel_core::lease::{self, SeenLease};
use semel_core::record::Seen;
use semel_core::token::{Grant, Nonce};

use super::shared::Shared;
use super::store::{Body, RESOURCE, Writes};
use super::worker::{Made, Message, Progress, Run, Why};

/// An outcome on its way to the store.
pub struct Outcome<'a> {
    pub grant: &'a Grant,
    pub ending: &'a Ending,
    pub resource: usize,
    pub run: Run,
    pub after: After,
}

pub fn settle(
    entry: &Seen<Entry>,
    lease: Option<&SeenLease>,
    outcome: &Outcome<'_>,
) -> Result<Message, Stale> {
    let Outcome { grant, ending, resource, run, after } = *outcome;
    let ask = Settle {
        grant,
        ending: ending.clone(),
        result: None,
        output: None,
        failed_tries: 0,
        missed_renewals: 0,
        unrenewed_ms: 0,
        now_ms: 0,
    };
    let conclusion = conclude(entry, lease, &ask, after)?;
    let body = Body::Swap(Shared::new(Writes(conclusion.writes(&RESOURCE[resource]))));
    Ok(Message {
        run: Some(run),
        why: Why::Settle,
        grant: Some(*grant),
        epoch: None,
        so_far: Progress::default(),
        body,
    })
}

/// A script knows only its token; a run knows its nonce too.
pub fn release(
    lease: Option<&SeenLease>,
    grant: &Grant,
    nonce: Option<&Nonce>,
    resource: usize,
    run: Run,
) -> Result<Message, lease::Lost> {
    let released = lease::release(lease, grant.token, nonce, 0)?;
    let body = Body::Swap(Shared::new(Writes(vec![released.write(&RESOURCE[resource])])));
    Ok(Message {
        run: Some(run),
        why: Why::Release,
        grant: Some(*grant),
        epoch: None,
        so_far: Progress::default(),
        body,
    })
}

pub fn made_by(writes: &[Write], versions: &[i64]) -> Made {
    let mut made = Made { lease: 0, entry: 0 };
    for (write, version) in writes.iter().zip(versions) {
        match write {
            // a claim's own lease comes after its guards
            Write::Guard(_) | Write::Lease { .. } => made.lease = *version,
            Write::Entry { .. } => made.entry = *version,
            Write::Stands(_) | Write::Calendar { .. } | Write::Alarm { .. } => {}
        }
    }
    made
}
