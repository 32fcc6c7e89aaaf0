//! Whatever happens, in whatever order.

use proptest::collection::vec;
use proptest::prelude::*;
use semel_core::calendar::Reason;
use semel_core::claim::{After, Decision, View, conclude, verdict};
use semel_core::definition::Definition;
use semel_core::entry::{
    ATTEMPTS_KEPT, Attempt, CommandMark, DoneBy, Ending, Entry, Forgotten, Output, Say, Stale, State, Terms,
    VERDICTS_KEPT, Verdict,
};
use semel_core::lease::{self, Acquire, Acquired, Hold, Lease, SeenLease};
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::payload::Fingerprint;
use semel_core::plan::Plan;
use semel_core::policy::{OnLost, Policy, PolicyError, TTL_MAX_MS, TTL_MIN_MS};
use semel_core::record::{self, FORMAT, RecordError, RecordKey, Seen, Version};
use semel_core::token::{Grant, Nonce, TOKEN_MAX, Token};
use semel_core::work::Work;

use super::desk::{Asking, LAPSED, LIVE, name, nonce, owner, policy, settle, work};

fn names() -> impl Strategy<Value = Name> {
    "[a-z0-9][a-z0-9_:-]{0,20}".prop_map(|text| Name::new(&text).unwrap())
}

fn tokens() -> impl Strategy<Value = Token> {
    prop_oneof![1..100u64, 1..=TOKEN_MAX].prop_map(|value| Token::new(value).unwrap())
}

fn grants() -> impl Strategy<Value = Grant> {
    (tokens(), any::<[u8; 16]>()).prop_map(|(token, bytes)| Grant { token, nonce: Nonce::from_bytes(bytes) })
}

fn owners() -> impl Strategy<Value = Owner> {
    (any::<String>(), any::<String>(), any::<u64>(), any::<i32>(), any::<u64>())
        .prop_map(|(host, boot, pidns, pid, start)| Owner { host, boot, pidns, pid, start })
}

fn holds() -> impl Strategy<Value = Hold> {
    (owners(), any::<String>(), any::<[u64; 3]>(), any::<bool>()).prop_map(|(owner, what, ms, resting)| {
        Hold { owner, what, since_ms: ms[0], ttl_ms: ms[1], lock_delay_ms: ms[2], resting }
    })
}

fn leases() -> impl Strategy<Value = Lease> {
    (grants(), proptest::option::of(holds())).prop_map(|(grant, hold)| Lease { grant, hold })
}

fn endings() -> impl Strategy<Value = Ending> {
    prop_oneof![
        Just(Ending::None),
        Just(Ending::Succeeded),
        any::<i32>().prop_map(|code| Ending::Failed { code }),
        any::<i32>().prop_map(|signal| Ending::Killed { signal }),
        Just(Ending::TimedOut),
        any::<i32>().prop_map(|signal| Ending::Interrupted { signal }),
        Just(Ending::LeaseLost),
        any::<i32>().prop_map(|code| Ending::NotStarted { code }),
        Just(Ending::Vanished),
        Just(Ending::ProbedDone),
        any::<String>().prop_map(|step| Ending::Blocked { step }),
        any::<String>().prop_map(|answer| Ending::ProbedUnknown { answer }),
    ]
}

fn states() -> impl Strategy<Value = State> {
    let by = prop_oneof![Just(DoneBy::Run), Just(DoneBy::Probe), Just(DoneBy::Person)];
    prop_oneof![
        any::<bool>().prop_map(|torn| State::Open { torn }),
        (names(), grants()).prop_map(|(resource, grant)| State::Running { resource, grant }),
        by.prop_map(|by| State::Done { by }),
        any::<bool>().prop_map(|torn| State::Failed { torn }),
        any::<Option<String>>().prop_map(|detail| State::Missed { reason: Reason::NoTrigger, detail }),
        Just(State::Quarantined),
        any::<String>().prop_map(|why| State::InDoubt { why }),
    ]
}

fn says() -> impl Strategy<Value = Say> {
    prop_oneof![Just(Say::Done), Just(Say::NotDone), Just(Say::Retry)]
}

fn on_losts() -> impl Strategy<Value = OnLost> {
    prop_oneof![Just(OnLost::Retry), Just(OnLost::Hold), Just(OnLost::Probe)]
}

