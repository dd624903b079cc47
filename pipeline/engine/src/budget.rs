//! One memory budget for the whole process.
//!
//! A request holds a [`Permit`] from before its body is read until the processors have absorbed it; windows and queues
//! charge the memory that they hold. There are two thresholds: above the high-water mark processors are asked to flush
//! data, above the limit receivers answer "try again later". Charging data that was already admitted never fails, so
//! usage may exceed the limit, but only by the size to which one request expands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Above this fraction of the limit, processors are asked to flush. 4/5 leaves room for requests that arrive while they
/// flush.
const HIGH_WATER: (u64, u64) = (4, 5);

/// Once this many bytes, or a quarter of the limit, were released, the allocator returns free memory to the system when
/// the process is idle. A smaller amount is likely to be reused soon.
const RETURN_WHEN_IDLE: u64 = 16 << 20;

/// Once the limit divided by this number was released, free memory is also returned to the system between two requests.
/// Returning it earlier would cost more time: the allocator scans the heap, and requests the same pages again.
const RETURN_BETWEEN_FRACTION: u64 = 4;

/// An allocation of at least this many bytes counts as large and has to leave part of the limit to small ones.
pub(crate) const LARGE: u64 = 1 << 20;

/// Large requests that wait for memory leave the limit divided by this number to small ones.
const RESERVED_FOR_SMALL_FRACTION: u64 = 4;

/// The memory that data may occupy. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Budget {
    shared: Arc<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    limit: u64,
    high: u64,
    used: AtomicU64,
    /// Notified when usage passes the high-water mark or a request is refused.
    pressure: watch::Sender<()>,
    /// Bytes of released permits since memory was last returned to the system.
    gone: AtomicU64,
    /// Wakes waiting requests when memory was released.
    freed: Notify,
    /// The permission to grow large without an announced length, or to wait for memory to decompress. One request has
    /// it.
    growing: Arc<Semaphore>,
}

/// Bytes taken from a [`Budget`], given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<BudgetState>,
    bytes: u64,
}

/// The budget has too little memory left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// The number of requested bytes.
    pub wanted: u64,
    /// The number of bytes in use when the request was refused.
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
        let shared = BudgetState { limit, high, used, pressure, gone, freed, growing };
        Self { shared: Arc::new(shared) }
    }

    /// Takes memory for data that can still be refused.
    ///
    /// # Errors
    ///
    /// The limit would be exceeded.
    pub fn admit(&self, bytes: u64) -> Result<Permit, Exhausted> {
        let mut permit = self.charge(0);
        permit.grow(bytes)?;
        Ok(permit)
    }

    /// Takes memory for data that exists already.
    pub fn charge(&self, bytes: u64) -> Permit {
        let mut permit = Permit { shared: Arc::clone(&self.shared), bytes: 0 };
        permit.set(bytes);
        permit
    }

    /// The bytes in use.
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// Whether usage is above the high-water mark.
    pub fn is_short(&self) -> bool {
        self.used() > self.shared.high
    }

    /// Whether usage is above the limit.
    pub fn is_exceeded(&self) -> bool {
        self.used() > self.shared.limit
    }

    /// Returns freed memory to the system if it is at least `RETURN_WHEN_IDLE` bytes or a quarter of the limit. Call
    /// it when the process has been idle for a while, when a large request has ended, and under memory pressure; at
    /// other times free memory is soon reused.
    pub(crate) fn give_back_freed(&self) {
        self.give_back_from(self.much());
    }

    /// Like [`Budget::give_back_freed`], but only from a quarter of the limit on. Call it between two requests.
    pub(crate) fn give_back_between_requests(&self) {
        self.give_back_from(self.shared.limit / RETURN_BETWEEN_FRACTION);
    }

    /// Whether [`Budget::give_back_freed`] would return memory.
    pub(crate) fn has_freed_much(&self) -> bool {
        self.shared.gone.load(Ordering::Relaxed) >= self.much()
    }

    fn much(&self) -> u64 {
        RETURN_WHEN_IDLE.min(self.shared.limit / RETURN_BETWEEN_FRACTION)
    }

    fn give_back_from(&self, least: u64) {
        let enough = |gone: u64| (gone >= least).then_some(0);
        if self.shared.gone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).is_ok() {
            profbridge_heap::return_free_memory();
        }
    }

    /// Waits until no other request grows large without an announced length, or waits for memory to decompress. Several
    /// of them would deadlock, each waiting for memory that the others hold.
    pub(crate) async fn wait_to_grow_large(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.growing).acquire_owned().await.ok()
    }

    /// Completes when memory is released after this call.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.shared.freed.notified()
    }

    /// Notified when usage passes the high-water mark or a request is refused.
    pub(crate) fn pressure(&self) -> watch::Receiver<()> {
        self.shared.pressure.subscribe()
    }
}

impl Permit {
    /// The bytes that the permit covers.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `more` bytes for data that can still be refused.
    ///
    /// # Errors
    ///
    /// The limit would be exceeded. The permit is unchanged.
    pub fn grow(&mut self, more: u64) -> Result<(), Exhausted> {
        self.grow_within(more, self.shared.limit)
    }

    /// Like [`Permit::grow`], but a large request leaves memory for small ones, unless it could then never succeed.
    ///
    /// # Errors
    ///
    /// As [`Permit::grow`].
    pub(crate) fn grow_leaving_room_for_small(&mut self, more: u64) -> Result<(), Exhausted> {
        let limit = self.shared.limit;
        let left = limit - limit / RESERVED_FOR_SMALL_FRACTION;
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

    /// Takes or releases memory until the permit covers `bytes`, for data that exists already.
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

impl BudgetState {
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

    /// Guarantees: requests never take more than the limit, and dropped permits release their memory.
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

    /// Guarantees: released bytes add up until memory is returned to the system: from 16 MiB when idle, and from a
    /// quarter of the limit between two requests.
    #[test]
    fn released_memory_is_returned() {
        const MIB: u64 = 1 << 20;
        let budget = Budget::new(256 * MIB);
        let pass = |mib: u64| drop(budget.charge(mib * MIB));
        pass(15);
        assert!(!budget.has_freed_much());
        pass(1);
        assert!(budget.has_freed_much());
        pass(47);
        budget.give_back_between_requests();
        assert!(budget.has_freed_much());
        pass(1);
        budget.give_back_between_requests();
        assert!(!budget.has_freed_much());
        pass(16);
        budget.give_back_freed();
        assert!(!budget.has_freed_much());
    }

    /// Guarantees: waiting pipelines wake when usage passes the high-water mark and when a request is refused, not
    /// before.
    #[test]
    fn pressure_wakes_waiting_pipelines() {
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
        /// Guarantees: usage is the sum of all permits, in whatever order they are taken, changed and dropped.
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
