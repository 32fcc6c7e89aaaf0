//! The pings of one run, or of one start of a batch: the first when its claim is written, the last when its outcome is
//! known. One that was not claimed (skipped, busy, too late) sends none.

use semel::engine::{Ran, Report, RunPlan, TaskEnd};
use semel_core::entry::Ending;
use semel_core::story::ended;
use semel_core::work::Work;

use super::ping::{Ping, Pinged, Pinging};
use crate::out::{Voice, span};

/// The pings of one run.
#[derive(Debug)]
pub(crate) struct Pings {
    ping: Option<Ping>,
    /// By this a service knows which begin and which end belong together.
    run: [u8; 16],
    /// The work without its parameters, which are nobody else's business.
    what: String,
    started: Option<Pinging>,
}

impl Pings {
    pub(crate) fn new(ping: Option<Ping>, plan: &RunPlan) -> Pings {
        Pings::of_work(ping, plan.work.as_ref())
    }

    /// Of what is done under this name.
    pub(crate) fn of_work(ping: Option<Ping>, work: Option<&Work>) -> Pings {
        let mut run = [0; 16];
        // without random bytes no run starts either
        let ping = ping.filter(|_| getrandom::fill(&mut run).is_ok());
        let slot = work.and_then(|work| work.slot()).map(|slot| format!("@{slot}")).unwrap_or_default();
        let what = work.map(|work| format!("{}{slot}", work.job())).unwrap_or_default();
        Pings { ping, run, what, started: None }
    }

    /// The claim is written. Does not wait.
    pub(crate) fn start(&mut self) {
        if let (Some(ping), None) = (&self.ping, &self.started) {
            self.started = Some(ping.send(Pinged::Start, self.run, &format!("{} begins", self.what)));
        }
    }

    /// It is over. Waits, for a bounded time.
    pub(crate) fn end(self, report: &Report, voice: Voice) {
        self.say(how(report), &words(report), voice);
    }

    /// A batch is over, with this exit code unless it was cut short. Waits, for a bounded time.
    pub(crate) fn end_batch(self, code: Option<u8>, words: &str, voice: Voice) {
        let how = match code {
            Some(0) => Pinged::Success,
            Some(code) => Pinged::ExitCode(code),
            None => Pinged::Fail,
        };
        self.say(how, words, voice);
    }

    fn say(self, how: Pinged, words: &str, voice: Voice) {
        let (Some(ping), Some(started)) = (self.ping, self.started) else { return };
        let tell = |which: &str, answer: Result<(), String>| {
            if let Err(why) = answer {
                voice.detail(|| format!("the ping {which} did not arrive: {why}"));
            }
        };
        // in their order: a begin after the end would look like a run that hangs
        tell("at the begin", started.arrived());
        let text = format!("{} {words}", self.what);
        tell("at the end", ping.send(how, self.run, &text).arrived());
    }
}

/// What a report is to those who only know exit codes.
fn how(report: &Report) -> Pinged {
    let (Report::Ran { ran, .. } | Report::NeedsPerson { ran: Some(ran), .. }) = report else {
        return Pinged::Fail;
    };
    match (&ran.ending, ran.end) {
        (Ending::Succeeded | Ending::ProbedDone, _) => Pinged::Success,
        (Ending::Failed { .. }, Some(TaskEnd::Exited(code))) => match u8::try_from(code & 0xff) {
            Ok(code @ 1..) => Pinged::ExitCode(code),
            _ => Pinged::Fail,
        },
        _ => Pinged::Fail,
    }
}

fn words(report: &Report) -> String {
    let told = |ran: &Ran| {
        let took = span(u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX));
        format!("{} (attempt {}, after {took})", ended(&ran.ending), ran.begin.attempt)
    };
    match report {
        Report::Ran { ran, .. } => told(ran),
        Report::NeedsPerson { ran: Some(ran), entry } => format!("{}, {}", told(ran), entry.state.word()),
        Report::Blocked { .. } => "is not done: one of its steps needs a person".to_owned(),
        Report::LeaseLost { .. } => "lost its lease and was stopped".to_owned(),
        Report::Unrecorded { ran, .. } => format!("{}, and that could not be recorded", told(ran)),
        _ => "is not done".to_owned(),
    }
}
