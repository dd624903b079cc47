//! What switch records tell about one thread, from the beginning of its recording to its end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::calls::{Calls, PreemptedWait};
use super::frames::FrameHistory;
use super::stack::WaitStack;
use super::transitions::UnreadStack;
use crate::sampler::active::Active;
use crate::sampler::contexts::ContextHistory;
use crate::sampler::coverage::THREADS;
use crate::sampler::ledger::{Basis, Next};
use crate::sampler::thread_state::MOST_VAIN;
use crate::sampler::timeline::{Cause, Latest, ThreadTimeline, Wait};

/// No address space has this generation.
const NO_GENERATION: u64 = u64::MAX;

/// The state that switch records give for one thread.
#[derive(Debug)]
pub(in crate::sampler) struct Recording {
    pub(in crate::sampler) timeline: ThreadTimeline<WaitStack>,
    /// The registers and stack from the sample of the switch that began the present wait, if the stack may still have
    /// to be read.
    pub(super) waits: Option<Box<UnreadStack>>,
    /// The beginning of the wait in which the stack was read.
    pub(super) looked: Option<Instant>,
    /// The generation of the address space in which the stack was read incompletely: it is read again once the
    /// generation has changed. [`NO_GENERATION`] means that it is read again in any case.
    pub(in crate::sampler::active) incomplete_in: Option<u64>,
    /// How many times in a row no interpreter frames were found for this thread. A new thread may have none yet, so
    /// they are looked for again, up to [`MOST_VAIN`] times.
    pub(super) vain: u8,
    /// The latest call chains in which the thread was sampled, for processes whose switches have no samples.
    pub(super) calls: VecDeque<Calls>,
    /// A preempted wait whose place is record from the sample when the thread resumes.
    pub(super) preempted: Option<PreemptedWait>,
    /// What the thread worked on each time it was examined, running or waiting.
    pub(in crate::sampler) worked: ContextHistory,
    /// Which interpreter frames the thread had each time it was examined, running or waiting.
    pub(in crate::sampler) frames: FrameHistory,
}

impl Recording {
    pub(in crate::sampler) fn new(since: Instant) -> Self {
        Self {
            timeline: ThreadTimeline::new(since),
            waits: None,
            looked: None,
            incomplete_in: None,
            vain: 0,
            calls: VecDeque::new(),
            preempted: None,
            worked: ContextHistory::default(),
            frames: FrameHistory::default(),
        }
    }

    /// Requests that the place of the present wait is read again.
    pub(in crate::sampler::active) fn look_again(&mut self) {
        self.looked = None;
        self.incomplete_in = Some(NO_GENERATION);
    }

    /// How long the thread has waited at known registers, which would be lost if its records ended.
    pub(in crate::sampler::active) fn stands_for(&self, now: Instant) -> Option<Duration> {
        match self.timeline.latest() {
            Latest::Waiting { since, .. } if self.waits.is_some() => Some(now.saturating_duration_since(since)),
            _ => None,
        }
    }

    /// Fills in what the thread worked on in waits during which that was not read, if it was the same before and after
    /// the wait.
    pub(super) fn fill_contexts(&mut self, waits: &mut [Wait<WaitStack>]) {
        for wait in waits.iter_mut() {
            let worked = wait.place.as_ref().and_then(|WaitStack(found)| found.worked.as_ref());
            if wait.shared {
                wait.place = wait.place.take().map(|place| place.with_context(None));
            } else if let Some(worked) = worked {
                self.worked.note(wait.begins, wait.begins + Duration::from_nanos(wait.nano), worked);
            }
        }
        self.worked.sort();
        // Short waits at one place are added up only if the thread worked on the same, so they share one `WaitStack`.
        let mut completed: Vec<(WaitStack, WaitStack)> = Vec::new();
        for wait in waits {
            let Some(place) = wait.place.as_ref().filter(|WaitStack(found)| found.worked.is_none()) else { continue };
            let Some(worked) = self.worked.around(wait.begins) else { continue };
            let same = |(of, with): &&(WaitStack, WaitStack)| of == place && with.0.worked.as_ref() == Some(worked);
            let known = completed.iter().rev().find(same).map(|(_, with)| with.clone());
            wait.place = Some(known.unwrap_or_else(|| {
                let with = place.clone().with_context(Some(worked));
                completed.push((place.clone(), with.clone()));
                with
            }));
        }
        self.worked.keep_last();
    }
}

