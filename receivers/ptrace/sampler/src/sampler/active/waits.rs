//! What records of switches tell of threads: when each waited and why, and where, which is looked at once per place.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Active;
use crate::message::{Location, Sample, Trust};
use crate::probe::SchedStat;
use crate::sampler::batch::BatchEntry;
use crate::sampler::contexts::Worked;
use crate::sampler::interpreters::{AtSample, Interpreted, Named, UNSTOPPED};
use crate::sampler::ledger::{Basis, Next};
use crate::sampler::places::{CodeRanges, Place, Places};
use crate::sampler::rings::{self, Happened, What};
use crate::sampler::shortfall::Shortfall;
use crate::sampler::stack_unwinder::StackUnwinder;
use crate::sampler::states::Watch;
use crate::sampler::timeline::{Cause, Latest, Observation, Timeline, condense};
use crate::unwind::Registers;

/// The sample at a switch precedes its record by microseconds.
const JUST_BEFORE: Duration = Duration::from_micros(200);

/// How many observations of short waits a thread has in a batch at most.
const MOST_SHORT: usize = 32;

/// If a process has more threads than this, only proportionally longer waits are observations of their own.
const MANY_THREADS: usize = 64;

/// How many places are remembered, and for each thread in addition.
const PLACES: usize = 4096;
const PLACES_OF_THREAD: usize = 4;

/// If a process has more threads than this, their counters are compared with the records in turn, so many in a batch.
const COMPARED: usize = 256;

/// A stack with which threads wait. Two are the same only if they were found at once.
#[derive(Debug, Clone)]
pub(in crate::sampler) struct Standing(Rc<Found>);

#[derive(Debug)]
struct Found {
    trust: Trust,
    locations: Vec<Location>,
    named: Named,
    worked: Worked,
    /// The stack in a batch.
    entry: Cell<Option<BatchEntry>>,
}

impl Standing {
    pub(in crate::sampler) fn new(trust: Trust, locations: &[Location], named: Named, worked: Worked) -> Self {
        Self(Rc::new(Found { trust, locations: locations.to_vec(), named, worked, entry: Cell::new(None) }))
    }
}

impl PartialEq for Standing {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Standing {}

impl Hash for Standing {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Rc::as_ptr(&self.0).hash(state);
    }
}

/// What records tell of one thread.
#[derive(Debug)]
pub(in crate::sampler) struct Recording {
    pub(in crate::sampler) timeline: Timeline<Standing>,
    /// What the sample at its last switch showed, and at the switch with which it began to wait.
    left: Option<Left>,
    waits: Option<Left>,
    /// When the wait began in which it was looked at.
    looked: Option<Instant>,
}

impl Recording {
    pub(in crate::sampler) fn new(since: Instant) -> Self {
        Self { timeline: Timeline::new(since), left: None, waits: None, looked: None }
    }
}

/// A thread as it left its processor.
#[derive(Debug)]
struct Left {
    at: Instant,
    place: Place,
    registers: Registers,
    stack: Vec<u8>,
}

/// What is to be done to know where a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sampler) enum ByRecords {
    /// Nothing: it runs.
    Runs,
    /// Nothing: it waits, and where is known or cannot be found out.
    Waits,
    /// Its stack is to be read by the registers with which it left its processor.
    Stands,
    /// Nothing is known by records.
    Unknown,
}

/// A stack that was read and is only to be believed if its thread stood still, which later records tell.
#[derive(Debug)]
struct Unproven {
    thread: u32,
    from: Instant,
    until: Instant,
    place: Place,
    standing: Standing,
}

/// The places at which threads of a process wait.
#[derive(Debug)]
pub(super) struct Waits {
    places: Places<Standing>,
    unproven: Vec<Unproven>,
    code: CodeRanges,
    /// The generation of the address space that the code and the places are of.
    space_generation: Option<u64>,
    /// The thread whose counters are compared next, if not all are.
    compared: usize,
}

impl Default for Waits {
    fn default() -> Self {
        let (unproven, code, space_generation) = (Vec::new(), CodeRanges::default(), None);
        Self { places: Places::default(), unproven, code, space_generation, compared: 0 }
    }
}

impl Active {
    /// Whether what is known of a place is all there is to know of a thread that waits there.
    fn stacks_are_native(&self) -> bool {
        self.attached.interpreters.is_empty() && !self.attached.contexts.is_read()
    }

    /// The thread that a record is about, which may have begun a moment ago.
    fn recorded(&mut self, id: u32) -> Option<usize> {
        match self.watch {
            Watch::Group | Watch::Machine => Some(self.meet(id)),
            _ => self.find(id),
        }
    }

