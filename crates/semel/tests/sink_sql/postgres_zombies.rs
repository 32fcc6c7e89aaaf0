//! PostgreSQL: zombies, and crowds.

use std::sync::Arc;
use std::time::Duration;

use semel::core::token::Grant;
use semel_testkit::{Chance, counted, rounds};
use tokio::task::JoinSet;
use tokio_postgres::{Client, IsolationLevel};

use crate::postgres_stage::*;
use crate::{ENDS, EVERYWHERE, StallsBefore, Wakes, grant};

/// One site, its zombie and its new holder, in round after round.
struct Lane {
    site: String,
    level: IsolationLevel,
    stalls: StallsBefore,
    zombie: Client,
    holder: Client,
    holder_pid: i32,
    watch: Client,
}

impl Lane {
    async fn new(stage: &Stage, level: IsolationLevel, stalls: StallsBefore) -> Lane {
        let (zombie, holder) = (stage.connect().await, stage.connect().await);
        let (holder_pid, watch) = (pid(&holder).await, stage.connect().await);
        let site = format!("{level:?}/{stalls:?}");
        Lane { site, level, stalls, zombie, holder, holder_pid, watch }
    }

    fn post(&self, token: u64) -> String {
        format!("INSERT INTO posts (site, token) VALUES ('{}', {token})", self.site)
    }

    async fn posts(&self, token: u64) -> i64 {
        let question = format!("SELECT count(*) FROM posts WHERE site = '{}' AND token = {token}", self.site);
        number(&self.watch, &question).await
    }

    async fn round(&mut self, stage: &Stage, round: u64, chance: &mut Chance) {
        let (old, new) = (grant(2 * round + 1, 1), grant(2 * round + 2, 2));
        let (way, wakes, early) = (chance.of(&WAYS), chance.of(&ENDS), chance.coin());
        let about = format!("{} round {round}: {way:?} {wakes:?} early={early}", self.site);
        if early {
            // the fence is at the zombie's own token already: the same grant must lock it all the same
            let seen = take_over(&mut self.zombie, self.level, way, &self.site, &old, &old).await;
            assert_eq!(seen, 0, "{about}");
        }
        let holder_way = chance.of(&WAYS);
        let seen = match self.stalls {
            StallsBefore::Fence => self.late(&old, &new, way, holder_way, chance).await,
            _ => self.inside(&old, &new, way, holder_way, wakes).await,
        };
        let landed = self.stalls != StallsBefore::Fence && wakes == Wakes::Commits;
        if !self.serializable() {
            assert_eq!(seen, i64::from(early) + i64::from(landed), "{about}");
        }
        // what the new holder saw is all that there will ever be
        assert_eq!(self.posts(old.token.value()).await, seen, "{about}");
        assert_eq!(self.posts(new.token.value()).await, 1, "{about}");
        if wakes == Wakes::Dies {
            self.zombie = stage.connect().await;
        }
        self.comes_again(&old, way).await;
        assert_eq!(self.posts(old.token.value()).await, seen, "{about}");
    }

    /// There any statement may fail to serialize, for reasons that are other lanes'.
    fn serializable(&self) -> bool {
        matches!(self.level, IsolationLevel::Serializable)
    }

    /// The zombie stalls before the fence, and the new holder is not kept waiting.
    async fn late(
        &mut self,
        old: &Grant,
        new: &Grant,
        way: Way,
        holder_way: Way,
        chance: &mut Chance,
    ) -> i64 {
        let (post, look, serializable) = (self.post(old.token.value()), chance.coin(), self.serializable());
        let transaction = loop {
            let transaction = begin(&mut self.zombie, self.level).await;
            if !look {
                break transaction;
            }
            // from here on REPEATABLE READ shows it the past
            match transaction.query("SELECT token FROM semel_fence", &[]).await {
                Ok(_) => break transaction,
                Err(why) => assert!(serializable && refused(&why) == Refused::Serialization, "{why:?}"),
            }
        };
        let seen = take_over(&mut self.holder, self.level, holder_way, &self.site, old, new).await;
        let why = pass(&transaction, way, &self.site, old).await.unwrap_err();
        let past = look && !matches!(self.level, IsolationLevel::ReadCommitted);
        let expected = if past { Refused::Serialization } else { Refused::Stale };
        assert!(why == expected || serializable && why == Refused::Serialization, "{why:?}");
        // it goes on all the same
        assert!(transaction.batch_execute(&post).await.is_err());
        let _ = transaction.commit().await;
        seen
    }

