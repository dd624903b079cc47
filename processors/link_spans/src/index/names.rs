//! Finds processes by their own names and those of their threads ([`ProcessClaims::names`],
//! [`ProcessClaims::thread_name`]).
//!
//! [`ProcessClaims::names`]: profbridge_identity::ProcessClaims::names
//! [`ProcessClaims::thread_name`]: profbridge_identity::ProcessClaims::thread_name

use std::collections::BTreeSet;

/// At most this many processes are kept per name. Further ones are not found by it.
const MOST_OF_A_NAME: usize = 1024;

/// Approximate bytes per tree entry: nodes are two thirds full.
const ENTRY: u64 = 3 * size_of::<(u64, u32)>() as u64 / 2;

/// Names and the processes that have them. Only 64 bits of a name are kept, so the caller has to check whether a
/// process found really has the name.
#[derive(Debug, Default)]
pub(super) struct ProcessNames(BTreeSet<(u64, u32)>);

impl ProcessNames {
    pub(super) fn add(&mut self, name: u128, process: u32) {
        if self.find(name).take(MOST_OF_A_NAME).count() < MOST_OF_A_NAME {
            self.0.insert((name as u64, process));
        }
    }

    /// The processes that may have a name, each once.
    pub(super) fn find(&self, name: u128) -> impl Iterator<Item = u32> {
        self.0.range((name as u64, 0)..=(name as u64, u32::MAX)).map(|(_, process)| *process)
    }

    /// Drops the processes that are not known any more.
    pub(super) fn retain(&mut self, is_known: impl Fn(u32) -> bool) {
        self.0.retain(|(_, process)| is_known(*process));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Approximate memory use in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.len() as u64 * ENTRY
    }
}
