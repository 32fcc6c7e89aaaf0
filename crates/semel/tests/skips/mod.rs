//! A test that cannot be done here says so, so that nobody takes it for done.

/// Said on stdout and, for `cargo xtask test`, in the file that it names.
#[allow(clippy::disallowed_methods)] // that file is named by the environment
pub(crate) fn skipped(name: &str, reason: &str) {
    println!("SKIPPED: {name}: {reason}");
    if let Some(log) = std::env::var_os("SEMEL_SKIP_LOG") {
        let mut log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        std::io::Write::write_all(&mut log, format!("semel {name}: {reason}\n").as_bytes()).unwrap();
    }
}
