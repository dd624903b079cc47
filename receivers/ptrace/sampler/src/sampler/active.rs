//! One process that is sampled: its threads, its batch, its counters.

mod account;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use self::account::{Found, SampleRef};
use super::batch::Builder;
use super::budget::Budget;
use super::events::Watch;
use super::processors::Review;
use super::stop_rules::StopRules;
use super::thread_state::ThreadState;
use super::tick_schedule::TickSchedule;
use super::unseen::Unseen;
use crate::address_space::AddressSpace;
use crate::message::{Batch, ProblemKind, ProcessId, Settings, Status, Stops};
use crate::os::time;
use crate::process_files::{Life, ProcessFiles};
use crate::threads::{ThreadFiles, ThreadLister};

/// How often a batch is sent.
const FLUSH: Duration = Duration::from_millis(500);

/// How often counters are sent.
const STATUS: Duration = Duration::from_secs(1);

/// How many names of threads are read again for a batch, at most: that takes a tenth of a millisecond.
const NAMES: usize = 16;

/// The maps are read again at most this often. The interval is doubled each time, up to [`LONGEST_RELOAD`]: a program
/// that starts loads its libraries within milliseconds, but one that compiles code all the time would have its maps
/// read for ever.
const RELOAD: Duration = Duration::from_millis(8);
const LONGEST_RELOAD: Duration = Duration::from_secs(4);

/// A process.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) id: ProcessId,
    pub(super) files: Arc<ProcessFiles>,
    pub(super) space: Arc<AddressSpace>,
    /// Counts the address spaces that were set, to tell what was unwound in an earlier one.
    pub(super) space_generation: u64,
    pub(super) settings: Settings,
    pub(super) on: bool,
    pub(super) schedule: TickSchedule,
    /// The slot of the last tick.
    pub(super) slot: u64,
    /// In ascending order of their ids.
    pub(super) threads: Vec<ThreadState>,
    pub(super) thread_lister: ThreadLister,
    pub(super) budget: Budget,
    /// How running threads are sampled.
    pub(super) watch: Watch,
    /// When the kernel is asked again whether it permits better events.
    pub(super) asked_again: Instant,
    /// What its events cover, and when that is decided next.
    pub(super) review: Review,
    /// When running threads may be stopped.
    pub(super) stop_rules: StopRules,
    /// The processor time of threads that ended before they were looked at, and since when it is reckoned.
    unseen: Unseen,
    unseen_begun: bool,
    unseen_since: Instant,
    pub(super) status: Status,
    /// Something happened that may mean that the process is gone: the next tick looks.
    pub(super) may_be_gone: bool,
    /// Up to the first of these slots the budget is not charged, because many threads came at once; up to the second
    /// one this is not granted again.
    pub(super) settles_until: u64,
    pub(super) settled_until: u64,
    /// The thread and the system call that a stop ended early, if this has not been reported yet.
    pub(super) cut: Option<(u32, &'static str)>,
    /// How many stops were refused in a row.
    pub(super) refusals: u64,
    /// A thread of it executes 32-bit code, which cannot be unwound.
    pub(super) other_architecture: bool,
    batch: Builder,
    /// One moment on both clocks. Times within a batch are computed from it, so that they never go back when the wall
    /// clock does.
    epoch: (Instant, u64),
    flush_due: Instant,
    status_due: Instant,
    reload_due: Instant,
    reload_interval: Duration,
    reload_wanted: bool,
    problems: Vec<ProblemKind>,
}

