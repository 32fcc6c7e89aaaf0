//! What happened to a key, in plain words.
