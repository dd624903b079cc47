//! Puts requests into windows: `window` above `0s`.

#[cfg(test)]
mod tests;

mod request;
mod under_way;

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::RequestId;
use profbridge_model::Profiles;

use self::request::{Request, close_passed};
use self::under_way::UnderWay;
use crate::config::Settings;
use crate::windows::Windows;

/// So many windows may be closed for a request before the first of them is put out.
const WAITING: usize = 16;

/// Holds requests until their windows close.
pub(crate) struct Hold {
    settings: Settings,
    /// How many requests there were.
    requests: u64,
    pub(crate) windows: Windows,
    /// The request that is being taken in.
    under_way: Option<Box<UnderWay>>,
}

impl Hold {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { windows: Windows::new(settings.clone()), settings, requests: 0, under_way: None }
    }

    /// Makes the bounds small enough for so much memory.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.settings.fit_memory(limit);
        self.windows = Windows::new(self.settings.clone());
    }

    pub(crate) fn is_absorbing(&self) -> bool {
        self.under_way.is_some()
    }

    pub(crate) fn observations(&self) -> u64 {
        self.windows.observations() + self.under_way.as_ref().map_or(0, |work| work.left)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.windows.bytes() + self.under_way.as_ref().map_or(0, |work| work.bytes())
    }

    /// Puts a request into the windows of its processes and times, or the beginning of it.
    pub(crate) fn take(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        self.windows.budget.earn(profiles.size_bytes());
        crate::note_skew(&profiles, now, out);
        self.requests += 1;
        let id = RequestId { arrival: now.unix_nano, number: self.requests };
        self.under_way = Some(Box::new(UnderWay::new(profiles, &self.settings, id, now)));
        self.absorb(now, out);
    }

    /// Puts out a window, and takes in more of the request that is being taken in.
    pub(crate) fn advance(&mut self, now: Now, out: &mut Outbox) {
        self.windows.advance(now, out);
        self.absorb(now, out);
    }

    /// Puts out a window because the pipeline ends. Returns whether there is more to do.
    pub(crate) fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.is_absorbing() {
            self.advance(now, out);
            return true;
        }
        self.windows.flush(out)
    }

    /// Takes in as much of a request as fits into one step.
    fn absorb(&mut self, now: Now, out: &mut Outbox) {
        let Some(mut work) = self.under_way.take() else { return };
        work.may_wait = work.may_wait.min(self.windows.closed() + WAITING);
        let profiles = work.profiles.clone();
        // Arenas that went away meanwhile took their ids along.
        work.carried.retain(|carried| self.windows.has_epoch(carried.epoch, carried.number));
        let mut request = Request::new(&self.settings, &mut self.windows, &mut work, &profiles);
        request.run(out);
        let goes_on = request.goes_on();
        for carried in &work.carried {
            self.windows.settle_epoch(carried.epoch);
        }
        if work.weak > 0 {
            out.note(crate::WEAK_IDENTITY, std::mem::take(&mut work.weak));
        }
        if goes_on {
            self.under_way = Some(work);
            return;
        }
        debug_assert_eq!(work.left, 0);
        close_passed(&mut self.windows, &mut work.touched, now);
        drop(work);
        self.windows.sweep();
        if self.windows.bytes() > self.settings.max_bytes {
            self.windows.shrink(self.settings.max_bytes / 4 * 3);
        }
    }
}
