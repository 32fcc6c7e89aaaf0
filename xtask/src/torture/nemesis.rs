//! What goes wrong, and when: drawn from the seed of the round before it begins.

use semel_testkit::Chance;

use super::contender::Contender;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    KillSemel,
    KillCommand,
    KillAll,
    StopSemel,
    Suspend,
    Cut,
    Delay,
    LoseReply,
    Swallow,
    KillServer,
    Clock,
    DiskFull,
    DiskError,
}

impl Fault {
    pub(crate) const ALL: [Fault; 13] = [
        Fault::KillSemel,
        Fault::KillCommand,
        Fault::KillAll,
        Fault::StopSemel,
        Fault::Suspend,
        Fault::Cut,
        Fault::Delay,
        Fault::LoseReply,
        Fault::Swallow,
        Fault::KillServer,
        Fault::Clock,
        Fault::DiskFull,
        Fault::DiskError,
    ];

    /// As it stands in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::KillSemel => "kill-semel",
            Fault::KillCommand => "kill-command",
            Fault::KillAll => "kill-all",
            Fault::StopSemel => "stop-semel",
            Fault::Suspend => "suspend",
            Fault::Cut => "net-cut",
            Fault::Delay => "net-delay",
            Fault::LoseReply => "reply-lost",
            Fault::Swallow => "half-open",
            Fault::KillServer => "kill-server",
            Fault::Clock => "clock-step",
            Fault::DiskFull => "disk-full",
            Fault::DiskError => "disk-error",
        }
    }

    /// What it is, for the page of results.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Fault::KillSemel => "`kill -9` of Semel (of the control: its outer process)",
            Fault::KillCommand => "`kill -9` of the command",
            Fault::KillAll => "`kill -9` of both, with the keeper and all they started",
            Fault::StopSemel => "SIGSTOP of Semel alone, past its ttl, another fires meanwhile, SIGCONT",
            Fault::Suspend => {
                "SIGSTOP of Semel, keeper and command past the ttl, another fires meanwhile, SIGCONT; two of three times of the \
                 command first, and of the others when it has had its effect, or 1 or 4 s later; where the target is fenced, \
                 and for the controls"
            }
            Fault::Cut => "every connection to the store broken, and none new, for a while",
            Fault::Delay => "the store answers late",
            Fault::LoseReply => {
                "the request is forwarded and applied, its reply lost and the connection broken"
            }
            Fault::Swallow => "the store takes everything and answers nothing, for a while",
            Fault::KillServer => {
                "`kill -9` of the store's server, started again; it meets all rounds under way, and is counted in each"
            }
            Fault::Clock => "the wall clock an hour ahead or back, and set while they run (libfaketime)",
            Fault::DiskFull => "no space left on the ledger's file system (tmpfs), for a while",
            Fault::DiskError => {
                "EIO, ENOSPC or short writes at the ledger's files, at one call in so many (a preloaded library)"
            }
        }
    }

    /// A holder may outlive its lease.
    pub(crate) fn is_stop(self) -> bool {
        matches!(self, Fault::StopSemel | Fault::Suspend)
    }
}

/// When it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// So long after the round has begun.
    Blind,
    /// When a command has begun.
    Begun,
    /// When an effect is there.
    Effect,
    /// When the step that is held, if it is lost, has begun.
    Held,
}

/// One fault, where and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strike {
    pub(crate) fault: Fault,
    pub(crate) aim: Aim,
    /// After what it is aimed at.
    pub(crate) after_ms: u64,
    /// How long it lasts, where it does.
    pub(crate) hold_ms: u64,
    /// Any of the firings, not the one that holds the lease.
    pub(crate) is_stray: bool,
    /// Somebody fires again at once.
    pub(crate) refires: bool,
    /// What was suspended wakes up command first, as on a machine that has much to do; the others when it has had its
    /// effect or has ended, or so much later. 0: all at once.
    pub(crate) gap_ms: u64,
}

