//! Applies switch records to the timelines of threads. With events of processors, records are deferred until the state
//! of their thread is needed.

use std::time::{Duration, Instant};

use super::stack::WaitStack;
use crate::arch;
use crate::perf::open::Switches;
use crate::perf::record::{OnCpuSample, User};
use crate::sampler::active::Active;
use crate::sampler::places::{CodeRanges, WaitPlace};
use crate::sampler::rings::{ThreadChange, ThreadChangeKind};
use crate::sampler::shortfall::Shortfall;
use crate::sampler::states::RunningThreadMethod;
use crate::sampler::timeline::{Cause, Latest};
use crate::unwind::Registers;

/// Deferred records (not applied to their threads yet) are stored in this many parts. A part holds the threads with
/// neighbouring ids, in groups of `NEIGHBOURS`, and at most `MOST_DEFERRED` records.
pub(super) const PARTS: usize = 64;
const NEIGHBOURS: u32 = 64;
const MOST_DEFERRED: usize = 4096;

/// The kernel takes the sample of a switch microseconds before it writes the switch record.
const JUST_BEFORE: Duration = Duration::from_micros(200);

/// The maximum number of such samples that wait for their switch records.
const MOST_LEAVING: usize = 16;

/// Where a thread left its processor.
#[derive(Debug)]
pub(super) enum LeavingPlace {
    /// The stack of this place is known, and nothing has to be read.
    Known(WaitStack),
    Unread(Box<UnreadStack>),
}

/// The data from which the stack of a thread that left its processor can be unwound.
#[derive(Debug)]
pub(super) struct UnreadStack {
    pub(super) place: WaitPlace,
    /// The stack that is already known for the place, if its interpreter frames and context still have to be read.
    pub(super) standing: Option<WaitStack>,
    pub(super) registers: Registers,
    pub(super) stack: Vec<u8>,
}

/// A deferred record about a thread.
#[derive(Debug)]
pub(super) struct DeferredRecord {
    pub(super) thread: u32,
    pub(super) at: Instant,
    pub(super) what: ThreadChangeKind,
    /// If the thread left its processor: the place, from the sample of the switch.
    pub(super) left: Option<LeavingPlace>,
}

/// The part that holds the records of a thread.
pub(super) fn part_of_thread(thread: u32) -> usize {
    (thread / NEIGHBOURS) as usize % PARTS
}

impl Active {
    /// Stores the sample of a thread that is about to leave its processor. The switch record follows.
    pub(in crate::sampler) fn note_leaving(&mut self, thread: u32, at: Instant, registers: Registers, stack: &[u8]) {
        if !self.wants_blocked() {
            return;
        }
        let left = self.leaving_place(registers, stack);
        if self.waits.leaving.len() == MOST_LEAVING {
            self.waits.leaving.pop_front();
        }
        if matches!(left, LeavingPlace::Unread(_)) && self.defers_records() {
            self.waits.awake.push((thread, at));
        }
        self.waits.leaving.push_back((thread, at, left));
    }

    /// Handles a sample that shows that a thread has left its processor, which it had been given at `since` if that is
    /// known.
    pub(in crate::sampler) fn note_sampled_turn(
        &mut self,
        since: Option<Instant>,
        at: Instant,
        sample: &OnCpuSample<'_>,
    ) {
        if !self.wants_blocked() {
            return;
        }
        self.waits.costs.switches += 1;
        let thread = sample.thread;
        if let Some(since) = since {
            self.waits.runs_since(thread, since);
        }
        let (mut left, mut cause) = (None, Cause::Blocked);
        if let User::Registers(registers) = sample.user {
            if !arch::left_in_call(&registers) {
                cause = Cause::Preempted;
            }
            let known = self.leaving_place(registers, sample.stack);
            if matches!(known, LeavingPlace::Unread(_)) {
                self.waits.awake.push((thread, at));
            }
            left = Some(known);
        }
        self.defer_or_apply(DeferredRecord { thread, at, what: ThreadChangeKind::Turn(since, cause), left });
    }

    /// The place where a thread leaves its processor, with its stack or the data to unwind it.
    fn leaving_place(&mut self, registers: Registers, stack: &[u8]) -> LeavingPlace {
        let is_native = self.stacks_are_native();
        let Self { waits, attached, .. } = self;
        if waits.space_generation.replace(attached.space_generation) != Some(attached.space_generation) {
            let modules = attached.spaces.latest().modules().iter();
            waits.code = CodeRanges::new(modules.map(|module| (module.start, module.end)));
            waits.places.clear();
            waits.unproven.clear();
        }
        let (ip, sp) = (registers.instruction_pointer(), registers.stack_pointer());
        let place = WaitPlace::new(ip, sp, stack, &mut waits.code);
        match waits.known(place, is_native) {
            Some(standing) if is_native => LeavingPlace::Known(standing),
            standing => {
                LeavingPlace::Unread(Box::new(UnreadStack { place, standing, registers, stack: stack.to_vec() }))
            }
        }
    }

