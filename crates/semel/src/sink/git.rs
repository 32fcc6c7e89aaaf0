//! Git: fenced, atomic pushes.