/// What there is to strike with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arms {
    pub(crate) network: bool,
    /// The server is ours to kill.
    pub(crate) server: bool,
    pub(crate) clock: bool,
    pub(crate) disk_full: bool,
    pub(crate) disk_error: bool,
    /// A lease, and how much later than its ttl it may lapse.
    pub(crate) ttl_ms: u64,
    pub(crate) slack_ms: u64,
}

/// One round in so many kills the server, under all that are under way.
const SERVER_ONE_IN: u64 = 60;

/// All of a round, before it begins.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) strikes: Vec<Strike>,
    /// When each firing comes, and whether it waits where it is busy.
    pub(crate) firings: Vec<(u64, bool)>,
    /// Pauses of the command, before and after its effect; that of whoever begins first, before it, may be long.
    pub(crate) before_ms: u64,
    pub(crate) after_ms: u64,
    pub(crate) first_before_ms: u64,
    /// Two runners of a batch share it.
    pub(crate) shares: bool,
    /// A late one comes when all is done.
    pub(crate) has_late: bool,
    pub(crate) ttl_ms: u64,
}

impl Plan {
    /// Draw it.
    pub(crate) fn draw(chance: &mut Chance, contender: Contender, arms: &Arms) -> Plan {
        // an unfenced effect is guarded by the keeper alone: it gets more room on a busy machine
        let ttl_ms = if contender.has_target() { arms.ttl_ms } else { arms.ttl_ms * 2 };
        let many = chance.of(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 3]);
        let mut strikes: Vec<Strike> = (0..many).map(|_| strike(chance, contender, arms, ttl_ms)).collect();
        if chance.below(SERVER_ONE_IN) == 0 && arms.server && contender.has_store() {
            strikes[0].fault = Fault::KillServer;
        }
        let firings = chance.of(&[2, 2, 3]);
        let firings =
            (0..firings).map(|n| (if n == 0 { 0 } else { chance.below(25) }, chance.coin())).collect();
        let before_ms = chance.of(&[0, 0, 10, 25]);
        // a command that is suspended before its effect is the one that comes back from the dead
        let coin = chance.coin();
        let outlives =
            strikes.iter().any(|strike| strike.fault == Fault::Suspend || strike.hold_ms > ttl_ms && coin);
        Plan {
            firings,
            before_ms,
            after_ms: chance.of(&[0, 20, 40, 80]),
            first_before_ms: if outlives { ttl_ms + arms.slack_ms / 2 } else { before_ms },
            shares: chance.coin(),
            has_late: chance.below(4) == 0,
            ttl_ms,
            strikes,
        }
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.strikes.iter().any(|strike| strike.fault == fault)
    }
}

fn weights(contender: Contender, arms: &Arms) -> Vec<(Fault, u64)> {
    let mut all = vec![(Fault::KillSemel, 8), (Fault::KillCommand, 6), (Fault::KillAll, 6)];
    all.push((Fault::StopSemel, 1));
    if contender.has_target() || contender.is_control() {
        all.extend([(Fault::StopSemel, 1), (Fault::Suspend, 16)]);
    }
    // what a store can suffer is no fault of those that have none
    if !contender.has_store() {
        return all;
    }
    if arms.network {
        all.extend([(Fault::Cut, 2), (Fault::Delay, 1), (Fault::LoseReply, 4), (Fault::Swallow, 2)]);
    }
    for (has, fault, weight) in [
        (arms.clock, Fault::Clock, 2),
        (arms.disk_full, Fault::DiskFull, 2),
        (arms.disk_error, Fault::DiskError, 3),
    ] {
        if has {
            all.push((fault, weight));
        }
    }
    all
}

