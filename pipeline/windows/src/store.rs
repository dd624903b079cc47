//! The open windows.
//!
//! Closing and flushing are separate: a closed window accepts no more data and waits in its stored form. Each call
//! flushes one window, so that there is never more than one batch.

use std::collections::{BTreeMap, VecDeque};

use profbridge_model::arena::{Transfer, Work};
use profbridge_model::{Profiles, SampleLog};

use crate::ENTRY;
use crate::arenas::{Arenas, SenderAddress, SharedArena};
use crate::key::WindowKey;
use crate::limits::WindowLimits;
use crate::memory_pressure::MemoryPressure;

/// The maximum size of scratch memory that is kept, in bytes.
pub const SCRATCH: usize = 1 << 20;

/// The maximum number of open windows per allowed group. Beyond it, the oldest is closed.
const WINDOWS_OF_GROUP: usize = 2;

/// A window: the buffered data of one key.
#[derive(Debug)]
pub struct Window<K> {
    /// The window's key.
    pub key: K,
    /// The latest observed time, in nanoseconds since the Unix epoch.
    pub latest: u64,
    pub(crate) held: SampleLog,
    pub(crate) arena: u32,
    /// A number that gives the order of opening, unique among all windows so far.
    pub(crate) order: u64,
    /// The size of the window at the last update, in bytes.
    pub(crate) counted: u64,
    due: u64,
    peer: SenderAddress,
}

/// A flushed window.
#[derive(Debug)]
pub struct Flushed<K> {
    /// The window's key.
    pub key: K,
    /// Number of observations.
    pub observations: u64,
    /// The batch, with the peer of the request that opened the window. `None` if the caller did not want it, or if it
    /// would exceed 4 GiB.
    pub batch: Option<Profiles>,
}

/// The windows by key. See the [crate].
#[derive(Debug)]
pub struct Store<K> {
    pub(crate) limits: WindowLimits,
    pub(crate) slots: Vec<Option<Box<Window<K>>>>,
    free: Vec<u32>,
    /// Windows by order number, which is the order of their deadlines.
    pub(crate) order: BTreeMap<u64, u32>,
    opened: u64,
    by_key: BTreeMap<K, u32>,
    /// The number of groups of keys with a window.
    groups: usize,
    pub(crate) arenas: Arenas,
    /// Closed windows that wait to be flushed, in order.
    pub(crate) closed: VecDeque<Box<Window<K>>>,
    pub(crate) pressure: Option<MemoryPressure>,
    closed_early: u64,
    observations: u64,
    /// Size of all windows in bytes.
    bytes: u64,
    /// The id tables of the last request or flush. They are reused, since they are as large as the dictionary.
    pub(crate) scratch: Transfer,
}