fn attempts() -> impl Strategy<Value = Attempt> {
    (
        any::<u32>(),
        grants(),
        names(),
        owners(),
        any::<Option<String>>(),
        any::<(u64, Option<u64>, u32, u64)>(),
        endings(),
    )
        .prop_map(
            |(
                n,
                grant,
                resource,
                owner,
                command,
                (started_ms, ended_ms, missed_renewals, unrenewed_ms),
                ending,
            )| {
                let Grant { token, nonce } = grant;
                let definition = command.clone();
                Attempt {
                    n,
                    token,
                    nonce,
                    resource,
                    owner,
                    command,
                    definition,
                    started_ms,
                    ended_ms,
                    missed_renewals,
                    unrenewed_ms,
                    ending,
                }
            },
        )
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    (says(), any::<[String; 3]>(), any::<u64>()).prop_map(|(said, [by, because, was], at_ms)| Verdict {
        said,
        by,
        at_ms,
        because,
        was,
    })
}

fn works() -> impl Strategy<Value = Work> {
    prop_oneof![
        names().prop_map(Work::once),
        names().prop_map(Work::always),
        (names(), names(), 1..9u32).prop_map(|(job, step, nth)| Work::once(job).at_step(step, nth).unwrap()),
        (names(), "[a-z]{1,8}", any::<i32>()).prop_map(|(job, field, value)| {
            Work::with(job, [(field, value.into())].into_iter().collect()).unwrap()
        }),
    ]
}

fn plans() -> impl Strategy<Value = Plan> {
    ("[a-z]{1,5}", results()).prop_map(|(member, value)| {
        let plan = Plan::new(&Work::once(name("p")).key());
        // a number that no double holds is no value of a plan
        plan.clone().with(&member, value).unwrap_or(plan)
    })
}

fn results() -> impl Strategy<Value = serde_json::Value> {
    // not null: no result and the result null are one in a record
    prop_oneof![
        any::<bool>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        vec(any::<String>(), 0..3).prop_map(Into::into)
    ]
}

fn outputs() -> impl Strategy<Value = Output> {
    (any::<[u8; 16]>(), any::<u32>(), any::<[u64; 2]>(), any::<bool>()).prop_map(
        |(of, pieces, [out_bytes, err_bytes], kept)| Output {
            of: Nonce::from_bytes(of),
            pieces,
            out_bytes,
            err_bytes,
            kept,
        },
    )
}

fn definitions() -> impl Strategy<Value = Definition> {
    any::<[String; 2]>().prop_map(|[digest, text]| Definition { digest, text })
}

fn forgottens() -> impl Strategy<Value = Forgotten> {
    any::<[u64; 3]>().prop_map(|[done_ms, at_ms, remember_ms]| Forgotten { done_ms, at_ms, remember_ms })
}

fn entries() -> impl Strategy<Value = Entry> {
    let terms = (on_losts(), any::<u32>(), any::<u64>(), any::<Option<u64>>()).prop_map(
        |(on_lost, max_failures, keep_ms, remember_ms)| Terms { on_lost, max_failures, keep_ms, remember_ms },
    );
    let command = any::<[String; 2]>().prop_map(|[program, digest]| CommandMark { program, digest });
    let payload = any::<Vec<u8>>().prop_map(|bytes| Fingerprint::of_bytes(&bytes));
    let option = proptest::option::of::<BoxedStrategy<_>>;
    let counts = (any::<u32>(), any::<u32>(), any::<u64>());
    let lists = (vec(attempts(), 0..4), vec(verdicts(), 0..3));
    let options = (
        option(payload.boxed()),
        proptest::option::of(command),
        proptest::option::of(results()),
        proptest::option::of(outputs()),
        proptest::option::of(plans()),
        proptest::option::of(definitions()),
        proptest::option::of(definitions()),
        proptest::option::of(forgottens()),
    );
    (works(), states(), counts, lists, options, terms).prop_map(
        |(
            work,
            state,
            (attempts, failures, changed_ms),
            (log, verdicts),
            (payload, command, result, output, plan, definition, proven, forgotten),
            terms,
        )| Entry {
            work,
            state,
            attempts,
            failures,
            log,
            verdicts,
            changed_ms,
            payload,
            command,
            plan,
            definition,
            proven,
            forgotten,
            result,
            output,
            terms,
        },
    )
}