    /// The zombie stalls with the fence passed: the new holder waits for it, and sees what it did.
    async fn inside(&mut self, old: &Grant, new: &Grant, way: Way, holder_way: Way, wakes: Wakes) -> i64 {
        let post = self.post(old.token.value());
        let (level, stalls, site, serializable) = (self.level, self.stalls, &self.site, self.serializable());
        let transaction = loop {
            let transaction = begin(&mut self.zombie, level).await;
            let passed = pass(&transaction, way, site, old).await;
            let passed = passed.is_ok()
                && (stalls == StallsBefore::Write || transaction.batch_execute(&post).await.is_ok());
            if passed {
                break transaction;
            }
            assert!(serializable, "only there it may have to begin anew");
            drop(transaction);
        };
        let (watch, pid) = (&self.watch, self.holder_pid);
        let wake = async {
            until_blocked(watch, pid).await;
            if wakes == Wakes::Dies {
                let killed = "SELECT pg_terminate_backend(pid) FROM unnest(pg_blocking_pids($1)) AS pid";
                watch.query(killed, &[&pid]).await.unwrap();
                drop(transaction);
                return;
            }
            let mut well = Ok(());
            if stalls == StallsBefore::Write {
                well = transaction.batch_execute(&post).await;
            }
            let end = match wakes {
                Wakes::Commits => transaction.commit().await,
                _ => transaction.rollback().await,
            };
            assert!(serializable || well.and(end).is_ok(), "nothing of it is lost");
        };
        let taken = take_over(&mut self.holder, level, holder_way, site, old, new);
        tokio::join!(taken, wake).0
    }

    async fn comes_again(&mut self, old: &Grant, way: Way) {
        let post = self.post(old.token.value());
        let serializable = self.serializable();
        let transaction = begin(&mut self.zombie, self.level).await;
        let why = pass(&transaction, way, &self.site, old).await.unwrap_err();
        assert!(why == Refused::Stale || serializable && why == Refused::Serialization, "{why:?}");
        let _ = transaction.batch_execute(&post).await;
        let _ = transaction.commit().await;
        // without a transaction, in the writing statement itself
        let (site, token) = (&self.site, old.token);
        let statement = format!(
            "INSERT INTO posts (site, token) SELECT '{site}', {token} FROM semel_fence('{site}', {token}, '{}')",
            old.nonce
        );
        assert_eq!(refused(&self.zombie.batch_execute(&statement).await.unwrap_err()), Refused::Stale);
    }
}

/// The new holder's transaction, begun anew when it fails to serialize. Answers how many posts of the old holder it
/// saw once it had passed the fence.
async fn take_over(
    client: &mut Client,
    level: IsolationLevel,
    way: Way,
    site: &str,
    old: &Grant,
    new: &Grant,
) -> i64 {
    for _ in 0..100 {
        match try_to_take_over(client, level, way, site, old, new).await {
            Ok(seen) => return seen,
            Err(Refused::Serialization) => {}
            Err(why) => panic!("{why:?}"),
        }
    }
    panic!("the new holder never had its turn");
}

