//! Which windows go out for want of memory, and in which order.

use profbridge_engine::component::Outbox;

use super::{Window, Windows};

/// The way to less memory.
#[derive(Debug)]
pub(super) struct Relief {
    /// How many bytes may be held at its end.
    target: u64,
    /// The windows by the order in which they were opened; the last is the one that frees the most.
    pub(super) windows: Vec<u64>,
}

impl Windows {
    /// Makes windows go out until at most `target` bytes are held, those first that free the most. An arena is freed with
    /// the last of its windows, so each window counts with its share of that.
    pub(crate) fn shrink(&mut self, target: u64) {
        let weight = |window: &Window| {
            let shared = self.epochs[window.epoch as usize].as_ref();
            window.counted + shared.map_or(0, |epoch| epoch.counted / u64::from(epoch.windows.max(1)))
        };
        let open = self.slots.iter().flatten();
        let mut lightest: Vec<(u64, u64)> = open.map(|window| (weight(window), window.order)).collect();
        lightest.sort_unstable_by_key(|&(weight, order)| (weight, std::cmp::Reverse(order)));
        // The dictionaries that are left must not live on through new windows.
        self.idle.extend(std::mem::take(&mut self.sources).into_values());
        self.free_arenas();
        let windows = lightest.into_iter().map(|(_, order)| order).collect();
        self.relief = Some(Relief { target, windows });
    }

    /// Closes the next window of a relief, or ends the relief.
    pub(super) fn close_heaviest(&mut self, out: &mut Outbox) {
        let Some(relief) = &mut self.relief else { return };
        // What is kept for the next window to be put out is given back in the end, and so is the list itself.
        let kept = self.scratch.bytes() + relief.windows.capacity() * size_of::<u64>();
        let target = relief.target.saturating_add(kept as u64);
        let next = relief.windows.pop();
        match next.filter(|_| self.bytes() > target) {
            Some(order) => {
                if let Some(&slot) = self.order.get(&order) {
                    out.note(crate::CLOSED_EARLY, 1);
                    self.close(slot);
                }
            }
            None => self.relief = None,
        }
    }

    /// Puts out one window because memory is short, until half of what was held at the beginning is left. Returns whether
    /// there is more to put out.
    pub(crate) fn relieve(&mut self, out: &mut Outbox) -> bool {
        if self.relief.is_none() {
            self.shrink(self.bytes() / 2);
        }
        while self.closed.is_empty() && self.relief.is_some() {
            self.close_heaviest(out);
        }
        self.put_out(out);
        // Closed windows that wait go first, and the last of them is followed by a look at what is held then.
        let more = self.relief.is_some();
        if !more {
            self.sweep();
        }
        more
    }
}
