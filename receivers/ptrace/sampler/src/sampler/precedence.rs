//! Decides which threads have an event if not all can have one: those that run most.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::run::Engine;
use super::states::RunningThreadMethod;
use crate::message::ProcessId;

/// How often events are redistributed to the threads that ran most, while there are too few.
const REVIEW: Duration = Duration::from_secs(1);

/// A thread gives up its event to a thread that ran at least this many times as long. If both ran about as long, an
/// exchange gains nothing.
const ADVANTAGE: u64 = 2;

/// Whether there are too few events, and when they are next redistributed.
#[derive(Debug)]
pub(super) struct Precedence {
    pub(super) lacking: bool,
    due: Instant,
}

impl Precedence {
    pub(super) fn new(now: Instant) -> Self {
        Self { lacking: false, due: now }
    }

    /// Whether events have to be redistributed now.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.lacking && now >= self.due;
        if due {
            self.lacking = false;
            self.due = now + REVIEW;
        }
        due
    }
}

/// How long a thread ran recently, and whether it gave up its event.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecentRunTime {
    /// The thread's running time at the last review, in nanoseconds.
    seen: Option<u64>,
    /// How long the thread ran between the last two reviews, in nanoseconds.
    ran: u64,
    /// Whether the thread gave up its event in the last review.
    gave_up: bool,
}

impl RecentRunTime {
    /// Sets the thread's running time at a review, in nanoseconds.
    fn review(&mut self, run_nano: u64) {
        let before = self.seen.replace(run_nano);
        self.ran = run_nano.saturating_sub(before.unwrap_or(run_nano));
        self.gave_up = false;
    }
}

/// A thread that has an event, or could have one.
#[derive(Debug, Clone, Copy)]
struct Claim {
    process: ProcessId,
    thread: u32,
    ran_nano: u64,
    has_event: bool,
}

/// The threads that have to give up their events: those that ran least, one for each thread without an event that ran
/// much longer.
fn threads_to_close(claims: &[Claim]) -> Vec<(ProcessId, u32)> {
    let (mut with, mut without): (Vec<&Claim>, Vec<&Claim>) = claims.iter().partition(|claim| claim.has_event);
    with.sort_by_key(|claim| claim.ran_nano);
    without.sort_by_key(|claim| Reverse(claim.ran_nano));
    let pairs = with.iter().zip(without);
    let given =
        pairs.take_while(|(with, without)| without.ran_nano > 0 && without.ran_nano / ADVANTAGE >= with.ran_nano);
    given.map(|(with, _)| (with.process, with.thread)).collect()
}

impl Engine<'_> {
    /// Opens events for the threads of a process in [`Engine::unwatched`] while resources last, first for those that
    /// ran most. A thread that gave up its event gets none before the next review; otherwise it could take the event
    /// back at once.
    pub(super) fn watch_noted(&mut self, index: usize, now: Instant) {
        let mut noted = std::mem::take(&mut self.unwatched);
        let process = &self.processes[index];
        if !matches!(process.watch, RunningThreadMethod::Threads { .. }) {
            noted.clear();
        }
        let is_settled = now < self.precedence.due;
        let ran = |thread: &u32| {
            let state = &process.threads[process.find(*thread)?];
            Some((state.lately.ran, state.sched.run_nano))
        };
        noted.sort_by_cached_key(|thread| Reverse(ran(thread)));
        for thread in noted.drain(..) {
            let process = &self.processes[index];
            let Some(thread_index) = process.find(thread) else { continue };
            if is_settled && process.threads[thread_index].lately.gave_up {
                continue;
            }
            // The remaining threads ran less, and no resources are left for their events.
            if self.watch_thread(index, thread_index) {
                break;
            }
        }
        noted.clear();
        self.unwatched = noted;
    }

    /// If there are too few events, closes those of threads that hardly ran. The next tick gives them to threads that
    /// ran much longer.
    pub(super) fn review_precedence(&mut self, now: Instant) {
        if !self.precedence.is_due(now) {
            return;
        }
        for (process, thread) in threads_to_close(&self.claims()) {
            let Some(index) = self.processes.iter().position(|of| of.attached.id == process) else { continue };
            let process = &mut self.processes[index];
            let Some(thread) = process.find(thread) else { continue };
            if process.close_event(thread) {
                process.threads[thread].lately.gave_up = true;
            }
        }
    }

    /// All threads that have their own event, or that ran recently and could have one.
    fn claims(&mut self) -> Vec<Claim> {
        let mut claims = Vec::new();
        for process in &mut self.processes {
            if !matches!(process.watch, RunningThreadMethod::Threads { .. }) {
                continue;
            }
            let (task, lately) = (process.attached.files.task(), process.slot_a_second_ago());
            for thread in &mut process.threads {
                if thread.event.is_none() && thread.idle_since < lately {
                    continue;
                }
                let Ok(sched) = thread.files.schedstat(task) else { continue };
                thread.lately.review(sched.run_nano);
                claims.push(Claim {
                    process: process.attached.id,
                    thread: thread.id(),
                    ran_nano: thread.lately.ran,
                    has_event: thread.event.is_some(),
                });
            }
        }
        claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: if there are too few events, a thread without an event gets that of a thread that ran at most half
    /// as long: the thread that ran longest gets that of the one that ran shortest, and so on. Threads that ran about
    /// as long keep their events, and no event goes to a thread that did not run.
    #[test]
    fn those_that_ran_most() {
        let given = |with: &[u64], without: &[u64]| {
            let claim = |has_event| {
                move |(thread, &ran_nano): (u32, &u64)| Claim { process: ProcessId(1), thread, ran_nano, has_event }
            };
            let with = (0..).zip(with).map(claim(true));
            let claims: Vec<Claim> = with.chain((100..).zip(without).map(claim(false))).collect();
            threads_to_close(&claims).into_iter().map(|(_, thread)| thread).collect::<Vec<_>>()
        };
        assert_eq!(given(&[5, 900, 0, 300], &[1000, 8, 600]), [2, 0]);
        assert_eq!(given(&[5, 900, 0, 300], &[1000, 1000, 600, 600]), [2, 0, 3]);
        assert_eq!(given(&[500, 500], &[999, 999]), []);
        assert_eq!(given(&[500, 501], &[1000, 1001]), [0]);
        assert_eq!(given(&[0, 0], &[0, 0]), []);
        assert_eq!(given(&[], &[7]), []);
        assert_eq!(given(&[u64::MAX], &[u64::MAX]), [] as [u32; 0]);
    }

    /// Guarantees: events are redistributed only while there are too few, and once a second; a thread's running time
    /// counts from one review to the next, and a thread that gave up its event may then have one again.
    #[test]
    fn once_a_second() {
        let start = Instant::now();
        let mut precedence = Precedence::new(start);
        assert!(!precedence.is_due(start));
        precedence.lacking = true;
        assert!(precedence.is_due(start));
        precedence.lacking = true;
        assert!(!precedence.is_due(start + REVIEW / 2));
        assert!(precedence.is_due(start + REVIEW));
        assert!(!precedence.is_due(start + 5 * REVIEW));

        let mut lately = RecentRunTime { gave_up: true, ..RecentRunTime::default() };
        for (run, ran) in [(1000, 0), (1300, 300), (1300, 0), (1200, 0), (1250, 50)] {
            lately.review(run);
            assert_eq!((lately.ran, lately.gave_up), (ran, false));
        }
    }
}
