//! A store that falls back to an older state: a replica that was behind when it took over, or a copy that was restored.
//!
//! From some moment on what is written does not reach the replica; later, or never, the store goes on from what that
//! one has, under the next epoch. What was granted, claimed and settled in between is forgotten by the store, and by
//! nobody else: requests under way may still arrive, holders go on to trust their leases, and the sinks keep what they
//! have accepted. A clock that runs in a record runs on in the replica's.
//!
//! # What is true then
//!
//! The tokens go on growing, because the epoch is their floor and a grant that was decided by another epoch is refused.
//! So the fenced sink refuses the effect of a holder whose grant was forgotten as soon as a later holder had one, and
//! refuses nobody who holds the lease. No renewal, release or outcome of a forgotten grant has any effect: its holder
//! is told. All that is true of grants is true again of those of the new epoch.
//!
//! # What is not
//!
//! A run whose outcome was forgotten is run again, and while its holder trusts a forgotten lease there may be two: its
//! effect is accepted as long as no later holder had one, also when an outcome that was late has settled the run. A
//! store that knows no epoch ([`Timeline::Unknown`](super::store::Timeline)) grants tokens again that a sink has
//! seen: that one then refuses its rightful holder, which is how it is noticed.

use super::shared::Shared;
use super::store::Store;
use super::world::World;

impl World {
    /// What comes after this does not reach the state that the store may fall back to.
    pub fn leave_replica_behind(&mut self) -> Option<()> {
        self.replica = Some(Shared::new(self.store.clone()));
        Some(())
    }

    /// The store falls back to what its replica has, or its copy.
    pub fn fail_over(&mut self) -> Option<()> {
        self.trouble(|world| &mut world.failovers_left)?;
        let replica = self.replica.take()?;
        let epoch = self.store.epoch + 1;
        self.store = Store { epoch, ..Store::clone(&replica) };
        Some(())
    }

    /// A tick of the clocks in the replica.
    pub fn tick_replica(&mut self) {
        self.replica = self.replica.take().map(|replica| {
            let mut replica = Store::clone(&replica);
            replica.pass(1, self.back_left);
            Shared::new(replica)
        });
    }
}
