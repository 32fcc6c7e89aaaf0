//! Numbers from rounds, the same here and in the benches that are processes of their own.

pub(crate) use semel_testkit::{Ratio, median, quantile};
