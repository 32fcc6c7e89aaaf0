//! What a person should know of this etcd.

use super::super::{Finding, StoreError};
use super::Etcd;
use super::fault::Trouble;
use super::messages::{AlarmResponse, Empty, MemberListResponse, StatusResponse};

const STATUS: &str = "/etcdserverpb.Maintenance/Status";
const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
const MEMBERS: &str = "/etcdserverpb.Cluster/MemberList";

/// The oldest that the suite was run against.
const OLDEST: (u32, u32) = (3, 4);
/// What etcd allows itself, unless it is told otherwise.
const QUOTA: i64 = 2 * 1024 * 1024 * 1024;

impl Etcd {
    pub(super) async fn examine_now(&self) -> Result<Vec<Finding>, StoreError> {
        let deadline = self.deadline();
        // etcd tells its status to anybody, so first whether we may read
        self.look(self.layout.page("", None, 1).into(), deadline).await.map_err(Trouble::reading)?;
        let status: StatusResponse =
            self.wire.ask(STATUS, Empty {}, deadline).await.map_err(Trouble::reading)?;
        let mut found = vec![version(&status.version), leader(&status), size(&status)];
        // a user without the role root may not ask these; what is not known is left out
        if let Ok(answer) = self.wire.ask::<_, MemberListResponse>(MEMBERS, Empty {}, deadline).await {
            found.push(members(answer.members.iter().filter(|member| !member.is_learner).count()));
        }
        if let Ok(answer) = self.wire.ask::<_, AlarmResponse>(ALARM, Empty {}, deadline).await {
            found.extend(answer.alarms.iter().map(|alarm| alarm_finding(alarm.kind)));
        }
        found.push(Finding::note(
            "durability",
            "a write is answered when most members have synced it; --unsafe-no-fsync, which cannot be seen from here, would break that",
            "start no member with --unsafe-no-fsync",
        ));
        found.push(Finding::note(
            "old versions",
            "etcd keeps every version of a key until it is compacted, and whether that happens cannot be seen from here",
            "start etcd with --auto-compaction-mode=periodic --auto-compaction-retention=1h, and defragment it now and then",
        ));
        found.push(Finding::note(
            "clock",
            "etcd's own leases: whole seconds, a minimum; a new leader gives every lease its whole ttl again",
            "",
        ));
        found.push(Finding::note("prefix", format!("all keys lie under {}", self.wire.prefix()), ""));
        Ok(found)
    }
}

fn version(text: &str) -> Finding {
    let mut numbers = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match found >= OLDEST {
        true => Finding::good("version", format!("etcd {text}")),
        false => Finding::wrong(
            "version",
            format!("etcd {text} is older than {}.{}", OLDEST.0, OLDEST.1),
            "upgrade it: older ones were not tried",
        ),
    }
}

fn leader(status: &StatusResponse) -> Finding {
    if status.leader == 0 {
        return Finding::wrong(
            "leader",
            "the cluster has no leader: it takes no writes",
            "start its other members",
        );
    }
    match (status.is_learner, status.errors.is_empty()) {
        (true, _) => {
            Finding::wrong("leader", "this member is a learner: it answers no one", "name another member")
        }
        (false, false) => Finding::wrong("leader", status.errors.join(", "), "mend what etcd complains of"),
        (false, true) => Finding::good("leader", "the cluster has a leader"),
    }
}

fn size(status: &StatusResponse) -> Finding {
    let mib = |bytes: i64| bytes / (1024 * 1024);
    let (quota, whose) = match status.db_size_quota {
        0 => (QUOTA, "of the 2048 MiB that etcd allows itself unless it is told otherwise".to_owned()),
        quota => (quota, format!("of {} MiB", mib(quota))),
    };
    let what = format!("{} MiB, {} in use, {whose}", mib(status.db_size), mib(status.db_size_in_use));
    match status.db_size > quota / 5 * 4 {
        true => Finding::wrong(
            "size",
            what,
            "compact and defragment it, or raise --quota-backend-bytes: a full etcd takes no writes",
        ),
        false => Finding::good("size", what),
    }
}

fn members(voting: usize) -> Finding {
    match voting {
        0..=2 => Finding::note(
            "members",
            format!("{voting} of them vote: none may fail"),
            "three members survive the loss of one",
        ),
        _ => Finding::good("members", format!("{voting} of them vote, {} may fail", (voting - 1) / 2)),
    }
}

fn alarm_finding(kind: i32) -> Finding {
    match kind {
        1 => Finding::wrong(
            "alarm",
            "NOSPACE: the quota is used up, and nothing is written",
            "compact and defragment it, then etcdctl alarm disarm",
        ),
        2 => Finding::wrong("alarm", "CORRUPT: members disagree on the data", "replace the corrupt member"),
        other => Finding::wrong("alarm", format!("alarm {other}"), "see etcdctl alarm list"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Grade;

    #[test]
    fn an_etcd_that_is_too_old_is_told() {
        for (text, grade) in [
            ("2.3.8", Grade::Wrong),
            ("3.3.27", Grade::Wrong),
            ("", Grade::Wrong),
            ("3.4.0", Grade::Good),
            ("3.10.1", Grade::Good),
            ("4.0.0", Grade::Good),
        ] {
            let status = StatusResponse { version: text.to_owned(), ..StatusResponse::default() };
            let found = version(&status.version);
            assert_eq!((found.name, found.grade), ("version", grade), "{text}: {}", found.what);
            if grade == Grade::Wrong {
                assert!(found.what.contains("older than 3.4") && !found.mend.is_empty(), "{found:?}");
            }
        }
    }

    #[test]
    fn a_cluster_without_a_leader_a_learner_and_a_full_one_are_told() {
        let well = StatusResponse { leader: 7, ..StatusResponse::default() };
        assert_eq!(leader(&well).grade, Grade::Good);
        assert_eq!(leader(&StatusResponse { leader: 0, ..well.clone() }).grade, Grade::Wrong);
        assert_eq!(leader(&StatusResponse { is_learner: true, ..well.clone() }).grade, Grade::Wrong);
        assert_eq!(size(&StatusResponse { db_size: QUOTA, ..well }).grade, Grade::Wrong);
    }
}
