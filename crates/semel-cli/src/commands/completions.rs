//! `semel completions SHELL`.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;

pub(crate) fn run(shell: Shell) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "semel", &mut script);
    // a reader that has gone away is no reason to fail
    let _ = std::io::stdout().write_all(&script);
    0
}
