//! semel-supervise