fn strike(chance: &mut Chance, contender: Contender, arms: &Arms, ttl_ms: u64) -> Strike {
    let all = weights(contender, arms);
    let mut at = chance.below(all.iter().map(|(_, weight)| weight).sum());
    let mut fault = Fault::KillSemel;
    for (each, weight) in all {
        if at < weight {
            fault = each;
            break;
        }
        at -= weight;
    }
    let aims: &[Aim] = match contender {
        // suspended after its effect it has nothing left to do wrong
        _ if fault == Fault::Suspend => &[Aim::Begun, Aim::Begun, Aim::Begun, Aim::Blind, Aim::Effect],
        Contender::Steps => &[Aim::Blind, Aim::Begun, Aim::Effect, Aim::Held, Aim::Held],
        _ => &[Aim::Blind, Aim::Begun, Aim::Effect],
    };
    let (mut aim, blind) = (chance.of(aims), chance.below(90));
    // stopped before its keeper watches, it could begin an unfenced effect on waking
    if fault.is_stop() && aim == Aim::Blind && !contender.has_target() {
        aim = Aim::Begun;
    }
    let after_ms = match aim {
        Aim::Blind => blind,
        // git takes longer
        _ if contender == Contender::Push => chance.below(220),
        _ => chance.of(&[0, 0, 2, 5, 12, 30]),
    };
    let past_ms = ttl_ms + arms.slack_ms + chance.below(300);
    let short_ms = 20 + chance.below(300);
    let hold_ms = match fault {
        Fault::StopSemel | Fault::Suspend => past_ms,
        Fault::Cut | Fault::Swallow if chance.below(10) == 0 => past_ms,
        _ => short_ms,
    };
    let (is_stray, refires) = (chance.below(6) == 0, chance.coin());
    Strike { fault, aim, after_ms, hold_ms, is_stray, refires, gap_ms: chance.of(&[0, 1_000, 4_000]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARMS: Arms = Arms {
        network: true,
        server: true,
        clock: true,
        disk_full: true,
        disk_error: true,
        ttl_ms: 1_000,
        slack_ms: 400,
    };

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        let draw = |seed| format!("{:?}", Plan::draw(&mut Chance::with_seed(seed), Contender::Sql, &ARMS));
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn what_is_not_fenced_is_not_suspended_and_not_stopped_before_its_keeper_watches() {
        for seed in 0..2_000 {
            let plan = Plan::draw(&mut Chance::with_seed(seed), Contender::Probe, &ARMS);
            assert!(!plan.has(Fault::Suspend), "{seed}");
            let stops = plan.strikes.iter().filter(|strike| strike.fault.is_stop());
            assert!(stops.into_iter().all(|strike| strike.aim != Aim::Blind), "{seed}");
        }
    }

    #[test]
    fn every_fault_that_can_be_drawn_is() {
        let plans = (0..2_000).map(|seed| Plan::draw(&mut Chance::with_seed(seed), Contender::Write, &ARMS));
        let plans: Vec<Plan> = plans.collect();
        for fault in Fault::ALL {
            assert!(plans.iter().any(|plan| plan.has(fault)), "{fault:?}");
        }
    }

    #[test]
    fn nothing_is_drawn_that_cannot_be_done_here() {
        for seed in 0..2_000 {
            let bare = Arms { ttl_ms: 1_000, slack_ms: 400, ..Arms::default() };
            let plan = Plan::draw(&mut Chance::with_seed(seed), Contender::Write, &bare);
            let of_control = Plan::draw(&mut Chance::with_seed(seed), Contender::Flock, &ARMS);
            let struck = plan.strikes.iter().chain(&of_control.strikes).map(|strike| strike.fault);
            let kills =
                [Fault::KillSemel, Fault::KillCommand, Fault::KillAll, Fault::StopSemel, Fault::Suspend];
            for fault in struck {
                assert!(kills.contains(&fault), "{seed}: {fault:?}");
            }
        }
    }

    #[test]
    fn a_plain_target_is_attacked_as_the_fenced_one_is() {
        for seed in 0..2_000 {
            let draw =
                |contender| format!("{:?}", Plan::draw(&mut Chance::with_seed(seed), contender, &ARMS));
            assert_eq!(draw(Contender::Write), draw(Contender::PlainWrite), "{seed}");
            assert_eq!(draw(Contender::Sql), draw(Contender::PlainSql), "{seed}");
        }
    }

    #[test]
    fn a_held_step_is_aimed_at() {
        let plans = (0..200).map(|seed| Plan::draw(&mut Chance::with_seed(seed), Contender::Steps, &ARMS));
        let aimed = plans.filter(|plan| plan.strikes.iter().any(|strike| strike.aim == Aim::Held)).count();
        assert!(aimed > 50, "{aimed} of 200");
    }
}
