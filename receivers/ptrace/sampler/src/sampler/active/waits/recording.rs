//! What switch records say about one thread, from the beginning of its recording to its end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::calls::{Calls, PreemptedWait};
use super::frames::FrameHistory;
use super::stack::WaitStack;
use super::transitions::UnreadStack;
use crate::sampler::active::Active;
use crate::sampler::contexts::ContextHistory;
use crate::sampler::coverage::THREADS;
use crate::sampler::ledger::{TimeSource, WhatFollows};
use crate::sampler::thread_state::MAX_FAILED_LOOKUPS;
use crate::sampler::timeline::{Cause, Latest, ThreadTimeline, Wait};

/// A generation that no address space has.
const NO_GENERATION: u64 = u64::MAX;

/// The state of one thread according to switch records.
#[derive(Debug)]
pub(in crate::sampler) struct Recording {
    pub(in crate::sampler) timeline: ThreadTimeline<WaitStack>,
    /// The registers and stack from the sample of the switch that began the current wait, if its stack may still have
    /// to be read.
    pub(super) waits: Option<Box<UnreadStack>>,
    /// The beginning of the wait during which the stack was last read.
    pub(super) looked: Option<Instant>,
    /// The generation of the address space in which the stack was read incompletely: the stack is read again once the
    /// generation has changed, and in any case with [`NO_GENERATION`].
    pub(in crate::sampler::active) incomplete_in: Option<u64>,
    /// How many times in a row no interpreter frames were found for this thread. A new thread may have none yet, so
    /// they are looked for again, up to [`MAX_FAILED_LOOKUPS`] times.
    pub(super) failed_lookups: u8,
    /// The call chains of the thread's latest samples, for processes in which no samples are taken at switches.
    pub(super) calls: VecDeque<Calls>,
    /// A preempted wait whose place will be known from the sample taken when the thread resumes.
    pub(super) preempted: Option<PreemptedWait>,
    /// The trace context that the thread had each time it was examined, running or waiting.
    pub(in crate::sampler) worked: ContextHistory,
    /// The interpreter frames that the thread had each time it was examined, running or waiting.
    pub(in crate::sampler) frames: FrameHistory,
}

impl Recording {
    pub(in crate::sampler) fn new(since: Instant) -> Self {
        Self {
            timeline: ThreadTimeline::new(since),
            waits: None,
            looked: None,
            incomplete_in: None,
            failed_lookups: 0,
            calls: VecDeque::new(),
            preempted: None,
            worked: ContextHistory::default(),
            frames: FrameHistory::default(),
        }
    }

    /// Requests that the place of the current wait is read again.
    pub(in crate::sampler::active) fn look_again(&mut self) {
        self.looked = None;
        self.incomplete_in = Some(NO_GENERATION);
    }

    /// How long the thread has waited with known registers, which would be lost if its recording ended.
    pub(in crate::sampler::active) fn stands_for(&self, now: Instant) -> Option<Duration> {
        match self.timeline.latest() {
            Latest::Waiting { since, .. } if self.waits.is_some() => Some(now.saturating_duration_since(since)),
            _ => None,
        }
    }

    /// Adds trace contexts to waits during which they were not read, if the context was the same before and after the
    /// wait.
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
        // Short waits at one place are added up only if they have the same `WaitStack`, so waits with the same context
        // share one.
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

/// What a thread does according to its records, and what has to be done to find out where it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sampler) enum RecordedState {
    /// The thread runs. Nothing has to be done.
    Running,
    /// The thread waits, and its place is known or cannot be found out. Nothing has to be done.
    Placed,
    /// The thread waits: unwind its stack from the registers with which it left its processor.
    Unread,
    /// The thread waits for a processor: compare its memory with the call chains of its earlier samples.
    Preempted,
    /// The records do not say what the thread does.
    Unknown,
}

impl Active {
    /// What a thread does in this tick, according to its records.
    pub(in crate::sampler) fn recorded_state(&self, index: usize) -> RecordedState {
        let Some(recording) = &self.threads[index].recording else { return RecordedState::Unknown };
        match recording.timeline.latest() {
            Latest::Unknown => RecordedState::Unknown,
            Latest::Running => RecordedState::Running,
            Latest::Ended => RecordedState::Placed,
            Latest::Waiting { since, cause, placed } => {
                // The maps were read again after the stack was read, or an interpreter was found.
                let is_outdated = recording.incomplete_in.is_some_and(|known| known != self.attached.space_generation);
                let has_failed = (1..MAX_FAILED_LOOKUPS).contains(&recording.failed_lookups);
                if (is_outdated || has_failed) && recording.waits.is_some() {
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

    /// Begins to record a thread. Its time up to now is divided among its earlier samples.
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
            // The thread has not run since it was found blocked, and still waits.
            Some((at, sched)) if !self.threads[index].ledger.is_empty() => {
                self.settle(index, at, Some(sched), WhatFollows::Other, TimeSource::COUNTERS);
            }
            Some(_) => {}
            // The thread was never examined: it is not known what it did while all events were being opened.
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

    /// Ends the recording of all threads. Their time up to now is divided among their samples.
    pub(in crate::sampler) fn close_recordings(&mut self, now: Instant) {
        self.apply_records();
        self.waits.awake_generations = None;
        for index in 0..self.threads.len() {
            if self.threads[index].recording.is_some() {
                self.settle_recorded(index, now, WhatFollows::Other);
                self.threads[index].end_recording();
            }
        }
    }
}
