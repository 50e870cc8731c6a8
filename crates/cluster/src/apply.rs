//! Applying commands: the one place where the pool's state changes.
//!
//! A refused command changes nothing at all.

use std::collections::{BTreeMap, BTreeSet};

use ids::{BrickId, Epoch, ServerId, SetId, VolumeId};

use crate::{
    Command, ConfigVolume, NewServer, OptionChange, Outcome, Proposal, Recent, Refusal, Role, Server, State,
    Status, Volume, hex, limits, names, options,
};

impl State {
    /// Applies a command once: a proposal that was applied already gets the same answer again.
    pub fn apply_proposal(&mut self, proposal: &Proposal) -> Result<Outcome, Refusal> {
        if let Some(known) = self.recent.iter().find(|r| r.id == proposal.id && r.id != 0) {
            return Ok(known.outcome.clone());
        }
        let outcome = self.apply(&proposal.command)?;
        if proposal.id != 0 {
            let surplus = (self.recent.len() + 1).saturating_sub(limits::RECENT);
            self.recent.drain(..surplus);
            self.recent.push(Recent { id: proposal.id, outcome: outcome.clone() });
        }
        Ok(outcome)
    }

    /// Applies a command, or refuses it and changes nothing.
    pub fn apply(&mut self, command: &Command) -> Result<Outcome, Refusal> {
        if self.pool.is_empty() && !matches!(command, Command::InitPool { .. }) {
            return Err(Refusal::NoPool);
        }
        let lease = self.lease_length();
        let outcome = match command {
            Command::InitPool { pool, server } => self.init_pool(pool, server),
            Command::AddServer(server) => self.add_server(server),
            Command::RemoveServer { server, force: _ } => self.remove_server(*server),
            Command::ReplaceServer { server, new } => self.replace_server(*server, new),
            Command::SetServerAddress { server, address } => self.set_server_address(*server, address),
            Command::CreateVolume(volume) => self.create_volume(volume).map(Outcome::Volume),
            Command::AdoptVolume(volume) => self.adopt_volume(volume).map(Outcome::Volume),
            Command::AddBricks(new) => self.add_bricks(new),
            Command::ReplaceBrick(new) => self.replace_brick(new),
            Command::AddCopies(more) => self.add_copies(more),
            Command::RemoveCopies(fewer) => self.remove_copies(fewer),
            Command::StartVolume { name } => self.start_volume(name),
            Command::StopVolume { name } => self.stop_volume(name),
            Command::DeleteVolume { name } => self.delete_volume(name),
            Command::RetireVolume { name } => self.retire_volume(name),
            Command::ImportVolume { volume, present } => self.import_volume(*volume, present),
            Command::ForgetRetired { volume } => self.forget_retired(*volume),
            Command::SetOptions { changes } => self.set_options(changes),
            Command::ApplyConfig { volumes, expect_brick } => self.apply_config(volumes, *expect_brick),
            Command::ChangeView(change) => self.change_view(change),
            Command::ServerDown { server } => self.server_down(*server),
            Command::BrickFailed { brick, reason: _ } => self.brick_failed(*brick),
            Command::BrickMounted { brick, mount } => self.brick_mounted(*brick, mount),
            Command::SetVoters { voters } => self.set_voters(voters),
            Command::RecoverPool { server } => self.recover_pool(*server),
            Command::AddKey(key) => self.add_key(key),
            Command::RevokeKey { key } => self.revoke_key(*key),
            Command::RotateKey { key, created, end, users } => self.rotate_key(*key, (*created, *end), users),
            Command::SecurePool { keys } => self.secure_pool(keys),
            Command::AnnounceAuthority { next } => self.announce_authority(next),
            Command::BeginAuthority { next } => self.begin_authority(next),
            Command::EndAuthority { next } => self.end_authority(next),
            Command::AddToken { token, now } => self.add_token(token, *now),
            Command::JoinServer(joining) => self.join_server(joining),
            Command::SetWebhook { url, at_ms } => self.set_webhook(url.as_deref(), *at_ms),
            Command::NoteHosts { hosts } => Ok(self.note_hosts(hosts)),
            Command::RaiseLevel { level } => self.raise_level(*level),
            Command::Promote { set, expect_epoch, brick } => self.promote(*set, *expect_epoch, *brick),
        }?;
        self.version += 1;
        if self.lease_length() < lease {
            let millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
            self.longest_lease_ms = self.longest_lease_ms.max(millis);
        }
        if cfg!(debug_assertions) {
            self.check();
        }
        Ok(outcome)
    }

