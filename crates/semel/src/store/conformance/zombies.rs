//! Holders that come back after their lease was taken over, tokens that must only grow, replies that got lost.

use semel_core::lease::Before;
use semel_core::record::{Expect, Version};
use semel_core::token::Token;

use super::claims::{self, Claim, Won};
use super::{Bench, LONG, Verdict, conflict, put, said};
use crate::store::Change;

impl Bench {
    pub(super) async fn win(&self, name: &str, ttl: std::time::Duration) -> Result<Won, String> {
        match claims::claim(&*self.store, &self.key(name), ttl).await? {
            Claim::Won(won) => Ok(won),
            Claim::Lost => Err(format!("the lease {name} is free and was not granted")),
        }
    }

    async fn release(&self, name: &str, won: &Won) -> Result<(), String> {
        claims::release_lease(&*self.store, &self.key(name), won.grant.token).await?
    }

    /// A lease that lapsed under its holder and was taken over by another.
    async fn taken_over(&self, name: &str) -> Result<(Won, Won), String> {
        let zombie = self.win(name, self.subject.short_ttl()).await?;
        self.lapse(name).await?;
        let heir = self.win(name, LONG).await?;
        check!(heir.before == Before::Lapsed, "a lapsed lease was taken as {:?}", heir.before);
        check!(heir.grant.token > zombie.grant.token, "{} follows {}", heir.grant.token, zombie.grant.token);
        Ok((zombie, heir))
    }

    /// Is this the token after the last one? The next number, or more only where the store's floor has moved past it.
    async fn follows(&self, when: &str, last: Token, won: &Won) -> Verdict {
        let (_, floor) = claims::look(&*self.store, &self.key("no such lease")).await?;
        let (last, next) = (last.value(), won.grant.token.value());
        check!(next == last + 1 || (next > last && next <= floor), "{when} {last} is followed by {next}");
        Ok(())
    }

    /// Is the lease still the heir's, untouched?
    async fn still(&self, name: &str, heir: &Won) -> Verdict {
        let (found, _) = claims::look(&*self.store, &self.key(name)).await?;
        let found = found.ok_or("the lease is gone")?;
        check!(found.carries(&heir.grant), "the zombie changed the lease: {found:?}");
        check!(found.record.version == heir.version, "the zombie wrote the lease");
        Ok(())
    }
}

pub(super) async fn a_token_grows_over_release_lapse_and_reopening(bench: Bench) -> Verdict {
    let first = bench.win("a", LONG).await?;
    let held = claims::claim(&*bench.store, &bench.key("a"), LONG).await?;
    check!(matches!(held, Claim::Lost), "a lease was granted while another held it");
    let last = first.grant.token;
    bench.release("a", &first).await?;
    let second = bench.win("a", bench.subject.short_ttl()).await?;
    check!(second.before == Before::Free, "a released lease was taken as {:?}", second.before);
    bench.follows("after a release", last, &second).await?;
    bench.lapse("a").await?;
    let bench = bench.reopened().await?;
    let third = bench.win("a", LONG).await?;
    bench.follows("after a lapse", second.grant.token, &third).await?;
    bench.release("a", &third).await?;
    let bench = bench.reopened().await?;
    let fourth = bench.win("a", LONG).await?;
    bench.follows("reopened", third.grant.token, &fourth).await?;
    let renewed = claims::renew_lease(&*bench.store, &bench.key("a"), fourth.grant.token).await?;
    check!(renewed.is_ok(), "the holder cannot renew: {renewed:?}");
    bench.still("a", &fourth).await
}

pub(super) async fn a_stale_renewal_is_refused(bench: Bench) -> Verdict {
    let (zombie, heir) = bench.taken_over("a").await?;
    let by_the_rules = claims::renew_lease(&*bench.store, &bench.key("a"), zombie.grant.token).await?;
    check!(by_the_rules.is_err(), "the rules let a zombie renew");
    // a zombie that wakes between its look and its touch
    conflict("a zombie's touch", bench.store.touch(&bench.key("a"), &zombie.version).await)?;
    bench.still("a", &heir).await?;
    let released = bench.win("b", LONG).await?;
    bench.release("b", &released).await?;
    conflict("a touch after the release", bench.store.touch(&bench.key("b"), &released.version).await)?;
    Ok(())
}

pub(super) async fn a_stale_settlement_is_refused(bench: Bench) -> Verdict {
    let zombie = bench.win("a", bench.subject.short_ttl()).await?;
    let running = bench.create("entry", "running under the zombie", None).await?;
    bench.lapse("a").await?;
    let settle = |lease: &Version, entry: &Version, value: &str| {
        let guard = Change::Guard { key: bench.key("a"), expect: Expect::Live(lease.clone()) };
        [guard, put(&bench.key("entry"), Expect::Version(entry.clone()), value, None)]
    };
    conflict("a settlement after the lapse", bench.swap(&settle(&zombie.version, &running, "zombie")).await)?;
    let heir = bench.win("a", LONG).await?;
    conflict("a zombie's settlement", bench.swap(&settle(&zombie.version, &running, "zombie")).await)?;
    let taken = bench.swap(&settle(&heir.version, &running, "running under the heir")).await.map_err(said)?;
    conflict(
        "a zombie's settlement of a stale entry",
        bench.swap(&settle(&heir.version, &running, "zombie")).await,
    )?;
    conflict(
        "a zombie's settlement under a stale lease",
        bench.swap(&settle(&zombie.version, &taken[1], "zombie")).await,
    )?;
    check!(
        bench.value("entry").await?.as_deref() == Some("running under the heir"),
        "the zombie settled the entry"
    );
    bench.swap(&settle(&heir.version, &taken[1], "done")).await.map_err(said)?;
    check!(bench.value("entry").await?.as_deref() == Some("done"), "the heir could not settle");
    Ok(())
}

pub(super) async fn a_stale_release_is_refused(bench: Bench) -> Verdict {
    let zombie = bench.win("a", bench.subject.short_ttl()).await?;
    bench.lapse("a").await?;
    // drafted while it was still allowed, sent when it no longer is
    let draft = claims::draft_release(&*bench.store, &bench.key("a"), zombie.grant.token).await??;
    let heir = bench.win("a", LONG).await?;
    conflict("a zombie's release", bench.swap(&[draft]).await)?;
    let by_the_rules = claims::release_lease(&*bench.store, &bench.key("a"), zombie.grant.token).await?;
    check!(by_the_rules.is_err(), "the rules let a zombie release");
    bench.still("a", &heir).await
}

pub(super) async fn a_lost_reply_is_recognised_by_its_nonce(bench: Bench) -> Verdict {
    let (key, nonce) = (bench.key("a"), claims::nonce()?);
    let drafted = claims::draft(&*bench.store, &key, LONG, nonce).await?;
    let (change, _) = drafted.ok_or("a free lease may not be taken")?;
    // the write is applied, its reply is lost, and the sender tries again
    drop(bench.swap(std::slice::from_ref(&change)).await.map_err(said)?);
    let conflict = conflict("the same swap once more", bench.swap(&[change]).await)?;
    let stands = conflict.stands.ok_or("the refusal does not say what stands there")?;
    let seen = claims::seen(&stands)?;
    check!(seen.record.value.grant.nonce == nonce, "what stands there is not the first write");
    let (_, ours) =
        claims::draft(&*bench.store, &key, LONG, nonce).await?.ok_or("our own lease is held against us")?;
    check!(ours.before == Before::Ours, "our own grant was taken as {:?}", ours.before);
    check!(ours.grant == seen.record.value.grant, "the token moved although nothing was granted anew");
    Ok(())
}
