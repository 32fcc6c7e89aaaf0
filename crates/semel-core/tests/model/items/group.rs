//! What a runner has to write, and how it goes into one swap: as the engine's `commit.rs` and `dispatch.rs`.

use semel_core::claim::{Guard, Write};
use semel_core::entry::{self, Ending, Entry, Settle, Stale};
use semel_core::item;
use semel_core::lease::{self, Lease, SeenLease};
use semel_core::record::{Expect, Seen, Standing, Version};
use semel_core::token::Grant;

use super::super::shared::Shared;
use super::super::store::Writes;
use super::judge::Fact;
use super::runner::{Active, Job};
use super::{Items, NAMES, OWN, World};

/// The lease of an item's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnLease {
    pub lease: Shared<Lease>,
    pub version: i64,
    pub trust: u64,
    pub is_gone: bool,
}

/// An item whose claim is on record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claimed {
    pub entry: Shared<Entry>,
    pub version: i64,
    pub own: Option<OwnLease>,
    pub probes: bool,
    pub after_lost: bool,
}

/// How an item that was claimed is to be settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct End {
    pub claimed: Claimed,
    /// None: it was not begun.
    pub ending: Option<Ending>,
    /// It is on record already: the model knows, not the runner.
    pub applied: bool,
}

/// What is to be written of an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Claim { writes: Shared<Writes>, probes: bool, after_lost: bool, unanswered: Option<u64> },
    Doubt { writes: Shared<Writes>, unanswered: Option<u64> },
    End(End),
}

/// A swap under way: each operation with the place of its record among the changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flight {
    pub writes: Shared<Writes>,
    pub ops: Vec<(usize, Op, usize)>,
    /// So many changes were made.
    pub made: usize,
    /// The versions that these got.
    pub versions: Vec<i64>,
    /// Since the first of them.
    pub age: u64,
}

impl Claimed {
    /// Under which grant it runs.
    pub fn grant(&self, runner: &Grant) -> Grant {
        self.own.as_ref().map_or(*runner, |own| own.lease.grant)
    }
}

impl OwnLease {
    /// What gives it back.
    fn release(&self) -> Option<Write> {
        let record = Seen { value: Lease::clone(&self.lease), version: Version::from(self.version) };
        let seen = SeenLease { record, standing: Standing::Live { left_ms: 0 }, owner_gone: false };
        let Grant { token, nonce } = self.lease.grant;
        let released = lease::release(Some(&seen), token, Some(&nonce), 0).ok()?;
        Some(released.write(&NAMES[OWN])).filter(|_| !self.is_gone)
    }
}

impl End {
    fn next(&self, runner: &Grant) -> Result<Entry, Stale> {
        let grant = self.claimed.grant(runner);
        let Some(ending) = &self.ending else {
            let back = item::give_back(&self.claimed.entry, &grant, self.claimed.after_lost, 0);
            return back.ok_or(Stale::AlreadySettled);
        };
        let ask = Settle {
            grant: &grant,
            ending: ending.clone(),
            result: None,
            output: None,
            failed_tries: 0,
            missed_renewals: 0,
            unrenewed_ms: 0,
            now_ms: 0,
        };
        entry::settle(&self.claimed.entry, &ask)
    }
}

enum Prepared {
    /// What to write, and where its record is among it.
    Writes(Vec<Write>, usize),
    /// It is on record.
    Settled,
    /// It never will be.
    Stale,
}

impl Op {
    fn prepare(&self, runner: &Grant) -> Prepared {
        let end = match self {
            Op::Claim { writes, .. } | Op::Doubt { writes, .. } => {
                let at = writes.0.iter().position(|write| matches!(write, Write::Entry { .. })).unwrap();
                return Prepared::Writes(writes.0.clone(), at);
            }
            Op::End(end) => end,
        };
        let gives_back = end.claimed.own.as_ref().and_then(OwnLease::release);
        let expect = Expect::Version(Version::from(end.claimed.version));
        match end.next(runner) {
            Ok(entry) => {
                let entry = Write::Entry { entry, expect };
                Prepared::Writes(std::iter::once(entry).chain(gives_back).collect(), 0)
            }
            // the outcome was written and what should have followed was not
            Err(Stale::AlreadySettled) => {
                gives_back.map_or(Prepared::Settled, |back| Prepared::Writes(vec![back], 0))
            }
            Err(Stale::MovedOn { .. }) => Prepared::Stale,
        }
    }

