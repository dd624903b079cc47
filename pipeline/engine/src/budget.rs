//! One memory budget for the whole process.
//!
//! Requests hold a [`Permit`] from before their body is read until the processors have taken what is in it; windows
//! and queues charge what they hold. Two marks: above the high-water mark processors are asked to put out what they
//! hold, above the limit receivers answer "later". What is charged for data that was admitted never fails, so the sum
//! may pass the limit by what one request turns into, and not further.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// The part of the limit above which processors are asked to put out what they hold: 4/5, which leaves room for the
/// requests that arrive while they do.
const HIGH_WATER: (u64, u64) = (4, 5);

/// When requests and batches of so many bytes are gone, or of a quarter of the limit, what they leave is given back to
/// the system, once there is nothing to do: less is soon needed again.
const MUCH: u64 = 16 << 20;

/// When so many bytes are gone, as a part of the limit, what they leave is given back between two requests as well.
/// Looking through the heap takes time, and so does asking for the same pages again.
const TOO_MUCH: u64 = 4;

/// What takes so much memory at once is large: it leaves a part of the limit to what is small.
pub(crate) const LARGE: u64 = 1 << 20;

/// The part of the limit that large requests leave free while they wait for memory: a quarter.
const LEFT_TO_SMALL: u64 = 4;

/// The memory that data may take. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: u64,
    high: u64,
    used: AtomicU64,
    /// Changes whenever the high-water mark is passed or a request was turned away.
    pressure: watch::Sender<()>,
    /// What permits came to that are gone, since memory was last given back to the system, in bytes.
    gone: AtomicU64,
    /// Tells those that wait when something was given back.
    freed: Notify,
    /// Held by the one request that grows large without having said how large.
    growing: Arc<Semaphore>,
}

/// Bytes taken from a [`Budget`], given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
    bytes: u64,
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// What was asked for, in bytes.
    pub wanted: u64,
    /// What all data took at that time, in bytes.
    pub used: u64,
    /// The limit, in bytes.
    pub limit: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        let high = limit / HIGH_WATER.1 * HIGH_WATER.0;
        let (used, gone) = (AtomicU64::new(0), AtomicU64::new(0));
        let (pressure, freed, growing) = (watch::Sender::new(()), Notify::new(), Arc::new(Semaphore::new(1)));
        let shared = Shared { limit, high, used, pressure, gone, freed, growing };
        Self { shared: Arc::new(shared) }
    }

    /// Takes bytes for something that can still be refused.
    ///
    /// # Errors
    ///
    /// The limit would be passed.
    pub fn admit(&self, bytes: u64) -> Result<Permit, Exhausted> {
        let mut permit = self.charge(0);
        permit.grow(bytes)?;
        Ok(permit)
    }

    /// Takes bytes for something that is there already.
    pub fn charge(&self, bytes: u64) -> Permit {
        let mut permit = Permit { shared: Arc::clone(&self.shared), bytes: 0 };
        permit.set(bytes);
        permit
    }

    /// What all data takes at the moment, in bytes.
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// Whether memory is short.
    pub fn is_short(&self) -> bool {
        self.used() > self.shared.high
    }

    /// Whether more is used than there may be.
    pub fn is_exceeded(&self) -> bool {
        self.used() > self.shared.limit
    }

    /// Gives memory back to the system that was freed, where that is much. To be called when there has been nothing to
    /// do for a while, when a large request has ended, and while memory is short: what is free otherwise is soon taken
    /// again.
    pub(crate) fn give_back_freed(&self) {
        self.give_back_from(self.much());
    }

    /// The same between two requests, where it is very much.
    pub(crate) fn give_back_between(&self) {
        self.give_back_from(self.shared.limit / TOO_MUCH);
    }

    /// Whether [`Budget::give_back_freed`] would.
    pub(crate) fn has_freed_much(&self) -> bool {
        self.shared.gone.load(Ordering::Relaxed) >= self.much()
    }

    fn much(&self) -> u64 {
        MUCH.min(self.shared.limit / TOO_MUCH)
    }

    fn give_back_from(&self, least: u64) {
        let enough = |gone: u64| (gone >= least).then_some(0);
        if self.shared.gone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).is_ok() {
            profbridge_heap::give_back();
        }
    }

    /// Waits for the turn of a request that grows large without having said how large. Several would wait for memory that
    /// the others hold.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.growing).acquire_owned().await.ok()
    }

    /// Completes when memory was given back after this was called.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.shared.freed.notified()
    }

    /// Tells when memory becomes short, or a request was turned away.
    pub(crate) fn pressure(&self) -> watch::Receiver<()> {
        self.shared.pressure.subscribe()
    }
}