    fn init_pool(&mut self, pool: &str, server: &NewServer) -> Result<Outcome, Refusal> {
        if !self.pool.is_empty() {
            return Err(Refusal::PoolExists);
        }
        check_identity(pool)?;
        let outcome = self.add_server(server)?;
        self.pool = pool.to_string();
        for server in self.servers.values_mut() {
            server.role = Role::Voter;
        }
        Ok(outcome)
    }

    pub(crate) fn add_server(&mut self, new: &NewServer) -> Result<Outcome, Refusal> {
        check_identity(&new.identity)?;
        names::check_host(&new.host)?;
        names::check_address(&new.address)?;
        let known = self.servers.values().find(|s| s.host == new.host || s.identity == new.identity);
        if let Some(known) = known {
            return Err(Refusal::ServerExists { host: known.host.clone(), id: known.id });
        }
        self.check_address_free(&new.address)?;
        if self.servers.len() >= limits::SERVERS {
            return Err(Refusal::TooManyServers { max: limits::SERVERS });
        }
        let id = self.next_server;
        self.next_server = ServerId(id.0 + 1);
        let NewServer { identity, host, address } = new.clone();
        self.servers.insert(id, Server { id, identity, host, address, role: Role::Learner, lost: false });
        Ok(Outcome::Server(id))
    }

    pub(crate) fn replace_server(&mut self, old: ServerId, new: &NewServer) -> Result<Outcome, Refusal> {
        if !self.servers.contains_key(&old) {
            return Err(Refusal::UnknownServer { id: old });
        }
        check_identity(&new.identity)?;
        names::check_host(&new.host)?;
        names::check_address(&new.address)?;
        let taken = |s: &&Server| {
            s.identity == new.identity || s.id != old && (s.host == new.host || s.address == new.address)
        };
        if let Some(known) = self.servers.values().find(taken) {
            return Err(Refusal::ServerExists { host: known.host.clone(), id: known.id });
        }
        self.leave_views(|brick| brick.server == old);
        self.servers.remove(&old);
        self.keys.forget_server(old);
        let id = self.next_server;
        self.next_server = ServerId(id.0 + 1);
        let NewServer { identity, host, address } = new.clone();
        self.servers.insert(id, Server { id, identity, host, address, role: Role::Learner, lost: false });
        for brick in self.sets.values_mut().flat_map(|s| &mut s.bricks).filter(|b| b.server == old) {
            brick.server = id;
            brick.mount.clear();
        }
        Ok(Outcome::Server(id))
    }

    fn check_address_free(&self, address: &str) -> Result<(), Refusal> {
        match self.servers.values().find(|s| s.address == address) {
            None => Ok(()),
            Some(s) => Err(Refusal::AddressInUse { address: address.to_string(), host: s.host.clone() }),
        }
    }

    fn remove_server(&mut self, id: ServerId) -> Result<Outcome, Refusal> {
        self.check_removable(id)?;
        self.servers.remove(&id);
        self.keys.forget_server(id);
        Ok(Outcome::Done)
    }

    /// Refuses the removal of a server that is unknown, the last one, or has bricks.
    pub fn check_removable(&self, id: ServerId) -> Result<(), Refusal> {
        let server = self.servers.get(&id).ok_or(Refusal::UnknownServer { id })?;
        if let Some((set, _)) = self.bricks_of(id).next() {
            let volume = self.volumes.get(&set.volume).map(|v| v.name.clone()).unwrap_or_default();
            return Err(Refusal::ServerHasBricks { host: server.host.clone(), volume });
        }
        if self.servers.len() == 1 {
            return Err(Refusal::LastServer { host: server.host.clone() });
        }
        Ok(())
    }

    fn set_server_address(&mut self, id: ServerId, address: &str) -> Result<Outcome, Refusal> {
        names::check_address(address)?;
        let current = self.servers.get(&id).ok_or(Refusal::UnknownServer { id })?;
        if current.address != address {
            self.check_address_free(address)?;
        }
        if let Some(server) = self.servers.get_mut(&id) {
            server.address = address.to_string();
        }
        Ok(Outcome::Done)
    }

    pub(crate) fn known_volume(&self, name: &str) -> Result<&Volume, Refusal> {
        self.volume(name).ok_or_else(|| Refusal::UnknownVolume { name: name.to_owned() })
    }

    fn volume_mut(&mut self, name: &str) -> Result<&mut Volume, Refusal> {
        let found = self.volumes.values_mut().find(|v| v.name == name);
        found.ok_or_else(|| Refusal::UnknownVolume { name: name.to_string() })
    }

