//! `cargo xtask test`: every test, and every skip by its name.

use std::fs;

use crate::tools::{call, cargo, install_missing, install_nextest};

pub(crate) fn run(filter: &[String]) -> Result<(), String> {
    install_missing()?;
    install_nextest()?;
    let skips = std::env::temp_dir().join(format!("semel-skips-{}", std::process::id()));
    let _ = fs::remove_file(&skips);
    let tested = call(
        cargo()
            .args(["nextest", "run", "--workspace", "--all-features", "--no-fail-fast"])
            .args(filter)
            // a test that cannot run here says so in this file, by its name and the reason
            .env("SEMEL_SKIP_LOG", &skips),
    );
    let documented = if filter.is_empty() {
        call(cargo().args(["test", "--quiet", "--workspace", "--doc"]))
    } else {
        Ok(())
    };
    let skipped = fs::read_to_string(&skips).unwrap_or_default();
    let _ = fs::remove_file(&skips);
    println!(
        "{} tests skipped themselves{}",
        skipped.lines().count(),
        if skipped.is_empty() { "" } else { ":" }
    );
    for line in skipped.lines() {
        println!("  {line}");
    }
    tested.and(documented)
}
