//! The lease machine, the entry machine, the claim and the steps: by table, and against chance.
#![allow(clippy::unwrap_used, clippy::panic)]

mod machines {
    pub(crate) mod chance;
    pub(crate) mod desk;
    pub(crate) mod items;
    pub(crate) mod items_own;
    pub(crate) mod steps;
    pub(crate) mod table;
}
