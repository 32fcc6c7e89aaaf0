//! semel