impl Active {
    pub(super) fn new(
        id: ProcessId,
        files: Arc<ProcessFiles>,
        space: Arc<AddressSpace>,
        settings: Settings,
        now: Instant,
    ) -> Self {
        let epoch = epoch();
        let schedule = TickSchedule::new(now, settings.rate_hertz, epoch.1 ^ u64::from(files.pid()));
        Self {
            id,
            space,
            space_generation: 0,
            settings,
            on: false,
            slot: 0,
            threads: Vec::new(),
            thread_lister: ThreadLister::new(now),
            budget: Budget::new(&settings, now),
            watch: Watch::Undecided,
            asked_again: now,
            review: Review::new(now, false),
            stop_rules: StopRules::new(settings.stops != Stops::Always, now),
            unseen: Unseen::default(),
            unseen_begun: false,
            unseen_since: now,
            status: Status { process: id, rate_hertz: settings.rate_hertz, ..Status::default() },
            may_be_gone: false,
            settles_until: 0,
            settled_until: 0,
            cut: None,
            refusals: 0,
            other_architecture: false,
            batch: Builder::new(id, schedule.period_nano(), settings.mode),
            schedule,
            files,
            epoch,
            flush_due: now + FLUSH,
            status_due: now + STATUS,
            reload_due: now,
            reload_interval: RELOAD,
            reload_wanted: false,
            problems: Vec::new(),
        }
    }

    /// Starts sampling: time before now is not accounted for.
    pub(super) fn switch_on(&mut self, now: Instant) {
        let seed = time::unix_nano() ^ u64::from(self.files.pid());
        self.schedule = TickSchedule::new(now, self.settings.rate_hertz, seed);
        self.slot = 0;
        self.settles_until = 0;
        self.settled_until = 0;
        self.thread_lister = ThreadLister::new(now);
        self.budget = Budget::new(&self.settings, now);
        self.watch = Watch::Undecided;
        self.asked_again = now;
        self.review = Review::new(now, false);
        self.stop_rules = StopRules::new(self.settings.stops != Stops::Always, now);
        self.unseen = Unseen::default();
        self.unseen_begun = false;
        self.unseen_since = now;
        self.status.rate_hertz = self.settings.rate_hertz;
        self.threads.clear();
        self.may_be_gone = true;
        self.on = true;
        self.flush_due = now + FLUSH;
        self.status_due = now + STATUS;
    }

    pub(super) fn set_space(&mut self, space: Arc<AddressSpace>) {
        self.space = space;
        self.space_generation += 1;
    }

