//! The open windows.
//!
//! To close a window and to flush it are two things: a closed one takes nothing more and waits for its turn, as what it
//! was held as. One is flushed in each call, so that there is never more than one batch.

use std::collections::{BTreeMap, VecDeque};

use profbridge_model::arena::{Transfer, Work};
use profbridge_model::{Profiles, SampleLog};

use crate::ENTRY;
use crate::arenas::{Arenas, Peer, Shared};
use crate::intake::Intake;
use crate::key::Key;
use crate::limits::Limits;
use crate::relief::Relief;

/// More scratch memory than this is given back, in bytes.
pub const SCRATCH: usize = 1 << 20;

/// So many windows may be open for each group that may have one, before the oldest is closed.
const WINDOWS_OF_GROUP: usize = 2;

/// A window: what is held of one key.
#[derive(Debug)]
pub struct Window<K> {
    /// What tells it from others.
    pub key: K,
    /// The latest time that was observed, in nanoseconds since the Unix epoch.
    pub latest: u64,
    pub(crate) held: SampleLog,
    pub(crate) arena: u32,
    /// When it was opened, among all windows there ever were.
    pub(crate) order: u64,
    /// What it was last counted with, in bytes.
    pub(crate) counted: u64,
    due: u64,
    peer: Peer,
}

/// What came of a window.
#[derive(Debug)]
pub struct Flushed<K> {
    /// The window's key.
    pub key: K,
    /// What was held.
    pub observations: u64,
    /// The batch, with the peer of the first request that opened the window. `None` where the caller did not want it,
    /// or it would be larger than 4 GiB.
    pub batch: Option<Profiles>,
}

/// Windows by key. See the [crate].
#[derive(Debug)]
pub struct Store<K> {
    pub(crate) limits: Limits,
    pub(crate) slots: Vec<Option<Box<Window<K>>>>,
    free: Vec<u32>,
    /// In order of opening, which is the order in which they are due.
    pub(crate) order: BTreeMap<u64, u32>,
    opened: u64,
    by_key: BTreeMap<K, u32>,
    /// How many groups of keys have a window.
    groups: usize,
    pub(crate) arenas: Arenas,
    /// Closed windows that were not flushed yet, in order.
    pub(crate) closed: VecDeque<Box<Window<K>>>,
    pub(crate) relief: Option<Relief>,
    closed_early: u64,
    observations: u64,
    /// Memory of all windows, in bytes.
    bytes: u64,
    /// What the last request or flush carried. It is kept so that the next does not make tables as large as its
    /// dictionary anew.
    pub(crate) scratch: Transfer,
}