    /// A thread is about to leave its processor.
    pub(in crate::sampler) fn leaves(&mut self, left: rings::Left) {
        let rings::Left { thread, at, registers, stack, .. } = left;
        let Some(index) = self.recorded(thread) else { return };
        let Self { waits, attached, threads, .. } = self;
        if waits.space_generation.replace(attached.space_generation) != Some(attached.space_generation) {
            let modules = attached.space.modules().iter();
            waits.code = CodeRanges::new(modules.map(|module| (module.start, module.end)));
            waits.places.clear();
            waits.unproven.clear();
        }
        let (ip, sp) = (registers.instruction_pointer(), registers.stack_pointer());
        let place = Place::new(ip, sp, &stack, &mut waits.code);
        if let Some(recording) = &mut threads[index].recording {
            recording.left = Some(Left { at, place, registers, stack });
        }
    }

    /// A thread was given a processor, left it, began or ended.
    pub(in crate::sampler) fn happened(&mut self, happened: Happened) {
        let Happened { thread, at, what, .. } = happened;
        let Some(index) = self.recorded(thread) else { return };
        let slot = self.slot;
        let thread = &mut self.threads[index];
        let Some(recording) = &mut thread.recording else { return };
        thread.idle_since = thread.idle_since.max(slot);
        let cause = match what {
            What::In => return recording.timeline.switched_in(at),
            What::Started => return recording.timeline.started(at),
            What::Ended => return recording.timeline.ended(at),
            What::Out(cause) => cause,
        };
        let left = recording.left.take().filter(|left| at.saturating_duration_since(left.at) < JUST_BEFORE);
        let standing = left.as_ref().and_then(|left| self.waits.places.get(&left.place).cloned());
        recording.timeline.switched_out(at, cause, standing);
        if matches!(recording.timeline.latest(), Latest::Waiting { since, .. } if since == at) {
            recording.waits = left;
        }
    }

    /// Records were lost, of any thread.
    pub(in crate::sampler) fn lost(&mut self, shortfall: Shortfall) {
        shortfall.add_to(&mut self.attached.status);
        self.threads.iter_mut().filter_map(|thread| thread.recording.as_mut()).for_each(|of| of.timeline.lost());
    }

    /// What is to be done for a thread in this tick, by its records.
    pub(in crate::sampler) fn by_records(&self, index: usize) -> ByRecords {
        let Some(recording) = &self.threads[index].recording else { return ByRecords::Unknown };
        match recording.timeline.latest() {
            Latest::Unknown => ByRecords::Unknown,
            Latest::Running => ByRecords::Runs,
            Latest::Ended => ByRecords::Waits,
            Latest::Waiting { since, cause, placed } => {
                let is_known = placed && (recording.looked == Some(since) || self.stacks_are_native());
                match &recording.waits {
                    _ if is_known => ByRecords::Waits,
                    Some(_) if recording.looked != Some(since) => ByRecords::Stands,
                    None if cause == Cause::Blocked && !placed => ByRecords::Unknown,
                    _ => ByRecords::Waits,
                }
            }
        }
    }

    /// Reads the stack of a thread that waits, from where it left its processor.
    pub(in crate::sampler) fn look_at_waiting(&mut self, index: usize, unwinder: &mut StackUnwinder) {
        let Some(recording) = &mut self.threads[index].recording else { return };
        let (Some(left), Latest::Waiting { since, .. }) = (&recording.waits, recording.timeline.latest()) else {
            return;
        };
        let (place, registers) = (left.place, left.registers);
        recording.looked = Some(since);
        let from = Instant::now();
        let mut pieces = std::mem::take(&mut unwinder.pieces);
        pieces.take(registers.stack_pointer(), &left.stack);
        let files = std::sync::Arc::clone(&self.attached.files);
        let mut memory = pieces.live(&files, None);
        let mut outcome = unwinder.unwind(self, &registers, &mut memory);
        let mut interpreted = Interpreted::default();
        self.capture_interpreted(index, UNSTOPPED, None, &mut interpreted);
        let worked = self.standing(index);
        let until = Instant::now();
        let at_sample = AtSample { memory: &mut memory, ran_on_since: None };
        let mut locations = Vec::new();
        let named = unwinder.name(self, &mut outcome, &interpreted, true, Some(at_sample), &mut locations);
        unwinder.pieces = pieces;
        if outcome.unknown_code.is_some() {
            self.attached.reload.want();
        }
        let standing = Standing::new(outcome.trust, &locations, named, worked);
        let thread = self.threads[index].id();
        self.stood(index, from, until, standing.clone());
        self.waits.unproven.push(Unproven { thread, from, until, place, standing });
    }

    /// A thread was found standing.
    pub(super) fn stood(&mut self, index: usize, from: Instant, until: Instant, standing: Standing) {
        if let Some(recording) = &mut self.threads[index].recording {
            recording.timeline.stood(from, until, standing);
        }
    }

