//! The fenced sink: what it accepts is counted outside the ledger.

use semel_core::entry::{DoneBy, State};
use semel_core::token::{Fence, Grant};

use super::config::Config;
use super::facts::Fact;
use super::worker::Effect;
use super::world::World;

/// An effect on its way to the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flight {
    pub key: usize,
    pub resource: usize,
    pub grant: Grant,
}

impl World {
    /// An effect reaches the sink. Is it accepted?
    pub fn land(&mut self, config: &Config, flight: Flight) -> bool {
        let is_held = self.store.leases[flight.resource]
            .as_ref()
            .is_some_and(|row| row.is_held() && row.value.grant == flight.grant);
        let sink = &mut self.sinks[flight.resource];
        let keys = &mut self.keys_accepted[flight.resource];
        let bit = 1 << flight.key;
        match flight.grant.against(sink.as_ref()) {
            Fence::Stale | Fence::Clash => {
                self.just.add(if is_held { Fact::HolderRefused } else { Fact::SinkRefused });
                return false;
            }
            Fence::Advance => *keys = 0,
            // another work of the row, under the same lease
            Fence::Same if *keys & bit == 0 && config.in_a_row() => {}
            Fence::Same => self.just.add(Fact::AcceptedAgain),
        }
        *sink = Some(flight.grant);
        *keys |= bit;
        self.accepted[flight.key] += 1;
        let state = self.store.entries[flight.key].as_ref().map(|row| &row.value.state);
        let is_remembered = self.store.is_of_this_epoch(flight.grant.token);
        if config.resources == 1 && is_remembered && matches!(state, Some(State::Done { by: DoneBy::Run })) {
            self.just.add(Fact::AcceptedAfterDone);
        }
        true
    }

    pub fn land_of(&mut self, config: &Config, w: usize) -> Option<()> {
        let flight = self.flight_of(config, w)?;
        let accepted = self.land(config, flight);
        self.workers[w].held_mut()?.effect = if accepted { Effect::Accepted } else { Effect::Refused };
        Some(())
    }

    pub fn flight_of(&self, config: &Config, w: usize) -> Option<Flight> {
        let key = self.workers[w].key(&config.roles[w])?;
        let held = self.workers[w].held().filter(|held| held.effect == Effect::UnderWay)?;
        Some(Flight { key, resource: held.resource, grant: held.grant() })
    }
}
