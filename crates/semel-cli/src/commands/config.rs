//! `semel config`: is the file right, and what may stand in it?

use clap::Subcommand;
use serde_json::json;

use crate::args::Common;
use crate::config::{Config, schema};
use crate::out::{Voice, print, print_json};
use crate::plan::Surroundings;
use crate::slot;
use crate::table::clean;
use crate::trouble::Trouble;

/// `semel config`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say everything that is wrong with semel.toml, each with its line and what to write instead
    Check,
    /// Print the JSON Schema of semel.toml, for editors
    Schema,
}

pub(crate) fn run(common: &Common, command: &ConfigCommand, around: &Surroundings) -> Result<u8, Trouble> {
    match command {
        ConfigCommand::Check => check(common, around),
        ConfigCommand::Schema => {
            print(schema::text().trim_end());
            Ok(0)
        }
    }
}

fn check(common: &Common, around: &Surroundings) -> Result<u8, Trouble> {
    let places = around.places(common);
    let Some(found) = places.find()? else {
        return Err(Trouble::config(format!("nothing to check: {}", places.words())));
    };
    let mut config = Config::read(found.path, &found.text);
    config.check_zones(&found.text, |name| slot::named(name, around).map(drop));
    for fault in &config.faults {
        if common.json {
            print_json(json!({
                "kind": "fault", "file": config.path, "line": fault.line, "column": fault.column, "why": fault.text,
            }));
            continue;
        }
        print(&clean(&fault.line(&config.path)));
        for line in fault.excerpt(&found.text).into_iter().flatten() {
            print(&format!("    {}", clean(&line)));
        }
    }
    let (faults, jobs) = (config.faults.len(), config.jobs.len());
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    if faults > 0 {
        let what = if faults == 1 { "1 thing is".to_owned() } else { format!("{faults} things are") };
        return Err(Trouble::config(format!("{what} wrong with {}", config.path.display())));
    }
    if common.json {
        print_json(json!({ "kind": "checked", "file": config.path, "jobs": jobs }));
    } else {
        Voice::new(common).mention(|| format!("{}: {jobs} job{}, ok", config.path.display(), plural(jobs)));
    }
    Ok(0)
}
