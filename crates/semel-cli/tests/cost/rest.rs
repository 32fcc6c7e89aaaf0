//! What Semel does while its command does nothing.

use std::time::Duration;

use crate::costs;

/// Quiet for so long: it has come to rest.
const REST: Duration = Duration::from_millis(300);
/// And then looked at for so long.
const LOOK: Duration = Duration::from_secs(3);

#[test]
fn between_two_heartbeats_nothing_wakes() {
    let wakes = costs().supervise("60s").wakes(REST, LOOK);
    println!("semel and its keeper woke {wakes} times in {LOOK:?}");
    assert!(wakes <= 1, "{wakes} wake-ups in {LOOK:?} between two heartbeats, 20 s apart");
}

#[test]
fn control_a_heartbeat_is_seen() {
    // every 500 ms: there is time enough between two to come to rest
    let wakes = costs().supervise("1500ms").wakes(REST, LOOK);
    println!("semel and its keeper woke {wakes} times in {LOOK:?} of a heart that beats every 500 ms");
    assert!(wakes >= 5, "{wakes}");
    assert!(wakes <= 40, "{wakes} wake-ups for 6 heartbeats");
}