impl<K: WindowKey> Store<K> {
    /// An empty store.
    pub fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
            slots: Vec::new(),
            free: Vec::new(),
            order: BTreeMap::new(),
            opened: 0,
            by_key: BTreeMap::new(),
            groups: 0,
            arenas: Arenas::default(),
            closed: VecDeque::new(),
            pressure: None,
            closed_early: 0,
            observations: 0,
            bytes: 0,
            scratch: Transfer::default(),
        }
    }

    /// Number of buffered observations.
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// Size of windows and arenas at their last update in bytes, without index tables. Cheap enough to call for every
    /// sample.
    #[inline]
    pub fn counted_bytes(&self) -> u64 {
        self.bytes + self.arenas.counted
    }

    /// Heap size of the whole store in bytes.
    pub fn bytes(&self) -> u64 {
        let tables = self.slots.capacity() * size_of::<Option<Box<Window<K>>>>()
            + self.free.capacity() * size_of::<u32>()
            + self.order.len() * (size_of::<(u64, u32)>() + ENTRY)
            + self.by_key.len() * (size_of::<(K, u32)>() + ENTRY)
            + self.closed.capacity() * size_of::<Box<Window<K>>>()
            + self.pressure.as_ref().map_or(0, |pressure| pressure.windows.capacity() * size_of::<u64>())
            + self.scratch.bytes();
        self.bytes + self.arenas.bytes() + tables as u64
    }

    /// Id tables for a new request.
    pub(crate) fn transfer(&mut self) -> Transfer {
        let mut transfer = std::mem::take(&mut self.scratch);
        transfer.begin();
        transfer
    }

    /// Takes id tables back for reuse.
    pub(crate) fn give_back(&mut self, transfer: Transfer) {
        if transfer.bytes() > self.scratch.bytes() {
            self.scratch = transfer;
        }
    }

    /// Size of the distinct elements of all dictionaries in bytes, without hash tables and unused capacity.
    pub fn distinct_bytes(&self) -> u64 {
        self.arenas.distinct_bytes()
    }

    /// Work counters of the dictionaries of all windows so far.
    pub fn work(&self) -> Work {
        self.arenas.work()
    }

    /// The deadline of the next window, by the clock of `monotonic_nano`; 0 if a closed window is waiting.
    pub fn due(&self) -> Option<u64> {
        if !self.closed.is_empty() || self.pressure.is_some() {
            return Some(0);
        }
        self.next_due()
    }

    /// The number of closed windows that wait to be flushed.
    pub fn closed(&self) -> usize {
        self.closed.len()
    }

    /// The number of windows that were closed early since the last call.
    pub fn take_closed_early(&mut self) -> u64 {
        std::mem::take(&mut self.closed_early)
    }

    /// The deadline of the next open window.
    fn next_due(&self) -> Option<u64> {
        let (_, &slot) = self.order.first_key_value()?;
        self.slots[slot as usize].as_ref().map(|window| window.due)
    }

    /// The slot of a key's window. Opens a window if there is none.
    pub(crate) fn find(&mut self, key: &K, peer: &SenderAddress, monotonic_nano: u64) -> u32 {
        if let Some(&slot) = self.by_key.get(key) {
            return slot;
        }
        self.make_room(key);
        let arena = self.arenas.for_window(peer, &self.limits, monotonic_nano);
        let due = monotonic_nano.saturating_add(self.limits.open_for);
        let (order, peer, held) = (self.opened, peer.clone(), SampleLog::new());
        self.opened += 1;
        let counted = size_of::<Window<K>>() as u64 + held.bytes();
        self.bytes += counted;
        let window = Window { key: key.clone(), latest: 0, held, arena, order, counted, due, peer };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(Box::new(window));
        self.order.insert(order, slot);
        self.groups += usize::from(!self.has_group(key));
        self.by_key.insert(key.clone(), slot);
        slot
    }

    /// The slots of the open windows in a key's group, in order of their keys.
    fn slots_of_group(&self, key: &K) -> impl Iterator<Item = u32> + '_ {
        let group = key.first_of_group();
        let all = self.by_key.range(group.clone()..);
        all.take_while(move |(key, _)| key.is_in_group_of(&group)).map(|(_, &slot)| slot)
    }

    fn has_group(&self, key: &K) -> bool {
        self.slots_of_group(key).next().is_some()
    }

    /// The open windows in a key's group, in order of their keys.
    pub fn group(&self, key: &K) -> impl Iterator<Item = &Window<K>> + '_ {
        self.slots_of_group(key).filter_map(|slot| self.slots[slot as usize].as_deref())
    }

    /// Closes the open windows in a key's group for which `closes` returns true.
    pub fn close_group(&mut self, key: &K, closes: impl Fn(&Window<K>) -> bool) {
        let slots: Vec<u32> = self
            .slots_of_group(key)
            .filter(|&slot| self.slots[slot as usize].as_deref().is_some_and(&closes))
            .collect();
        for slot in slots {
            self.close(slot);
        }
    }

    /// Closes the oldest windows until there is room for another one.
    fn make_room(&mut self, key: &K) {
        let most = self.limits.max_groups;
        loop {
            let another = !self.has_group(key);
            if self.order.len() < most.saturating_mul(WINDOWS_OF_GROUP) && (!another || self.groups < most) {
                return;
            }
            let Some((_, &slot)) = self.order.first_key_value() else { return };
            self.close_early(slot);
        }
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<(&mut Window<K>, &mut SharedArena)> {
        let window = self.slots[slot as usize].as_deref_mut()?;
        let shared = self.arenas.get_mut(window.arena)?;
        Some((window, shared))
    }

    /// Whether the window with this order number is still open in this slot.
    #[inline]
    pub(crate) fn is_open(&self, slot: u32, order: u64) -> bool {
        self.slots.get(slot as usize).and_then(Option::as_ref).is_some_and(|window| window.order == order)
    }

    /// The number of observations that a window still accepts.
    pub(crate) fn room(&self, slot: u32) -> u64 {
        let held = self.slots[slot as usize].as_ref().map_or(0, |window| window.held.observations());
        self.limits.max_observations.saturating_sub(held)
    }

    /// Closes a window whose arena is full, and stops using the arena for later windows.
    pub(crate) fn retire(&mut self, slot: u32) {
        let Some(window) = self.slots[slot as usize].as_ref() else { return };
        self.arenas.stop_sharing(window.arena);
        self.close_early(slot);
    }

    /// Closes a window whose arena has grown to twice its limit, so that no batch has a larger dictionary.
    pub(crate) fn retire_if_large(&mut self, slot: u32) {
        let most = self.limits.max_arena_bytes.saturating_mul(2);
        if self.get_mut(slot).is_some_and(|(_, shared)| shared.arena.bytes() >= most) {
            self.retire(slot);
        }
    }

    /// Updates the size of a window, and closes it if it is too large.
    pub(crate) fn settle(&mut self, slot: u32, added: u64) {
        self.observations += added;
        let Some(window) = self.slots[slot as usize].as_mut() else { return };
        let bytes = size_of::<Window<K>>() as u64 + window.held.bytes();
        self.bytes = self.bytes - window.counted + bytes;
        window.counted = bytes;
        if window.held.observations() >= self.limits.max_observations || bytes >= self.limits.max_window_bytes {
            self.close_early(slot);
        }
    }

    pub(crate) fn close_early(&mut self, slot: u32) {
        self.closed_early += 1;
        self.close(slot);
    }

    /// Closes a window, which is flushed later.
    fn close(&mut self, slot: u32) {
        let Some(window) = self.slots[slot as usize].take() else { return };
        self.free.push(slot);
        self.order.remove(&window.order);
        self.by_key.remove(&window.key);
        self.groups -= usize::from(!self.has_group(&window.key));
        self.closed.push_back(window);
    }

    /// Closes a window that is due or scheduled because of memory pressure, unless a closed one is already waiting.
    pub fn close_due(&mut self, monotonic_nano: u64) {
        while self.closed.is_empty() {
            if self.pressure.is_some() {
                self.close_heaviest();
            } else if self.next_due().is_some_and(|due| due <= monotonic_nano) {
                self.close_oldest();
            } else {
                return;
            }
        }
    }

    /// Closes the oldest window at shutdown, unless a closed one is already waiting. Clears the list of windows that
    /// memory pressure had scheduled for closing.
    pub fn close_for_the_end(&mut self) {
        self.pressure = None;
        if self.closed.is_empty() {
            self.close_oldest();
        }
    }

    fn close_oldest(&mut self) {
        if let Some((_, &slot)) = self.order.first_key_value() {
            self.close(slot);
        }
    }

    /// Whether there is no window, open or closed.
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.order.is_empty()
    }

    /// Flushes the next closed window that has data. If `is_wanted` is false, drops the window without making a batch.
    pub fn flush(&mut self, is_wanted: bool) -> Option<Flushed<K>> {
        while let Some(window) = self.closed.pop_front() {
            let Window { key, held, arena, counted, peer, latest: _, order: _, due: _ } = *window;
            let observations = held.observations();
            self.bytes -= counted;
            self.observations -= observations;
            let wanted = self.arenas.get(arena).filter(|_| is_wanted && observations > 0);
            let batch = wanted.and_then(|shared| {
                let mut batch = held.flush(&shared.arena, &mut self.scratch).ok()?;
                batch.peer = peer;
                Some(batch)
            });
            self.arenas.release(arena);
            if observations > 0 {
                return Some(Flushed { key, observations, batch });
            }
        }
        None
    }

    /// Frees memory after a request, and schedules windows for closing if the total size is too large.
    pub(crate) fn end_request(&mut self) {
        self.sweep();
        if self.bytes() > self.limits.max_bytes {
            // Shrinks to three quarters of the limit, so that not every request closes windows.
            self.shrink(self.limits.max_bytes / 4 * 3);
        }
    }

    /// Frees unused arenas and large scratch memory. Not called after each flush, because the scratch memory, which is
    /// as large as the dictionary, would have to be rebuilt for each window.
    pub fn sweep(&mut self) {
        self.arenas.free_idle();
        if self.scratch.bytes() > SCRATCH {
            self.scratch = Transfer::default();
        }
        if self.order.is_empty() {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
        if self.closed.is_empty() {
            self.closed = VecDeque::new();
        }
        self.arenas.shrink_tables();
    }
}
