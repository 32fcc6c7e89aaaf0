//! What a person should know of a bucket.

use std::time::Duration;

use super::Objects;
use super::failure::Failure;
use super::prove::{race_all, who};
use super::tidy::Deletes;
use crate::clock::{Clock, SystemClock, boottime};
use crate::store::{Finding, StoreError};

/// The longest that the clocks may differ before a person is told.
const OFFSET_MS: i64 = 5_000;

impl Objects {
    pub(super) async fn examine_now(&self) -> Result<Vec<Finding>, StoreError> {
        let mut findings = Vec::new();
        let listed = self.in_time(async {
            self.bucket.list("", None, None, 1).await.map(drop).map_err(Failure::of_a_read)
        });
        match listed.await {
            Ok(()) => findings.push(Finding::good(
                "service",
                format!("{} lists {}", who(&self.bucket), self.bucket.place.bucket),
            )),
            Err(why) => return Err(why),
        }
        findings.push(match self.in_time(race_all(&self.bucket)).await {
            Ok(()) => Finding::good("conditions", "of 8 writers that raced for an object one won, each time"),
            Err(why) => Finding::wrong(
                "conditions",
                told(why),
                "use a service that keeps conditional writes, and credentials that may write",
            ),
        });
        findings.push(self.clocks());
        findings.push(match self.in_time(self.deletes()).await {
            Ok(Deletes::OnCondition) => Finding::good(
                "removal",
                "what is left of removed records is deleted a day later, by semel gc",
            ),
            Ok(Deletes::Blindly) => Finding::note(
                "removal",
                "deletes here heed no condition, so what is left of removed records stays: 46 bytes each",
                "",
            ),
            Err(why) => {
                Finding::note("removal", told(why), "allow these credentials to delete below the prefix")
            }
        });
        findings.push(Finding::note(
            "promises",
            "swaps are made change by change, a lease lapses up to two seconds late, waiters look again every second",
            "use PostgreSQL, etcd or NATS where runs hand over often",
        ));
        Ok(findings)
    }

    fn clocks(&self) -> Finding {
        let Some(last) = self.bucket.place.wire.heard().last() else {
            return Finding::wrong(
                "clock",
                "the answers carry no Date, so that no lease can lapse",
                "use another service",
            );
        };
        let since = i64::try_from(boottime().saturating_sub(last.sent).as_millis()).unwrap_or(i64::MAX);
        let here = i64::try_from(SystemClock.wall_ms()).unwrap_or(i64::MAX);
        let offset = here.saturating_sub(last.date_ms.saturating_add(since));
        let what = format!("this machine's clock is {} s from the service's", (offset.abs() + 500) / 1000);
        if offset.abs() <= OFFSET_MS {
            Finding::good("clock", what)
        } else {
            Finding::note(
                "clock",
                what,
                "leases go by the service's clock alone, but requests signed 15 minutes off are refused: set the clock",
            )
        }
    }
}

fn told(why: StoreError) -> String {
    match why {
        StoreError::Unavailable(why) | StoreError::Unknown(why) => why,
        StoreError::Refused(conflict) => format!("{} is not as it was", conflict.key),
    }
}

/// How long a record must have been removed before nothing is left of it.
pub(super) const REMEMBER_REMOVED: Duration = Duration::from_secs(24 * 3600);