    /// Remembers the stacks that were read, after all records up to now were taken: those of threads that did not run
    /// meanwhile.
    pub(in crate::sampler) fn prove_places(&mut self) {
        let most = PLACES + PLACES_OF_THREAD * self.threads.len();
        for Unproven { thread, from, until, place, standing } in std::mem::take(&mut self.waits.unproven) {
            let recording = self.find(thread).and_then(|index| self.threads[index].recording.as_ref());
            if recording.is_some_and(|recording| !recording.timeline.ran_between(from, until)) {
                self.waits.places.insert(place, standing, most);
            }
        }
    }

    /// From now on records tell what a thread does, of which all up to now is settled.
    pub(in crate::sampler) fn begin_recording(&mut self, index: usize, now: Instant) {
        if self.wants_blocked() && self.threads[index].duty_cycle.divisor() == 1 {
            self.settle_up_to(index, now);
            self.threads[index].recording = Some(Box::new(Recording::new(now)));
        }
    }

    /// From now on records tell what all threads do, of which all up to now is settled.
    pub(in crate::sampler) fn begin_recordings(&mut self, now: Instant) {
        if !self.wants_blocked() {
            return;
        }
        for thread in &mut self.threads {
            thread.recording = Some(Box::new(Recording::new(now)));
        }
    }

    /// Shares the time of a thread that has records up to now, where records tell what it did; else the kernel's
    /// counters do.
    pub(super) fn settle_recorded(&mut self, index: usize, now: Instant, next: Next) {
        let is_compared = next != Next::Same || self.is_compared(index);
        let thread = &mut self.threads[index];
        let Some(recording) = &mut thread.recording else { return };
        let mut counters = None;
        if is_compared {
            counters = thread.files.schedstat(self.attached.files.task()).ok();
            thread.sched = counters.unwrap_or(thread.sched);
        }
        let recorded = recording.timeline.settle(now, counters);
        let mut waits = recorded.waits;
        let until = recorded.ended.unwrap_or(now);
        let ended_unseen = is_compared && counters.is_none() && recorded.ended.is_none();
        let basis = if recorded.is_whole && !ended_unseen {
            Basis::Records { began: recorded.began, ended: recorded.ended.is_some() }
        } else {
            // Where it waited is known all the same.
            let preempted = waits.last().filter(|wait| wait.cause == Cause::Preempted && !wait.ended);
            let preempted_nano = preempted.map_or(0, |wait| wait.nano);
            waits.retain(|wait| wait.cause == Cause::Blocked && wait.place.is_some());
            Basis::Counters { preempted_nano }
        };
        let long = self.event_period() / 2 * (1 + self.threads.len() / MANY_THREADS) as u64;
        for observation in condense(waits, long, MOST_SHORT) {
            self.add_wait(index, observation);
        }
        match basis {
            Basis::Records { .. } => self.settle(index, until, counters, next, basis),
            Basis::Counters { .. } => {
                let counters = self.counters(index, counters);
                let next = if counters.is_some() { next } else { Next::Nothing };
                self.settle(index, now, counters, next, basis);
            }
        }
    }

    /// Whether the counters of this thread are compared with its records in this batch.
    fn is_compared(&mut self, index: usize) -> bool {
        let number = self.threads.len();
        if index == 0 {
            self.waits.compared = (self.waits.compared + COMPARED) % number.max(1);
        }
        number <= COMPARED || (index + number - self.waits.compared) % number < COMPARED
    }

    fn counters(&mut self, index: usize, known: Option<SchedStat>) -> Option<SchedStat> {
        let task = self.attached.files.task();
        known.or_else(|| self.threads[index].files.schedstat(task).ok())
    }

    fn add_wait(&mut self, index: usize, observation: Observation<Standing>) {
        let Observation { place, cause, at, nano } = observation;
        let waits_for_processor = cause == Cause::Preempted;
        let top = if waits_for_processor { Location::WAITING_FOR_PROCESSOR } else { Location::WAITING_NOT_SEEN };
        let observations = u32::try_from(nano / self.event_period()).unwrap_or(u32::MAX).max(1);
        let (stack, context) = match &place {
            None => (self.batch.add_stack(Trust::Complete, &[top]), None),
            Some(Standing(found)) if waits_for_processor => {
                let locations: Vec<_> = std::iter::once(top).chain(found.locations.iter().copied()).collect();
                (self.batch.add_stack(found.trust, &locations), self.worked(&found.worked, true))
            }
            Some(Standing(found)) => {
                let stack = self.batch.present(found.entry.get()).unwrap_or_else(|| {
                    let stack = self.batch.add_stack(found.trust, &found.locations);
                    found.entry.set(Some(self.batch.entry(stack)));
                    stack
                });
                (stack, self.worked(&found.worked, true))
            }
        };
        let sample = Sample { context, observations, ..self.sample(index, stack, at, 0, true) };
        let sample = self.batch.add_sample(sample);
        self.threads[index].ledger.waited(sample, at, nano);
        if let Some(Standing(found)) = &place {
            self.observed(found.trust, &found.named);
        }
    }
}
