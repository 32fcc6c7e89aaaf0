//! The lease machine, the entry machine and the claim: by table, and against chance.
#![allow(clippy::unwrap_used, clippy::panic)]

mod machines {
    pub(crate) mod chance;
    pub(crate) mod desk;
    pub(crate) mod table;
}
