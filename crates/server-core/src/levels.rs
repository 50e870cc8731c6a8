//! The levels of the pool's servers, as their heartbeats say, at the leader of the pool's store ([`cluster::LEVEL`]).

use cluster::State;
use ids::ServerId;
use std::collections::BTreeMap;

/// What servers have said since this one leads.
#[derive(Debug, Default)]
pub struct Levels(BTreeMap<ServerId, u32>);

impl Levels {
    /// A server says how far its program goes. False if that is not as far as the pool's other servers count on: it must not
    /// serve.
    pub fn heard(&mut self, server: ServerId, level: u32, state: &State) -> bool {
        self.0.insert(server, level);
        level >= state.level
    }

    /// Another term begins: programs may have been changed while others led.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// The level that the pool can be raised to. `me`: this server, and how far it goes.
    pub fn next(&self, me: (ServerId, u32), state: &State) -> Option<u32> {
        let mut said = self.0.clone();
        said.insert(me.0, me.1);
        state.next_level(&said)
    }
}
