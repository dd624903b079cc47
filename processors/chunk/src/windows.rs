//! The open windows, and the dictionaries that they share.
//!
//! All windows of a sender that are opened within some minutes share an arena, so what its processes have in common is
//! there once. Such an *epoch* ends by age or size: windows that are opened later get another arena, and the old one
//! goes with its last window. Windows are in order of opening, which is also the order in which they are due.
//!
//! To close a window and to put it out are two things: a closed one takes nothing more and waits for its turn, as what
//! it was held as. One is put out in each call, so that there is never more than one batch.

mod relief;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::{Cell, Identity, skew};
use profbridge_model::arena::{Arena, Transfer};
use profbridge_model::{Held, Profiles, Reason};

use self::relief::Relief;
use crate::budget::Budget;
use crate::config::Settings;

/// A window: one process in one cell of time.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) identity: Identity,
    pub(crate) cell: Cell,
    pub(crate) epoch: u32,
    pub(crate) held: Held,
    /// The latest time that was observed, in nanoseconds since the Unix epoch.
    pub(crate) latest: u64,
    /// When it was opened, among all windows there ever were.
    pub(crate) order: u64,
    due: u64,
    peer: Option<Arc<str>>,
    /// What it was last counted with, in bytes.
    counted: u64,
}

/// An arena and who uses it.
#[derive(Debug)]
struct Epoch {
    arena: Arena,
    /// When it was begun, among all arenas there ever were.
    number: u64,
    opened: u64,
    windows: u32,
    source: Option<Arc<str>>,
    counted: u64,
}

/// The open windows.
#[derive(Debug)]
pub(crate) struct Windows {
    settings: Settings,
    slots: Vec<Option<Box<Window>>>,
    free: Vec<u32>,
    order: BTreeMap<u64, u32>,
    opened: u64,
    /// The windows of each process, by the hash of its identity. A process can have thousands: its times may lie anywhere.
    by_process: BTreeMap<(u128, Cell), u32>,
    /// How many processes have a window.
    processes: usize,
    epochs: Vec<Option<Box<Epoch>>>,
    free_epochs: Vec<u32>,
    sources: HashMap<Option<Arc<str>>, u32>,
    /// Epochs whose last window may have been closed.
    idle: Vec<u32>,
    epochs_begun: u64,
    /// Closed windows that were not put out yet, in order.
    closed: VecDeque<Box<Window>>,
    relief: Option<Relief>,
    /// Observations in all windows.
    observations: u64,
    /// Memory of all windows and arenas, in bytes.
    bytes: u64,
    scratch: Transfer,
    /// What may still be put out.
    pub(crate) budget: Budget,
}

/// Rough size of an entry of the maps beside its key and value, in bytes: their control bytes and spare room.
const ENTRY: usize = 16;

/// More scratch memory than this is given back, in bytes.
const SCRATCH: usize = 1 << 20;

