//! A round: a stale holder that wakes late, or a race; with the fence, or as most scripts do it.

use std::sync::Barrier;
use std::thread;

use semel::sink::git::{GitAnswer, GitSinkError, Pushed};

use super::arena::{Arena, Branch, Fault, Pusher, Stall};
use crate::chance::Chance;

/// The most that race.
pub(super) const PUSHERS: usize = 4;
/// How often the loop of a script tries again.
const TRIES: u32 = 20;

/// Where a stale holder stalls, whichever way it pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Before it looks: at the fence, or whether the work is there.
    Before,
    /// After its look, before its push.
    Between,
    /// In its push, when git has read the remote.
    Inside,
}

/// How it is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Fenced,
    Plain,
}

/// What a round does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    /// A holder stalls, a newer one takes over, the first one wakes. `aside`: the newer one has other work, on another
    /// branch, so that nothing but the fence is in the stale one's way.
    Stale { place: Place, aside: bool },
    /// So many at once, all with the valid grant.
    Race { pushers: usize },
}

/// What became of the stale push of a round, as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    /// There was none.
    None,
    /// It was told that it is stale.
    Refused,
    /// It looked after the newer holder, saw the work and pushed nothing.
    Found,
    /// It was told anything else.
    Told,
}

impl Attack {
    /// Even rounds have a stale holder, odd ones are races: a short run has both.
    pub(super) fn draw(round: u32, chance: &mut Chance) -> Attack {
        let (one, two) = (chance.any(), chance.any());
        if round % 2 == 1 {
            let more = usize::try_from(one % (PUSHERS as u64 - 1)).unwrap_or(0);
            return Attack::Race { pushers: 2 + more };
        }
        let place = match one % 3 {
            0 => Place::Before,
            1 => Place::Between,
            _ => Place::Inside,
        };
        Attack::Stale { place, aside: two % 2 == 1 }
    }

    pub(super) fn place(&self) -> Option<&'static str> {
        match self {
            Attack::Stale { place: Place::Before, .. } => Some("before"),
            Attack::Stale { place: Place::Between, .. } => Some("between"),
            Attack::Stale { place: Place::Inside, .. } => Some("inside"),
            Attack::Race { .. } => None,
        }
    }

    pub(super) fn is_aside(&self) -> bool {
        matches!(self, Attack::Stale { aside: true, .. })
    }

    /// What the work of a round is known by.
    pub(super) fn effect(round: usize, way: Way) -> String {
        format!("{way:?}.{round}").to_lowercase()
    }

    /// What the newer holder's other work is known by.
    pub(super) fn aside(round: usize, way: Way) -> String {
        Attack::effect(round, way) + ".aside"
    }

    pub(super) fn play(&self, arena: &Arena, round: u32, way: Way) -> Result<Stale, Fault> {
        let effect = Attack::effect(round as usize, way);
        let aside = Attack::aside(round as usize, way);
        let newer =
            if self.is_aside() { (Branch::Aside, aside.as_str()) } else { (way.branch(), effect.as_str()) };
        match (self, way) {
            (Attack::Stale { place, .. }, Way::Fenced) => fenced_stale(arena, round, *place, &effect, newer),
            (Attack::Stale { place, .. }, Way::Plain) => plain_stale(arena, round, *place, &effect, newer),
            (Attack::Race { pushers }, Way::Fenced) => fenced_race(arena, round, *pushers, &effect),
            (Attack::Race { pushers }, Way::Plain) => plain_race(arena, *pushers, &effect),
        }
    }
}

impl Way {
    pub(super) fn branch(self) -> Branch {
        match self {
            Way::Fenced => Branch::Fenced,
            Way::Plain => Branch::Plain,
        }
    }
}

/// The grants of a round: what is stale in it, and what is newer.
fn tokens(round: u32) -> (u64, u64) {
    let stale = u64::from(round) * 2 + 1;
    (stale, stale + 1)
}