    fn start_volume(&mut self, name: &str) -> Result<Outcome, Refusal> {
        let volume = self.volume_mut(name)?;
        if volume.status == Status::Started {
            return Err(Refusal::AlreadyStarted { name: name.to_string() });
        }
        volume.status = Status::Started;
        Ok(Outcome::Done)
    }

    fn stop_volume(&mut self, name: &str) -> Result<Outcome, Refusal> {
        let volume = self.volume_mut(name)?;
        if volume.status != Status::Started {
            return Err(Refusal::NotStarted { name: name.to_string() });
        }
        volume.status = Status::Stopped;
        Ok(Outcome::Done)
    }

    fn delete_volume(&mut self, name: &str) -> Result<Outcome, Refusal> {
        self.take_out(name).map(|_| Outcome::Done)
    }

    fn set_options(&mut self, changes: &[OptionChange]) -> Result<Outcome, Refusal> {
        if changes.len() > limits::OPTION_CHANGES {
            return Err(Refusal::TooManyChanges { count: changes.len(), max: limits::OPTION_CHANGES });
        }
        let mut changed: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        for OptionChange { volume: name, key, value } in changes {
            let volume = self.known_volume(name)?;
            self.check_option(volume, key, value.as_deref())?;
            let options = changed.entry(name).or_insert_with(|| volume.options.clone());
            match value {
                Some(value) => options.insert(key.clone(), value.trim().to_string()),
                None => options.remove(key),
            };
        }
        for (name, options) in &changed {
            check_length(name, options)?;
        }
        for (name, options) in changed {
            self.volume_mut(name)?.options = options;
        }
        Ok(Outcome::Done)
    }

    fn apply_config(
        &mut self,
        volumes: &[ConfigVolume],
        expect_brick: Option<BrickId>,
    ) -> Result<Outcome, Refusal> {
        // An older program made the bricks of new volumes after the command, and named no number.
        let needs = |w: &ConfigVolume| match self.volume(&w.volume.name) {
            Some(volume) => self.grows(volume, &w.volume),
            None => expect_brick.is_some(),
        };
        if volumes.iter().any(needs) {
            self.check_next_brick(expect_brick.unwrap_or_default())?;
        }
        let mut seen = BTreeSet::new();
        let mut next = self.clone();
        for wanted in volumes {
            if !seen.insert(&wanted.volume.name) {
                return Err(Refusal::DescribedTwice { name: wanted.volume.name.clone() });
            }
            next.apply_config_volume(wanted)?;
        }
        *self = next;
        Ok(Outcome::Done)
    }

    fn apply_config_volume(&mut self, wanted: &ConfigVolume) -> Result<(), Refusal> {
        let name = &wanted.volume.name;
        match self.volume(name) {
            None => drop(self.create_volume(&wanted.volume)?),
            Some(volume) if self.same_bricks(volume, &wanted.volume) => {}
            Some(volume) if self.grows(volume, &wanted.volume) => {
                self.add_sets(&volume.clone(), &wanted.volume)?;
            }
            Some(_) => return Err(Refusal::BricksDiffer { name: name.clone() }),
        }
        let volume = self.known_volume(name)?;
        for (key, value) in &wanted.options {
            self.check_option(volume, key, Some(value))?;
        }
        check_length(name, &wanted.options)?;
        let volume = self.volume_mut(name)?;
        volume.options = wanted.options.iter().map(|(k, v)| (k.clone(), v.trim().to_string())).collect();
        match (wanted.status, volume.status) {
            (Some(Status::Started), _) => volume.status = Status::Started,
            (Some(_), Status::Started) => volume.status = Status::Stopped,
            (Some(_), Status::Created | Status::Stopped) | (None, _) => {}
        }
        Ok(())
    }

    fn brick_mounted(&mut self, id: BrickId, mount: &str) -> Result<Outcome, Refusal> {
        let mut bricks = self.sets.values_mut().flat_map(|s| &mut s.bricks);
        let brick = bricks.find(|b| b.id == id).ok_or(Refusal::UnknownBrick { brick: id })?;
        if !mount.starts_with('/') || mount.len() > limits::BRICK_PATH {
            return Err(Refusal::BrickPath { path: mount.to_owned() });
        }
        brick.mount = mount.to_owned();
        Ok(Outcome::Done)
    }