impl Windows {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            slots: Vec::new(),
            free: Vec::new(),
            order: BTreeMap::new(),
            opened: 0,
            by_process: BTreeMap::new(),
            processes: 0,
            epochs: Vec::new(),
            free_epochs: Vec::new(),
            sources: HashMap::new(),
            idle: Vec::new(),
            epochs_begun: 0,
            closed: VecDeque::new(),
            relief: None,
            observations: 0,
            bytes: 0,
            scratch: Transfer::default(),
            budget: Budget::default(),
        }
    }

    pub(crate) fn observations(&self) -> u64 {
        self.observations
    }

    /// The memory of everything that is held, as allocated, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = self.slots.capacity() * size_of::<Option<Box<Window>>>()
            + self.free.capacity() * size_of::<u32>()
            + self.order.len() * (size_of::<(u64, u32)>() + ENTRY)
            + self.by_process.len() * (size_of::<((u128, Cell), u32)>() + ENTRY)
            + self.epochs.capacity() * size_of::<Option<Box<Epoch>>>()
            + self.sources.len() * (size_of::<(Option<Arc<str>>, u32)>() + ENTRY)
            + self.closed.capacity() * size_of::<Box<Window>>()
            + self.relief.as_ref().map_or(0, |relief| relief.windows.capacity() * size_of::<u64>())
            + self.scratch.bytes();
        self.bytes + tables as u64
    }

    /// The memory that the distinct elements of the dictionaries take, without hash tables and spare room, in bytes.
    pub(crate) fn distinct_bytes(&self) -> u64 {
        self.epochs.iter().flatten().map(|epoch| epoch.arena.distinct_bytes()).sum()
    }

    /// When the next window is due. At once, where closed ones wait.
    pub(crate) fn due(&self) -> Option<u64> {
        if !self.closed.is_empty() || self.relief.is_some() {
            return Some(0);
        }
        self.next_due()
    }

    /// How many closed windows wait for their turn.
    pub(crate) fn closed(&self) -> usize {
        self.closed.len()
    }

    /// When the next open window is due.
    fn next_due(&self) -> Option<u64> {
        let (_, &slot) = self.order.first_key_value()?;
        self.slots[slot as usize].as_ref().map(|window| window.due)
    }

    /// The open window of a process and cell, which is opened where there is none: its slot.
    pub(crate) fn find(
        &mut self,
        identity: Identity,
        cell: Cell,
        peer: &Option<Arc<str>>,
        now: Now,
        out: &mut Outbox,
    ) -> u32 {
        if let Some(&slot) = self.by_process.get(&(identity.hash, cell)) {
            return slot;
        }
        self.make_room(identity, out);
        let epoch = self.epoch(peer, now);
        let due = now.monotonic_nano.saturating_add(self.settings.rules.window).saturating_add(self.settings.lateness);
        let (order, peer) = (self.opened, peer.clone());
        self.opened += 1;
        let held = Held::new();
        let counted = size_of::<Window>() as u64 + held.bytes();
        self.bytes += counted;
        let window = Box::new(Window { identity, cell, epoch, held, latest: 0, order, due, peer, counted });
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(window);
        self.order.insert(order, slot);
        self.processes += usize::from(!self.has_windows(identity.hash));
        self.by_process.insert((identity.hash, cell), slot);
        if let Some(epoch) = self.epochs[epoch as usize].as_mut() {
            epoch.windows += 1;
        }
        slot
    }

    /// The windows of a process: their cells and slots, in order of time.
    fn of_process(&self, process: u128) -> impl Iterator<Item = (Cell, u32)> + '_ {
        let range = (process, Cell::FIRST)..=(process, Cell::LAST);
        self.by_process.range(range).map(|(&(_, cell), &slot)| (cell, slot))
    }

    fn has_windows(&self, process: u128) -> bool {
        self.of_process(process).next().is_some()
    }

    /// Closes the oldest windows until there is room for another one.
    fn make_room(&mut self, identity: Identity, out: &mut Outbox) {
        let most = self.settings.max_processes;
        loop {
            let another = !self.has_windows(identity.hash);
            if self.order.len() < 2 * most && (!another || self.processes < most) {
                return;
            }
            let Some((_, &slot)) = self.order.first_key_value() else { return };
            out.note(crate::CLOSED_EARLY, 1);
            self.close(slot);
        }
    }

    /// The arena for a window that is opened now.
    fn epoch(&mut self, source: &Option<Arc<str>>, now: Now) -> u32 {
        if let Some(&at) = self.sources.get(source)
            && let Some(epoch) = self.epochs[at as usize].as_ref()
            && now.monotonic_nano.saturating_sub(epoch.opened) < self.settings.max_dictionary_age
            && epoch.arena.bytes() < self.settings.max_dictionary_bytes
        {
            return at;
        }
        let arena = Arena::new(self.settings.arena);
        let counted = size_of::<Epoch>() as u64 + arena.bytes();
        self.bytes += counted;
        let (number, opened) = (self.epochs_begun, now.monotonic_nano);
        self.epochs_begun += 1;
        let epoch = Epoch { arena, number, opened, windows: 0, source: source.clone(), counted };
        let at = self.free_epochs.pop().unwrap_or_else(|| {
            self.epochs.push(None);
            self.epochs.len() as u32 - 1
        });
        self.epochs[at as usize] = Some(Box::new(epoch));
        if let Some(before) = self.sources.insert(source.clone(), at) {
            self.idle.push(before);
        }
        at
    }

    /// Closes a window whose arena is full, and lets windows that are opened from now on have another one.
    pub(crate) fn retire(&mut self, slot: u32, out: &mut Outbox) {
        let Some(window) = self.slots[slot as usize].as_ref() else { return };
        let full = window.epoch;
        if let Some(epoch) = self.epochs[full as usize].as_ref()
            && self.sources.get(&epoch.source) == Some(&full)
        {
            self.sources.remove(&epoch.source);
            self.idle.push(full);
        }
        out.note(crate::CLOSED_EARLY, 1);
        self.close(slot);
    }

    /// Closes a window whose arena has grown to more than twice what it may be, so that no batch can have a larger
    /// dictionary than that. Returns whether it did.
    pub(crate) fn retire_if_large(&mut self, slot: u32, out: &mut Outbox) -> bool {
        let most = self.settings.max_dictionary_bytes.saturating_mul(2);
        let is_large = self.get_mut(slot).is_some_and(|(_, arena, _)| arena.bytes() >= most);
        if is_large {
            self.retire(slot, out);
        }
        is_large
    }

    /// A window, its arena and the number of that.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<(&mut Window, &mut Arena, u64)> {
        let window = self.slots[slot as usize].as_mut()?;
        let epoch = self.epochs[window.epoch as usize].as_mut()?;
        Some((window, &mut epoch.arena, epoch.number))
    }

    /// Whether there still is an arena with a number.
    pub(crate) fn has_epoch(&self, at: u32, number: u64) -> bool {
        let epoch = self.epochs.get(at as usize).and_then(Option::as_ref);
        epoch.is_some_and(|epoch| epoch.number == number)
    }

    /// Counts what a window has come to, and closes it if that is too much. Returns whether it is still open.
    pub(crate) fn settle(&mut self, slot: u32, added: u64, out: &mut Outbox) -> bool {
        self.observations += added;
        let Some(window) = self.slots[slot as usize].as_mut() else { return false };
        let bytes = size_of::<Window>() as u64 + window.held.bytes();
        self.bytes = self.bytes - window.counted + bytes;
        window.counted = bytes;
        if window.held.observations() < self.settings.max_observations && bytes < self.settings.max_window_bytes {
            return true;
        }
        out.note(crate::CLOSED_EARLY, 1);
        self.close(slot);
        false
    }

    /// Counts what an arena has come to.
    pub(crate) fn settle_epoch(&mut self, at: u32) {
        if let Some(epoch) = self.epochs[at as usize].as_mut() {
            let bytes = size_of::<Epoch>() as u64 + epoch.arena.bytes();
            self.bytes = self.bytes - epoch.counted + bytes;
            epoch.counted = bytes;
        }
    }

    /// Closes a window. What it holds goes out in its turn.
    fn close(&mut self, slot: u32) {
        let Some(window) = self.slots[slot as usize].take() else { return };
        self.free.push(slot);
        self.order.remove(&window.order);
        let process = window.identity.hash;
        self.by_process.remove(&(process, window.cell));
        self.processes -= usize::from(!self.has_windows(process));
        self.closed.push_back(window);
    }

    /// Puts out the next closed window that holds anything.
    fn put_out(&mut self, out: &mut Outbox) {
        while let Some(window) = self.closed.pop_front() {
            self.bytes -= window.counted;
            let observations = window.held.observations();
            self.observations -= observations;
            let sent = self.send(&window, out);
            if let Some(epoch) = self.epochs[window.epoch as usize].as_mut() {
                epoch.windows -= 1;
                if epoch.windows == 0 {
                    self.idle.push(window.epoch);
                }
            }
            self.free_arenas();
            if sent {
                return;
            }
        }
    }

    fn send(&mut self, window: &Window, out: &mut Outbox) -> bool {
        let observations = window.held.observations();
        let Some(epoch) = self.epochs[window.epoch as usize].as_ref().filter(|_| observations > 0) else {
            return false;
        };
        if self.budget.is_used_up() {
            out.drop_observations(Reason::LimitExceeded, observations);
            return false;
        }
        match window.held.put_out(&epoch.arena, &mut self.scratch) {
            Ok(batch) => {
                self.budget.charge(batch.size_bytes(), observations);
                out.send(self.finish(window, batch));
                true
            }
            Err(_) => {
                out.drop_observations(Reason::LimitExceeded, observations);
                false
            }
        }
    }

    fn finish(&self, window: &Window, mut batch: Profiles) -> Profiles {
        batch.peer.clone_from(&window.peer);
        batch.window = Some(self.settings.rules.window(window.identity, window.cell));
        batch
    }

    /// Puts out one window: one that is closed already, one that is to be closed for want of memory, or one that is due.
    pub(crate) fn advance(&mut self, now: Now, out: &mut Outbox) {
        while self.closed.is_empty() {
            if self.relief.is_some() {
                self.close_heaviest(out);
            } else if self.next_due().is_some_and(|due| due <= now.monotonic_nano)
                && let Some((_, &slot)) = self.order.first_key_value()
            {
                self.close(slot);
            } else {
                break;
            }
        }
        self.put_out(out);
        if self.due().is_none_or(|due| due > now.monotonic_nano) {
            self.sweep();
        }
    }

    /// Closes those windows of a process that its own time has passed. Times far in the future do not count: a wrong
    /// clock would close every window at once.
    pub(crate) fn close_passed(&mut self, process: u128, now: Now) {
        if self.of_process(process).nth(1).is_none() {
            return;
        }
        let window = |slot: u32| self.slots[slot as usize].as_ref();
        let times = self.of_process(process).filter_map(|(_, slot)| window(slot)).map(|window| window.latest);
        let latest = times.filter(|&time| !skew::is_far(time, now.unix_nano)).max().unwrap_or(0);
        let passed = |cell: Cell| cell.end.saturating_add(self.settings.lateness) <= latest;
        let slots: Vec<u32> =
            self.of_process(process).filter(|(cell, _)| passed(*cell)).map(|(_, slot)| slot).collect();
        for slot in slots {
            self.close(slot);
        }
    }

    /// Closes all windows of a process.
    pub(crate) fn close_process(&mut self, process: u128) {
        let slots: Vec<u32> = self.of_process(process).map(|(_, slot)| slot).collect();
        for slot in slots {
            self.close(slot);
        }
    }

    /// Puts out one window, the oldest first. Returns whether there is more to put out.
    pub(crate) fn flush(&mut self, out: &mut Outbox) -> bool {
        self.relief = None;
        if self.closed.is_empty()
            && let Some((_, &slot)) = self.order.first_key_value()
        {
            self.close(slot);
        }
        self.put_out(out);
        let more = !self.closed.is_empty() || !self.order.is_empty();
        if !more {
            self.sweep();
        }
        more
    }

    /// Frees the arenas that no window needs any more.
    fn free_arenas(&mut self) {
        for at in std::mem::take(&mut self.idle) {
            let slot = &mut self.epochs[at as usize];
            let Some(epoch) = slot.take_if(|epoch| epoch.windows == 0) else { continue };
            self.bytes -= epoch.counted;
            self.free_epochs.push(at);
            if self.sources.get(&epoch.source) == Some(&at) {
                self.sources.remove(&epoch.source);
            }
        }
    }

    /// Frees the arenas that no window needs any more, and scratch memory that got large. Not behind each window that is
    /// closed: the scratch memory would have to be made anew for each, as large as the dictionary.
    pub(crate) fn sweep(&mut self) {
        self.free_arenas();
        if self.scratch.bytes() > SCRATCH {
            self.scratch = Transfer::default();
        }
        if self.order.is_empty() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
        if self.closed.is_empty() {
            self.closed = VecDeque::new();
        }
        if self.free_epochs.len() == self.epochs.len() {
            self.epochs = Vec::new();
            self.free_epochs = Vec::new();
        }
    }
}