    /// Is the change at this place one of its own, where its record is changed at that one?
    fn is_about(&self, index: usize, at: usize) -> bool {
        let gives_back =
            matches!(self, Op::End(end) if end.claimed.own.as_ref().is_some_and(|own| !own.is_gone));
        index == at || (gives_back && index == at + 1)
    }
}

impl World {
    /// Put all that is to be written into one swap, and send it.
    pub fn send(&mut self, r: usize) -> Option<()> {
        let active = self.runners[r].active.as_ref().filter(|active| active.flight.is_none())?;
        let grant = active.grant();
        let queued = active.jobs.iter().enumerate().filter_map(|(item, job)| match job {
            Job::Queued(op) => Some((item, op.clone())),
            _ => None,
        });
        let queued: Vec<_> = queued.collect();
        let (mut writes, mut ops, mut over) = (Vec::<Write>::new(), Vec::new(), Vec::new());
        for (item, op) in queued {
            let (own, at) = match op.prepare(&grant) {
                Prepared::Writes(own, at) => (own, at),
                Prepared::Settled => {
                    over.push((item, op, true));
                    continue;
                }
                Prepared::Stale => {
                    over.push((item, op, false));
                    continue;
                }
            };
            // another of the group must neither guard nor write what this one writes
            let lease_of = |write: &Write| match write {
                Write::Lease { resource, .. } | Write::Guard(Guard { resource, .. }) => {
                    Some(resource.clone())
                }
                _ => None,
            };
            let is_guard = |write: &Write| matches!(write, Write::Guard(_));
            let clashes = |one: &Write| {
                let about = lease_of(one);
                about.is_some()
                    && writes
                        .iter()
                        .any(|other| lease_of(other) == about && !(is_guard(one) && is_guard(other)))
            };
            if own.iter().any(clashes) {
                continue;
            }
            let mut place = 0;
            for (n, write) in own.into_iter().enumerate() {
                let is_there =
                    is_guard(&write) && writes.iter().any(|other| lease_of(other) == lease_of(&write));
                if n == at {
                    place = writes.len();
                }
                if !is_there {
                    writes.push(write);
                }
            }
            ops.push((item, op, place));
        }
        if ops.is_empty() && over.is_empty() {
            return None;
        }
        for (item, op, is_settled) in over {
            self.not_sent(r, item, &op, is_settled);
        }
        let active = self.runners[r].active.as_mut()?;
        if !ops.is_empty() {
            let kinds = |wanted: fn(&Op) -> bool| ops.iter().any(|(_, op, _)| wanted(op));
            if kinds(|op| matches!(op, Op::Claim { .. })) && kinds(|op| matches!(op, Op::End(_))) {
                self.just.add(Fact::Grouped);
            }
            for (item, _, _) in &ops {
                active.jobs[*item] = Job::Flying;
            }
            let writes = Shared::new(Writes(writes));
            active.flight = Some(Flight { writes, ops, made: 0, versions: Vec::new(), age: 0 });
        }
        Some(())
    }

    /// Is a swap under way now?
    pub fn send_now(&mut self, r: usize) -> Option<bool> {
        self.send(r)?;
        Some(self.runners[r].active.as_ref()?.flight.is_some())
    }

    fn not_sent(&mut self, r: usize, item: usize, op: &Op, is_settled: bool) {
        if let Op::End(End { ending: Some(ending), applied, .. }) = op {
            // that it vanished is what the next holder found too
            match (is_settled, applied) {
                (true, false) if *ending != Ending::Vanished => self.just.add(Fact::SettleImagined),
                (true, true) => self.just.add(Fact::SettleRecognised),
                (false, true) => self.just.add(Fact::SettleDenied),
                (false, false) => self.just.add(Fact::StaleSettleRefused),
                _ => {}
            }
        }
        if let Some(active) = &mut self.runners[r].active {
            active.jobs[item] = Job::Over;
        }
    }

    /// The store takes what this runner sent: all of it, or the next change.
    pub fn apply(&mut self, items: &Items, r: usize) -> Option<()> {
        if items.is_sent_when_taken() && !self.send_now(r)? {
            return Some(());
        }
        let Active { run, flight: Some(flight), .. } = self.runners[r].active.as_ref()? else { return None };
        let (run, all, made) = (*run, flight.writes.clone(), flight.made);
        let due = match items.changes {
            super::Changes::AllOrNothing => &all.0[..],
            super::Changes::OneAfterAnother => &all.0[made..=made],
        };
        let answer = self.make(items, Some(run), due);
        // what was made is known of it by now
        let mut flight = self.runners[r].active.as_mut()?.flight.take()?;
        match answer {
            Ok(versions) => {
                flight.made += versions.len();
                flight.versions.extend(versions);
                if flight.made == all.0.len() {
                    self.committed(items, r, flight);
                } else {
                    self.runners[r].active.as_mut()?.flight = Some(flight);
                }
            }
            Err(index) => self.refused(items, r, flight, made + index),
        }
        Some(())
    }

