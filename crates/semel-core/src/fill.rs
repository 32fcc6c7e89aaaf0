//! Placeholders in a command's arguments, for those who ask for them (`--fill`).
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{plan.NAME}` | what the pinned plan says |
//! | `{with.NAME}` | a parameter of the work |
//! | `{slot}` `{job}` `{key}` | what they are called |
//! | `{{` `}}` | one brace |
//!
//! Anything else between braces is an error: a command that means braces for itself says so by doubling them, and
//! a mistyped name is never passed on as text.
//!
//! A value becomes a part of the one argument that it stands in, byte for byte: nothing is split and no shell reads
//! it. What the program does with its argument is the program's: so a value is refused where it would become a part
//! of a shell's script ([`scripts_in`]). Not seen: a shell behind another program (`ssh host …`).

use crate::plan::{Plan, plain};
use crate::work::Work;

/// An argument, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Plan(String),
    With(String),
    Slot,
    Job,
    Key,
}

/// Why an argument cannot be filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Something else between braces.
    #[error(
        "{{{0}}} is no placeholder: there are {{plan.NAME}}, {{with.NAME}}, {{slot}}, {{job}} and {{key}}; write {{{{ and }}}} for braces"
    )]
    Unknown(String),
    /// A brace that is not closed.
    #[error("{{ without }}: write {{{{ for a brace")]
    Open,
    /// A brace that closes nothing.
    #[error("}} without {{: write }}}} for a brace")]
    Close,
    /// The plan has no such name.
    #[error("{{plan.{name}}}: the plan has no {name}; it has {has}")]
    NotPlanned {
        /// Which.
        name: String,
        /// What it has.
        has: String,
    },
    /// The work has no such parameter.
    #[error("{{with.{0}}}: the work has no parameter {0}; give it with --with {0}=VALUE")]
    NoParameter(String),
    /// The work has no slot.
    #[error("{{slot}}: the work has no slot; give it with --every SCHEDULE or --slot ID")]
    NoSlot,
    /// No program can be given it.
    #[error("{{{0}}}: its value holds a NUL, which no argument can")]
    Nul(String),
    /// It would be read by a shell.
    #[error(
        "a placeholder in a shell's script would be read by the shell: hand it over as an argument, as in: sh -c 'echo \"$1\"' sh {{plan.topic}}"
    )]
    InScript,
}

impl Template {
    /// The parts of an argument.
    pub fn parse(argument: &str) -> Result<Template, TemplateError> {
        let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), argument);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at_checked(at).unwrap_or((rest, ""));
            text.push_str(before);
            if let Some(after) = from.strip_prefix("{{") {
                text.push('{');
                rest = after;
            } else if let Some(after) = from.strip_prefix("}}") {
                text.push('}');
                rest = after;
            } else if let Some(after) = from.strip_prefix('{') {
                let (name, after) = after.split_once('}').ok_or(TemplateError::Open)?;
                if !text.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                }
                parts.push(Part::named(name)?);
                rest = after;
            } else {
                return Err(TemplateError::Close);
            }
        }
        text.push_str(rest);
        if !text.is_empty() || parts.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Template(parts))
    }

    /// Does it have placeholders?
    pub fn has_placeholders(&self) -> bool {
        self.0.iter().any(|part| !matches!(part, Part::Text(_)))
    }

    /// The names of the plan that it uses.
    pub fn planned(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Plan(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether the work has what it uses of it; of the plan nothing is known yet.
    pub fn check(&self, work: &Work) -> Result<(), TemplateError> {
        let mut others = self.0.iter().filter(|part| !matches!(part, Part::Plan(_)));
        others.try_for_each(|part| part.fill(work, None).map(drop))
    }

    /// The argument.
    pub fn fill(&self, work: &Work, plan: Option<&Plan>) -> Result<String, TemplateError> {
        self.0.iter().map(|part| part.fill(work, plan)).collect()
    }
}

impl Part {
    fn named(name: &str) -> Result<Part, TemplateError> {
        match name.split_once('.') {
            Some(("plan", name)) if !name.is_empty() => Ok(Part::Plan(name.to_owned())),
            Some(("with", name)) if !name.is_empty() => Ok(Part::With(name.to_owned())),
            None if name == "slot" => Ok(Part::Slot),
            None if name == "job" => Ok(Part::Job),
            None if name == "key" => Ok(Part::Key),
            _ => Err(TemplateError::Unknown(name.chars().take(64).collect())),
        }
    }

    fn fill(&self, work: &Work, plan: Option<&Plan>) -> Result<String, TemplateError> {
        let whole = |value: String, placeholder: &dyn Fn() -> String| match value.contains('\0') {
            true => Err(TemplateError::Nul(placeholder())),
            false => Ok(value),
        };
        match self {
            Part::Text(text) => Ok(text.clone()),
            Part::Plan(name) => match plan.and_then(|plan| plan.text(name)) {
                Some(value) => whole(value, &|| format!("plan.{name}")),
                None => {
                    let names: Vec<&str> = plan.into_iter().flat_map(Plan::names).collect();
                    let has = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
                    Err(TemplateError::NotPlanned { name: name.clone(), has })
                }
            },
            Part::With(name) => {
                let value = work.params().get(name).map(plain);
                let value = value.ok_or_else(|| TemplateError::NoParameter(name.clone()))?;
                whole(value, &|| format!("with.{name}"))
            }
            Part::Slot => work.slot().map(ToString::to_string).ok_or(TemplateError::NoSlot),
            Part::Job => Ok(work.job().to_string()),
            Part::Key => Ok(work.key().to_string()),
        }
    }
}

/// One argument, filled.
pub fn fill(argument: &str, work: &Work, plan: Option<&Plan>) -> Result<String, TemplateError> {
    Template::parse(argument)?.fill(work, plan)
}

/// Which of these words, the program first, are scripts of a shell: the one after `-c` (or `-ec`, `-lc`, …) of a
/// program that is called like a shell, be it the first or behind `env`, `sudo` and the like.
pub fn scripts_in<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Vec<usize> {
    const SHELLS: [&[u8]; 10] =
        [b"sh", b"bash", b"dash", b"ash", b"ksh", b"mksh", b"zsh", b"fish", b"csh", b"tcsh"];
    #[derive(Clone, Copy)]
    enum After {
        Anything,
        Shell,
        /// An option of a shell that takes a word.
        Option,
        ScriptFlag,
    }
    let (mut scripts, mut after) = (Vec::new(), After::Anything);
    for (at, word) in words.into_iter().enumerate() {
        let is_flags = word.starts_with(b"-") || word.starts_with(b"+");
        let is_long = word.starts_with(b"--");
        let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or(word);
        after = match after {
            After::ScriptFlag if !is_flags => {
                scripts.push(at);
                After::Anything
            }
            After::ScriptFlag => After::ScriptFlag,
            After::Shell if is_flags && !is_long && word.contains(&b'c') => After::ScriptFlag,
            After::Shell if is_flags && !is_long && word.ends_with(b"o") => After::Option,
            After::Shell if is_flags => After::Shell,
            After::Option => After::Shell,
            // a script's file, or no shell at all
            _ if SHELLS.contains(&name) => After::Shell,
            _ => After::Anything,
        };
    }
    scripts
}
