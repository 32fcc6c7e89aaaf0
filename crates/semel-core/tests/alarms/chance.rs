//! Whatever happens to a job and its lanes, in whatever order: against a list of what each lane is owed.
//!
//! The oracle is naive: it knows no outbox and no ids, only which lane heard what, and what it is still owed.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use semel_core::alarm::{
    Alarm, Anomaly, Event, Kind, LaneState, Notice, closed_by_person, delivered, due, raise, recover,
    undelivered,
};
use semel_core::name::Name;
use semel_core::record::{RecordKey, decode, encode};
use semel_core::token::Nonce;

const LANES: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Happens {
    /// A work of the job met an anomaly.
    Anomaly(Kind, u8),
    /// A work succeeded.
    Success(u8),
    /// A person gave a verdict.
    Verdict(u8),
    /// A lane is told the oldest thing that it is owed.
    Told(usize),
    /// It is told, and what became of it is recorded only later.
    Begun(usize),
    /// That later.
    Recorded(usize),
    /// It could not be told; perhaps for ever.
    NotTold(usize, bool),
    /// The configuration has these lanes.
    Lanes(usize),
}

fn kinds() -> impl Strategy<Value = Kind> {
    proptest::sample::select(Kind::ALL.to_vec())
}

fn happenings() -> impl Strategy<Value = Vec<Happens>> {
    let one = prop_oneof![
        4 => (kinds(), 0..3u8).prop_map(|(kind, work)| Happens::Anomaly(kind, work)),
        2 => (0..3u8).prop_map(Happens::Success),
        1 => (0..3u8).prop_map(Happens::Verdict),
        4 => (0..2usize).prop_map(Happens::Told),
        1 => (0..2usize).prop_map(Happens::Begun),
        1 => (0..2usize).prop_map(Happens::Recorded),
        1 => (0..2usize, any::<bool>()).prop_map(|(lane, ever)| Happens::NotTold(lane, ever)),
        1 => (0..=2usize).prop_map(Happens::Lanes),
    ];
    // each puts at most one notice into the outbox, so that its bound is not met
    vec(one, 0..32)
}

/// An anomaly as a person tells them apart.
type Which = (Kind, Option<String>);

/// What a lane is owed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owed {
    Raised(Kind, String),
    RaisedAndRecovered(Kind, String),
    Recovered(BTreeSet<Kind>),
}

