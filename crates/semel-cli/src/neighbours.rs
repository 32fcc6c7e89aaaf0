//! What this host's process table says about other owners.

use semel::engine::Neighbours;
use semel_core::owner::Owner;
use semel_core::token::Nonce;
use semel_supervise::process::{self, Gone, Process};

/// The name of the variable by which every process of a run is known.
pub(crate) const RUN_VAR: &str = "SEMEL_RUN";

/// This host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThisHost;

impl Neighbours for ThisHost {
    fn is_gone(&self, owner: &Owner, nonce: &Nonce) -> bool {
        let process = Process { pid: owner.pid, start: owner.start };
        let marker = format!("{RUN_VAR}={nonce}");
        process::run_is_gone(&process, &nonce.to_string(), marker.as_bytes()) == Gone::Gone
    }
}
