//! A queue whose bound includes entries that were popped but are not settled yet.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The weight of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weight {
    /// The weight in the unit of the queue's bound.
    pub(super) units: u64,
    /// The weight in bytes.
    pub(super) bytes: u64,
}

/// The capacity of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The capacity in the queue's unit.
    pub(super) units: u64,
    /// The capacity in bytes, whatever the unit.
    pub(super) bytes: u64,
}

/// The fill level of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct QueueLevel {
    /// The sum of weights in the queue's unit.
    pub(super) units: u64,
    /// The sum of weights in bytes.
    pub(super) bytes: u64,
    /// The number of entries that were popped and are not settled.
    pub(super) in_flight: u64,
}

/// Why an entry was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PushError {
    /// There is no room at the moment.
    Full,
    /// The queue accepts no more entries.
    Closed,
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    pub(super) bounds: Bounds,
    state: Mutex<QueueState<T>>,
    /// Notified when an entry can be popped or the queue was closed.
    filled: Notify,
    /// Notified when there is room or the queue was closed.
    freed: Notify,
}

#[derive(Debug)]
struct QueueState<T> {
    waiting: VecDeque<T>,
    level: QueueLevel,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(bounds: Bounds) -> Self {
        let state = QueueState { waiting: VecDeque::new(), level: QueueLevel::default(), closed: false };
        Self { bounds, state: Mutex::new(state), filled: Notify::new(), freed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn level(&self) -> QueueLevel {
        self.state().level
    }

    /// Whether another entry is accepted, or the queue is closed. An empty queue accepts an entry of any size, because
    /// there will never be more room.
    pub(super) fn has_room(&self) -> bool {
        let state = self.state();
        let QueueLevel { units, bytes, .. } = state.level;
        state.closed || (units < self.bounds.units && bytes < self.bounds.bytes)
    }

    /// Appends an entry even beyond the bounds. Returns it if the queue is closed.
    pub(super) fn push(&self, entry: T, weight: Weight) -> Result<(), T> {
        self.append(entry, weight, |_| true).map_err(|(entry, _)| entry)
    }

    /// Appends an entry within the bounds, or returns it. An empty queue accepts an entry that exceeds the bounds,
    /// because there will never be more room.
    pub(super) fn try_push(&self, entry: T, weight: Weight) -> Result<(), (T, PushError)> {
        let Bounds { units, bytes } = self.bounds;
        self.append(entry, weight, |after| after.units <= units && after.bytes <= bytes)
    }

    fn append(&self, entry: T, weight: Weight, fits: impl Fn(QueueLevel) -> bool) -> Result<(), (T, PushError)> {
        let mut state = self.state();
        if state.closed {
            return Err((entry, PushError::Closed));
        }
        let is_empty = state.waiting.is_empty() && state.level.in_flight == 0;
        let units = state.level.units.saturating_add(weight.units);
        let bytes = state.level.bytes.saturating_add(weight.bytes);
        let after = QueueLevel { units, bytes, ..state.level };
        if !is_empty && !fits(after) {
            return Err((entry, PushError::Full));
        }
        state.level = after;
        state.waiting.push_back(entry);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Whether the queue is empty and all popped entries are settled.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.level.in_flight == 0
    }

    /// Waits until `ready` returns true; it is checked whenever an entry is settled.
    pub(super) async fn wait_until(&self, ready: impl Fn() -> bool) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Registers for notifications before checking, so that no change is missed.
            freed.as_mut().enable();
            if ready() {
                return;
            }
            freed.await;
        }
    }

    /// Removes the oldest entry, which counts until it is settled. Returns `None` if the queue is closed and empty.
    /// Safe to cancel.
    pub(super) async fn pop(&self) -> Option<T> {
        loop {
            let filled = self.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(entry) = state.waiting.pop_front() {
                    state.level.in_flight += 1;
                    return Some(entry);
                }
                if state.closed {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// Frees the weight of a popped entry.
    pub(super) fn settle(&self, weight: Weight) {
        let mut state = self.state();
        let level = &mut state.level;
        level.units = level.units.saturating_sub(weight.units);
        level.bytes = level.bytes.saturating_sub(weight.bytes);
        level.in_flight = level.in_flight.saturating_sub(1);
        drop(state);
        self.freed.notify_waiters();
    }

    /// Stops accepting entries.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.filled.notify_waiters();
        self.filled.notify_one();
        self.freed.notify_waiters();
    }

    /// Removes the oldest entry, if there is one.
    pub(super) fn try_pop(&self) -> Option<T> {
        let mut state = self.state();
        let entry = state.waiting.pop_front()?;
        state.level.in_flight += 1;
        Some(entry)
    }
}
