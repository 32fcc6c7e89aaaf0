//! semel-core