impl Permit {
    /// The bytes taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `more` bytes, for something that can still be refused.
    ///
    /// # Errors
    ///
    /// The limit would be passed. The permit is as it was.
    pub fn grow(&mut self, more: u64) -> Result<(), Exhausted> {
        self.grow_within(more, self.shared.limit)
    }

    /// As [`Permit::grow`], and where that is large, leaves memory for what is small, unless it could never have it then.
    ///
    /// # Errors
    ///
    /// As [`Permit::grow`].
    pub(crate) fn grow_beside_small(&mut self, more: u64) -> Result<(), Exhausted> {
        let limit = self.shared.limit;
        let left = limit - limit / LEFT_TO_SMALL;
        let all = self.bytes.saturating_add(more);
        self.grow_within(more, if (LARGE..=left).contains(&all) { left } else { limit })
    }

    fn grow_within(&mut self, more: u64, most: u64) -> Result<(), Exhausted> {
        let shared = &self.shared;
        let fits = |used: u64| used.checked_add(more).filter(|&sum| sum <= most);
        match shared.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(before) => {
                shared.note_growth(before, before + more);
                self.bytes += more;
                Ok(())
            }
            Err(used) => {
                shared.pressure.send_replace(());
                Err(Exhausted { wanted: more, used, limit: shared.limit })
            }
        }
    }

    /// Takes or gives back until it holds `bytes`, for something that is there already.
    pub fn set(&mut self, bytes: u64) {
        if bytes >= self.bytes {
            let more = bytes - self.bytes;
            let before = self.shared.used.fetch_add(more, Ordering::Relaxed);
            self.shared.note_growth(before, before.saturating_add(more));
        } else {
            self.shared.used.fetch_sub(self.bytes - bytes, Ordering::SeqCst);
            self.shared.freed.notify_waiters();
        }
        self.bytes = bytes;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.gone.fetch_add(self.bytes, Ordering::Relaxed);
        self.set(0);
    }
}

impl Shared {
    fn note_growth(&self, before: u64, after: u64) {
        if before <= self.high && after > self.high {
            self.pressure.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Guarantees: requests never take more than the limit, and what is dropped is free again.
    #[test]
    fn admits_up_to_the_limit() {
        let budget = Budget::new(100);
        let mut first = budget.admit(60).unwrap();
        assert_eq!(budget.admit(41).unwrap_err(), Exhausted { wanted: 41, used: 60, limit: 100 });
        first.grow(40).unwrap();
        first.grow(1).unwrap_err();
        assert_eq!((first.bytes(), budget.used()), (100, 100));
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    /// Guarantees: what is gone counts until it is given back: when there is nothing to do from 16 MiB on, and between
    /// two requests from a quarter of the limit on.
    #[test]
    fn what_is_gone_is_given_back() {
        const MIB: u64 = 1 << 20;
        let budget = Budget::new(256 * MIB);
        let pass = |mib: u64| drop(budget.charge(mib * MIB));
        pass(15);
        assert!(!budget.has_freed_much());
        pass(1);
        assert!(budget.has_freed_much());
        pass(47);
        budget.give_back_between();
        assert!(budget.has_freed_much());
        pass(1);
        budget.give_back_between();
        assert!(!budget.has_freed_much());
        pass(16);
        budget.give_back_freed();
        assert!(!budget.has_freed_much());
    }

    /// Guarantees: waiting pipelines are woken when memory becomes short and when a request was turned away, and not
    /// before.
    #[test]
    fn pressure_is_told() {
        let budget = Budget::new(100);
        let mut pressure = budget.pressure();
        let _first = budget.charge(80);
        assert!(!budget.is_short() && !pressure.has_changed().unwrap());
        let _second = budget.charge(1);
        assert!(budget.is_short() && pressure.has_changed().unwrap());
        pressure.mark_unchanged();
        budget.admit(20).unwrap_err();
        assert!(pressure.has_changed().unwrap());
        pressure.mark_unchanged();
        let _more = budget.charge(1000);
        assert!(!pressure.has_changed().unwrap());
    }

    proptest! {
        /// Guarantees: whatever is taken, changed and dropped in whatever order, the sum is that of the permits.
        #[test]
        fn the_sum_is_exact(steps in proptest::collection::vec((0usize..8, 0u64..50, 0u8..3), 0..100)) {
            let budget = Budget::new(200);
            let mut permits: Vec<Permit> = Vec::new();
            for (at, bytes, action) in steps {
                match action {
                    0 => permits.extend(budget.admit(bytes)),
                    1 => { if let Some(permit) = permits.get_mut(at) { permit.set(bytes) } }
                    _ => { if at < permits.len() { permits.swap_remove(at); } }
                }
                prop_assert_eq!(budget.used(), permits.iter().map(Permit::bytes).sum::<u64>());
            }
        }
    }
}
