//! The dictionaries of senders.
//!
//! All windows of a sender that are opened within some minutes share an arena, so that equal data is stored once. If an
//! arena is too old or too large, windows opened later get another one, and the old one is freed with its last window.

use std::collections::HashMap;
use std::sync::Arc;

use profbridge_model::arena::{Arena, Work};

use crate::ENTRY;
use crate::limits::WindowLimits;

/// The sender of a request.
pub(crate) type SenderAddress = Option<Arc<str>>;

/// An arena, and the number of windows that use it.
#[derive(Debug)]
pub(crate) struct SharedArena {
    pub(crate) arena: Arena,
    /// A number that is unique among all arenas so far, since slots are reused.
    pub(crate) number: u64,
    /// The number of windows that use the arena.
    pub(crate) windows: u32,
    /// The size of the arena at the last update, in bytes.
    pub(crate) counted: u64,
    opened: u64,
    peer: SenderAddress,
}

/// The arenas in use.
#[derive(Debug, Default)]
pub(crate) struct Arenas {
    places: Vec<Option<Box<SharedArena>>>,
    free: Vec<u32>,
    /// The arena for the next window of a sender.
    current: HashMap<SenderAddress, u32>,
    /// Arenas whose last window may be gone.
    idle: Vec<u32>,
    begun: u64,
    /// Size of all arenas at the last update, in bytes.
    pub(crate) counted: u64,
    /// Work counters of freed arenas.
    work: Work,
}

impl Arenas {
    /// Heap size of all arenas at the last update, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.places.capacity() * size_of::<Option<Box<SharedArena>>>()
            + (self.free.capacity() + self.idle.capacity()) * size_of::<u32>()
            + self.current.len() * (size_of::<(SenderAddress, u32)>() + ENTRY);
        self.counted + tables as u64
    }

    /// Size of the distinct elements in bytes, without hash tables and unused capacity.
    pub(crate) fn distinct_bytes(&self) -> u64 {
        self.places.iter().flatten().map(|shared| shared.arena.distinct_bytes()).sum()
    }

    /// Work counters of all arenas so far.
    pub(crate) fn work(&self) -> Work {
        self.places.iter().flatten().fold(self.work, |sum, shared| sum + shared.arena.work())
    }

    /// The arena for a window that is opened now.
    pub(crate) fn for_window(&mut self, peer: &SenderAddress, limits: &WindowLimits, monotonic_nano: u64) -> u32 {
        let current = self.current.get(peer).copied().filter(|&at| {
            self.get(at).is_some_and(|shared| {
                monotonic_nano.saturating_sub(shared.opened) < limits.max_arena_age
                    && shared.arena.bytes() < limits.max_arena_bytes
            })
        });
        let at = current.unwrap_or_else(|| self.begin(peer, limits, monotonic_nano));
        if let Some(shared) = self.get_mut(at) {
            shared.windows += 1;
        }
        at
    }

    fn begin(&mut self, peer: &SenderAddress, limits: &WindowLimits, opened: u64) -> u32 {
        let arena = Arena::new(limits.arena);
        let counted = size_of::<SharedArena>() as u64 + arena.bytes();
        self.counted += counted;
        let shared = SharedArena { arena, number: self.begun, windows: 0, counted, opened, peer: peer.clone() };
        self.begun += 1;
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.places[at as usize] = Some(Box::new(shared));
        if let Some(before) = self.current.insert(peer.clone(), at) {
            self.idle.push(before);
        }
        at
    }

    pub(crate) fn get(&self, at: u32) -> Option<&SharedArena> {
        self.places.get(at as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut SharedArena> {
        self.places.get_mut(at as usize)?.as_deref_mut()
    }

    /// Whether the slot `at` still contains the arena with this number.
    pub(crate) fn has(&self, at: u32, number: u64) -> bool {
        self.get(at).is_some_and(|shared| shared.number == number)
    }

    /// Updates the size of an arena.
    pub(crate) fn settle(&mut self, at: u32) {
        if let Some(shared) = self.places.get_mut(at as usize).and_then(Option::as_deref_mut) {
            let bytes = size_of::<SharedArena>() as u64 + shared.arena.bytes();
            self.counted = self.counted - shared.counted + bytes;
            shared.counted = bytes;
        }
    }

    /// Stops using an arena for windows that are opened later.
    pub(crate) fn stop_sharing(&mut self, at: u32) {
        if let Some(shared) = self.places.get(at as usize).and_then(Option::as_deref)
            && self.current.get(&shared.peer) == Some(&at)
        {
            self.current.remove(&shared.peer);
            self.idle.push(at);
        }
    }

    /// Stops using all current arenas for windows that are opened later.
    pub(crate) fn stop_sharing_all(&mut self) {
        self.idle.extend(std::mem::take(&mut self.current).into_values());
        self.free_idle();
    }

    /// Records that a window stopped using an arena.
    pub(crate) fn release(&mut self, at: u32) {
        if let Some(shared) = self.get_mut(at) {
            shared.windows -= 1;
            if shared.windows == 0 {
                self.idle.push(at);
            }
        }
        self.free_idle();
    }

    /// Frees arenas without windows.
    pub(crate) fn free_idle(&mut self) {
        for at in std::mem::take(&mut self.idle) {
            let Some(shared) = self.places[at as usize].take_if(|shared| shared.windows == 0) else { continue };
            self.counted -= shared.counted;
            self.work = self.work + shared.arena.work();
            self.free.push(at);
            if self.current.get(&shared.peer) == Some(&at) {
                self.current.remove(&shared.peer);
            }
        }
    }

    /// Frees empty tables.
    pub(crate) fn shrink_tables(&mut self) {
        if self.free.len() == self.places.len() {
            (self.places, self.free) = (Vec::new(), Vec::new());
        }
    }
}
