//! Closes windows under memory pressure.

use crate::key::WindowKey;
use crate::store::{Store, Window};

/// Windows that are closed one after the other until less memory is used.
#[derive(Debug)]
pub(crate) struct MemoryPressure {
    /// Target size in bytes.
    target: u64,
    /// The windows to close, by order number. The last one frees the most memory.
    pub(crate) windows: Vec<u64>,
}

impl<K: WindowKey> Store<K> {
    /// Schedules windows for closing until at most `target` bytes are used. Windows that free the most memory come
    /// first. An arena is freed with its last window, so each window counts with its share of the arena.
    pub(crate) fn shrink(&mut self, target: u64) {
        let weight = |window: &Window<K>| {
            let shared = self.arenas.get(window.arena);
            window.counted + shared.map_or(0, |shared| shared.counted / u64::from(shared.windows.max(1)))
        };
        let open = self.slots.iter().flatten();
        let mut lightest: Vec<(u64, u64)> = open.map(|window| (weight(window), window.order)).collect();
        lightest.sort_unstable_by_key(|&(weight, order)| (weight, std::cmp::Reverse(order)));
        // New windows must not keep the current dictionaries alive.
        self.arenas.stop_sharing_all();
        let windows = lightest.into_iter().map(|(_, order)| order).collect();
        self.pressure = Some(MemoryPressure { target, windows });
    }

    /// Closes the next scheduled window, or ends the memory pressure.
    pub(crate) fn close_heaviest(&mut self) {
        let Some(pressure) = &mut self.pressure else { return };
        // At the end, frees the list itself, and the memory that is kept for flushing the next window.
        let kept = self.scratch.bytes() + pressure.windows.capacity() * size_of::<u64>();
        let target = pressure.target.saturating_add(kept as u64);
        let next = pressure.windows.pop();
        match next.filter(|_| self.bytes() > target) {
            Some(order) => {
                if let Some(&slot) = self.order.get(&order) {
                    self.close_early(slot);
                }
            }
            None => self.pressure = None,
        }
    }

    /// Closes a window because memory is short, unless a closed one is already waiting. Flush one window, and call this
    /// again until [`Store::is_relieving`] is false: then half of the initial size is left.
    pub fn on_memory_pressure(&mut self) {
        if self.pressure.is_none() {
            self.shrink(self.bytes() / 2);
        }
        while self.closed.is_empty() && self.pressure.is_some() {
            self.close_heaviest();
        }
    }

    /// Whether windows are being closed because of memory pressure.
    pub fn is_relieving(&self) -> bool {
        self.pressure.is_some()
    }
}
