//! The real brick as a heal target.

use crate::listing::name_order;
use crate::open::Brick;
use ids::{Fid, Lsn, SetId};
use replica::heal::Order;
use replica::healing::{Arriving, HealTarget, Made, Sum};
use wire::codec::Blob;
use wire::peer::{Object, Stamp};
use wire::reply::DirEntry;
use wire::{Change, Errno};

impl HealTarget for Brick {
    const ORDER: Order = name_order;

    fn set(&self) -> SetId {
        self.identity.set
    }

    fn own_root(&self) -> Option<Fid> {
        (self.identity.root_home == self.identity.set).then_some(self.identity.root)
    }

    fn is_arbiter(&self) -> bool {
        self.identity.arbiter
    }

    fn stale_objects(&self) -> Option<Vec<Fid>> {
        self.stale_set().map(|d| d.objects.clone())
    }

    fn is_stale_beyond_names(&self) -> bool {
        let (start, synced) = (self.journal_start(), Brick::durable(self).lsn > Lsn(0));
        // Of a brick of which nothing was ever synced the journal has all.
        let is_all = |s: &crate::StaleSet| s.from == Lsn(0) && s.objects.is_empty() && synced;
        self.stale_set().is_some_and(|s| s.from.next() < start || is_all(s))
    }

    fn is_stale(&self) -> bool {
        self.stale_set().is_some()
    }

    fn incomplete(&self) -> Option<Fid> {
        self.found.incomplete
    }

    fn changes_after(&mut self, lsn: Lsn, each: &mut dyn FnMut(&Change)) -> Result<(), Errno> {
        for record in self.iterate(lsn.next().max(self.journal_start())) {
            each(&record?.change);
        }
        Ok(())
    }

    fn versions_valid_to(&self) -> Lsn {
        self.stale_set().map_or(Lsn(0), |d| d.versions_valid_to)
    }

    fn is_uncertain(&self) -> bool {
        self.found.rebooted
    }

    fn nonce(&self) -> u64 {
        self.nonces.next()
    }

    fn newest(&self) -> Lsn {
        self.last().lsn
    }

    fn consistent_to(&self) -> Lsn {
        let last = self.last().lsn;
        let last = if self.found.incomplete.is_some() { Lsn(last.0.saturating_sub(1)) } else { last };
        self.stale_set().map_or(last, |d| d.from.min(last))
    }

    fn stamp_at(&self, lsn: Lsn) -> Result<Stamp, Errno> {
        let first = Lsn(self.journal_start().0.saturating_sub(1));
        Brick::stamp_at(self, lsn.max(first))?.ok_or(Errno::EIO)
    }

    fn begin_heal(&mut self, from: Lsn, objects: &[Fid], versions_valid_to: Lsn) -> Result<(), Errno> {
        Brick::begin_heal(self, from, objects, versions_valid_to)
    }

    fn cut_journal(&mut self, common: &Stamp) -> Result<(), Errno> {
        if common.lsn.next() < self.journal_start() {
            // Stale since before the journal begins: nothing of it can stay.
            return Brick::reset_journal(self, common.clone()).map_err(Errno::from);
        }
        self.truncate_after(common.lsn).map_err(Errno::from)
    }

    fn reset_journal(&mut self, last: &Stamp) -> Result<(), Errno> {
        Brick::reset_journal(self, last.clone()).map_err(Errno::from)
    }

    fn note(&mut self, c: Arriving<'_>) -> Result<(), Errno> {
        Brick::note(self, c.stamp, c.op, c.result_fid, c.change)
    }

    fn apply(&mut self, c: Arriving<'_>) -> Result<(), Errno> {
        let done = Brick::apply(self, c.stamp.clone(), c.op, c.result_fid, c.change, c.payload);
        if done.is_err() {
            // What it did of the change is healed.
            self.abandon_partial()?;
        }
        done
    }

    fn version(&mut self, fid: Fid) -> Option<Stamp> {
        Brick::version(self, fid)
    }

    fn is_known(&mut self, fid: Fid) -> Result<bool, Errno> {
        Brick::is_known(self, fid)
    }

    fn small_sum(&mut self, fid: Fid) -> Option<Sum> {
        Brick::small_sum(self, fid)
    }

    fn take_object(
        &mut self,
        fid: Fid,
        object: &Object,
        data: Option<&[u8]>,
        complete: bool,
    ) -> Result<bool, Errno> {
        Brick::take_object(self, fid, object, data, complete)
    }

    fn complete(&mut self, fid: Fid, version: &Stamp) -> Result<(), Errno> {
        Brick::complete(self, fid, version)
    }

    fn take_nothing(&mut self, fid: Fid) -> Result<bool, Errno> {
        Brick::take_nothing(self, fid)
    }

    fn take_entries(
        &mut self,
        dir: Fid,
        after: u64,
        upto: Option<u64>,
        entries: &[DirEntry],
        targets: &[(Fid, Blob)],
    ) -> Result<Vec<Made>, Errno> {
        Brick::take_entries(self, dir, after, upto, entries, targets)
    }

    fn take_data(&mut self, fid: Fid, offset: u64, data: &[u8]) -> Result<(), Errno> {
        Brick::take_data(self, fid, offset, data)
    }

    fn take_hole(&mut self, fid: Fid, offset: u64, len: u64) -> Result<(), Errno> {
        Brick::take_hole(self, fid, offset, len)
    }
}
