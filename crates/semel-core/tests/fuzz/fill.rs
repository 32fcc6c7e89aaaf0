//! Placeholders: one placeholder is a part of one argument, and only what stands between braces is one.

use semel_core::canonical;
use semel_core::field::{Field, ItemFields};
use semel_core::fill::Template;
use semel_core::name::Name;
use semel_core::plan::plain;
use semel_core::work::Work;
use semel_fuzz::{Target, check};
use serde_json::Value;

use crate::lines;

const SEEDS: &[&str] = &[
    "pre{slug}post\n{\"slug\":\"a b; rm -rf {x} $(y)\"}",
    "{{literal}} {author.name}\n{\"author\":{\"name\":\"}\"}}",
    "{/a~1b}{item.job}{job}{key}\n{\"a/b\":1}",
    "{}\n{\"line\":\"-x\"}",
    "{with.n}{slot}{plan.topic}\n{}",
];
const WORDS: &[&str] = &[
    "{", "}", "{{", "}}", "{}", "{job}", "{key}", "{item.", "{slug}", "{/", "~1", ".", "\n{", "\\u0000",
    "null",
];

/// The same by other means: braces are read one by one, and what is between them is looked up.
fn by_hand(argument: &str, work: &Work, item: &ItemFields) -> Option<String> {
    let mut out = String::new();
    let mut signs = argument.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '{' | '}' if signs.peek() == Some(&sign) => {
                out.push(sign);
                signs.next();
            }
            '{' => {
                let mut name = String::new();
                loop {
                    match signs.next()? {
                        '}' => break,
                        sign => name.push(sign),
                    }
                }
                out.push_str(&value(&name, work, item)?);
            }
            '}' => return None,
            sign => out.push(sign),
        }
    }
    Some(out)
}

fn value(name: &str, work: &Work, item: &ItemFields) -> Option<String> {
    let field = match name {
        "" => Field::column("line"),
        // this work has none of them
        "slot" => return None,
        name if name.starts_with("plan.") || name.starts_with("with.") => return None,
        "job" => return (!item.contains_key("job")).then(|| work.job().to_string()),
        "key" => return (!item.contains_key("key")).then(|| work.key().to_string()),
        name => Field::parse(name.strip_prefix("item.").unwrap_or(name)).ok()?,
    };
    let found = field.find(item)?;
    Some(plain(found)).filter(|text| !found.is_null() && !text.contains('\0'))
}

#[test]
fn placeholders() {
    check(&Target::new("placeholders", SEEDS, WORDS), |bytes| {
        let Some([argument, item]) = lines(bytes) else { return };
        if argument.contains('\0') {
            // no command line has it, and semel.toml is refused with it
            return;
        }
        let work = Work::once(Name::new("job").unwrap());
        if let Ok(template) = Template::parse(argument) {
            let _ = (template.check(&work), template.fill(&work, None));
        }
        let Ok(Value::Object(item)) = canonical::parse(item) else { return };
        let Ok(template) = Template::parse_for_items(argument, Some("line")) else { return };
        let columns: Vec<String> = item.keys().cloned().collect();
        let _ = template.check_columns(&columns);
        let filled = template.fill_item(&work, None, &item);
        match by_hand(argument, &work, &item) {
            Some(text) => assert_eq!(filled.as_deref().ok(), Some(text.as_str())),
            None => assert!(filled.is_err(), "{argument:?} became {filled:?}"),
        }
        if let Ok(text) = filled {
            assert!(!text.contains('\0'), "no argument can hold it");
            let again = argument.chars().all(|sign| !matches!(sign, '{' | '}'));
            assert!(!again || text == argument, "without braces nothing is touched");
        }
    });
}
