//! Processes by what they, or their threads, are called ([`Side::names`], [`Side::thread_name`]).
//!
//! [`Side::names`]: profbridge_identity::Side::names
//! [`Side::thread_name`]: profbridge_identity::Side::thread_name

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// So many processes are found by one name. Who has more of one name is told apart by none.
const MOST_OF_A_NAME: usize = 1024;

/// The names, of which only hashes are kept: who is found by one has to be asked whether it has it.
#[derive(Debug, Default)]
pub(super) struct Names {
    table: HashTable<Named>,
    hasher: DefaultHashBuilder,
}

/// That a process has a name.
#[derive(Debug, Clone, Copy)]
struct Named {
    tag: u32,
    process: u32,
}

impl Names {
    /// That a process has a name.
    pub(super) fn add(&mut self, name: u128, process: u32) {
        let tag = self.tag(name);
        let mut count = 0;
        for named in self.table.iter_hash(hash(tag)).filter(|named| named.tag == tag) {
            count += 1;
            if named.process == process || count == MOST_OF_A_NAME {
                return;
            }
        }
        self.table.insert_unique(hash(tag), Named { tag, process }, |named| hash(named.tag));
    }

    /// The processes that may have a name, each once.
    pub(super) fn find(&self, name: u128) -> impl Iterator<Item = u32> {
        let tag = self.tag(name);
        self.table.iter_hash(hash(tag)).filter(move |named| named.tag == tag).map(|named| named.process)
    }

    /// Forgets processes.
    pub(super) fn retain(&mut self, is_known: impl Fn(u32) -> bool) {
        self.table.retain(|named| is_known(named.process));
        self.table.shrink_to(self.table.len() * 2, |named| hash(named.tag));
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.table.clear();
    }

    /// Gives back what is not needed for those that are there.
    pub(super) fn shrink(&mut self) {
        self.table.shrink_to(self.table.len(), |named| hash(named.tag));
    }

    /// The memory of it, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.table.allocation_size() as u64
    }

    fn tag(&self, name: u128) -> u32 {
        self.hasher.hash_one(name) as u32
    }
}

/// The tag is random, and the table looks at the first and the last bits of a hash.
fn hash(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
