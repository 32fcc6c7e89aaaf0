//! Who is attacked: Semel's ways to do a work, and the usual ways without it. Each knows how it is fired and how its
//! effects are counted from outside.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A way to do a work once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Contender {
    Probe,
    Hold,
    Steps,
    Batch,
    Write,
    Push,
    Sql,
    Flock,
    Jsonl,
    SetNx,
    GitLoop,
    PlainWrite,
    PlainSql,
}

/// What can be wrong with a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrong {
    Doubled,
    Lost,
    Unreported,
    Stale,
    Untrue,
    Stuck,
}

impl Wrong {
    pub(crate) const ALL: [Wrong; 6] =
        [Wrong::Doubled, Wrong::Lost, Wrong::Unreported, Wrong::Stale, Wrong::Untrue, Wrong::Stuck];

    /// As it stands in tables and in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wrong::Doubled => "doubled",
            Wrong::Lost => "lost",
            Wrong::Unreported => "unreported",
            Wrong::Stale => "stale",
            Wrong::Untrue => "untrue",
            Wrong::Stuck => "stuck",
        }
    }

    /// What it is, for the page of results.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Wrong::Doubled => "an effect that is there more than once",
            Wrong::Lost => "one that is not there when all is said to be done",
            Wrong::Unreported => {
                "an attempt with an unknown outcome that was repeated, or taken for done, without anybody being asked"
            }
            Wrong::Stale => {
                "a token that went back: of attempts, at the target, or along the fence of a git remote"
            }
            Wrong::Untrue => "an answer \"done\" at a time when the effect was not there",
            Wrong::Stuck => "not done after the faults had ended",
        }
    }
}

/// The items of a batch.
pub(crate) const ITEMS: usize = 8;

impl Contender {
    pub(crate) const SEMEL: [Contender; 7] = [
        Contender::Probe,
        Contender::Hold,
        Contender::Steps,
        Contender::Batch,
        Contender::Write,
        Contender::Push,
        Contender::Sql,
    ];
    pub(crate) const CONTROLS: [Contender; 6] = [
        Contender::Flock,
        Contender::Jsonl,
        Contender::SetNx,
        Contender::GitLoop,
        Contender::PlainWrite,
        Contender::PlainSql,
    ];

    pub(crate) fn named(name: &str) -> Option<Contender> {
        Self::SEMEL.into_iter().chain(Self::CONTROLS).find(|one| one.name() == name)
    }

    /// As it stands in tables, and as `--only` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Probe => "probe",
            Contender::Hold => "hold",
            Contender::Steps => "steps",
            Contender::Batch => "batch",
            Contender::Write => "write",
            Contender::Push => "push",
            Contender::Sql => "sql",
            Contender::Flock => "flock",
            Contender::Jsonl => "jsonl",
            Contender::SetNx => "set-nx",
            Contender::GitLoop => "git-loop",
            Contender::PlainWrite => "plain-write",
            Contender::PlainSql => "plain-sql",
        }
    }

    /// What it is, for the page of results.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Contender::Probe => "`semel run --probe`: appends a line to a file; the probe looks for it",
            Contender::Hold => {
                "`semel run --on-lost hold`: appends a line; what is in doubt (79) is resolved by what the file says"
            }
            Contender::Steps => "`semel run` with three `semel step`: two with a probe, one held",
            Contender::Batch => "`semel batch --probe` of 8 items, two at once, every other time shared",
            Contender::Write => {
                "`semel run`, `semel write`: replaces a fenced file; its tokens must never go back"
            }
            Contender::Push => "`semel run`, `semel push`: a commit to a bare repository",
            Contender::Sql => {
                "`semel run`, SQL fence: a row in SQLite, or in PostgreSQL where that is the store"
            }
            Contender::Flock => "control: `flock -n`, and a file that says done",
            Contender::Jsonl => "control: a ledger of JSON lines, and a pid file",
            Contender::SetNx => "control: Redis `SET NX EX 1`, and a key that says done; no token",
            Contender::GitLoop => {
                "control: look in the log, commit, push; overtaken, replay on top and push again"
            }
            Contender::PlainWrite => {
                "control: `semel run` as for write, but a new file is moved over the old one, without the fence"
            }
            Contender::PlainSql => {
                "control: `semel run` as for sql, with the same statements but for the fence"
            }
        }
    }

    /// How often it comes among a hundred.
    pub(crate) fn weight(self) -> u64 {
        match self {
            Contender::Probe => 20,
            Contender::Hold => 18,
            Contender::Write => 14,
            Contender::Sql | Contender::Steps | Contender::Batch => 10,
            Contender::Push => 8,
            _ => 3,
        }
    }

    /// The effect is in a target that can check the token: a holder may outlive its lease.
    pub(crate) fn has_target(self) -> bool {
        matches!(self, Contender::Write | Contender::Push | Contender::Sql) || self.is_plain()
    }

    /// The target could check the token, and is not asked to.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Contender::PlainWrite | Contender::PlainSql)
    }

    /// It has a store, which can suffer too.
    pub(crate) fn has_store(self) -> bool {
        !self.is_control() || self.is_plain()
    }

    /// Can this be seen of it? Where it cannot, a zero would say nothing.
    pub(crate) fn shows(self, wrong: Wrong) -> bool {
        match wrong {
            // a file is replaced, a row is added where there is none: only the order of tokens tells of two
            Wrong::Doubled => !matches!(self, Contender::Write | Contender::Sql) && !self.is_plain(),
            Wrong::Unreported => matches!(self, Contender::Hold | Contender::Steps),
            Wrong::Stale => !self.is_control() || self.is_plain(),
            Wrong::Untrue => !self.is_control(),
            Wrong::Lost | Wrong::Stuck => true,
        }
    }

    pub(crate) fn is_control(self) -> bool {
        Self::CONTROLS.contains(&self)
    }

    /// How many effects there are to be.
    pub(crate) fn expected(self) -> u64 {
        match self {
            Contender::Batch => ITEMS as u64,
            Contender::Steps => 3,
            _ => 1,
        }
    }
}

