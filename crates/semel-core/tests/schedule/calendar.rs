//! Days, weeks and months: every slot is a date, and every date that there is has one.

use crate::{slot, slots, ticks};

#[test]
fn a_daily_slot_is_the_local_date_at_every_hour_of_it() {
    for (now, zone, expected) in [
        ("2026-06-19T00:00:00Z", "UTC", "2026-06-19"),
        ("2026-06-18T23:59:59.999999999Z", "UTC", "2026-06-18"),
        // cron fires at 2:00, a person by hand in the afternoon: the same slot, and never tomorrow's
        ("2026-06-19T02:00:00+02:00", "Europe/Berlin", "2026-06-19"),
        ("2026-06-19T16:45:00+02:00", "Europe/Berlin", "2026-06-19"),
        ("2026-06-19T23:59:59+02:00", "Europe/Berlin", "2026-06-19"),
        // odd offsets, and both ends of the world
        ("2026-06-18T18:14:59Z", "Asia/Kathmandu", "2026-06-18"),
        ("2026-06-18T18:15:00Z", "Asia/Kathmandu", "2026-06-19"),
        ("2026-06-18T10:00:00Z", "Pacific/Kiritimati", "2026-06-19"),
        ("2026-06-19T10:59:59Z", "Pacific/Pago_Pago", "2026-06-18"),
        ("2026-06-18T15:15:00Z", "Australia/Eucla", "2026-06-19"),
        ("2026-06-18T11:15:00Z", "Pacific/Chatham", "2026-06-19"),
        // before 1970
        ("1969-12-31T23:59:59.5Z", "UTC", "1969-12-31"),
    ] {
        assert_eq!(slot("day", zone, now), expected, "{now} in {zone}");
    }
}

#[test]
fn leap_days_and_month_ends() {
    assert_eq!(
        slots("day", "UTC", "2028-02-27T12:00:00Z", "2028-03-01T12:00:00Z"),
        ["2028-02-28", "2028-02-29", "2028-03-01"]
    );
    // no leap day in 2100
    assert_eq!(
        slots("day", "UTC", "2100-02-27T12:00:00Z", "2100-03-01T12:00:00Z"),
        ["2100-02-28", "2100-03-01"]
    );
    assert_eq!(
        slots("month", "Europe/Berlin", "2026-01-15T00:00:00Z", "2026-05-15T00:00:00Z"),
        ["2026-02-01", "2026-03-01", "2026-04-01", "2026-05-01"]
    );
    assert_eq!(slot("month", "UTC", "2026-01-31T23:59:59Z"), "2026-01-01");
    assert_eq!(slot("month", "Pacific/Auckland", "2026-01-31T23:59:59Z"), "2026-02-01");
    assert_eq!(slot("month", "UTC", "2028-02-29T12:00:00Z"), "2028-02-01");
}

#[test]
fn a_week_begins_on_monday_and_goes_over_the_end_of_the_year() {
    for (now, expected) in [
        ("2026-12-27T23:59:59Z", "2026-12-21"),
        ("2026-12-28T00:00:00Z", "2026-12-28"),
        ("2026-12-31T23:59:59Z", "2026-12-28"),
        ("2027-01-01T00:00:00Z", "2026-12-28"),
        ("2027-01-03T23:59:59Z", "2026-12-28"),
        ("2027-01-04T00:00:00Z", "2027-01-04"),
        // over a leap day
        ("2024-02-29T12:00:00Z", "2024-02-26"),
        ("2024-03-03T12:00:00Z", "2024-02-26"),
    ] {
        assert_eq!(slot("week", "UTC", now), expected, "{now}");
    }
}

/// 2018-11-04 began at 01:00 in São Paulo.
#[test]
fn a_midnight_that_does_not_exist() {
    let days = ticks("day", "America/Sao_Paulo", "2018-11-02T12:00:00Z", "2018-11-05T12:00:00Z");
    assert_eq!(days, ["11-03 00:00 -03:00", "11-04 01:00 -02:00", "11-05 00:00 -02:00"]);
    assert_eq!(slot("day", "America/Sao_Paulo", "2018-11-04T02:59:59Z"), "2018-11-03");
    assert_eq!(slot("day", "America/Sao_Paulo", "2018-11-04T03:00:00Z"), "2018-11-04");
}

/// On 2018-02-17 the clocks of São Paulo went back from 24:00 to 23:00; on 2026-11-01 those of Havana go back from
/// 1:00 to 0:00; until 2011 those of St. John's went back from 0:01 to 23:01 of the day before.
#[test]
fn a_midnight_that_comes_twice() {
    for (zone, after, until, expected) in [
        (
            "America/Sao_Paulo",
            "2018-02-16T12:00:00Z",
            "2018-02-18T12:00:00Z",
            ["02-17 00:00 -02:00", "02-18 00:00 -03:00"],
        ),
        (
            "America/Havana",
            "2026-10-31T12:00:00Z",
            "2026-11-02T12:00:00Z",
            ["11-01 00:00 -04:00", "11-02 00:00 -05:00"],
        ),
        (
            "America/St_Johns",
            "2010-11-06T12:00:00Z",
            "2010-11-08T12:00:00Z",
            ["11-07 00:00 -02:30", "11-08 00:00 -03:30"],
        ),
    ] {
        assert_eq!(ticks("day", zone, after, until), expected, "{zone}");
    }
    // the date is back at the 6th, the slot is not
    for now in
        ["2010-11-07T02:30:30Z", "2010-11-07T02:31:00Z", "2010-11-07T03:00:00Z", "2010-11-07T03:30:00Z"]
    {
        assert_eq!(slot("day", "America/St_Johns", now), "2010-11-07", "{now}");
    }
}

/// Samoa had no 2011-12-30; it had the 4th of July 1892 twice.
#[test]
fn a_day_that_does_not_exist_and_one_that_comes_twice() {
    assert_eq!(
        slots("day", "Pacific/Apia", "2011-12-28T20:00:00Z", "2012-01-01T00:00:00Z"),
        ["2011-12-29", "2011-12-31", "2012-01-01"]
    );
    assert_eq!(slot("day", "Pacific/Apia", "2011-12-30T09:59:59Z"), "2011-12-29");
    assert_eq!(slot("day", "Pacific/Apia", "2011-12-30T10:00:00Z"), "2011-12-31");
    assert_eq!(
        slots("day", "Pacific/Apia", "1892-07-03T00:00:00Z", "1892-07-07T00:00:00Z"),
        ["1892-07-04", "1892-07-05", "1892-07-06"]
    );
}

/// Where the day with which a week or a month would begin was left out, it begins with the next one, under its own name.
#[test]
fn a_month_whose_first_does_not_exist() {
    // Manila left out 1844-12-31, which was a Tuesday; the month and the week around it are whole
    assert_eq!(
        slots("month", "Asia/Manila", "1844-12-15T00:00:00Z", "1845-02-02T00:00:00Z"),
        ["1845-01-01", "1845-02-01"]
    );
    assert_eq!(slot("week", "Asia/Manila", "1845-01-01T12:00:00Z"), "1844-12-30");
}

#[test]
fn a_clock_that_is_set_back_finds_slots_that_were() {
    let firings =
        ["2026-06-18T23:55:00Z", "2026-06-19T00:05:00Z", "2026-06-18T23:58:00Z", "2026-06-19T00:01:00Z"];
    let found: Vec<_> = firings.iter().map(|now| slot("day", "UTC", now)).collect();
    assert_eq!(found, ["2026-06-18", "2026-06-19", "2026-06-18", "2026-06-19"]);
}
