//! Named places at which a test may end a process.
//!
//! Compiled only with the feature `crash-points`, which nothing but tests turns on; without it [`point`] is empty.
//! With it, a process that comes to the place named by `CRASH_AT` writes its pid into `$CRASH_DIR/reached` and
//! stops itself; whoever tests it then kills what is to be killed and lets the rest go on (SIGCONT). Only the
//! first process to get there stops.

/// The process is at this place.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_: &str) {}

/// The process is at this place.
#[cfg(feature = "crash-points")]
#[allow(clippy::disallowed_methods)] // read by tests only, and not a setting of the product
pub fn point(name: &str) {
    use std::io::Write;
    let wanted = std::env::var_os("CRASH_AT").filter(|wanted| wanted.as_encoded_bytes() == name.as_bytes());
    let (Some(_), Some(dir)) = (wanted, std::env::var_os("CRASH_DIR")) else { return };
    let draft = std::path::Path::new(&dir).join(format!("reached.{}", std::process::id()));
    let written = std::fs::File::create(&draft).and_then(|mut file| write!(file, "{}", std::process::id()));
    // linked, so that whoever sees the name sees what is in it; and only the first gets it
    let first = written.and_then(|()| std::fs::hard_link(&draft, std::path::Path::new(&dir).join("reached")));
    let _ = std::fs::remove_file(&draft);
    if first.is_ok() {
        // SAFETY: no memory is involved.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}
