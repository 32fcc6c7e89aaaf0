//! Whatever is typed: read or refused in one line, at once, and never a panic.

use std::fmt::Display;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use semel_core::canonical::Pointer;
use semel_core::fill::{Template, scripts_in};
use semel_core::name::{Name, Slot};
use semel_core::plan::{Choice, Recent};
use semel_core::schedule::{Schedule, due, scheduled_for};
use semel_core::work::{Work, parse_params};

/// Letters that parsers trip over, besides any others.
fn words() -> impl Strategy<Value = String> {
    let near = "[0-9a-z@#*/,:=~{}.\"' \\\\+-]{0,40}";
    let cron = "([*0-9a-zA-Z/,-]{1,6} ){4}[*0-9a-zA-Z/,-]{1,6}";
    let interval = "[0-9]{1,30}[smhd]?";
    let time = "[-+]?[0-9]{1,6}-[0-9]{1,2}-[0-9]{1,2}T[0-9:.]{1,12}[Zz+0-9:-]{0,6}";
    let job = "[a-z-]{1,8}-[0-9]{7,9}";
    let choice = "[a-z]{0,3}:?=[\\[\"a-z0-9,:/~\\]]{0,12}";
    let template = "([a-z ]|\\{(plan|with|slot|job|key)?[.a-z]{0,4}\\}?|\\{\\{|\\}\\}){0,8}";
    prop_oneof![any::<String>(), near, cron, interval, time, job, choice, template]
}

/// One line, and no word of Rust's.
fn is_plain(why: &impl Display) -> Result<(), TestCaseError> {
    let line = why.to_string();
    prop_assert!(!line.is_empty() && line.lines().count() == 1, "{line:?}");
    Ok(())
}

fn refused<T, E: Display>(read: Result<T, E>) -> Result<Option<T>, TestCaseError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(why) => is_plain(&why).map(|()| None),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn schedules_and_times(text in words(), now in Timestamp::MIN.as_second()..=Timestamp::MAX.as_second()) {
        let now = Timestamp::from_second(now).unwrap();
        let meant = refused(scheduled_for(&text))?;
        let Some(schedule) = refused(Schedule::parse(&text))? else { return Ok(()) };
        prop_assert!(schedule.as_str() == text.trim());
        refused(due(&schedule, &TimeZone::UTC, now, meant))?;
        refused(schedule.check_remember(1_000, 0))?;
        prop_assert_eq!(schedule.check_remember(u64::MAX, 0), Ok(()));
    }

    #[test]
    fn names_slots_and_parameters(text in words()) {
        refused(Name::new(&text))?;
        refused(Slot::new(&text))?;
        refused(parse_params([text.as_str(), "a=1"]))?;
        refused(Work::parse_readable(&text))?;
        refused(Work::keyed(Name::new("j").unwrap(), &text, None, Default::default()))?;
    }

    #[test]
    fn plans_and_placeholders(text in words()) {
        refused(Choice::parse(&text))?;
        refused(Recent::parse(&text))?;
        refused(Pointer::new(&text))?;
        scripts_in([b"sh".as_slice(), b"-c", text.as_bytes()]);
        let work = Work::once(Name::new("j").unwrap());
        if let Some(template) = refused(Template::parse(&text))?
            && refused(template.check(&work))?.is_some()
        {
            refused(template.fill(&work, None))?;
        }
    }
}
