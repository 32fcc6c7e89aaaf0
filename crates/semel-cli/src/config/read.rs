//! From text to a [`Config`]: every fault is found, each with its place.

use std::path::{Path, PathBuf};

use semel_core::name::Name;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::faults::{Fault, Lines, Of, nearest};
use super::keys::{Given, KEYS, Key, Scope};
use super::values::{self, Wrong, found, wrong};
use super::{Config, Job, Reference, batches, lanes};
use crate::args::RunArgs;
use crate::batch::args::BatchArgs;
use crate::batch::resolve;
use crate::plan;
use crate::trouble::Trouble;

/// What may stand at the top.
const TOP: [&str; 5] = ["store", "defaults", "notify", "jobs", "batches"];

/// The most faults that are told: a file that is no TOML at all has one on every line.
const FAULTS_MOST: usize = 100;

struct Reader<'a> {
    lines: Lines<'a>,
    /// The lanes that there are.
    lanes: Vec<String>,
    faults: Vec<Fault>,
}

impl Config {
    /// Read this text, which was found at this path.
    pub(crate) fn read(path: PathBuf, text: &str) -> Config {
        let mut reader = Reader { lines: Lines(text), lanes: Vec::new(), faults: Vec::new() };
        let (tree, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            let what = match error.message() {
                "duplicate key" => "duplicate key: keep one",
                what => what,
            };
            reader.fault(Of::Syntax, wrong(span, format!("this is no TOML: {what}")));
        }
        let mut config = Config {
            path,
            store: None,
            lanes: Vec::new(),
            defaults: Vec::new(),
            jobs: Vec::new(),
            batches: Vec::new(),
            faults: Vec::new(),
        };
        // what a broken file seems to say is not worth a second opinion
        if errors.is_empty() {
            reader.top(tree.get_ref(), &mut config);
        }
        config.faults = reader.faults;
        config.faults.sort_by_key(|fault| (fault.line, fault.column));
        config.faults.truncate(FAULTS_MOST);
        config
    }
}

impl Config {
    /// Look for the time zones too. Not for a run, which looks for its own: a database of zones is slow to open.
    pub(crate) fn check_zones(&mut self, text: &str, known: impl Fn(&str) -> Result<(), Trouble>) {
        let mut reader = Reader { lines: Lines(text), lanes: Vec::new(), faults: Vec::new() };
        for job in self.jobs.iter().filter(|job| !self.is_faulty(job)) {
            let zone = job.keys.iter().find(|(key, _)| key.name == "tz");
            if let Some((_, Given::Text(zone))) = zone
                && let Err(trouble) = known(zone)
            {
                let text = format!("job {:?}: {}", job.name, as_keys(&trouble.line));
                reader.fault(Of::Job(job.name.clone()), wrong(job.place_of(&trouble.line), text));
            }
        }
        self.faults.extend(reader.faults);
        self.faults.sort_by_key(|fault| (fault.line, fault.column));
    }
}