    fn set_voters(&mut self, voters: &BTreeSet<ServerId>) -> Result<Outcome, Refusal> {
        if voters.is_empty() {
            return Err(Refusal::NoVoters);
        }
        if let Some(id) = voters.iter().find(|id| !self.servers.contains_key(id)) {
            return Err(Refusal::UnknownServer { id: *id });
        }
        for (id, server) in &mut self.servers {
            server.role = if voters.contains(id) { Role::Voter } else { Role::Learner };
        }
        Ok(Outcome::Done)
    }

    fn recover_pool(&mut self, survivor: ServerId) -> Result<Outcome, Refusal> {
        if !self.servers.contains_key(&survivor) {
            return Err(Refusal::UnknownServer { id: survivor });
        }
        let none_left = || Refusal::OutOfIds;
        let generation = self.generation.checked_add(1).ok_or_else(none_left)?;
        let next_server =
            self.next_server.0.checked_add(limits::RECOVERY_IDS.into()).ok_or_else(none_left)?;
        let next_volume = self.next_volume.0.checked_add(limits::RECOVERY_IDS).ok_or_else(none_left)?;
        let next_brick = self.next_brick.0.checked_add(limits::RECOVERY_IDS).ok_or_else(none_left)?;
        let retired = || self.retired.values().flat_map(|r| &r.sets);
        if self
            .sets
            .values()
            .chain(retired())
            .any(|set| set.view.epoch.0.checked_add(2 * limits::RECOVERY_EPOCHS).is_none())
        {
            return Err(none_left());
        }
        let others: Vec<ServerId> = self.servers.keys().copied().filter(|id| *id != survivor).collect();
        let mut changed = Vec::new();
        for id in others {
            changed.extend(self.leave_views(|brick| brick.server == id));
            if let Some(server) = self.servers.get_mut(&id) {
                server.lost = true;
                server.role = Role::Learner;
            }
        }
        if let Some(server) = self.servers.get_mut(&survivor) {
            server.lost = false;
            server.role = Role::Voter;
        }
        // What the others went on to do is not known here: no number that they may have given is given again.
        self.generation = generation;
        let retired = self.retired.values_mut().flat_map(|r| &mut r.sets);
        for set in self.sets.values_mut().chain(retired) {
            set.view.epoch = Epoch(set.view.epoch.0 + limits::RECOVERY_EPOCHS);
            set.lost_before = set.view.epoch;
        }
        self.keys.skip_numbers();
        self.next_server = ServerId(next_server);
        self.next_volume = VolumeId(next_volume);
        self.next_brick = BrickId(next_brick);
        self.next_set = SetId((self.next_set.0 + limits::RECOVERY_IDS).min(SetId::MAX.0));
        Ok(Outcome::Views(changed))
    }

    /// Refuses a record that a newer program wrote.
    pub fn check_format(&self) -> Result<(), Refusal> {
        if self.format > limits::STATE_FORMAT {
            return Err(Refusal::NewerFormat { format: self.format, max: limits::STATE_FORMAT });
        }
        Ok(())
    }
}

fn check_identity(value: &str) -> Result<(), Refusal> {
    hex::decode(value).map(drop).ok_or_else(|| Refusal::Identity { value: value.to_string() })
}

/// All options of a volume together are bounded.
pub(crate) fn check_length(volume: &str, options: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let length: usize = options.iter().map(|(key, value)| key.len() + value.len()).sum();
    if length > limits::OPTIONS {
        return Err(Refusal::OptionsTooLong { volume: volume.to_owned(), max: limits::OPTIONS });
    }
    Ok(())
}

impl State {
    /// Refuses a value that this option of the volume cannot have; `None` takes the option away.
    pub(crate) fn check_option(
        &self,
        volume: &Volume,
        key: &str,
        value: Option<&str>,
    ) -> Result<(), Refusal> {
        let Some(value) = value else {
            // A key that an older program knew may still be set: it can always be taken away.
            let known = volume.options.contains_key(key) || options::exists(key);
            return if known { Ok(()) } else { Err(options::unknown(key)) };
        };
        let refuse = |expected: String| Refusal::OptionValue {
            volume: volume.name.clone(),
            key: key.to_string(),
            value: value.to_string(),
            expected,
        };
        options::check(key, value).map_err(|bad| match bad {
            options::Bad::Unknown => options::unknown(key),
            options::Bad::Value { expected } => refuse(expected),
        })?;
        self.check_hosts(&volume.name, key, value)?;
        let count = value.trim().parse::<u32>();
        if key == "cluster.quorum-count" && count.is_ok_and(|n| n > volume.replica) {
            return Err(refuse(format!("at most {}, the volume's replica count", volume.replica)));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
