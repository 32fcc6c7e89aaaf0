//! How one island behaves if one call comes after another, and the check of a history against it.
//!
//! stateright's tester tries orders depth first and remembers none. The memory is here: what a search comes to depends
//! on which calls were placed and on what stands then, so a pair of the two that was met before is refused at once.
//! That is sound because the search ends with the first order that fits: whatever was met before has failed. (It is
//! Lowe's addition to Wing and Gong's search.) The memory also bounds the check.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

/// The most records of one island.
pub(crate) const SLOTS: usize = 3;
/// The most calls of one history.
pub(crate) const CALLS: usize = 256;
/// How many situations a check may meet before it is given up.
pub(crate) const SITUATIONS: usize = 300_000;

/// One write of one record, known by its value: no two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Write {
    pub(crate) number: u32,
    /// It has a clock, which does not run out here.
    pub(crate) clocked: bool,
}

/// What must stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Absent,
    At(Write),
    Live(Write),
    Lapsed(Write),
}

impl Want {
    fn holds(self, stands: Option<Write>) -> bool {
        match self {
            Want::Absent => stands.is_none(),
            Want::At(write) => stands == Some(write),
            Want::Live(write) => stands == Some(write) && write.clocked,
            Want::Lapsed(_) => false,
        }
    }
}

/// What is done if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Put(Write),
    Guard,
    Remove,
}

/// One change of a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) slot: usize,
    pub(crate) want: Want,
    pub(crate) act: Act,
}

#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Load(Vec<usize>),
    Swap(Vec<Part>),
    Touch(usize, Write),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Saw(Vec<Option<Write>>),
    Done,
    Refused {
        index: usize,
        stands: Option<Write>,
    },
    /// Nothing is known of it: it was done if it could be. Who comes last of all is seen by nobody.
    Nothing,
}

/// A call with its answer, between two moments; what never ended ends last of all.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) asked: Asked,
    pub(crate) said: Said,
    /// The step, by its place in the history, that must come before.
    pub(crate) after: Option<usize>,
}

pub(crate) const NEVER: u64 = u64::MAX;

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fits,
    FitsNoOrder,
    /// The search was given up.
    TooLong,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Placed([u128; CALLS / 128]);

impl Placed {
    fn has(&self, index: usize) -> bool {
        self.0[index / 128] & (1 << (index % 128)) != 0
    }

    fn add(&mut self, index: usize) {
        self.0[index / 128] |= 1 << (index % 128);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Situation {
    stands: [Option<Write>; SLOTS],
    placed: Placed,
}

#[derive(Clone, Debug)]
struct Island {
    now: Situation,
    met: Rc<RefCell<HashSet<Situation>>>,
    limit: usize,
}

/// A step as the tester hands it around, often: by its place.
type Place = (usize, Rc<Step>);

impl SequentialSpec for Island {
    type Op = Place;
    type Ret = ();

    fn invoke(&mut self, _: &Place) {
        unreachable!("every step has an end, if only the last of all");
    }

    fn is_valid_step(&mut self, (index, step): &Place, (): &()) -> bool {
        if step.after.is_some_and(|before| !self.now.placed.has(before)) {
            return false;
        }
        if !take(&mut self.now.stands, &step.asked, &step.said) {
            return false;
        }
        self.now.placed.add(*index);
        let mut met = self.met.borrow_mut();
        if met.len() >= self.limit {
            resume_unwind(Box::new(Verdict::TooLong));
        }
        met.insert(self.now)
    }
}

/// May it answer so? Then do it.
fn take(stands: &mut [Option<Write>; SLOTS], asked: &Asked, said: &Said) -> bool {
    match (asked, said) {
        (Asked::Load(slots), Said::Saw(seen)) => {
            slots.iter().map(|slot| stands[*slot]).eq(seen.iter().copied())
        }
        (Asked::Swap(parts), said) => {
            let refused = parts.iter().position(|part| !part.want.holds(stands[part.slot]));
            let answer = match refused {
                Some(index) => Said::Refused { index, stands: stands[parts[index].slot] },
                None => Said::Done,
            };
            if answer == Said::Done {
                for part in parts {
                    match part.act {
                        Act::Put(write) => stands[part.slot] = Some(write),
                        Act::Remove => stands[part.slot] = None,
                        Act::Guard => {}
                    }
                }
            }
            answer == *said || *said == Said::Nothing
        }
        (Asked::Touch(slot, write), said) => {
            let answer = match Want::Live(*write).holds(stands[*slot]) {
                true => Said::Done,
                false => Said::Refused { index: 0, stands: stands[*slot] },
            };
            answer == *said
        }
        (Asked::Load(_), _) => false,
    }
}

/// Does this history fit an order? All records are absent at first.
pub(crate) fn check(steps: &[Step]) -> Verdict {
    check_within(steps, SITUATIONS)
}

pub(crate) fn check_within(steps: &[Step], limit: usize) -> Verdict {
    assert!(steps.len() <= CALLS, "a history of {} steps", steps.len());
    let island = Island { now: Situation::default(), met: Rc::default(), limit };
    let tester = tell(LinearizabilityTester::new(island), steps);
    match catch_unwind(AssertUnwindSafe(|| tester.is_consistent())) {
        Ok(true) => Verdict::Fits,
        Ok(false) => Verdict::FitsNoOrder,
        Err(why) => *why.downcast::<Verdict>().unwrap_or_else(|why| resume_unwind(why)),
    }
}

/// Begins and ends in their order. The tester knows threads, of which each does one thing at a time: any that is free
/// will do, since one that is free has ended what it did before.
fn tell(
    mut tester: LinearizabilityTester<usize, Island>,
    steps: &[Step],
) -> LinearizabilityTester<usize, Island> {
    let mut events = BTreeSet::new();
    for (index, step) in steps.iter().enumerate() {
        events.extend([(step.begun, false, index), (step.ended, true, index)]);
    }
    let mut free: BTreeSet<usize> = (0..steps.len()).collect();
    let mut busy = BTreeMap::new();
    for (_, ends, index) in events {
        if ends {
            let thread = busy.remove(&index).unwrap();
            tester.on_return(thread, ()).unwrap();
            free.insert(thread);
        } else {
            let thread = free.pop_first().unwrap();
            tester.on_invoke(thread, (index, Rc::new(steps[index].clone()))).unwrap();
            busy.insert(index, thread);
        }
    }
    tester
}
