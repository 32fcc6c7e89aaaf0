//! `semel man`: one page for all commands.

use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::Cli;
use crate::trouble::Trouble;

pub(crate) fn run() -> Result<u8, Trouble> {
    let page = page().map_err(|why| Trouble::config(format!("the manual page cannot be made: {why}")))?;
    // a reader that has gone away is no reason to fail
    let _ = io::stdout().write_all(&page);
    Ok(0)
}

fn page() -> io::Result<Vec<u8>> {
    let mut command = Cli::command().name("semel");
    command.build();
    let mut page = Vec::new();
    let man = Man::new(command.clone()).manual("Semel");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    writeln!(page, ".SH COMMANDS")?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        section(&mut page, sub)?;
    }
    man.render_extra_section(&mut page)?;
    man.render_version_section(&mut page)?;
    Ok(page)
}

/// A command of the page, and the commands below it.
fn section(page: &mut Vec<u8>, command: &Command) -> io::Result<()> {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    // what every command takes is said once, at the top
    let own = command
        .clone()
        .mut_args(|arg| if arg.is_global_set() || arg.get_id() == "help" { arg.hide(true) } else { arg });
    let man = Man::new(own);
    let mut part = Vec::new();
    man.render_description_section(&mut part)?;
    man.render_synopsis_section(&mut part)?;
    man.render_options_section(&mut part)?;
    writeln!(page, ".SS \"{name}\"")?;
    let text = String::from_utf8_lossy(&part);
    for line in text.lines().filter(|line| *line != ".SH DESCRIPTION") {
        match line.strip_prefix(".SH ") {
            Some(title) => writeln!(page, ".PP\n\\fB{}\\fR\n.PP", sentence(title))?,
            None => writeln!(page, "{line}")?,
        }
    }
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        section(page, sub)?;
    }
    Ok(())
}

/// A title in capitals as a word.
fn sentence(title: &str) -> String {
    let title = title.trim_matches('"').to_lowercase();
    let mut letters = title.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
