//! Notices: by table, and against chance.
#![allow(clippy::unwrap_used, clippy::panic)]

mod alarms {
    pub(crate) mod chance;
    pub(crate) mod table;
}
