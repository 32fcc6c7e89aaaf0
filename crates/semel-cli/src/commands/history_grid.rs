//! The calendar of `semel history`: one cell a slot. How it is arranged is `semel_core::grid`'s to say.
//!
//! The schedule and the zone are those of the job in `semel.toml`, if it is there. Then a tick without a record has a
//! cell too, and nothing is concluded from it: it may never have been fired, or be forgotten. Else there are cells
//! only for what is on record.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use semel::engine::Engine;
use semel::engine::ledger::Listed;
use semel_core::calendar::Calendar;
use semel_core::grid::{Grid, Layout, Mark, Named, Piece, Row, Shapes, lay_out, mark_of};
use semel_core::name::{Name, Slot};
use semel_core::schedule::Schedule;
use semel_core::story::Condition;
use semel_core::work::Work;

use crate::args::{Common, HistoryArgs, RunArgs};
use crate::out::print;
use crate::plan::Surroundings;
use crate::slot;
use crate::table::{colour, cut, line_width, styled};
use crate::trouble::Trouble;

/// How many slots are kept in memory.
const SLOTS: usize = 800;
/// Where nothing says how wide a line is.
const WIDTH: usize = 80;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) grid: bool,
    pub(super) list: bool,
}

impl Shown {
    /// On a terminal both, else the list: scripts that read it are not surprised.
    pub(super) fn of(common: &Common, args: &HistoryArgs) -> Shown {
        match (args.grid, args.list || common.json) {
            (_, true) => Shown { grid: false, list: true },
            (true, false) => Shown { grid: true, list: false },
            (false, false) => Shown { grid: std::io::stdout().is_terminal(), list: true },
        }
    }
}

/// A work in a slot, as much of it as a cell needs.
#[derive(Debug)]
struct Seen {
    work: Work,
    condition: Condition,
    attempts: u32,
}

/// The newest slots of a job.
#[derive(Debug)]
pub(super) struct Slots {
    job: Name,
    schedule: Option<Schedule>,
    zone: TimeZone,
    /// All slots are dates.
    dates: bool,
    /// By the moment, then by the name: an hour that comes twice stays in order.
    kept: BTreeMap<(Timestamp, Slot), (Named, Vec<Seen>)>,
    /// Older ones than those.
    older: u64,
    /// Slots that are no times.
    unnamed: u64,
}

impl Slots {
    pub(super) fn new(common: &Common, around: &Surroundings, job: &Name) -> Slots {
        // what is wrong with the file is said by whoever needs it: here it only helps
        let config = around.config(common).ok().flatten();
        let found = config.and_then(|config| config.job(job.as_str(), &RunArgs::default()).ok());
        let what = found.map(|args| args.what);
        let named =
            what.as_ref().and_then(|what| what.tz.as_deref()).and_then(|tz| slot::named(tz, around).ok());
        let zone = named.or_else(|| slot::system(around).ok()).unwrap_or(TimeZone::UTC);
        let schedule = what.and_then(|what| slot::schedule(&what).ok().flatten()).map(|terms| terms.schedule);
        Slots { job: job.clone(), schedule, zone, dates: true, kept: BTreeMap::new(), older: 0, unnamed: 0 }
    }

    /// What the ledger knows of the schedule, where the file says nothing.
    pub(super) fn learn(&mut self, calendar: &Calendar, around: &Surroundings) {
        if self.schedule.is_some() {
            return;
        }
        self.schedule = Schedule::parse(&calendar.every).ok();
        let zone = calendar.tz.as_deref().and_then(|tz| slot::named(tz, around).ok());
        self.zone = zone.unwrap_or_else(|| self.zone.clone());
    }

    /// Note an entry of the job.
    pub(super) fn note(&mut self, listed: &Listed) {
        let entry = &listed.seen.value;
        let (Some(slot), None) = (entry.work.slot(), entry.work.step()) else { return };
        let Some(named) = Named::by(slot) else {
            self.unnamed += 1;
            return;
        };
        self.dates &= matches!(named, Named::Date(_));
        let key = (named.moment(&self.zone), slot.clone());
        let seen = Seen { work: entry.work.clone(), condition: listed.condition, attempts: entry.attempts };
        let (_, works) = self.kept.entry(key).or_insert_with(|| (named, Vec::new()));
        // of many works in one slot, some tell enough
        if works.len() < 64 {
            works.push(seen);
        }
        if self.kept.len() > SLOTS {
            self.kept.pop_first();
            self.older += 1;
        }
    }

