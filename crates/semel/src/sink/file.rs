//! Files: fenced, atomic replacement.
