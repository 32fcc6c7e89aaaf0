//! Placeholders of a batch's command: `CMD {slug} {author.name} {line}`.
//!
//! A value becomes a part of its one argument, byte for byte, and no shell reads it (see `semel_core::fill`). Where the
//! fields are known before the first item (CSV, lines), an unknown name is refused before anything runs; in JSON Lines
//! every item has its own fields, and one that lacks a field is a fault of that item.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use semel_core::fill::{Template, TemplateError, scripts_in};
use semel_core::name::Name;
use semel_core::work::Work;

use super::item::{Fault, Item, Why};
use crate::plan::quoted;
use crate::trouble::Trouble;

/// The command's arguments, with placeholders for an item's fields.
#[derive(Clone, Debug)]
pub(crate) struct ItemFill {
    /// One per argument, the program's own name left out.
    arguments: Vec<Argument>,
    /// What an item is to have leased for it.
    resource: Option<Template>,
}

#[derive(Clone, Debug)]
enum Argument {
    AsItIs(OsString),
    Template(Template),
}

impl ItemFill {
    /// The placeholders of these words, the program first; `line` is what a line is called where items are lines.
    pub(crate) fn parse(argv: &[OsString], batch: &Work, line: Option<&str>) -> Result<ItemFill, Trouble> {
        let scripts = scripts_in(argv.iter().map(|word| word.as_bytes()));
        let argument = |(at, word): (usize, &OsString)| {
            let wrong = |why: &str| Trouble::config(format!("argument {at}: {why}"));
            if !word.as_bytes().iter().any(|byte| matches!(byte, b'{' | b'}')) {
                return Ok(Argument::AsItIs(word.clone()));
            }
            let text = word.to_str().ok_or_else(|| wrong("it has braces and is not UTF-8"))?;
            let template = template(text, batch, line).map_err(|why| wrong(&why))?;
            if template.has_placeholders() && scripts.contains(&at) {
                return Err(wrong(&in_script(&template)));
            }
            Ok(Argument::Template(template))
        };
        let arguments = argv.iter().enumerate().skip(1).map(argument).collect::<Result<_, _>>()?;
        Ok(ItemFill { arguments, resource: None })
    }

    /// The same, with the resource that each item names.
    pub(crate) fn with_resource(
        self,
        text: Option<&str>,
        batch: &Work,
        line: Option<&str>,
    ) -> Result<ItemFill, Trouble> {
        let wrong = |why: String| Trouble::config(format!("--resource: {why}"));
        let resource = text.map(|text| template(text, batch, line).map_err(wrong)).transpose()?;
        Ok(ItemFill { resource, ..self })
    }

    /// What is to be leased for this item.
    pub(crate) fn resource(&self, work: &Work, item: &Item) -> Result<Option<Name>, Fault> {
        let Some(template) = &self.resource else { return Ok(None) };
        let wrong = |why: &dyn std::fmt::Display| item.fault(Why::Fill(format!("--resource: {why}")));
        let text = template.fill_item(work, None, &item.fields).map_err(|why| wrong(&why))?;
        let name = Name::new(&text).map_err(|why| wrong(&format!("{} {why}", quoted(&text))))?;
        Ok(Some(name))
    }

    /// Whether every item has what is asked of it, where that is known.
    pub(crate) fn check(&self, name: &str, columns: Option<&[String]>) -> Result<(), Trouble> {
        let Some(columns) = columns else { return Ok(()) };
        let has = || columns.join(", ");
        let arguments = self.arguments.iter().enumerate().filter_map(|(at, argument)| match argument {
            Argument::Template(template) => Some((format!("argument {}", at + 1), template)),
            Argument::AsItIs(_) => None,
        });
        let resource = self.resource.iter().map(|template| ("--resource".to_owned(), template));
        for (what, template) in arguments.chain(resource) {
            template.check_columns(columns).map_err(|why| {
                Trouble::input(format!("{what}: {why}; {name} has {}; nothing was run", has()))
            })?;
        }
        Ok(())
    }

    /// Whether this item has what is asked of it. Said before its claim, it is no failure of the item.
    pub(crate) fn check_item(&self, batch: &Work, item: &Item) -> Result<(), Fault> {
        self.argv(&OsString::new(), batch, item).map(drop)
    }

    /// The words of the command for an item; `work` is the item's.
    pub(crate) fn argv(&self, program: &OsString, work: &Work, item: &Item) -> Result<Vec<OsString>, Fault> {
        let mut argv = Vec::with_capacity(self.arguments.len() + 1);
        argv.push(program.clone());
        for (at, argument) in self.arguments.iter().enumerate() {
            argv.push(match argument {
                Argument::AsItIs(word) => word.clone(),
                Argument::Template(template) => match template.fill_item(work, None, &item.fields) {
                    Ok(word) => word.into(),
                    Err(why) => return Err(item.fault(Why::Fill(format!("argument {}: {why}", at + 1)))),
                },
            });
        }
        Ok(argv)
    }
}

fn template(text: &str, batch: &Work, line: Option<&str>) -> Result<Template, String> {
    let template = Template::parse_for_items(text, line).map_err(|why| why.to_string())?;
    if let Some(name) = template.planned().next() {
        return Err(format!(
            "{{plan.{name}}}: a batch has no plan; write {{item.plan.{name}}} for a field of the items"
        ));
    }
    template.check(batch).map_err(|why| why.to_string())?;
    Ok(template)
}

/// The same as for a run, with a field of theirs in it.
fn in_script(template: &Template) -> String {
    let plain = TemplateError::InScript.to_string();
    match template.fields().next() {
        Some(field) => plain.replace("{plan.topic}", &format!("{{{field}}}")),
        None => plain,
    }
}