/// What a firing needs to know.
pub(crate) struct Fire<'a> {
    pub(crate) semel: &'a Path,
    pub(crate) scripts: &'a Path,
    pub(crate) work: &'a str,
    pub(crate) ttl_ms: u64,
    /// Wait where it is busy, instead of yielding.
    pub(crate) waits: bool,
    pub(crate) shares: bool,
    /// The rows are in PostgreSQL.
    pub(crate) in_postgres: bool,
}

/// The command of one firing.
pub(crate) fn fire(contender: Contender, with: &Fire<'_>) -> Command {
    let script = |name: &str| with.scripts.join(name);
    let if_busy = if with.waits { "wait=20s" } else { "skip" };
    let ttl = format!("{}ms", with.ttl_ms);
    let policies = ["--ttl", &ttl, "--max-failures", "0"];
    let if_busy = ["--if-busy", if_busy];
    let run = |more: &[&str], name: &str| {
        let mut command = Command::new(with.semel);
        command.args(["run", "--json", "--job", with.work, "--once"]).args(policies).args(if_busy).args(more);
        command.args(["--", "/bin/sh"]).arg(script(name));
        command
    };
    match contender {
        Contender::Probe => run(&["--probe", "grep -q . effects"], "effect.sh"),
        Contender::Hold => run(&["--on-lost", "hold"], "effect.sh"),
        Contender::Steps => run(&[], "steps.sh"),
        Contender::Write | Contender::PlainWrite => run(&[], "write.sh"),
        Contender::Push => run(&[], "push.sh"),
        Contender::Sql | Contender::PlainSql => {
            run(&[], if with.in_postgres { "postgres.sh" } else { "sqlite.sh" })
        }
        Contender::Batch => {
            let mut command = Command::new(with.semel);
            command
                .args(["batch", "items", "--json", "--job", with.work, "--format", "lines", "-j", "2"])
                .args(policies);
            command.args(["--probe", "grep -q \" $SEMEL_KEY$\" effects"]);
            match with.shares {
                // those that share are never busy
                true => command.arg("--share"),
                false => command.args(if_busy),
            };
            command.args(["--", "/bin/sh"]).arg(script("item.sh")).arg("{line}");
            command
        }
        Contender::Flock => {
            let mut command = Command::new("flock");
            command.args(["-n", "--no-fork", "lock", "/bin/sh"]).arg(script("flock.sh"));
            command
        }
        Contender::Jsonl | Contender::SetNx | Contender::GitLoop => {
            let mut command = Command::new("/bin/sh");
            command.arg(script(match contender {
                Contender::Jsonl => "jsonl.sh",
                Contender::SetNx => "redis.sh",
                _ => "gitloop.sh",
            }));
            command
        }
    }
}

/// Every script and what it says.
pub(crate) const SCRIPTS: [(&str, &str); 11] = [
    ("effect.sh", include_str!("scripts/effect.sh")),
    ("steps.sh", include_str!("scripts/steps.sh")),
    ("item.sh", include_str!("scripts/item.sh")),
    ("write.sh", include_str!("scripts/write.sh")),
    ("push.sh", include_str!("scripts/push.sh")),
    ("sqlite.sh", include_str!("scripts/sqlite.sh")),
    ("postgres.sh", include_str!("scripts/postgres.sh")),
    ("flock.sh", include_str!("scripts/flock.sh")),
    ("jsonl.sh", include_str!("scripts/jsonl.sh")),
    ("redis.sh", include_str!("scripts/redis.sh")),
    ("gitloop.sh", include_str!("scripts/gitloop.sh")),
];

/// The lines of a file; none if it is not there.
pub(crate) fn lines(dir: &Path, name: &str) -> Vec<String> {
    let text = fs::read(dir.join(name)).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}