    /// The calendar, with what it does not show; nothing, if no slot is a time.
    pub(super) async fn calendar(
        &self,
        engine: &Engine,
        now: Timestamp,
        width: usize,
    ) -> Result<Option<(Grid, u64)>, Trouble> {
        if self.kept.is_empty() {
            return Ok(None);
        }
        let mut rows: BTreeMap<(Timestamp, Slot), Row> = BTreeMap::new();
        for (key, (named, works)) in &self.kept {
            let mut mark = Mark::Future;
            for seen in works {
                let suppressed = match seen.condition {
                    Condition::Done if seen.attempts < 2 => engine.suppressed(&seen.work).await?.all(),
                    _ => 0,
                };
                mark = mark.max(mark_of(seen.condition, seen.attempts, suppressed));
            }
            rows.insert(key.clone(), (named.shown(&self.zone), mark));
        }
        self.add_absent(&mut rows, now);
        let rows: Vec<Row> = rows.into_values().collect();
        let layout = match &self.schedule {
            Some(schedule) => Layout::of(schedule),
            None if self.dates => Layout::Weeks,
            None => Layout::Days,
        };
        let grid = lay_out(&rows, layout, width);
        let older = self.older + grid.older as u64;
        Ok(Some((grid, older)))
    }

    /// Ticks that nothing is on record of, between the oldest that is and now.
    fn add_absent(&self, rows: &mut BTreeMap<(Timestamp, Slot), Row>, now: Timestamp) {
        let (Some(schedule), Some(((oldest, _), _))) = (&self.schedule, self.kept.first_key_value()) else {
            return;
        };
        let due = schedule.tick_at_or_before(&self.zone, now);
        let ticks = std::iter::successors(due, |tick| schedule.tick_before(&self.zone, tick.at));
        let mut mark = Mark::Open;
        for tick in ticks.take(SLOTS).take_while(|tick| tick.at >= *oldest) {
            if let Some(named) = Named::by(&tick.slot) {
                let key = (named.moment(&self.zone), tick.slot);
                rows.entry(key).or_insert_with(|| (named.shown(&self.zone), mark));
            }
            mark = Mark::Absent;
        }
    }

    /// Print it. Answers whether there was something to print.
    pub(super) async fn print(&self, engine: &Engine, around: &Surroundings) -> Result<bool, Trouble> {
        let width = line_width(around).unwrap_or(WIDTH);
        let found = self.calendar(engine, around.now()?, width).await?;
        if let Some((grid, older)) = &found {
            let shapes = shapes(around);
            print(&cut(&self.title(), width));
            grid.lines.iter().for_each(|line| print(&drawn(line, shapes)));
            legend(grid, width).iter().for_each(|line| print(&drawn(line, shapes)));
            if *older > 0 {
                print(&format!(
                    "{older} older {} not shown",
                    if *older == 1 { "slot is" } else { "slots are" }
                ));
            }
        }
        if self.unnamed > 0 {
            let what = if self.unnamed == 1 {
                "1 work has a slot"
            } else {
                &format!("{} works have slots", self.unnamed)
            };
            print(&format!("{what} that no schedule names: see the list"));
        }
        Ok(found.is_some())
    }

    fn title(&self) -> String {
        let every = self.schedule.as_ref().map(|schedule| format!(", every {schedule}")).unwrap_or_default();
        let zone = match self.zone.iana_name() {
            Some(name) if !self.dates => format!(", {name}"),
            _ => String::new(),
        };
        format!("{}{every}{zone}", self.job)
    }
}

/// The legend, in as many lines as it needs.
fn legend(grid: &Grid, width: usize) -> Vec<Vec<Piece>> {
    let mut lines: Vec<Vec<Piece>> = Vec::new();
    let mut length = 0;
    for words in grid.legend().chunks(3) {
        let own: usize = words
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.chars().count(),
                Piece::Cell(_) => 1,
            })
            .sum();
        match lines.last_mut() {
            Some(line) if length + own <= width => line.extend_from_slice(words),
            _ => {
                lines.push(words.get(1..).unwrap_or_default().to_vec());
                length = 0;
            }
        }
        length += own;
    }
    lines
}

/// What the terminal can show, as its locale says.
fn shapes(around: &Surroundings) -> Shapes {
    let set = |name: &str| around.get(name).filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    let locale = locale.map(|value| value.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    if locale.contains("utf-8") || locale.contains("utf8") { Shapes::Unicode } else { Shapes::Ascii }
}

fn drawn(line: &[Piece], shapes: Shapes) -> String {
    let text: String = line
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Cell(mark) => styled(style_of(*mark), &mark.shape(shapes).to_string()),
        })
        .collect();
    text.trim_end().to_owned()
}

fn style_of(mark: Mark) -> Style {
    match mark {
        Mark::Done => colour(AnsiColor::Green),
        Mark::Resumed | Mark::Suppressed => colour(AnsiColor::Blue),
        Mark::Running => colour(AnsiColor::Cyan),
        Mark::Lost | Mark::Failed => colour(AnsiColor::Yellow),
        Mark::Missed => colour(AnsiColor::Magenta),
        Mark::InDoubt | Mark::Quarantined => colour(AnsiColor::Red).bold(),
        Mark::Open | Mark::Absent | Mark::Future => Style::new().dimmed(),
    }
}
