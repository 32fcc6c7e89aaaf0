//! Placeholders in a command's arguments, for those who ask for them (`--fill`).
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{plan.NAME}` | what the pinned plan says |
//! | `{with.NAME}` | a parameter of the work |
//! | `{slot}` `{job}` `{key}` | what they are called |
//! | `{{` `}}` | one brace |
//! | `{NAME}` `{a.b}` `{/a/b}` | in a batch: a field of the item; `{item.NAME}` where the name is one of the above |
//! | `{}` | in a batch of lines: the line |
//!
//! Anything else between braces is an error: a command that means braces for itself says so by doubling them, and
//! a mistyped name is never passed on as text.
//!
//! A value becomes a part of the one argument that it stands in, byte for byte: nothing is split and no shell reads
//! it. What the program does with its argument is the program's: so a value is refused where it would become a part
//! of a shell's script ([`scripts_in`]). Not seen: a shell behind another program (`ssh host …`).

use crate::field::{Field, FieldError, ItemFields};
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
    Item(Field),
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
    /// No field can be called that.
    #[error("{{{0}}} is no placeholder: {1}; write {{{{ and }}}} for braces")]
    NoName(String, FieldError),
    /// `{}` where items have more than one field.
    #[error("{{}} stands for a line, and the items are no lines: name a field, as in {{slug}}")]
    NoLine,
    /// The item has no such field.
    #[error("{{{0}}}: the item has no field {0}; write {{{{ and }}}} for braces")]
    NoField(String),
    /// There is nothing to write.
    #[error("{{{0}}}: the item's field {0} is null, which no argument can be")]
    NullField(String),
    /// A field is called like something that every work has.
    #[error(
        "{{{0}}}: the items have a field {1} too: write {{item.{0}}} for that; what the work has is in SEMEL_JOB, SEMEL_SLOT and SEMEL_KEY"
    )]
    TwoMeanings(String, String),
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
        Template::parse_with(argument, &Part::named)
    }

    /// The parts of an argument of a batch's command; `line` is what the one field is called where items are lines.
    pub fn parse_for_items(argument: &str, line: Option<&str>) -> Result<Template, TemplateError> {
        Template::parse_with(argument, &|name| Part::named_for_items(name, line))
    }

    fn parse_with(
        argument: &str,
        named: &dyn Fn(&str) -> Result<Part, TemplateError>,
    ) -> Result<Template, TemplateError> {
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
                parts.push(named(name)?);
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

    /// Whether the work has what it uses of it; of the plan and the items nothing is known yet.
    pub fn check(&self, work: &Work) -> Result<(), TemplateError> {
        let mut others = self.0.iter().filter(|part| !matches!(part, Part::Plan(_) | Part::Item(_)));
        others.try_for_each(|part| part.fill(work, None, None).map(drop))
    }

    /// Whether items with just these columns have what it uses of them.
    pub fn check_columns(&self, columns: &[String]) -> Result<(), TemplateError> {
        self.0.iter().try_for_each(|part| match part {
            Part::Item(field) if !field.is_among(columns) => {
                Err(TemplateError::NoField(field.name().to_owned()))
            }
            part => part.one_meaning(&|name| columns.iter().any(|column| column == name)),
        })
    }

    /// The fields of the items that it uses.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.0.iter().filter_map(|part| match part {
            Part::Item(field) => Some(field),
            _ => None,
        })
    }

    /// The argument.
    pub fn fill(&self, work: &Work, plan: Option<&Plan>) -> Result<String, TemplateError> {
        self.0.iter().map(|part| part.fill(work, plan, None)).collect()
    }

    /// The argument for an item of a batch.
    pub fn fill_item(
        &self,
        work: &Work,
        plan: Option<&Plan>,
        item: &ItemFields,
    ) -> Result<String, TemplateError> {
        self.0.iter().map(|part| part.fill(work, plan, Some(item))).collect()
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

    fn named_for_items(name: &str, line: Option<&str>) -> Result<Part, TemplateError> {
        let field = |text: &str| match Field::parse(text) {
            Ok(field) => Ok(Part::Item(field)),
            Err(why) => Err(TemplateError::NoName(name.chars().take(64).collect(), why)),
        };
        match (name, line) {
            ("", Some(line)) => Ok(Part::Item(Field::column(line))),
            ("", None) => Err(TemplateError::NoLine),
            _ => match name.strip_prefix("item.") {
                Some(rest) => field(rest),
                None => Part::named(name).or_else(|_| field(name)),
            },
        }
    }

    /// A name that means something of the work, and a field of the items as well, is a guess that nobody makes.
    fn one_meaning(&self, is_field: &dyn Fn(&str) -> bool) -> Result<(), TemplateError> {
        let (text, field) = match self {
            Part::Text(_) | Part::Item(_) => return Ok(()),
            Part::Plan(name) => (format!("plan.{name}"), "plan"),
            Part::With(name) => (format!("with.{name}"), "with"),
            Part::Slot => ("slot".to_owned(), "slot"),
            Part::Job => ("job".to_owned(), "job"),
            Part::Key => ("key".to_owned(), "key"),
        };
        match [text.as_str(), field].into_iter().find(|name| is_field(name)) {
            Some(field) => Err(TemplateError::TwoMeanings(text.clone(), field.to_owned())),
            None => Ok(()),
        }
    }

    fn fill(
        &self,
        work: &Work,
        plan: Option<&Plan>,
        item: Option<&ItemFields>,
    ) -> Result<String, TemplateError> {
        if let Some(item) = item {
            self.one_meaning(&|name| item.contains_key(name))?;
        }
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
            Part::Item(field) => match item.and_then(|item| field.find(item)) {
                None => Err(TemplateError::NoField(field.name().to_owned())),
                Some(serde_json::Value::Null) => Err(TemplateError::NullField(field.name().to_owned())),
                Some(value) => whole(plain(value), &|| field.name().to_owned()),
            },
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