async fn try_to_take_over(
    client: &mut Client,
    level: IsolationLevel,
    way: Way,
    site: &str,
    old: &Grant,
    new: &Grant,
) -> Result<i64, Refused> {
    let transaction = begin(client, level).await;
    pass(&transaction, way, site, new).await?;
    let question = "SELECT count(*) FROM posts WHERE site = $1 AND token = $2";
    let old = i64::try_from(old.token.value()).unwrap();
    let seen = transaction.query_one(question, &[&site, &old]).await.map_err(|why| refused(&why))?;
    let post = format!("INSERT INTO posts (site, token) VALUES ('{site}', {})", new.token);
    transaction.batch_execute(&post).await.map_err(|why| refused(&why))?;
    transaction.commit().await.map_err(|why| refused(&why))?;
    Ok(seen.get(0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_zombie_never_lands_after_the_new_holder() {
    let test = "postgres_a_zombie_never_lands_after_the_new_holder";
    let Some(stage) = Stage::new(test).await else { return };
    let (stage, mut chance) = (Arc::new(stage), Chance::new(test));
    let seed = chance.seed();
    let mut lanes = JoinSet::new();
    for level in LEVELS {
        for stalls in EVERYWHERE {
            let (stage, mut chance) = (Arc::clone(&stage), chance.split());
            lanes.spawn(async move {
                let mut lane = Lane::new(&stage, level, stalls).await;
                for round in 0..rounds(200) {
                    lane.round(&stage, round, &mut chance).await;
                }
                counted("sinks", &format!("postgres.{stalls:?}"), rounds(200), "zombies", 0, Some(seed));
            });
        }
    }
    while let Some(ended) = lanes.join_next().await {
        ended.unwrap();
    }
}

/// The control: a look at the token, then the write. Between the two the new holder comes and goes.
#[tokio::test]
async fn postgres_control_check_then_act_lets_the_zombie_in() {
    let test = "postgres_control_check_then_act_lets_the_zombie_in";
    let Some(stage) = Stage::new(test).await else { return };
    for level in [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead] {
        let mut lane = Lane::new(&stage, level, StallsBefore::Write).await;
        let (old, new) = (grant(1, 1), grant(2, 2));
        let first = begin(&mut lane.zombie, level).await;
        pass(&first, Way::Library, &lane.site, &old).await.unwrap();
        first.commit().await.unwrap();

        let post = lane.post(1);
        let transaction = begin(&mut lane.zombie, level).await;
        let question = "SELECT token FROM semel_fence WHERE resource = $1";
        let last: i64 = transaction.query_one(question, &[&lane.site]).await.unwrap().get(0);
        assert_eq!(last, 1, "the token is not stale, says the look");
        let seen = take_over(&mut lane.holder, level, Way::Library, &lane.site, &old, &new).await;
        assert_eq!(seen, 0);
        transaction.batch_execute(&post).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(lane.posts(1).await, 1, "{level:?}: it landed after the new holder");
    }
}

/// Many at once with all kinds of tokens. Answers the tokens in the order of commits, and how many were refused.
async fn crowd(stage: &Stage, site: &str, fenced: bool, chance: &mut Chance) -> (Vec<i64>, u64) {
    let each = rounds(200).div_ceil(4);
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let (mut client, mut chance, site) = (stage.connect().await, chance.split(), site.to_owned());
        tasks.spawn(async move {
            let mut refusals = 0;
            for turn in 0..each {
                // about where the others are, some behind and some ahead
                let token = 1 + turn + chance.below(8);
                let grant = grant(token, u8::try_from(token % 251).unwrap());
                let level = if fenced { chance.of(&LEVELS) } else { IsolationLevel::ReadCommitted };
                let transaction = begin(&mut client, level).await;
                let let_in = if fenced {
                    pass(&transaction, chance.of(&WAYS), &site, &grant).await.is_ok()
                } else {
                    let question = format!("SELECT max(token) FROM posts WHERE site = '{site}'");
                    let last: Option<i64> = transaction.query_one(&question, &[]).await.unwrap().get(0);
                    last.unwrap_or(0) <= i64::try_from(token).unwrap()
                };
                tokio::time::sleep(Duration::from_micros(chance.below(500))).await;
                let post = format!("INSERT INTO posts (site, token) VALUES ('{site}', {token})");
                let done = let_in
                    && transaction.batch_execute(&post).await.is_ok()
                    && transaction.commit().await.is_ok();
                refusals += u64::from(!done);
            }
            refusals
        });
    }
    let refusals = tasks.join_all().await.into_iter().sum();
    let order = "SELECT token FROM posts WHERE site = $1 ORDER BY pg_xact_commit_timestamp(xmin), id";
    let rows = stage.connect().await.query(order, &[&site]).await.unwrap();
    assert_eq!(rows.len() as u64 + refusals, 8 * each, "every turn was one or the other");
    (rows.iter().map(|row| row.get(0)).collect(), refusals)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_in_a_crowd_commits_follow_the_tokens() {
    let test = "postgres_in_a_crowd_commits_follow_the_tokens";
    let Some(stage) = Stage::new(test).await else { return };
    let mut chance = Chance::new(test);
    let seed = chance.seed();
    let (tokens, refusals) = crowd(&stage, "fenced", true, &mut chance).await;
    assert!(tokens.is_sorted(), "{tokens:?}");
    counted("sinks", "postgres.crowd", tokens.len() as u64 + refusals, "writes", 0, Some(seed));
    assert!(tokens.len() > 10 && refusals > 10, "{} passed, {refusals} were refused", tokens.len());
    // by chance a crowd may be in order; not one after the other
    for turn in 0..20 {
        let (control, _) = crowd(&stage, &format!("control/{turn}"), false, &mut chance).await;
        if !control.is_sorted() {
            return;
        }
    }
    panic!("the control must go back");
}