#[derive(Default)]
struct Oracle {
    /// What is open, the work it was first met in, and the lanes that heard of it.
    open: BTreeMap<Which, (String, BTreeSet<&'static str>)>,
    /// What each lane is owed, the oldest first.
    owed: BTreeMap<&'static str, Vec<Owed>>,
}

fn which(kind: Kind, work: &str) -> Which {
    let of_work = matches!(kind, Kind::Quarantined | Kind::InDoubt);
    (kind, of_work.then(|| work.to_owned()))
}

impl Oracle {
    fn anomaly(&mut self, kind: Kind, work: &str, lanes: &[&'static str]) {
        if self.open.contains_key(&which(kind, work)) {
            return;
        }
        self.open.insert(which(kind, work), (work.to_owned(), BTreeSet::new()));
        for lane in lanes {
            self.owed.entry(lane).or_default().push(Owed::Raised(kind, work.to_owned()));
        }
    }

    fn success(&mut self, work: &str, lanes: &[&'static str]) {
        let closes = |key: &Which| key.1.as_deref().is_none_or(|of| of == work);
        let closed: Vec<Which> = self.open.keys().filter(|key| closes(key)).cloned().collect();
        let (mut kinds, mut hear) = (BTreeSet::new(), BTreeSet::new());
        for key in closed {
            let (first, heard) = self.open.remove(&key).unwrap();
            for owed in self.owed.values_mut().flatten() {
                if *owed == Owed::Raised(key.0, first.clone()) {
                    *owed = Owed::RaisedAndRecovered(key.0, first.clone());
                }
            }
            if heard.iter().any(|lane| lanes.contains(lane)) {
                kinds.insert(key.0);
                hear.extend(heard);
            }
        }
        for lane in lanes.iter().filter(|lane| hear.contains(*lane)) {
            self.owed.entry(lane).or_default().push(Owed::Recovered(kinds.clone()));
        }
    }

    fn verdict(&mut self, work: &str) {
        for kind in [Kind::Quarantined, Kind::InDoubt] {
            if self.open.remove(&which(kind, work)).is_some() {
                for owed in self.owed.values_mut() {
                    owed.retain(|owed| *owed != Owed::Raised(kind, work.to_owned()));
                }
            }
        }
    }

    fn no_longer_owed(&mut self, lane: &'static str, what: &Owed) {
        let owed = self.owed.entry(lane).or_default();
        if let Some(at) = owed.iter().position(|owed| owed == what) {
            owed.remove(at);
        }
    }

    fn heard(&mut self, lane: &'static str, what: &Owed) {
        if let Owed::Raised(kind, work) = what
            && let Some((_, heard)) = self.open.get_mut(&which(*kind, work))
        {
            heard.insert(lane);
        }
    }
}

fn as_owed(notice: &Notice) -> Owed {
    let work = notice.work.clone().unwrap();
    match (notice.event, notice.recovered_ms) {
        (Event::Raised, None) => Owed::Raised(notice.kind, work),
        (Event::Raised, Some(_)) => Owed::RaisedAndRecovered(notice.kind, work),
        (Event::Recovered, _) => Owed::Recovered(notice.also.iter().copied().chain([notice.kind]).collect()),
    }
}

fn waits_on(notice: &Notice, name: &str) -> bool {
    notice.lanes.iter().any(|lane| lane.name == name && matches!(lane.state, LaneState::Pending { .. }))
}

fn waits_for(alarm: &Alarm, id: &Nonce, name: &str) -> bool {
    alarm.outbox.iter().any(|notice| notice.id == *id && waits_on(notice, name))
}

fn owed_by(alarm: &Alarm, name: &str) -> Vec<Owed> {
    alarm.outbox.iter().filter(|notice| waits_on(notice, name)).map(as_owed).collect()
}

/// The alarm, and the world around it.
#[derive(Default)]
struct World {
    alarm: Option<Alarm>,
    oracle: Oracle,
    ids: u64,
    now_ms: u64,
    lanes: usize,
    begun: BTreeMap<usize, (Nonce, Owed)>,
    /// Everything that a lane heard, in order.
    heard: BTreeMap<&'static str, Vec<Owed>>,
}

impl World {
    fn happens(&mut self, what: &Happens) {
        self.now_ms += 3_600_000;
        let job = Name::new("job").unwrap();
        let names: Vec<String> = LANES[..self.lanes].iter().map(|name| (*name).to_owned()).collect();
        let on: Vec<&'static str> = LANES[..self.lanes].to_vec();
        let (now_ms, mut last) = (self.now_ms, self.ids);
        let ids = || {
            last += 1;
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&last.to_be_bytes());
            Nonce::from_bytes(bytes)
        };
        let alarm = self.alarm.clone().unwrap_or_default();
        let next = match what {
            Happens::Anomaly(kind, n) => {
                let work = format!("job@{n}");
                self.oracle.anomaly(*kind, &work, &on);
                let met = Anomaly { kind: *kind, work, at_ms: now_ms, why: "why".into(), slots: 1 };
                raise(self.alarm.as_ref(), &job, &[met], &names, ids)
            }
            Happens::Success(n) => {
                self.oracle.success(&format!("job@{n}"), &on);
                recover(&alarm, &format!("job@{n}"), now_ms, &names, ids)
            }
            Happens::Verdict(n) => {
                self.oracle.verdict(&format!("job@{n}"));
                closed_by_person(&alarm, &format!("job@{n}"))
            }
            Happens::Told(lane) => self.first_due(*lane).and_then(|(id, owed)| {
                self.hears(*lane, &owed);
                self.oracle.no_longer_owed(LANES[*lane], &owed);
                self.oracle.heard(LANES[*lane], &owed);
                delivered(&alarm, &id, LANES[*lane], now_ms)
            }),
            Happens::Begun(lane) => {
                if let Some((id, owed)) = self.first_due(*lane).filter(|_| !self.begun.contains_key(lane)) {
                    self.hears(*lane, &owed);
                    self.begun.insert(*lane, (id, owed));
                }
                None
            }
            Happens::Recorded(lane) => self.begun.remove(lane).and_then(|(id, owed)| {
                // it may have been told, given up or judged since, and the recovery may have come in between
                if waits_for(&alarm, &id, LANES[*lane]) {
                    self.oracle.no_longer_owed(LANES[*lane], &owed);
                }
                if alarm.open.iter().any(|open| open.notice == Some(id)) {
                    self.oracle.heard(LANES[*lane], &owed);
                }
                delivered(&alarm, &id, LANES[*lane], now_ms)
            }),
            Happens::NotTold(lane, ever) => self.first_due(*lane).and_then(|(id, owed)| {
                if *ever {
                    self.oracle.no_longer_owed(LANES[*lane], &owed);
                }
                undelivered(&alarm, &id, LANES[*lane], now_ms, "refused", *ever)
            }),
            Happens::Lanes(count) => {
                self.lanes = *count;
                None
            }
        };
        self.ids += 8;
        if let Some(next) = next {
            assert_ne!(Some(&next), self.alarm.as_ref(), "a write that changes nothing");
            self.alarm = Some(next);
        }
    }

    fn first_due(&self, lane: usize) -> Option<(Nonce, Owed)> {
        let alarm = self.alarm.as_ref()?;
        let due = due(alarm, self.now_ms).into_iter().find(|(_, name)| *name == LANES[lane])?;
        Some((due.0.id, as_owed(due.0)))
    }

    fn hears(&mut self, lane: usize, what: &Owed) {
        self.heard.entry(LANES[lane]).or_default().push(what.clone());
    }

    fn check(&self) {
        let alarm = self.alarm.clone().unwrap_or_default();
        for lane in LANES {
            let owed = self.oracle.owed.get(lane).cloned().unwrap_or_default();
            assert_eq!(owed_by(&alarm, lane), owed, "on lane {lane}: {alarm:?}");
        }
        let open: BTreeSet<Which> = alarm.open.iter().map(|open| (open.kind, open.work.clone())).collect();
        assert_eq!(open, self.oracle.open.keys().cloned().collect::<BTreeSet<Which>>());
        assert_eq!(open.len(), alarm.open.len(), "one of a kind");
        let key = RecordKey::alarm(&Name::new("job").unwrap());
        assert_eq!(decode::<Alarm>(&key, &encode(&key, &alarm).unwrap()).unwrap(), alarm);
    }
}

/// A lane never hears of a recovery of what it had not heard of.
fn recoveries_follow_something_heard(heard: &[Owed]) {
    let mut bad: BTreeSet<Kind> = BTreeSet::new();
    for what in heard {
        match what {
            Owed::Raised(kind, _) | Owed::RaisedAndRecovered(kind, _) => {
                bad.insert(*kind);
            }
            Owed::Recovered(kinds) => assert!(kinds.iter().any(|kind| bad.contains(kind)), "{heard:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_lane_is_owed_what_the_oracle_says(all in happenings()) {
        let mut world = World { lanes: 2, ..World::default() };
        for what in &all {
            world.happens(what);
            world.check();
        }
        // and once every lane answers, nothing is left waiting
        for _ in 0..64 {
            for lane in 0..LANES.len() {
                world.happens(&Happens::Told(lane));
                world.check();
            }
        }
        prop_assert!(world.alarm.unwrap_or_default().outbox.iter().all(|notice| !notice.is_pending()));
        for heard in world.heard.values() {
            recoveries_follow_something_heard(heard);
        }
    }
}
