//! How schedulers say for which time they fire, in the words that they really use.

use semel_core::schedule::scheduled_for;

use crate::{at, schedule, slot, zone};

#[test]
fn the_scheduled_time_of_a_kubernetes_cron_job() {
    for (text, moment) in [
        // the annotation: RFC 3339 in the CronJob's own zone
        ("2026-06-19T02:00:00Z", "2026-06-19T02:00:00Z"),
        ("2026-06-19T02:00:00+02:00", "2026-06-19T00:00:00Z"),
        ("2026-06-19T05:45:00+05:45", "2026-06-19T00:00:00Z"),
        ("2026-06-18T21:00:00-03:00", "2026-06-19T00:00:00Z"),
        // the Job's name: the minutes since 1970 after the CronJob's name
        ("backup-29697240", "2026-06-19T02:00:00Z"),
        ("my-site.backup2-29697240", "2026-06-19T02:00:00Z"),
        (" backup-29697240\n", "2026-06-19T02:00:00Z"),
    ] {
        assert_eq!(scheduled_for(text).unwrap(), at(moment), "{text}");
    }
}

#[test]
fn what_is_no_scheduled_time() {
    for (text, why) in [
        ("", "is empty"),
        (" ", "is empty"),
        ("2026-06-19", "is no scheduled time"),
        ("2026-06-19T02:00:00", "is no scheduled time"),
        ("2026-02-30T02:00:00Z", "is no scheduled time"),
        ("tomorrow", "is no scheduled time"),
        ("29697240", "is no scheduled time"),
        ("-29697240", "is no scheduled time"),
        ("2026-29697240", "is no scheduled time"),
        // made by hand: kubectl create job --from=cronjob/backup backup-again
        ("backup-again", "is no scheduled time"),
        ("backup-2", "is no scheduled time"),
        // a Pod's name
        ("backup-29697240-x7k2p", "is no scheduled time"),
        ("Backup-29697240", "is no scheduled time"),
    ] {
        let said = scheduled_for(text).expect_err(text).to_string();
        assert!(said.contains(why), "{text:?}: {said}");
    }
}

/// A Pod that starts late, or is made again, belongs to the slot that the CronJob had in mind.
#[test]
fn a_pod_belongs_to_the_slot_of_its_job() {
    let meant = scheduled_for("2026-06-19T02:00:00+02:00").unwrap();
    let tick = |text: &str| schedule(text).tick_at_or_before(&zone("Europe/Berlin"), meant).unwrap();
    assert_eq!(tick("0 2 * * *").at, meant);
    assert_eq!(tick("0 2 * * *").slot.as_str(), "2026-06-19T00:00:00Z");
    assert_eq!(tick("day").slot.as_str(), "2026-06-19");
}

/// GitHub's `github.event.schedule` is the expression alone, in UTC; its runs come late, and some never.
#[test]
fn late_ticks_of_github_actions() {
    let expression = "30 5 * * 1,3";
    for (fired, expected) in [
        ("2026-06-17T05:30:04Z", "2026-06-17T05:30:00Z"),
        ("2026-06-17T05:47:31Z", "2026-06-17T05:30:00Z"),
        ("2026-06-17T07:12:00Z", "2026-06-17T05:30:00Z"),
        // later than the whole day, after a tick that was dropped
        ("2026-06-18T01:00:00Z", "2026-06-17T05:30:00Z"),
        ("2026-06-22T05:29:59Z", "2026-06-17T05:30:00Z"),
        ("2026-06-22T05:30:00Z", "2026-06-22T05:30:00Z"),
    ] {
        assert_eq!(slot(expression, "UTC", fired), expected, "{fired}");
    }
    // a run of the quarter past that comes after the half: it is the half that is due, and its own comes to nothing
    assert_eq!(slot("*/15 * * * *", "UTC", "2026-06-17T05:31:00Z"), "2026-06-17T05:30:00Z");
}
