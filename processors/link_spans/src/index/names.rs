//! Processes by what they, or their threads, are called ([`ProcessClaims::names`], [`ProcessClaims::thread_name`]).
//!
//! [`ProcessClaims::names`]: profbridge_identity::ProcessClaims::names
//! [`ProcessClaims::thread_name`]: profbridge_identity::ProcessClaims::thread_name

use std::collections::BTreeSet;

/// So many processes are found by one name. Who has more of one name is told apart by none.
const MOST_OF_A_NAME: usize = 1024;

/// What an entry of a tree takes, in bytes, about: its nodes are two thirds full.
const ENTRY: u64 = 3 * size_of::<(u64, u32)>() as u64 / 2;

/// The names and the processes that have them. Of a name only 64 bits are kept: who is found by one has to be asked
/// whether it has it.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<(u64, u32)>);

impl Names {
    /// That a process has a name.
    pub(super) fn add(&mut self, name: u128, process: u32) {
        if self.find(name).take(MOST_OF_A_NAME).count() < MOST_OF_A_NAME {
            self.0.insert((name as u64, process));
        }
    }

    /// The processes that may have a name, each once.
    pub(super) fn find(&self, name: u128) -> impl Iterator<Item = u32> {
        self.0.range((name as u64, 0)..=(name as u64, u32::MAX)).map(|(_, process)| *process)
    }

    /// Forgets processes.
    pub(super) fn retain(&mut self, is_known: impl Fn(u32) -> bool) {
        self.0.retain(|(_, process)| is_known(*process));
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The memory of it, in bytes, about.
    pub(super) fn bytes(&self) -> u64 {
        self.0.len() as u64 * ENTRY
    }
}