fn fenced_stale(
    arena: &Arena,
    round: u32,
    place: Place,
    effect: &str,
    (branch, newer): (Branch, &str),
) -> Result<Stale, Fault> {
    let (first, second) = (arena.pusher(0)?, arena.pusher(1)?);
    let (old, new) = tokens(round);
    let commit = first.work(arena, Branch::Fenced, effect, true)?;
    let stall = Stall::new(arena, &format!("fenced-{round}"), place)?;
    let zombie = arena.sink(&stall.stalled(first), first, old, effect)?;
    let (done, woken) = thread::scope(|scope| {
        let woken = scope.spawn(|| arena.push(&zombie, &commit, Branch::Fenced));
        let done = stall.reached(|| woken.is_finished()).and_then(|()| {
            let mine = second.work(arena, branch, newer, false)?;
            let sink = arena.sink(&second.program, second, new, newer)?;
            Ok(arena.push(&sink, &mine, branch)?)
        });
        stall.go();
        (done, woken.join())
    });
    let woken = woken.map_err(|_| Fault::here("a pusher broke down"))?;
    let stale = match woken {
        Err(GitSinkError::Stale { .. }) => Stale::Refused,
        // what it did is on the remote, or is not: that is counted
        Ok(_) => Stale::Told,
        // also if that is why it did not stall
        Err(why) => return Err(why.into()),
    };
    match done? {
        Pushed::Done(_) => Ok(stale),
        _ => Err(Fault::here("the newer holder's work was there before it was pushed")),
    }
}

/// It stalls where the fenced one does; nobody tells it that its time is up.
fn plain_stale(
    arena: &Arena,
    round: u32,
    place: Place,
    effect: &str,
    (branch, newer): (Branch, &str),
) -> Result<Stale, Fault> {
    let (first, second) = (arena.pusher(0)?, arena.pusher(1)?);
    let stale = Loop { arena, pusher: first, branch: Branch::Plain, effect, stale: true };
    let newer = Loop { arena, pusher: second, branch, effect: newer, stale: false };
    if place == Place::Before {
        newer.play()?;
    }
    let Some(commit) = stale.look_and_commit()? else { return Ok(Stale::Found) };
    match place {
        Place::Before => stale.push(commit)?,
        Place::Between => {
            newer.play()?;
            stale.push(commit)?;
        }
        Place::Inside => stale.push_stalled(commit, &format!("plain-{round}"), || newer.play())?,
    }
    Ok(Stale::Told)
}

fn fenced_race(arena: &Arena, round: u32, pushers: usize, effect: &str) -> Result<Stale, Fault> {
    let token = tokens(round).0;
    let outcomes = at_once(arena, pushers, |pusher, start| {
        let ready = pusher
            .work(arena, Branch::Fenced, effect, false)
            .and_then(|commit| Ok((arena.sink(&pusher.program, pusher, token, effect)?, commit)));
        start.wait();
        let (sink, commit) = ready?;
        match arena.push(&sink, &commit, Branch::Fenced) {
            Ok(_) => Ok(true),
            // overtaken every time: what was pushed is another's
            Err(GitSinkError::Raced { .. } | GitSinkError::Locked { .. }) => Ok(false),
            Err(why) => Err(Fault::from(why)),
        }
    })?;
    if !outcomes.contains(&true) {
        // all of them were told to push again later
        let first = arena.pusher(0)?;
        let commit = first.work(arena, Branch::Fenced, effect, false)?;
        arena.push(&arena.sink(&first.program, first, token, effect)?, &commit, Branch::Fenced)?;
    }
    Ok(Stale::None)
}

fn plain_race(arena: &Arena, pushers: usize, effect: &str) -> Result<Stale, Fault> {
    at_once(arena, pushers, |pusher, start| {
        let script = Loop { arena, pusher, branch: Branch::Plain, effect, stale: false };
        let commit = script.look_and_commit();
        start.wait();
        match commit? {
            Some(commit) => script.push(commit),
            None => Ok(()),
        }
    })?;
    Ok(Stale::None)
}