    /// Handles a switch record, or the record of a thread's start or end.
    pub(in crate::sampler) fn note_switch(&mut self, happened: ThreadChange) {
        let ThreadChange { thread, at, what, .. } = happened;
        if matches!(what, ThreadChangeKind::In | ThreadChangeKind::Runs) && self.wants_blocked() {
            self.waits.costs.switches += u64::from(matches!(what, ThreadChangeKind::In));
            self.waits.runs_since(thread, at);
        }
        let leaving = self.waits.leaving.iter().rposition(|(of, ..)| *of == thread);
        let left = leaving.and_then(|leaving| self.waits.leaving.remove(leaving)).filter(|(_, left, _)| {
            matches!(what, ThreadChangeKind::Out(_)) && at.saturating_duration_since(*left) < JUST_BEFORE
        });
        if left.is_none() && matches!(what, ThreadChangeKind::Out(Cause::Blocked)) && self.defers_records() {
            // The thread's registers are not known, so the next tick examines the thread.
            self.waits.awake.push((thread, at));
        }
        self.defer_or_apply(DeferredRecord { thread, at, what, left: left.map(|(.., left)| left) });
    }

    /// Whether records are deferred until the state of a thread is needed. Records from events of processors are: they
    /// report the switches of all threads of a process, most of which are not examined otherwise.
    pub(in crate::sampler::active) fn defers_records(&self) -> bool {
        let are_reported = self.switches != Switches::Hidden
            && matches!(self.watch, RunningThreadMethod::Group | RunningThreadMethod::Machine);
        are_reported && self.wants_blocked()
    }

    /// Whether switches are known from their samples alone, without switch records.
    pub(in crate::sampler::active) fn are_switches_sampled(&self) -> bool {
        self.switches == Switches::Sampled && self.defers_records()
    }

    fn defer_or_apply(&mut self, record: DeferredRecord) {
        if !self.defers_records() {
            return self.apply(record);
        }
        if matches!(record.what, ThreadChangeKind::Started) {
            // Add the thread now, with a start after the last listing of threads: they may be listed again before its
            // record is applied.
            self.find_or_add_thread(record.thread);
        }
        let part = part_of_thread(record.thread);
        self.waits.deferred[part].push(record);
        if self.waits.deferred[part].len() >= MOST_DEFERRED {
            self.apply_part(part);
        }
    }

    /// Applies all deferred records.
    pub(in crate::sampler) fn apply_records(&mut self) {
        (0..PARTS).for_each(|part| self.apply_part(part));
    }

    /// Applies the records of one part, sorted by thread: the states of thousands of threads do not fit into a
    /// processor cache, so each is loaded only once.
    pub(super) fn apply_part(&mut self, part: usize) {
        let mut records = std::mem::take(&mut self.waits.deferred[part]);
        records.sort_by_key(|record| record.thread);
        records.drain(..).for_each(|record| self.apply(record));
        self.waits.deferred[part] = records;
    }

    fn apply(&mut self, record: DeferredRecord) {
        let DeferredRecord { thread, at, what, left } = record;
        let Some(index) = self.find_recorded(thread) else { return };
        let slot = self.slot;
        let thread = &mut self.threads[index];
        let Some(recording) = &mut thread.recording else { return };
        thread.idle_since = thread.idle_since.max(slot);
        let cause = match what {
            ThreadChangeKind::In => {
                // This is an estimate until the kernel's counters are read again.
                thread.sched.timeslices += 1;
                return recording.timeline.switched_in(at);
            }
            ThreadChangeKind::Runs => return recording.timeline.switched_in(at),
            ThreadChangeKind::Turn(since, cause) => {
                thread.sched.timeslices += 1;
                since.into_iter().for_each(|since| recording.timeline.switched_in(since));
                cause
            }
            ThreadChangeKind::Started => return recording.timeline.started(at),
            ThreadChangeKind::Ended => return recording.timeline.ended(at),
            ThreadChangeKind::Out(cause) => cause,
        };
        recording.preempted = None;
        let (standing, unread) = match left {
            Some(LeavingPlace::Known(standing)) => (Some(standing), None),
            Some(LeavingPlace::Unread(unread)) => (unread.standing.clone(), Some(unread)),
            None => (None, None),
        };
        recording.timeline.switched_out(at, cause, standing);
        if matches!(recording.timeline.latest(), Latest::Waiting { since, .. } if since == at) {
            (recording.incomplete_in, recording.failed_lookups) = (None, 0);
            recording.waits = unread;
        }
    }

    /// The index of the thread that a record is about; a thread that started recently may be added.
    fn find_recorded(&mut self, id: u32) -> Option<usize> {
        // Successive records are mostly about the same thread, or, since they are sorted, about the next one.
        let last = self.waits.last;
        if let Some(next) = (last..last + 2).find(|&next| self.threads.get(next).is_some_and(|of| of.id() == id)) {
            self.waits.last = next;
            return Some(next);
        }
        let found = match self.watch {
            RunningThreadMethod::Group | RunningThreadMethod::Machine => Some(self.find_or_add_thread(id)),
            _ => self.find(id),
        };
        self.waits.last = found.unwrap_or(0);
        found
    }

    /// Called when records were lost and it is not known which threads they were about.
    pub(in crate::sampler) fn lost(&mut self, shortfall: Shortfall) {
        shortfall.add_to(&mut self.attached.status);
        self.apply_records();
        self.waits.awake_generations = None;
        self.threads.iter_mut().filter_map(|thread| thread.recording.as_mut()).for_each(|of| of.timeline.lost());
    }
}
