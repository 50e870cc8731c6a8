//! What healing asks of a brick, answered by the model.

use crate::brick::{Content, Record};
use crate::disk::{Disk, Doubt, index};
use crate::mend::order;
use crate::tree::blocks;
use ids::{Epoch, Fid, Lsn, SetId};
use replica::heal::Order;
use replica::healing::{Arriving, Made, Patient, Sum};
use wire::codec::Blob;
use wire::peer::{Object, Stamp};
use wire::reply::DirEntry;
use wire::{Change, Errno};

/// The data of a change or an answer: the tags of its blocks.
pub(crate) fn encode(tags: &[u64]) -> Vec<u8> {
    tags.iter().flat_map(|t| t.to_le_bytes()).collect()
}

fn decode(payload: &[u8]) -> Vec<u64> {
    let tag = |c: &[u8]| c.try_into().map(u64::from_le_bytes).unwrap_or(0);
    payload.chunks(8).map(tag).collect()
}

/// A checksum of blocks; (0, 0) where there is no data.
pub(crate) fn sum(tags: &[u64]) -> Sum {
    let mix = |h: u64, t: &u64| (h ^ t).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    if tags.iter().all(|t| *t == 0) { (0, 0) } else { (tags.iter().fold(1, mix), tags.len() as u64) }
}

/// The record of a change that arrives.
fn record(c: &Arriving<'_>) -> Record {
    let tag = decode(c.payload).first().copied().unwrap_or(0);
    let body = Content::new(c.change.clone(), tag);
    Record { stamp: c.stamp.clone(), op: c.op, about: c.about, body }
}

impl Patient for Disk {
    const ORDER: Order = order;

    fn set(&self) -> SetId {
        self.tree.set
    }

    fn own_root(&self) -> Option<Fid> {
        Some(Fid::root(self.tree.set))
    }

    fn is_arbiter(&self) -> bool {
        self.tree.arbiter
    }

    fn doubtful(&self) -> Option<Vec<Fid>> {
        self.mark.as_ref().map(|m| m.objects.clone())
    }

    fn incomplete(&self) -> Option<Fid> {
        self.incomplete
    }

    fn changes_after(&mut self, lsn: Lsn, each: &mut dyn FnMut(&Change)) -> Result<(), Errno> {
        self.from(lsn.next()).iter().for_each(|e| each(e.body.change()));
        Ok(())
    }

    fn sure(&self) -> Lsn {
        let last = Lsn(self.last().lsn.0 - u64::from(self.incomplete.is_some()));
        self.mark.as_ref().map_or(last, |m| m.from.min(last))
    }

    fn stamp_at(&self, lsn: Lsn) -> Result<Stamp, Errno> {
        Ok(self.stamp(index(lsn.0).max(self.start)))
    }

    fn newest(&self) -> Lsn {
        self.last().lsn
    }

    fn trust(&self) -> Lsn {
        self.mark.as_ref().map_or(Lsn(0), |m| m.trust)
    }

    fn nonce(&self) -> u64 {
        self.asks
    }

    fn begin_heal(&mut self, from: Lsn, objects: &[Fid], trust: Lsn) -> Result<(), Errno> {
        self.try_write()?;
        // Far enough from the numbers of other healings.
        self.asks += 1 << 32;
        let mut doubt = self.mark.clone().unwrap_or(Doubt { from, objects: Vec::new(), trust });
        doubt.from = doubt.from.min(from);
        doubt.trust = doubt.trust.min(trust);
        doubt.objects.extend_from_slice(objects);
        doubt.objects.sort();
        doubt.objects.dedup();
        self.put_mark(Some(doubt));
        Ok(())
    }

    fn cut_journal(&mut self, common: &Stamp) -> Result<(), Errno> {
        if common.lsn.next() < self.first() {
            return self.reset_journal(common);
        }
        self.truncate(index(common.lsn.0));
        Ok(())
    }

    fn reset_journal(&mut self, last: &Stamp) -> Result<(), Errno> {
        assert!(self.journal.len() as u64 >= last.lsn.0, "a primary tells all from the beginning");
        self.truncate(index(last.lsn.0));
        self.start = self.journal.len();
        Ok(())
    }

    fn note(&mut self, c: Arriving<'_>) -> Result<(), Errno> {
        self.try_write()?;
        Disk::note(self, record(&c));
        Ok(())
    }

    fn apply(&mut self, c: Arriving<'_>) -> Result<(), Errno> {
        self.try_write()?;
        self.tree.fits(c.change)?;
        self.append(record(&c));
        Ok(())
    }

    fn placed(&mut self) -> Result<Vec<Fid>, Errno> {
        Ok(self.tree.orphans())
    }

    fn is_known(&mut self, fid: Fid) -> Result<bool, Errno> {
        Ok(self.tree.get(fid).is_some())
    }

    fn small_sum(&mut self, fid: Fid) -> Option<Sum> {
        self.tree.get(fid).map(|o| sum(&o.data))
    }

    fn version(&mut self, fid: Fid) -> Option<Stamp> {
        self.tree.get(fid).map(|o| o.version.clone())
    }

    fn take_object(
        &mut self,
        fid: Fid,
        object: &Object,
        data: Option<&[u8]>,
        complete: bool,
    ) -> Result<bool, Errno> {
        self.try_write()?;
        let taken = self.tree.take_object(fid, object);
        if let Some(o) = self.tree.edit(fid) {
            if !complete {
                o.version = Stamp { epoch: Epoch(0), lsn: Lsn(0) };
            }
            if let Some(data) = data {
                o.set_data(&decode(data));
            }
        }
        self.moment();
        Ok(taken)
    }

    fn complete(&mut self, fid: Fid, version: &Stamp) -> Result<(), Errno> {
        self.try_write()?;
        if let Some(o) = self.tree.edit(fid)
            && (o.version.epoch, o.version.lsn) < (version.epoch, version.lsn)
        {
            o.version = version.clone();
        }
        self.moment();
        Ok(())
    }

    fn take_nothing(&mut self, fid: Fid) -> Result<(), Errno> {
        let Some(o) = self.tree.edit(fid).filter(|o| o.orphan) else { return Ok(()) };
        // What still has a name goes with it.
        o.orphan = false;
        if o.attr.nlink == 0 {
            self.tree.objects.remove(&fid);
        }
        Ok(())
    }

    fn take_hole(&mut self, fid: Fid, offset: u64, len: u64) -> Result<(), Errno> {
        self.try_write()?;
        let o = self.tree.edit(fid).ok_or(Errno::ESTALE)?;
        o.data.iter_mut().skip(blocks(offset)).take(blocks(len)).for_each(|b| *b = 0);
        self.moment();
        Ok(())
    }

    fn take_entries(
        &mut self,
        dir: Fid,
        after: u64,
        upto: Option<u64>,
        entries: &[DirEntry],
        _targets: &[(Fid, Blob)],
    ) -> Result<Vec<Made>, Errno> {
        self.try_write()?;
        let made = self.tree.take_entries(dir, after, upto, entries);
        self.moment();
        made
    }

    fn take_data(&mut self, fid: Fid, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.try_write()?;
        let taken = self.tree.take_data(fid, offset, &decode(data));
        self.moment();
        taken
    }
}

impl Disk {
    /// Everything is healed: what was put aside goes, and then the mark.
    pub(crate) fn end_heal(&mut self) {
        if self.mark.is_some() {
            self.tree.empty_aside();
            let s = self.begin_sync(None);
            self.synced(&s);
            self.put_mark(None);
        }
    }
}