/// What has to be done to find out where a thread waits, according to its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sampler) enum RecordedState {
    /// Nothing: the thread runs.
    Running,
    /// Nothing: the thread waits, and its place is known or cannot be found out.
    Placed,
    /// Unwind its stack from the registers with which it left its processor.
    Unread,
    /// The thread waits for a processor: compare its memory with the call chains of its earlier samples.
    Preempted,
    /// The records do not say what the thread does.
    Unknown,
}

impl Active {
    /// What has to be done for a thread in this tick, according to its records.
    pub(in crate::sampler) fn recorded_state(&self, index: usize) -> RecordedState {
        let Some(recording) = &self.threads[index].recording else { return RecordedState::Unknown };
        match recording.timeline.latest() {
            Latest::Unknown => RecordedState::Unknown,
            Latest::Running => RecordedState::Running,
            Latest::Ended => RecordedState::Placed,
            Latest::Waiting { since, cause, placed } => {
                // Since the reading, the maps were read again, or an interpreter was found.
                let is_outdated = recording.incomplete_in.is_some_and(|known| known != self.attached.space_generation);
                let is_vain = (1..MOST_VAIN).contains(&recording.vain);
                if (is_outdated || is_vain) && recording.waits.is_some() {
                    return RecordedState::Unread;
                }
                let is_known = placed && !is_outdated && (recording.looked == Some(since) || self.stacks_are_native());
                match &recording.waits {
                    _ if is_known => RecordedState::Placed,
                    Some(_) if recording.looked != Some(since) => RecordedState::Unread,
                    None if cause == Cause::Blocked && (!placed || is_outdated) => RecordedState::Unknown,
                    None if self.may_be_compared(index) => RecordedState::Preempted,
                    _ => RecordedState::Placed,
                }
            }
        }
    }

    /// Begins to record a thread; its time up to now is settled.
    pub(in crate::sampler) fn begin_recording(&mut self, index: usize, now: Instant) {
        let thread = &self.threads[index];
        if !self.wants_blocked() || thread.duty_cycle.divisor() > 1 || thread.recording.is_some() {
            return;
        }
        let is_many = self.threads.len() > THREADS;
        let task = self.attached.files.task();
        let thread = &mut self.threads[index];
        let counters = thread.files.schedstat(task).ok();
        let blocked = thread.ledger.last_blocked().filter(|(_, sched)| counters == Some(*sched));
        let is_new = is_many && thread.ledger.since() == self.began && thread.ledger.is_empty();
        match blocked {
            // The thread has not run since it was seen blocked, and still waits.
            Some((at, sched)) if !self.threads[index].ledger.is_empty() => {
                self.settle(index, at, Some(sched), Next::Other, Basis::COUNTERS);
            }
            Some(_) => {}
            // The thread was never examined: what it did while all events were being opened is not known.
            None if is_new => self.threads[index].ledger.begins(now, counters),
            None => self.settle_up_to(index, now),
        }
        let thread = &mut self.threads[index];
        thread.recording = Some(Box::new(Recording::new(thread.ledger.since())));
        if let Some((at, _)) = blocked
            && thread.blocked.unwound.is_some()
        {
            self.account_blocked(index, at);
        }
    }

    /// Ends the records of all threads; their time up to now is settled.
    pub(in crate::sampler) fn close_recordings(&mut self, now: Instant) {
        self.apply_records();
        self.waits.awake_since = None;
        for index in 0..self.threads.len() {
            if self.threads[index].recording.is_some() {
                self.settle_recorded(index, now, Next::Other);
                self.threads[index].end_recording();
            }
        }
    }
}