impl<K: Key> Store<K> {
    /// A store that holds nothing.
    pub fn new(limits: Limits) -> Self {
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
            relief: None,
            closed_early: 0,
            observations: 0,
            bytes: 0,
            scratch: Transfer::default(),
        }
    }

    /// How many observations are held.
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// The memory of windows and arenas when they were last counted, without that of tables that lead to them, in
    /// bytes. Cheap enough to be asked for with every sample.
    #[inline]
    pub fn counted_bytes(&self) -> u64 {
        self.bytes + self.arenas.counted
    }

    /// The memory of everything that is held, as allocated, in bytes.
    pub fn bytes(&self) -> u64 {
        let tables = self.slots.capacity() * size_of::<Option<Box<Window<K>>>>()
            + self.free.capacity() * size_of::<u32>()
            + self.order.len() * (size_of::<(u64, u32)>() + ENTRY)
            + self.by_key.len() * (size_of::<(K, u32)>() + ENTRY)
            + self.closed.capacity() * size_of::<Box<Window<K>>>()
            + self.relief.as_ref().map_or(0, |relief| relief.windows.capacity() * size_of::<u64>())
            + self.scratch.bytes();
        self.bytes + self.arenas.bytes() + tables as u64
    }

    /// For what a request remembers of what it carried into an arena.
    pub(crate) fn transfer(&mut self) -> Transfer {
        let mut transfer = std::mem::take(&mut self.scratch);
        transfer.begin();
        transfer
    }

    /// Takes it back.
    pub(crate) fn give_back(&mut self, transfer: Transfer) {
        if transfer.bytes() > self.scratch.bytes() {
            self.scratch = transfer;
        }
    }

    /// The memory that the distinct elements of the dictionaries take, without hash tables and spare room, in bytes.
    pub fn distinct_bytes(&self) -> u64 {
        self.arenas.distinct_bytes()
    }

    /// What the dictionaries of all windows that there are and were have done.
    pub fn work(&self) -> Work {
        self.arenas.work()
    }

    /// When the next window is due, by the clock of `monotonic_nano`. At once (0), where closed ones wait.
    pub fn due(&self) -> Option<u64> {
        if !self.closed.is_empty() || self.relief.is_some() {
            return Some(0);
        }
        self.next_due()
    }

    /// How many closed windows wait for their turn.
    pub fn closed(&self) -> usize {
        self.closed.len()
    }

    /// How many windows were closed before their time since this was asked last.
    pub fn take_closed_early(&mut self) -> u64 {
        std::mem::take(&mut self.closed_early)
    }

    /// When the next open window is due.
    fn next_due(&self) -> Option<u64> {
        let (_, &slot) = self.order.first_key_value()?;
        self.slots[slot as usize].as_ref().map(|window| window.due)
    }

    /// The open window of a key, which is opened where there is none: its slot.
    pub(crate) fn find(&mut self, key: &K, peer: &Peer, monotonic_nano: u64) -> u32 {
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

    /// The slots of the open windows of a key's group, in order of their keys.
    fn slots_of_group(&self, key: &K) -> impl Iterator<Item = u32> + '_ {
        let group = key.first_of_group();
        let all = self.by_key.range(group.clone()..);
        all.take_while(move |(key, _)| key.is_in_group_of(&group)).map(|(_, &slot)| slot)
    }

    fn has_group(&self, key: &K) -> bool {
        self.slots_of_group(key).next().is_some()
    }

    /// The open windows of a key's group, in order of their keys.
    pub fn group(&self, key: &K) -> impl Iterator<Item = &Window<K>> + '_ {
        self.slots_of_group(key).filter_map(|slot| self.slots[slot as usize].as_deref())
    }

    /// Closes those open windows of a key's group of which this is said.
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

    /// A window and what it shares with others.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<(&mut Window<K>, &mut Shared)> {
        let window = self.slots[slot as usize].as_deref_mut()?;
        let shared = self.arenas.get_mut(window.arena)?;
        Some((window, shared))
    }

    /// Whether the window that was opened as this is still open in its slot.
    #[inline]
    pub(crate) fn is_open(&self, slot: u32, order: u64) -> bool {
        self.slots.get(slot as usize).and_then(Option::as_ref).is_some_and(|window| window.order == order)
    }

    /// How many observations a window still takes.
    pub(crate) fn room(&self, slot: u32) -> u64 {
        let held = self.slots[slot as usize].as_ref().map_or(0, |window| window.held.observations());
        self.limits.max_observations.saturating_sub(held)
    }

    /// Closes a window whose arena is full, and lets windows that are opened from now on have another one.
    pub(crate) fn retire(&mut self, slot: u32) {
        let Some(window) = self.slots[slot as usize].as_ref() else { return };
        self.arenas.leave(window.arena);
        self.close_early(slot);
    }

    /// Closes a window whose arena has grown to twice what it may be, so that no batch can have a larger dictionary
    /// than that.
    pub(crate) fn retire_if_large(&mut self, slot: u32) {
        let most = self.limits.max_arena_bytes.saturating_mul(2);
        if self.get_mut(slot).is_some_and(|(_, shared)| shared.arena.bytes() >= most) {
            self.retire(slot);
        }
    }

    /// Counts what a window has come to, and closes it if that is too much.
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

    /// Closes a window. What it holds is flushed in its turn.
    fn close(&mut self, slot: u32) {
        let Some(window) = self.slots[slot as usize].take() else { return };
        self.free.push(slot);
        self.order.remove(&window.order);
        self.by_key.remove(&window.key);
        self.groups -= usize::from(!self.has_group(&window.key));
        self.closed.push_back(window);
    }

    /// Closes a window, unless one is closed already: the next one for want of memory, or one that is due.
    pub fn close_due(&mut self, monotonic_nano: u64) {
        while self.closed.is_empty() {
            if self.relief.is_some() {
                self.close_heaviest();
            } else if self.next_due().is_some_and(|due| due <= monotonic_nano) {
                self.close_oldest();
            } else {
                return;
            }
        }
    }

    /// Closes the oldest window, unless one is closed already. What was to be closed for want of memory no longer is.
    pub fn close_for_the_end(&mut self) {
        self.relief = None;
        if self.closed.is_empty() {
            self.close_oldest();
        }
    }

    fn close_oldest(&mut self) {
        if let Some((_, &slot)) = self.order.first_key_value() {
            self.close(slot);
        }
    }

    /// Whether no window is there, open or closed.
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.order.is_empty()
    }

    /// Flushes the next closed window that holds anything. Where it is not wanted it is dropped and no batch is made.
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

    /// Ends the intake of a request: gives back what it needed, and lets windows be closed where all together have
    /// become too large.
    pub fn end_request(&mut self, intake: Intake<K>) {
        intake.give_back(self);
        self.sweep();
        if self.bytes() > self.limits.max_bytes {
            // A quarter less, so that not every request closes windows.
            self.shrink(self.limits.max_bytes / 4 * 3);
        }
    }

    /// Frees the arenas that no window needs any more, and scratch memory that got large. Not behind each window that
    /// is flushed: the scratch memory would have to be made anew for each, as large as the dictionary.
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