impl Reader<'_> {
    fn fault(&mut self, of: Of, wrong: Wrong) {
        let (line, column) = self.lines.at(&wrong.span);
        self.faults.push(Fault { line, column, text: wrong.text, of, secret: wrong.secret });
    }

    fn top(&mut self, tree: &DeTable<'_>, config: &mut Config) {
        let named = tree.iter().find(|(key, _)| key.get_ref() == "notify").map(|(_, value)| value.get_ref());
        if let Some(DeValue::Table(table)) = named {
            self.lanes = table.keys().map(|name| name.get_ref().to_string()).collect();
        }
        for (key, value) in tree {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("store", _) => match values::store(value) {
                    Ok(store) => config.store = Some(store.relative_to(config.folder())),
                    Err(wrong) => self.fault(Of::Store, wrong),
                },
                ("defaults", DeValue::Table(table)) => {
                    let all: Vec<&'static Key> = KEYS.iter().collect();
                    config.defaults = self.keys(table, &Of::All, Scope::Policy, &all);
                }
                ("jobs", DeValue::Table(table)) => {
                    for (name, job) in table {
                        self.job(name, job, config);
                    }
                }
                ("batches", DeValue::Table(table)) => {
                    for (name, batch) in table {
                        self.batch(name, batch, config);
                    }
                }
                ("notify", DeValue::Table(table)) => {
                    for (name, lane) in table {
                        let (line, _) = self.lines.at(&name.span());
                        let (lane, wrong) = lanes::read(name, lane, line);
                        let of = Of::Lane(lane.name.clone());
                        wrong.into_iter().for_each(|wrong| self.fault(of.clone(), wrong));
                        config.lanes.push(lane);
                    }
                }
                ("notify", _) => {
                    let text = "notify: at the top it is a table, as in [notify.ops]; whom a job tells stands under [jobs.NAME] or [defaults]";
                    self.fault(Of::All, Wrong { secret: true, ..wrong(value.span(), text) });
                }
                (name @ ("defaults" | "jobs" | "batches"), other) => {
                    let text =
                        format!("{name}: found {}: write a table, as in {}", found(other), example(name));
                    self.fault(Of::All, wrong(value.span(), text));
                }
                (name, _) => self.fault(Of::All, wrong(key.span(), unknown_at_top(name))),
            }
        }
        self.together(config);
    }

    fn job(
        &mut self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        config: &mut Config,
    ) {
        let of = Of::Job(name.get_ref().to_string());
        let keys: Vec<&'static Key> = KEYS.iter().collect();
        if let Some(job) = self.table("job", name, value, &of, &keys) {
            if !job.has("command") {
                let text = format!(
                    "job {:?} has no command: write command = [\"./publish.sh\", \"--now\"]",
                    name.get_ref()
                );
                self.fault(of, wrong(name.span(), text));
            }
            config.jobs.push(job);
        }
    }

    fn batch(
        &mut self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        config: &mut Config,
    ) {
        let of = Of::Batch(name.get_ref().to_string());
        let keys: Vec<&'static Key> = batches::keys().collect();
        let Some(batch) = self.table("batch", name, value, &of, &keys) else { return };
        for (key, example) in
            [("command", "command = [\"./publish.sh\", \"{slug}\"]"), ("items", "items = \"posts.jsonl\"")]
        {
            if !batch.has(key) {
                let text = format!("batch {:?} has no {key}: write {example}", name.get_ref());
                self.fault(of.clone(), wrong(name.span(), text));
            }
        }
        config.batches.push(batch);
    }

    /// A table with a name, as far as it is well.
    fn table(
        &mut self,
        kind: &str,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        of: &Of,
        known: &[&'static Key],
    ) -> Option<Job> {
        if let Err(why) = Name::new(name.get_ref()) {
            let text = format!("{:?} is no name of a {kind}: {why}", name.get_ref());
            self.fault(of.clone(), wrong(name.span(), text));
        }
        let tables = if kind == "job" { "jobs" } else { "batches" };
        let DeValue::Table(table) = value.get_ref() else {
            let text = format!(
                "{tables}.{}: found {}: write a table, as in {}",
                name.get_ref(),
                found(value.get_ref()),
                example(tables)
            );
            self.fault(of.clone(), wrong(value.span(), text));
            return None;
        };
        let keys = self.keys(table, of, Scope::Job, known);
        let named = |key: &str| known.iter().find(|known| known.name == key).map(|known| known.name);
        let places = table.keys().filter_map(|key| Some((named(key.get_ref())?, key.span()))).collect();
        Some(Job { name: name.get_ref().to_string(), at: name.span(), places, keys })
    }

    /// The keys of a table, those that are well.
    fn keys(
        &mut self,
        table: &DeTable<'_>,
        of: &Of,
        scope: Scope,
        all: &[&'static Key],
    ) -> Vec<(&'static Key, Given)> {
        let mut keys = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let known = all.iter().copied().find(|known| known.name == name);
            match known {
                None => self.fault(of.clone(), wrong(key.span(), unknown(name, scope, all))),
                Some(known) if scope == Scope::Policy && known.scope == Scope::Job => {
                    let text = format!(
                        "{name} belongs to one job: write it under [jobs.NAME], not under [defaults]"
                    );
                    self.fault(of.clone(), wrong(key.span(), text));
                }
                Some(known) => match values::value(known, value, &self.lanes) {
                    Ok(given) => keys.push((known, given)),
                    Err(all) => all.into_iter().for_each(|wrong| self.fault(of.clone(), wrong)),
                },
            }
        }
        keys
    }

    /// What is well by itself may not go together: `plan` says so, as it does of flags.
    fn together(&mut self, config: &Config) {
        for job in &config.jobs {
            if self
                .faults
                .iter()
                .any(|fault| matches!(&fault.of, Of::Job(name) if *name == job.name) || fault.of == Of::All)
            {
                continue;
            }
            if let Err(trouble) = plan::check(&config.filled(job, &RunArgs::default())) {
                let text = format!("job {:?}: {}", job.name, as_keys(&trouble.line));
                self.fault(Of::Job(job.name.clone()), wrong(job.place_of(&trouble.line), text));
            }
        }
        for batch in &config.batches {
            let is_faulty = |fault: &Fault| {
                matches!(&fault.of, Of::Batch(name) if *name == batch.name) || fault.of == Of::All
            };
            if self.faults.iter().any(is_faulty) {
                continue;
            }
            if let Err(trouble) = resolve::check(&config.filled_batch(batch, &BatchArgs::default())) {
                let text = format!("batch {:?}: {}", batch.name, as_keys(&trouble.line));
                self.fault(Of::Batch(batch.name.clone()), wrong(batch.place_of(&trouble.line), text));
            }
        }
    }
}

