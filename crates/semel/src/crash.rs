//! Named places at which a process may be ended.
//!
//! `semel chaos` arms one of them in a run that it started itself: the process is killed there as by `kill -9`. A
//! process that nobody armed pays one load of an atomic for each place that it passes.
//!
//! With the feature `crash-points`, which nothing but tests turns on, a process that comes to the place named by
//! `CRASH_AT` writes its pid into `$CRASH_DIR/reached` and stops itself; whoever tests it then kills what is to be
//! killed and lets the rest go on (SIGCONT). Only the first process to get there stops.

use std::sync::OnceLock;

/// Where this process ends itself; nowhere, if nobody said so.
static ARMED: OnceLock<String> = OnceLock::new();

/// From now on this process is killed at this place. The first word counts.
pub fn arm(name: &str) {
    let _ = ARMED.set(name.to_owned());
}

/// The process is at this place.
#[inline]
pub fn point(name: &str) {
    if ARMED.get().is_some_and(|armed| armed == name) {
        // SAFETY: no memory is involved.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    #[cfg(feature = "crash-points")]
    stop_if_told(name);
}

#[cfg(feature = "crash-points")]
#[allow(clippy::disallowed_methods)] // read by tests only, and not a setting of the product
fn stop_if_told(name: &str) {
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