    fn committed(&mut self, items: &Items, r: usize, flight: Flight) {
        let Flight { writes, ops, versions, age, .. } = flight;
        for (item, op, at) in ops {
            let Some(active) = &mut self.runners[r].active else { return };
            active.jobs[item] = match op {
                Op::Claim { probes, after_lost, .. } => {
                    let Write::Entry { entry, .. } = &writes.0[at] else { unreachable!() };
                    // the lease was written just before
                    let own = at.checked_sub(1).and_then(|at| match &writes.0[at] {
                        Write::Lease { lease, .. } if items.has_own(item) => {
                            Some(super::runner::owned(items, lease, versions[at], age))
                        }
                        _ => None,
                    });
                    let entry = Shared::new(entry.clone());
                    active.claimed(Claimed { entry, version: versions[at], own, probes, after_lost })
                }
                Op::Doubt { .. } | Op::End(_) => Job::Over,
            };
        }
    }

    /// A change did not fit: the runner's lease is lost, or others were faster.
    fn refused(&mut self, items: &Items, r: usize, flight: Flight, index: usize) {
        let in_order = items.changes == super::Changes::OneAfterAnother;
        let Some(active) = &mut self.runners[r].active else { return };
        let of_the_runner = match &flight.writes.0[index] {
            Write::Guard(Guard { resource, .. }) => *resource == NAMES[active.resource],
            _ => false,
        };
        if of_the_runner {
            self.just.add(Fact::ClaimRefused);
        }
        for (item, op, at) in flight.ops {
            let may_stand = in_order && at < index;
            active.jobs[item] = match op {
                op @ Op::End(_) if !may_stand && !op.is_about(index, at) => Job::Queued(op),
                Op::End(end) => Job::Check(end),
                Op::Claim { ref writes, unanswered, .. } => {
                    let takes = writes.0.iter().any(|write| matches!(write, Write::Lease { .. }));
                    let took = in_order && at == index && takes;
                    let sent = (at < index || took).then_some(flight.age);
                    active.reconsidered(unanswered.or(sent))
                }
                Op::Doubt { unanswered, .. } => active.reconsidered(unanswered),
            };
        }
        if of_the_runner {
            active.lose();
        }
    }

    /// No answer: perhaps it was made, perhaps some of it, perhaps it will be.
    pub fn give_up(&mut self, items: &Items, r: usize) -> Option<()> {
        self.trouble(|world| &mut world.unknowns_left)?;
        if items.is_sent_when_taken() {
            self.send_now(r)?;
        }
        let active = self.runners[r].active.as_mut()?;
        let flight = active.flight.take()?;
        let late = super::Late { run: active.run, writes: flight.writes.clone(), made: flight.made };
        active.unanswered(flight);
        if self.late.len() < items.late {
            self.late.push(late);
        }
        Some(())
    }

    /// All of it is made, as far as it fits, and the answer is lost.
    pub fn apply_unheard(&mut self, items: &Items, r: usize) -> Option<()> {
        self.trouble(|world| &mut world.unknowns_left)?;
        if items.is_sent_when_taken() {
            self.send_now(r)?;
        }
        let active = self.runners[r].active.as_ref()?;
        let flight = active.flight.as_ref()?;
        let late = super::Late { run: active.run, writes: flight.writes.clone(), made: flight.made };
        self.arrive(items, &late).then_some(())?;
        let active = self.runners[r].active.as_mut()?;
        let flight = active.flight.take()?;
        active.unanswered(flight);
        Some(())
    }

    /// A swap that nobody awaits arrives. Did it do anything?
    pub fn arrive(&mut self, items: &Items, late: &super::Late) -> bool {
        let left = &late.writes.0[late.made..];
        match items.changes {
            super::Changes::AllOrNothing => self.make(items, Some(late.run), left).is_ok(),
            super::Changes::OneAfterAnother => {
                let made = left.iter().take_while(|write| {
                    self.make(items, Some(late.run), std::slice::from_ref(write)).is_ok()
                });
                made.count() > 0
            }
        }
    }
}