fn key() -> RecordKey {
    RecordKey::lease(&name("r"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_record_comes_back_as_it_was(lease in leases(), entry in entries()) {
        let bytes = record::encode(&key(), &lease).unwrap();
        prop_assert_eq!(record::decode::<Lease>(&key(), &bytes).unwrap(), lease);
        let bytes = record::encode(&key(), &entry).unwrap();
        prop_assert_eq!(record::decode::<Entry>(&key(), &bytes).unwrap(), entry);
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in any::<Vec<u8>>(), lease in leases(), at in any::<prop::sample::Index>(), byte: u8,
    ) {
        let _ = record::decode::<Entry>(&key(), &bytes);
        let mut bent = record::encode(&key(), &lease).unwrap();
        let at = at.index(bent.len());
        bent[at] = byte;
        let _ = record::decode::<Lease>(&key(), &bent);
        let _ = record::decode::<Entry>(&key(), &bent[..at]);
    }

    #[test]
    fn another_format_is_refused_as_such(lease in leases(), format in u64::from(FORMAT) + 1..) {
        let bytes = record::encode(&key(), &lease).unwrap();
        let mut value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        value["v"] = format.into();
        let refused = record::decode::<Lease>(&key(), value.to_string().as_bytes());
        let newer = matches!(refused, Err(RecordError::Newer { found, .. }) if found == format);
        prop_assert!(newer);
    }

    #[test]
    fn tokens_only_grow(steps in vec((0..4u8, 0..3u8, any::<bool>()), 1..40), floors in vec(0..50u64, 40)) {
        let mut seen: Option<SeenLease> = None;
        let mut highest = 0;
        for (version, ((what, who, live), token_floor)) in steps.into_iter().zip(floors).enumerate() {
            if let Some(seen) = &mut seen {
                seen.standing = if live { LIVE } else { LAPSED };
            }
            let token = seen.as_ref().map(|seen| seen.record.value.grant.token);
            let written = match (what, token) {
                (0 | 1, _) => {
                    let me = owner(who.into());
                    let nonce = nonce(who);
                    let (ttl_ms, lock_delay_ms, now_ms) = (9, 0, 0);
                    let ask = Acquire { owner: &me, what: "w", nonce, token_floor, ttl_ms, lock_delay_ms, now_ms };
                    match lease::acquire(seen.as_ref(), &ask) {
                        Acquired::Take(take) => Some(take.lease),
                        _ => None,
                    }
                }
                (2, Some(token)) => {
                    let released = lease::release(seen.as_ref(), token, None, who.into());
                    released.ok().map(|released| released.lease)
                }
                (_, Some(token)) => {
                    let renewed = lease::renew(seen.as_ref(), token, None);
                    prop_assert!(live || renewed.is_err());
                    None
                }
                (_, None) => None,
            };
            if let Some(value) = written {
                let is_new = seen.as_ref().is_none_or(|seen| seen.record.value.grant != value.grant);
                let token = value.grant.token.value();
                prop_assert!(token > highest || (!is_new && token == highest));
                highest = token;
                let record = Seen { value, version: Version::from(version as i64) };
                seen = Some(SeenLease { record, standing: LIVE, owner_gone: false });
            }
        }
    }

    #[test]
    fn the_ledger_keeps_its_word_over_any_history(
        steps in vec((0..8u8, endings(), says(), any::<bool>()), 1..80), on_lost in on_losts(), cap in 1..4u32,
    ) {
        let mut asking = Asking::under(policy(on_lost, cap));
        let mut view = View { leases: vec![(name("r"), None)], ..View::default() };
        for (n, (what, ending, said, live)) in steps.into_iter().enumerate() {
            asking.nonce = nonce(n as u8);
            let version = Version::from(n as i64 + 1);
            if let Some(lease) = view.leases[0].1.as_mut().filter(|_| !live) {
                lease.standing = LAPSED;
            }
            let was = view.entry.as_ref().map(|seen| seen.value.clone());
            let write = |view: &mut View, lease: Option<Lease>, entry: Entry| {
                view.entry = Some(Seen { value: entry, version: version.clone() });
                if let Some(value) = lease {
                    let record = Seen { value, version: version.clone() };
                    view.leases[0].1 = Some(SeenLease { record, standing: LIVE, owner_gone: false });
                }
            };
            match (what, &was) {
                (0..=3, _) => match asking.claim(&view) {
                    Decision::Claim(claim) => {
                        let closed = ["done", "quarantined", "in_doubt"];
                        let closed = was.is_some_and(|was| closed.contains(&was.state.word()));
                        prop_assert!(!closed);
                        write(&mut view, Some(claim.lease.lease), claim.intent.unwrap().entry);
                    }
                    Decision::Doubt { entry, .. } => {
                        prop_assert!(entry.state.needs_a_person());
                        write(&mut view, None, entry);
                    }
                    _ => {}
                },
                (4..=6, Some(Entry { state: State::Running { grant, .. }, .. })) => {
                    let seen = view.entry.clone().unwrap();
                    let ask = settle(grant, ending);
                    let conclusion = conclude(&seen, view.leases[0].1.as_ref(), &ask, After::Release { rest_ms: 0 }).unwrap();
                    let after = Seen { value: conclusion.entry.clone(), version: version.clone() };
                    prop_assert_eq!(conclude(&after, None, &ask, After::Keep).map(|_| ()), Err(Stale::AlreadySettled));
                    write(&mut view, conclusion.lease.map(|released| released.lease), conclusion.entry);
                }
                (_, Some(_)) => {
                    let seen = view.entry.clone().unwrap();
                    let say = Verdict { said, by: "p".into(), at_ms: 0, because: "b".into(), was: "w".into() };
                    if let Ok((entry, ..)) = verdict(&view, &seen, say, None) {
                        prop_assert_eq!(entry.failures, 0);
                        write(&mut view, None, entry);
                    }
                }
                _ => {}
            }
            let Some(Seen { value: entry, .. }) = &view.entry else { continue };
            prop_assert_eq!(&entry.work, &work());
            prop_assert!(entry.log.len() <= ATTEMPTS_KEPT && entry.verdicts.len() <= VERDICTS_KEPT);
            prop_assert!(entry.failures <= cap);
            prop_assert!(entry.failures < cap || matches!(entry.state, State::Quarantined));
            let tokens: Vec<_> = entry.log.iter().map(|attempt| attempt.token).collect();
            prop_assert!(tokens.is_sorted_by(|a, b| a < b));
            prop_assert_eq!(entry.log.last().map_or(0, |attempt| attempt.n), entry.attempts);
            prop_assert!(entry.log.iter().rev().skip(1).all(|attempt| attempt.ending != Ending::None));
        }
    }

    #[test]
    fn a_settle_never_overflows(entry in entries(), ending in endings(), tries: u32) {
        if let State::Running { grant, .. } = &entry.state {
            let ask = semel_core::entry::Settle { failed_tries: tries, ..settle(grant, ending) };
            semel_core::entry::settle(&entry, &ask).unwrap();
        }
    }

    #[test]
    fn policies_that_fit_leave_room_for_two_lost_heartbeats_and_the_last_kill(
        ttl_ms in prop_oneof![0..2 * TTL_MIN_MS, 0..600_000u64, 0..TTL_MAX_MS + 9],
        kill_after_ms in prop_oneof![0..1_000u64, 0..60_000u64, any::<u64>()],
    ) {
        let policy = Policy { ttl_ms, kill_after_ms, ..Policy::default() };
        match policy.check() {
            Ok(()) => {
                prop_assert!(policy.stop_by_ms() >= 2 * policy.heartbeat_ms());
                prop_assert!(policy.stop_by_ms() + kill_after_ms + policy.margin_ms() <= ttl_ms);
                prop_assert!(policy.margin_ms() >= 1 && policy.trust_ms() < ttl_ms);
            }
            Err(PolicyError::Grace { least_ttl_ms, most_kill_after_ms, .. }) => {
                prop_assert_eq!(Policy { kill_after_ms: most_kill_after_ms, ..policy.clone() }.check(), Ok(()));
                if least_ttl_ms <= TTL_MAX_MS {
                    prop_assert_eq!(Policy { ttl_ms: least_ttl_ms, ..policy.clone() }.check(), Ok(()));
                    // as it is printed, in whole seconds
                    let printed = least_ttl_ms.div_ceil(1_000) * 1_000;
                    prop_assert_eq!(Policy { ttl_ms: printed, ..policy.clone() }.check(), Ok(()));
                }
            }
            Err(why) => prop_assert_eq!(why, PolicyError::Ttl { ttl_ms }),
        }
    }
}