    /// The index of a thread.
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.threads.binary_search_by_key(&id, ThreadState::id).ok()
    }

    /// Whether it executes another program than the known one, or another process has its id.
    pub(super) fn is_another(&self) -> bool {
        match self.files.alive() {
            Life::Same => false,
            Life::Executed => true,
            Life::Exited => self.files.has_successor(),
        }
    }

    /// The index of a thread that the kernel sampled. A thread that was not listed yet is added: it may be gone before
    /// the threads are listed again.
    pub(super) fn meet(&mut self, id: u32) -> usize {
        match self.threads.binary_search_by_key(&id, ThreadState::id) {
            Ok(index) => index,
            Err(index) => {
                let since = self.schedule.begins(self.slot);
                let slot = self.slot.saturating_sub(1);
                let thread = ThreadState::new(ThreadFiles::new(id), slot, since, self.settings.max_stack);
                self.threads.insert(index, thread);
                self.thread_lister.invalidate();
                index
            }
        }
    }

    /// A thread that was asked to stop was let go, or ended.
    pub(super) fn stop_ended(&mut self, thread: u32) {
        self.stop_rules.stop_ended(Instant::now());
        if let Some(index) = self.find(thread) {
            self.threads[index].stop_pending = false;
        }
    }

    /// Replaces the list of threads: adds those that came, and forgets those that went. Returns how many came.
    pub(super) fn set_threads(&mut self, ids: &[u32]) -> usize {
        self.settle_gone(ids);
        let before = std::mem::take(&mut self.threads);
        self.threads.reserve(ids.len());
        let mut before = before.into_iter().peekable();
        let mut came = 0;
        // A thread that starts while the process is sampled is accounted for from the tick before it was first seen.
        let slot = self.slot.saturating_sub(1);
        let since = self.schedule.begins(slot + 1);
        for &id in ids {
            while before.next_if(|thread| thread.id() < id).is_some() {}
            let thread = before.next_if(|thread| thread.id() == id);
            self.threads.push(thread.unwrap_or_else(|| {
                came += 1;
                ThreadState::new(ThreadFiles::new(id), slot, since, self.settings.max_stack)
            }));
        }
        self.status.threads = self.threads.len() as u64;
        came
    }

    /// Counts a stop.
    pub(super) fn count_stop(&mut self, thread: u32, length: Duration) {
        let nano = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.status.stops += 1;
        self.status.stopped_nano += nano;
        self.status.longest_stop_nano = self.status.longest_stop_nano.max(nano);
        self.status.stop_lengths[stop_class(nano)] += 1;
        self.budget.stopped(length);
        if let Some(index) = self.find(thread) {
            self.threads[index].stopped += length;
        }
    }

    /// Counts a system call that a stop ended early. Its thread is not stopped again for a while.
    pub(super) fn count_cut(&mut self, index: usize, call: &'static str, now: Instant) {
        self.status.cut_calls += 1;
        self.threads[index].user_bound.cut(now);
        self.cut = Some((self.threads[index].files.id, call));
    }

    /// Asks for the maps to be read again.
    pub(super) fn want_reload(&mut self) {
        self.reload_wanted = true;
    }

    /// Whether the maps have to be read again now. Returns `true` once per request, and not too often.
    pub(super) fn take_reload(&mut self, now: Instant) -> bool {
        if !self.reload_wanted || now < self.reload_due {
            return false;
        }
        self.reload_wanted = false;
        if now > self.reload_due + 2 * LONGEST_RELOAD {
            self.reload_interval = RELOAD;
        }
        self.reload_due = now + self.reload_interval;
        self.reload_interval = (self.reload_interval * 2).min(LONGEST_RELOAD);
        true
    }

    /// Whether no problem of this kind was reported yet.
    pub(super) fn is_new(&mut self, problem: ProblemKind) -> bool {
        let new = !self.problems.contains(&problem);
        if new {
            self.problems.push(problem);
        }
        new
    }

    /// Whether a batch has to be sent now.
    pub(super) fn flush_is_due(&self, now: Instant) -> bool {
        now >= self.flush_due || self.batch.is_full()
    }

    /// The batch of what was sampled; `None` if there is nothing.
    pub(super) fn flush(&mut self, now: Instant) -> Option<Batch> {
        self.flush_due = now + FLUSH;
        self.settle_all(now);
        if self.batch.is_empty() {
            self.epoch = epoch();
            return None;
        }
        let number = self.batch.number();
        let mut names = NAMES;
        for thread in &mut self.threads {
            let Some((batch, entry)) = thread.batch_entry else {
                continue;
            };
            if batch != number {
                continue;
            }
            if names > 0
                && std::mem::take(&mut thread.ran)
                && let Some(name) = thread.files.name(self.files.task())
            {
                thread.name = name;
                names -= 1;
            }
            if let Some(said) = self.batch.thread(entry) {
                said.pointer = thread.pointer;
                if said.name != thread.name {
                    said.name.clone_from(&thread.name);
                }
            }
        }
        let batch = self.batch.take();
        self.epoch = epoch();
        Some(batch)
    }

    /// The counters, if it is time to send them.
    pub(super) fn take_status(&mut self, now: Instant) -> Option<Status> {
        if now < self.status_due {
            return None;
        }
        self.status_due = now + STATUS;
        Some(self.status())
    }

    /// The counters.
    pub(super) fn status(&mut self) -> Status {
        self.status.sampler_cpu_nano = u64::try_from(time::process_cpu().as_nanos()).unwrap_or(u64::MAX);
        self.status
    }
}

/// The present moment on both clocks. Not a tick's `now`, which may be long ago on a busy machine.
fn epoch() -> (Instant, u64) {
    (Instant::now(), time::unix_nano())
}

/// The index of a stop's length in [`Status::stop_lengths`].
fn stop_class(nano: u64) -> usize {
    let micros = nano.div_ceil(1000).max(1);
    let class = micros.next_power_of_two().trailing_zeros() as usize;
    class.min(23)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the histogram's borders are where its description says.
    #[test]
    fn stop_classes() {
        for (nano, class) in [
            (0, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4_194_304_000, 22),
            (4_194_304_001, 23),
            (u64::MAX / 2, 23),
        ] {
            assert_eq!(stop_class(nano), class, "{nano}");
        }
    }
}
