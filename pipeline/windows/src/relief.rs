//! Which windows are closed for want of memory, and in which order.

use crate::key::Key;
use crate::store::{Store, Window};

/// The way to less memory.
#[derive(Debug)]
pub(crate) struct Relief {
    /// How many bytes may be held at its end.
    target: u64,
    /// The windows by the order in which they were opened; the last is the one that frees the most.
    pub(crate) windows: Vec<u64>,
}

impl<K: Key> Store<K> {
    /// Lets windows be closed until at most `target` bytes are held, those first that free the most. An arena is freed
    /// with the last of its windows, so each window counts with its share of that.
    pub(crate) fn shrink(&mut self, target: u64) {
        let weight = |window: &Window<K>| {
            let shared = self.arenas.get(window.arena);
            window.counted + shared.map_or(0, |shared| shared.counted / u64::from(shared.windows.max(1)))
        };
        let open = self.slots.iter().flatten();
        let mut lightest: Vec<(u64, u64)> = open.map(|window| (weight(window), window.order)).collect();
        lightest.sort_unstable_by_key(|&(weight, order)| (weight, std::cmp::Reverse(order)));
        // The dictionaries that are left must not live on through new windows.
        self.arenas.leave_all();
        let windows = lightest.into_iter().map(|(_, order)| order).collect();
        self.relief = Some(Relief { target, windows });
    }

    /// Closes the next window of a relief, or ends the relief.
    pub(crate) fn close_heaviest(&mut self) {
        let Some(relief) = &mut self.relief else { return };
        // What is kept for the next window to be flushed is given back in the end, and so is the list itself.
        let kept = self.scratch.bytes() + relief.windows.capacity() * size_of::<u64>();
        let target = relief.target.saturating_add(kept as u64);
        let next = relief.windows.pop();
        match next.filter(|_| self.bytes() > target) {
            Some(order) => {
                if let Some(&slot) = self.order.get(&order) {
                    self.close_early(slot);
                }
            }
            None => self.relief = None,
        }
    }

    /// Closes a window because memory is short, unless one is closed already. Flush one, and go on until
    /// [`Store::is_relieving`] is over: then half of what was held at the beginning is left.
    pub fn on_memory_pressure(&mut self) {
        if self.relief.is_none() {
            self.shrink(self.bytes() / 2);
        }
        while self.closed.is_empty() && self.relief.is_some() {
            self.close_heaviest();
        }
    }

    /// Whether windows are being closed for want of memory.
    pub fn is_relieving(&self) -> bool {
        self.relief.is_some()
    }
}
