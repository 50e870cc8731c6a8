//! What clients asked and what they were told, for the checkers.

use bytes::Bytes;
use core::time::Duration;
use file_history::Record;
use ids::{Fid, SetId};
use std::collections::BTreeMap;
use wire::{Body, Errno, Op};

/// See the module.
#[derive(Debug)]
pub(crate) struct History {
    root: (Fid, SetId),
    records: Vec<Record>,
    dead: Vec<(u32, u64)>,
    /// Where writes to striped files were tried.
    placed: BTreeMap<usize, Vec<u64>>,
}

pub(crate) fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

impl History {
    pub(crate) fn new(root: (Fid, SetId)) -> History {
        History { root, records: Vec::new(), dead: Vec::new(), placed: BTreeMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// A client asks.
    pub(crate) fn begin(
        &mut self,
        client: usize,
        now: Duration,
        set: SetId,
        op: &Op,
        payload: &Bytes,
    ) -> usize {
        self.records.push(Record {
            client: u32::try_from(client).unwrap_or(0),
            op: op.clone(),
            payload: payload.clone(),
            set,
            begun: nanos(now),
            answer: None,
        });
        self.records.len() - 1
    }

    /// It is told. A call that was interrupted, or took too long, may have been done or not.
    pub(crate) fn end(&mut self, record: usize, now: Duration, answer: Result<(Body, Bytes), Errno>) {
        if matches!(answer, Err(Errno::EINTR | Errno::ETIMEDOUT)) {
            return;
        }
        if let Some(record) = self.records.get_mut(record) {
            record.answer = Some((nanos(now), answer));
        }
    }

    /// A client closes a file.
    pub(crate) fn closed(&mut self, client: usize, now: Duration, set: SetId, fid: Fid) {
        let record = self.begin(client, now, set, &Op::Release { fid }, &Bytes::new());
        self.end(record, now, Ok((Body::Done, Bytes::new())));
    }

    /// A client dies: what it has open is closed some time later.
    pub(crate) fn died(&mut self, client: usize, now: Duration) {
        self.dead.push((u32::try_from(client).unwrap_or(0), nanos(now)));
    }

    pub(crate) fn dead(&self) -> &[(u32, u64)] {
        &self.dead
    }

    /// A write is tried at that position. An append is tried once at each, perhaps in two steps.
    pub(crate) fn place(&mut self, record: usize, appends: bool, offset: u64) {
        let places = self.placed.entry(record).or_default();
        if !appends || places.last() != Some(&offset) {
            places.push(offset);
        }
    }

    pub(crate) fn placed(&self) -> &BTreeMap<usize, Vec<u64>> {
        &self.placed
    }

    /// A record.
    pub(crate) fn get(&self, record: usize) -> Option<&Record> {
        self.records.get(record)
    }

    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(crate) fn root(&self) -> (Fid, SetId) {
        self.root
    }
}
