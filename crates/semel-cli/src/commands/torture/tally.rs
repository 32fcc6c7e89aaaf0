//! What the rounds came to, from the remote's log.

use std::collections::HashMap;

use serde::Serialize;

use super::attack::{Attack, Stale, Way as Played};

/// A commit on one of the branches, by its trailers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Landed {
    pub(super) way: Played,
    pub(super) effect: String,
    pub(super) stale: bool,
}

/// What was played, and what stale pushes answered.
#[derive(Debug, Default)]
pub(super) struct Told {
    attacks: Vec<Attack>,
    /// With the fence, and without.
    refused: [u32; 2],
    found: [u32; 2],
}

impl Told {
    /// A round that was played in both ways.
    pub(super) fn note(&mut self, attack: Attack, fenced: Stale, plain: Stale) {
        self.attacks.push(attack);
        for (way, stale) in [fenced, plain].into_iter().enumerate() {
            self.refused[way] += u32::from(stale == Stale::Refused);
            self.found[way] += u32::from(stale == Stale::Found);
        }
    }
}

/// One way of pushing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Stale pushes that were told so.
    pub(super) refused: u32,
    /// Stale holders that looked late enough to see the work, and pushed nothing.
    pub(super) found: u32,
    /// Stale pushes whose commits are on the remote.
    pub(super) accepted: u32,
    /// Rounds whose work is there more than once.
    pub(super) doubled: u32,
    /// Commits that are there beside the first of their work.
    pub(super) extra: u32,
    /// Rounds whose work is not there.
    pub(super) lost: u32,
}

/// Where stale holders stalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Stalls {
    before: u32,
    between: u32,
    inside: u32,
}

#[derive(Debug)]
pub(super) struct Tally {
    pub(super) seed: u64,
    pub(super) rounds: u32,
    pub(super) stale: u32,
    pub(super) races: u32,
    pub(super) stalls: Stalls,
    pub(super) fenced: Way,
    pub(super) plain: Way,
}

impl Tally {
    pub(super) fn new(seed: u64, told: &Told, landed: &[Landed]) -> Tally {
        let rounds = u32::try_from(told.attacks.len()).unwrap_or(u32::MAX);
        let count = |of: &dyn Fn(&Attack) -> bool| {
            u32::try_from(told.attacks.iter().filter(|attack| of(attack)).count()).unwrap_or(u32::MAX)
        };
        let at = |place: &str| count(&|attack| attack.place() == Some(place));
        let stalls = Stalls { before: at("before"), between: at("between"), inside: at("inside") };
        let races = count(&|attack| attack.place().is_none());
        let way = |way: Played, at: usize| {
            let (refused, found) = (told.refused[at], told.found[at]);
            Way { refused, found, ..of(way, &told.attacks, landed) }
        };
        Tally {
            seed,
            rounds,
            stale: rounds - races,
            races,
            stalls,
            fenced: way(Played::Fenced, 0),
            plain: way(Played::Plain, 1),
        }
    }

    /// Every stale push was refused and is not there, and everything is there once.
    pub(super) fn held(&self) -> bool {
        self.fenced == Way { refused: self.stale, ..Way::default() }
    }

    /// What none in so many rounds says about the true rate, with 95 %.
    pub(super) fn bound(&self) -> f64 {
        (3.0 / f64::from(self.rounds.max(1))).min(1.0)
    }
}

fn of(way: Played, attacks: &[Attack], landed: &[Landed]) -> Way {
    let mut counts: HashMap<&str, u32> = HashMap::new();
    let mut found = Way::default();
    for commit in landed.iter().filter(|commit| commit.way == way) {
        *counts.entry(&commit.effect).or_default() += 1;
        found.accepted += u32::from(commit.stale);
    }
    for (round, attack) in attacks.iter().enumerate() {
        let there = |effect: &str| counts.get(effect).copied().unwrap_or(0);
        let copies = there(&Attack::effect(round, way));
        // what the newer holder did is to be there; what only the stale one wanted is counted above
        let wanted = if attack.is_aside() { there(&Attack::aside(round, way)) } else { copies };
        found.extra += copies.saturating_sub(1) + wanted.saturating_sub(1) * u32::from(attack.is_aside());
        found.doubled += u32::from(copies > 1 || wanted > 1);
        found.lost += u32::from(wanted == 0);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::torture::attack::Place;

    fn landed(way: Played, effect: String, stale: bool) -> Landed {
        Landed { way, effect, stale }
    }

    #[test]
    fn copies_losses_and_stale_commits_are_told_apart() {
        let same = Attack::Stale { place: Place::Inside, aside: false };
        let aside = Attack::Stale { place: Place::Before, aside: true };
        let mut told = Told::default();
        told.note(same, Stale::Refused, Stale::Told);
        told.note(Attack::Race { pushers: 3 }, Stale::None, Stale::None);
        told.note(aside, Stale::Refused, Stale::Told);
        told.note(same, Stale::Refused, Stale::Found);
        let (fenced, plain) = (Played::Fenced, Played::Plain);
        let mut log = vec![
            landed(fenced, Attack::effect(0, fenced), false),
            landed(fenced, Attack::effect(1, fenced), false),
            landed(fenced, Attack::aside(2, fenced), false),
            landed(fenced, Attack::effect(3, fenced), false),
            landed(plain, Attack::effect(0, plain), false),
            landed(plain, Attack::effect(0, plain), true),
            landed(plain, Attack::effect(2, plain), true),
            landed(plain, Attack::aside(2, plain), false),
            landed(plain, Attack::effect(3, plain), false),
        ];
        let tally = Tally::new(1, &told, &log);
        assert!(tally.held(), "{tally:?}");
        assert_eq!((tally.rounds, tally.stale, tally.races), (4, 3, 1));
        assert_eq!(tally.plain, Way { refused: 0, found: 1, accepted: 2, doubled: 1, extra: 1, lost: 1 });
        log.push(landed(fenced, Attack::effect(2, fenced), true));
        assert!(!Tally::new(1, &told, &log).held(), "a stale push that landed");
        log.pop();
        log.remove(2);
        assert!(!Tally::new(1, &told, &log).held(), "the newer holder's work is lost");
    }
}
