//! SQL: a fence inside the transaction of the user.