/// So many pushers, each in a thread; whatever it does, each waits for the start once.
fn at_once<T: Send>(
    arena: &Arena,
    pushers: usize,
    each: impl Fn(&Pusher, &Barrier) -> Result<T, Fault> + Sync,
) -> Result<Vec<T>, Fault> {
    let racing: Vec<&Pusher> = (0..pushers).map(|n| arena.pusher(n)).collect::<Result<_, _>>()?;
    let start = Barrier::new(racing.len());
    thread::scope(|scope| {
        let (each, start) = (&each, &start);
        let started: Vec<_> = racing.iter().map(|pusher| scope.spawn(move || each(pusher, start))).collect();
        let ended: Vec<_> = started.into_iter().map(|pusher| pusher.join()).collect();
        ended.into_iter().map(|end| end.map_err(|_| Fault::here("a pusher broke down"))?).collect()
    })
}

/// The loop of a script that looks before it pushes.
struct Loop<'a> {
    arena: &'a Arena,
    pusher: &'a Pusher,
    branch: Branch,
    effect: &'a str,
    stale: bool,
}

impl Loop<'_> {
    /// Nothing, if the work is there.
    fn look_and_commit(&self) -> Result<Option<String>, Fault> {
        let tip = self.pusher.fetch(self.arena, self.branch)?;
        if self.pusher.has(&tip, self.effect)? {
            return Ok(None);
        }
        self.pusher.commit(self.arena, &tip, self.effect, self.stale).map(Some)
    }

    /// All of it, once.
    fn play(&self) -> Result<(), Fault> {
        match self.look_and_commit()? {
            Some(commit) => self.push(commit),
            None => Ok(()),
        }
    }

    fn push(&self, commit: String) -> Result<(), Fault> {
        let pushed = self.pusher.plain_push(self.arena, &self.pusher.program, &commit, self.branch)?;
        self.insist(pushed)
    }

    /// The first push stalls when git has read the remote, until `meanwhile` is over.
    fn push_stalled(
        &self,
        commit: String,
        name: &str,
        meanwhile: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let stall = Stall::new(self.arena, name, Place::Inside)?;
        let stalled = stall.stalled(self.pusher);
        let (done, pushed) = thread::scope(|scope| {
            let pushing = scope.spawn(|| self.pusher.plain_push(self.arena, &stalled, &commit, self.branch));
            let done = stall.reached(|| pushing.is_finished()).and_then(|()| meanwhile());
            stall.go();
            (done, pushing.join())
        });
        let pushed = pushed.map_err(|_| Fault::here("a pusher broke down"))??;
        done?;
        self.insist(pushed)
    }

    /// Rejected, it puts the same change on top of what is there now, and pushes again.
    fn insist(&self, mut pushed: GitAnswer) -> Result<(), Fault> {
        for _ in 1..TRIES {
            match pushed.code {
                Some(0) => return Ok(()),
                Some(1) => {}
                _ => return Err(Fault::away("git push", &pushed.why())),
            }
            let tip = self.pusher.fetch(self.arena, self.branch)?;
            let commit = self.pusher.commit(self.arena, &tip, self.effect, self.stale)?;
            pushed = self.pusher.plain_push(self.arena, &self.pusher.program, &commit, self.branch)?;
        }
        match pushed.code {
            Some(0) => Ok(()),
            _ => Err(Fault::away("git push was rejected again and again", &pushed.why())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_rounds_of_every_kind() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..200).map(|round| Attack::draw(round, &mut chance)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        for place in [Place::Before, Place::Between, Place::Inside] {
            for aside in [true, false] {
                assert!(draw(3).contains(&Attack::Stale { place, aside }));
            }
        }
        for pushers in 2..=PUSHERS {
            assert!(draw(3).contains(&Attack::Race { pushers }));
        }
    }
}