impl Job {
    /// Is something said of this key?
    fn has(&self, key: &str) -> bool {
        self.places.iter().any(|(name, _)| *name == key)
    }

    /// Where that stands of which this message speaks: the first flag in it that is a key of this job, else its name.
    fn place_of(&self, line: &str) -> std::ops::Range<usize> {
        let flags = line.split("--").skip(1).map(|rest| {
            rest.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).next().unwrap_or_default()
        });
        let place = |flag: &str| self.places.iter().find(|(name, _)| *name == flag).map(|(_, at)| at.clone());
        flags.filter_map(place).next().unwrap_or_else(|| self.at.clone())
    }
}

/// A message about flags, said of keys.
fn as_keys(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for (n, part) in line.split("--").enumerate() {
        let is_flag = part.starts_with(|c: char| c.is_ascii_lowercase());
        let is_word = out.is_empty() || out.ends_with([' ', '(']);
        if n > 0 && !(is_flag && is_word) {
            out.push_str("--");
        }
        out.push_str(part);
    }
    out
}

fn example(name: &str) -> &'static str {
    match name {
        "defaults" => "[defaults]",
        "batches" => "[batches.posts]",
        _ => "[jobs.publish]",
    }
}

fn unknown(name: &str, scope: Scope, all: &[&'static Key]) -> String {
    let known = || all.iter().filter(|key| scope == Scope::Job || key.scope == scope).map(|key| key.name);
    match nearest(name, known()) {
        _ if KEYS.iter().any(|key| key.name == name) => {
            format!("{name} is a key of jobs, and means nothing for a batch: leave it out")
        }
        Some(near) => format!("unknown key {name:?}: did you mean {near:?}?"),
        None if TOP.contains(&name) => {
            format!("{name} stands at the top of the file: write it before the first [table]")
        }
        None => format!("unknown key {name:?}: write one of {}", known().collect::<Vec<_>>().join(", ")),
    }
}

fn unknown_at_top(name: &str) -> String {
    if let Some(key) = KEYS.iter().find(|key| key.name == name) {
        let place = if key.scope == Scope::Policy { "[defaults] or [jobs.NAME]" } else { "[jobs.NAME]" };
        return format!("{name} does not stand at the top: write it under {place}");
    }
    match nearest(name, TOP.into_iter()) {
        Some(near) => format!("unknown key {name:?}: did you mean {near:?}?"),
        None => format!(
            "unknown key {name:?}: at the top are store, [defaults], [notify.NAME], [jobs.NAME] and [batches.NAME]; if it is a job, write [jobs.{name}]"
        ),
    }
}

impl Reference {
    /// A path of a file-based store is taken from the folder of the file that names it.
    fn relative_to(self, folder: &Path) -> Reference {
        match &self {
            Reference::Plain(url) => {
                let on_disk =
                    ["sqlite:", "dir:"].iter().find_map(|scheme| Some((scheme, url.strip_prefix(scheme)?)));
                match on_disk.map(|(scheme, path)| (scheme, path.strip_prefix("//").unwrap_or(path))) {
                    Some((scheme, path)) if Path::new(path).is_relative() => match folder.join(path).to_str()
                    {
                        Some(path) => Reference::Plain(format!("{scheme}{path}")),
                        None => self,
                    },
                    _ => self,
                }
            }
            Reference::Variable(_) => self,
        }
    }
}
