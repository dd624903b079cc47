//! A queue that is bounded in what it answers for: what waits in it, and what was taken out and is not settled yet.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// What an entry counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weight {
    /// In the unit in which the queue is bounded.
    pub(super) units: u64,
    /// Bytes.
    pub(super) bytes: u64,
}

/// What a queue may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// In its unit.
    pub(super) units: u64,
    /// Bytes, whatever the unit.
    pub(super) bytes: u64,
}

/// What a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Level {
    /// In its unit.
    pub(super) units: u64,
    /// Bytes.
    pub(super) bytes: u64,
    /// Entries taken out and not settled.
    pub(super) in_flight: u64,
}

/// Why an entry was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no room at the moment.
    Full,
    /// There will never be room again.
    Closed,
}

#[derive(Debug)]
pub(super) struct Queue<T> {
    pub(super) bounds: Bounds,
    state: Mutex<State<T>>,
    /// Something can be taken out, or never again.
    filled: Notify,
    /// There is room, or never again.
    freed: Notify,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    level: Level,
    closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(bounds: Bounds) -> Self {
        let state = State { waiting: VecDeque::new(), level: Level::default(), closed: false };
        Self { bounds, state: Mutex::new(state), filled: Notify::new(), freed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn level(&self) -> Level {
        self.state().level
    }

    /// Whether the bounds leave any room, or nothing will be taken any more. A queue that holds nothing always has
    /// room, however large the next entry is: there would never be more room for it.
    pub(super) fn has_room(&self) -> bool {
        let state = self.state();
        let Level { units, bytes, .. } = state.level;
        state.closed || (units < self.bounds.units && bytes < self.bounds.bytes)
    }

    /// Appends an entry, whatever the bounds say, or gives it back where the queue is closed.
    pub(super) fn push(&self, entry: T, weight: Weight) -> Result<(), T> {
        self.append(entry, weight, |_| true).map_err(|(entry, _)| entry)
    }

    /// Appends an entry that keeps the bounds, or gives it back. An entry that is larger than the whole queue is taken
    /// where the queue is empty, since there would never be more room for it.
    pub(super) fn try_push(&self, entry: T, weight: Weight) -> Result<(), (T, Refusal)> {
        let Bounds { units, bytes } = self.bounds;
        self.append(entry, weight, |after| after.units <= units && after.bytes <= bytes)
    }

    fn append(&self, entry: T, weight: Weight, fits: impl Fn(Level) -> bool) -> Result<(), (T, Refusal)> {
        let mut state = self.state();
        if state.closed {
            return Err((entry, Refusal::Closed));
        }
        let is_empty = state.waiting.is_empty() && state.level.in_flight == 0;
        let units = state.level.units.saturating_add(weight.units);
        let bytes = state.level.bytes.saturating_add(weight.bytes);
        let after = Level { units, bytes, ..state.level };
        if !is_empty && !fits(after) {
            return Err((entry, Refusal::Full));
        }
        state.level = after;
        state.waiting.push_back(entry);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Whether nothing waits and everything taken out is settled.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.level.in_flight == 0
    }

    /// Waits until `ready` says so, which is asked whenever something is settled.
    pub(super) async fn until(&self, ready: impl Fn() -> bool) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no change is missed.
            freed.as_mut().enable();
            if ready() {
                return;
            }
            freed.await;
        }
    }

    /// Takes the oldest entry out. It counts until it is settled. `None` where there will never be another. Safe to
    /// cancel.
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

    /// What an entry that was taken out counted for is free again.
    pub(super) fn settle(&self, weight: Weight) {
        let mut state = self.state();
        let level = &mut state.level;
        level.units = level.units.saturating_sub(weight.units);
        level.bytes = level.bytes.saturating_sub(weight.bytes);
        level.in_flight = level.in_flight.saturating_sub(1);
        drop(state);
        self.freed.notify_waiters();
    }

    /// Takes nothing more.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.filled.notify_waiters();
        self.filled.notify_one();
        self.freed.notify_waiters();
    }

    /// Takes the oldest entry out, if there is one.
    pub(super) fn try_pop(&self) -> Option<T> {
        let mut state = self.state();
        let entry = state.waiting.pop_front()?;
        state.level.in_flight += 1;
        Some(entry)
    }
}
