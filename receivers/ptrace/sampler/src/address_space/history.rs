//! Which code lay where in a process, and when.
//!
//! Samples are unwound and named a little after they were taken, and code comes and goes at one address meanwhile. The
//! kernel's records say when something was mapped, but what is in it has to be read first. Until then nothing is known
//! of its addresses from that time on, and samples of earlier times still have what was there before.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::view::MapsEntry;
use super::{AddressSpace, ModuleKind};

/// How many address spaces are kept. Samples wait for a fraction of a second, and a program that replaces its code more
/// often has some of it misnamed.
const MOST: usize = 64;

/// How many records may wait for the maps to be read. Beyond that they are dropped, as if the kernel had told nothing.
const MOST_RECORDS: usize = 64;

/// What was mapped, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedAt {
    /// When.
    pub at: Instant,
    /// What.
    pub entry: MapsEntry,
    /// Whether other code was there before, so that addresses have another meaning from then on.
    pub replaces: bool,
}

/// An address space, from a moment on.
#[derive(Debug)]
struct Version {
    since: Instant,
    space: Arc<AddressSpace>,
    /// The addresses whose code is not known, because it was mapped then and has not been read yet.
    unread: Option<Range<u64>>,
}

/// The address spaces of a process by time: never empty, in ascending order.
#[derive(Debug)]
pub(crate) struct History {
    versions: VecDeque<Version>,
    records: Vec<MappedAt>,
}

impl History {
    /// One that begins with this address space.
    pub(crate) fn new(space: Arc<AddressSpace>, now: Instant) -> Self {
        Self { versions: [Version { since: now, space, unread: None }].into(), records: Vec::new() }
    }

    /// The present address space.
    pub(crate) fn latest(&self) -> &Arc<AddressSpace> {
        &self.versions[self.versions.len() - 1].space
    }

    /// The address space of a moment: the first one for those before it.
    pub(crate) fn at(&self, time: Instant) -> &Arc<AddressSpace> {
        &self.versions[self.place(time)].space
    }

    fn place(&self, time: Instant) -> usize {
        self.versions.partition_point(|version| version.since <= time).saturating_sub(1)
    }

    /// Takes a record of the kernel. Returns whether the maps have to be read for its sake, because other code was at
    /// its addresses before. What was mapped where nothing was is read when it is executed.
    pub(crate) fn mapped(&mut self, at: Instant, entry: MapsEntry) -> bool {
        let latest = self.latest();
        if latest.has(&entry) || latest.unread.len() >= MOST_RECORDS {
            return false;
        }
        let range = entry.start..entry.end;
        // What is compiled into memory without a file is not told apart by its mapping.
        let is_file = entry.file.inode != 0;
        let is_replaced = |record: &MappedAt| {
            let MapsEntry { start, end, file, .. } = &record.entry;
            *start < range.end && range.start < *end && (is_file || file.inode != 0)
        };
        let replaces = latest.overlaps(&range, |kind| is_file || kind != ModuleKind::Generated)
            || self.records.iter().any(is_replaced);
        if self.records.len() >= MOST_RECORDS {
            let Some(oldest) = self.records.iter().position(|record| !record.replaces) else { return false };
            self.records.remove(oldest);
        }
        // Records of several processors may be read in another order than they were written.
        let at = at.max(self.versions[self.versions.len() - 1].since);
        if replaces {
            let space = Arc::new(self.latest().without(range.clone()));
            if self.versions.len() >= MOST {
                self.versions.pop_front();
            }
            self.versions.push_back(Version { since: at, space, unread: Some(range) });
        }
        self.records.push(MappedAt { at, entry, replaces });
        replaces
    }

    /// Takes the records for whose sake the maps have to be read.
    pub(crate) fn take_records(&mut self) -> Vec<MappedAt> {
        std::mem::take(&mut self.records)
    }

    /// Sets the address space that was read for a moment: it stands from when something was replaced last before that.
    /// Returns whether it is the present one.
    pub(crate) fn set(&mut self, at: Instant, space: Arc<AddressSpace>) -> bool {
        let place = self.place(at);
        self.records.retain(|record| record.replaces || record.at > at);
        self.versions[place].unread = None;
        self.versions[place].space = space;
        for next in place + 1..self.versions.len() {
            let Some(range) = self.versions[next].unread.clone() else { return false };
            self.versions[next].space = Arc::new(self.versions[next - 1].space.without(range));
        }
        place + 1 == self.versions.len()
    }
}

#[cfg(test)]
mod tests;
