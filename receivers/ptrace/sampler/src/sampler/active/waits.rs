//! Applies the kernel's context-switch records to threads: when each thread waited, why, and at which place in the
//! code. The stack of a place is read only once.

mod calls;
mod frames;

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::{Duration, Instant};

use self::calls::Calls;
pub(in crate::sampler) use self::calls::PreemptedWait;
use self::frames::{FrameHistory, native_frames};
use super::Active;
use crate::arch;
use crate::message::{Location, Sample, Trust};
use crate::perf::open::Switches;
use crate::perf::record::{OnCpuSample, User};
use crate::probe::{Activity, SchedStat};
use crate::sampler::batch::BatchEntry;
use crate::sampler::contexts::{ContextHistory, Worked};
use crate::sampler::coverage::THREADS;
use crate::sampler::interpreters::{AtSample, Interpreted, Named, UNSTOPPED};
use crate::sampler::ledger::{Basis, Next};
use crate::sampler::places::{CodeRanges, Place, Places};
use crate::sampler::rings::{Happened, What};
use crate::sampler::shortfall::Shortfall;
use crate::sampler::stack_unwinder::StackUnwinder;
use crate::sampler::states::Watch;
use crate::sampler::thread_event::MOST_SWITCHES;
use crate::sampler::thread_state::{MOST_VAIN, ThreadState};
use crate::sampler::timeline::{Cause, Latest, Observation, Timeline, Wait, condense};
use crate::unwind::Registers;

/// Deferred records (not yet applied to their threads) are stored in this many parts. A part holds the threads with
/// neighbouring ids, in groups of `NEIGHBOURS`, and at most `MOST_TAKEN` records.
const PARTS: usize = 64;
const NEIGHBOURS: u32 = 64;
const MOST_TAKEN: usize = 4096;

/// The kernel takes the sample of a switch microseconds before it writes the switch record.
const JUST_BEFORE: Duration = Duration::from_micros(200);

/// How many such samples wait for their switch records at most.
const MOST_LEAVING: usize = 16;

/// How many observations of short waits a thread may have in one batch.
const MOST_SHORT: usize = 32;

/// If a process has more threads than this, the length from which a wait becomes an observation of its own grows with
/// the number of threads.
const MANY_THREADS: usize = 64;

/// If a process has more threads than this, the waits of one thread at one place are added up for each batch.
const SUMMED_THREADS: usize = 1024;

/// No address space has this generation.
const NO_GENERATION: u64 = u64::MAX;

/// How many places are remembered per process, plus how many more for each of its threads.
const PLACES: usize = 4096;
const PLACES_OF_THREAD: usize = 4;

/// What one switch costs the thread: with a record only; with a record and a sample; the same in a process with
/// thousands of threads, whose data is in no cache; and with a sample only, again with thousands of threads.
const RECORD_COST: Duration = Duration::from_nanos(1_100);
const SAMPLE_COST: Duration = Duration::from_nanos(2_300);
const SAMPLE_COST_OF_MANY: Duration = Duration::from_nanos(3_800);
const SAMPLED_COST: Duration = Duration::from_nanos(2_500);

/// The share of the process's budget that switch records may use. It is larger where events of processors are the only
/// source that shows where thousands of threads wait.
const FOR_RECORDS: f64 = 0.5;
const FOR_MANY: f64 = 0.7;

/// How often the choice of recorded threads is reviewed. A thread with fewer switches per second than `LEAST_SWITCHES`
/// is always recorded.
const REVIEW: Duration = Duration::from_millis(500);
const LEAST_SWITCHES: u64 = 50;

/// With how many places found in the same tick a new place is compared at most.
const MOST_COMPARED: usize = 64;

/// If a process has more threads than this, each batch compares the counters of only this many threads with their
/// records, in rotation.
const COMPARED: usize = 256;

/// The stack of a waiting thread. Two values are equal only if they come from the same reading.
#[derive(Debug, Clone)]
pub(in crate::sampler) struct Standing(Rc<Found>);

#[derive(Debug)]
struct Found {
    trust: Trust,
    locations: Vec<Location>,
    named: Named,
    /// What the thread worked on; `None` if that was not read during this wait.
    worked: Option<Worked>,
    /// Whether the stack was read during this wait, not during another wait at the same place.
    is_read: bool,
    /// The index of the stack in the batch that is being built.
    entry: Cell<Option<BatchEntry>>,
}

impl Standing {
    pub(in crate::sampler) fn new(trust: Trust, locations: &[Location], named: Named, worked: Option<Worked>) -> Self {
        let (locations, entry) = (locations.to_vec(), Cell::new(None));
        Self(Rc::new(Found { trust, locations, named, worked, is_read: true, entry }))
    }

    /// The same stack, for other waits at this place, which determines a native stack: that one is shared with them.
    fn remembered(self) -> Self {
        if native_frames(&self.0.locations).is_none() {
            return self.at_another_time(None);
        }
        let Found { trust, locations, named, .. } = &*self.0;
        let (locations, entry) = (locations.clone(), Cell::new(None));
        Self(Rc::new(Found { trust: *trust, locations, named: *named, worked: None, is_read: false, entry }))
    }

    /// The same stack for a wait at another time, in which the thread worked on `worked` (`None` if unknown).
    fn at_another_time(self, worked: Option<&Worked>) -> Self {
        let Found { trust, locations, named, worked: read, .. } = &*self.0;
        if read.as_ref() == worked { self } else { Self::new(*trust, locations, *named, worked.cloned()) }
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

/// The state that switch records give for one thread.
#[derive(Debug)]
pub(in crate::sampler) struct Recording {
    pub(in crate::sampler) timeline: Timeline<Standing>,
    /// The registers and stack from the sample of the switch that began the present wait, if the stack may still have
    /// to be read.
    waits: Option<Box<Unread>>,
    /// The beginning of the wait in which the stack was read.
    looked: Option<Instant>,
    /// The generation of the address space in which the stack was read incompletely: it is read again once the
    /// generation has changed. [`NO_GENERATION`] means that it is read again in any case.
    pub(super) incomplete_in: Option<u64>,
    /// How many times in a row no interpreter frames were found for this thread. A new thread may have none yet, so
    /// they are looked for again, up to [`MOST_VAIN`] times.
    vain: u8,
    /// The latest call chains in which the thread was sampled, for processes whose switches have no samples.
    calls: VecDeque<Calls>,
    /// A preempted wait whose place is taken from the sample when the thread resumes.
    preempted: Option<PreemptedWait>,
    /// What the thread worked on each time it was examined, running or waiting.
    pub(in crate::sampler) worked: ContextHistory,
    /// Which interpreter frames the thread had each time it was examined, running or waiting.
    pub(in crate::sampler) frames: FrameHistory,
}

impl Recording {
    pub(in crate::sampler) fn new(since: Instant) -> Self {
        Self {
            timeline: Timeline::new(since),
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
    pub(super) fn look_again(&mut self) {
        self.looked = None;
        self.incomplete_in = Some(NO_GENERATION);
    }

    /// How long the thread has waited at known registers, which would be lost if its records ended.
    pub(super) fn stands_for(&self, now: Instant) -> Option<Duration> {
        match self.timeline.latest() {
            Latest::Waiting { since, .. } if self.waits.is_some() => Some(now.saturating_duration_since(since)),
            _ => None,
        }
    }

    /// Fills in what the thread worked on in waits during which that was not read, if it was the same before and after
    /// the wait.
    fn say_worked(&mut self, waits: &mut [Wait<Standing>]) {
        for wait in waits.iter_mut() {
            let worked = wait.place.as_ref().and_then(|Standing(found)| found.worked.as_ref());
            if wait.shared {
                wait.place = wait.place.take().map(|place| place.at_another_time(None));
            } else if let Some(worked) = worked {
                self.worked.note(wait.begins, wait.begins + Duration::from_nanos(wait.nano), worked);
            }
        }
        self.worked.sort();
        // Short waits at one place are added up only if the thread worked on the same, so they share one `Standing`.
        let mut said: Vec<(Standing, Standing)> = Vec::new();
        for wait in waits {
            let Some(place) = wait.place.as_ref().filter(|Standing(found)| found.worked.is_none()) else { continue };
            let Some(worked) = self.worked.around(wait.begins) else { continue };
            let same = |(of, said): &&(Standing, Standing)| of == place && said.0.worked.as_ref() == Some(worked);
            let known = said.iter().rev().find(same).map(|(_, said)| said.clone());
            let with = known.unwrap_or_else(|| {
                let with = place.clone().at_another_time(Some(worked));
                said.push((place.clone(), with.clone()));
                with
            });
            wait.place = Some(with);
        }
        self.worked.keep_last();
    }
}

/// The place at which a thread left its processor.
#[derive(Debug)]
enum Left {
    /// The place is known, and nothing else has to be read.
    Known(Standing),
    Unread(Box<Unread>),
}

/// The data from which the stack of a thread that left its processor can be unwound.
#[derive(Debug)]
struct Unread {
    place: Place,
    /// The stack that is already known for the place.
    standing: Option<Standing>,
    registers: Registers,
    stack: Vec<u8>,
}

/// One record about a thread.
#[derive(Debug)]
struct Taken {
    thread: u32,
    at: Instant,
    what: What,
    /// From the preceding sample of the switch: the place, if the thread left its processor.
    left: Option<Left>,
}

/// What has to be done to find out where a thread waits, according to its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sampler) enum ByRecords {
    /// Nothing: the thread runs.
    Runs,
    /// Nothing: the thread waits, and its place is known or cannot be found out.
    Waits,
    /// Unwind its stack from the registers with which it left its processor.
    Stands,
    /// The thread waits for a processor: compare its memory with the call chains of its earlier samples.
    Preempted,
    /// The records do not say what the thread does.
    Unknown,
}

/// A stack that was read while its thread may have run. Later records decide whether the thread stood still.
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
    /// The generation of the address space to which `code` and `places` belong.
    space_generation: Option<u64>,
    /// The latest samples of switches whose records have not arrived yet: rings are read one after the other.
    leaving: VecDeque<(u32, Instant, Left)>,
    /// Deferred records, not applied to their threads yet.
    taken: [Vec<Taken>; PARTS],
    /// Where not all threads are examined in the next tick: those that are, with the time when each left its processor,
    /// and the generations of address space and contexts for which the others are known.
    awake: Vec<(u32, Instant)>,
    awake_since: Option<(u64, u64)>,
    /// The thread whose counters are compared next, if not all are.
    compared: usize,
    /// The thread of the last record.
    last: usize,
    costs: Costs,
}

/// The cost of switch records for the sampled process.
#[derive(Debug)]
struct Costs {
    /// How many switches were recorded since this moment.
    switches: u64,
    since: Instant,
    /// A thread is recorded only if it has at most this many switches per second.
    most: u64,
}

impl Costs {
    /// Adjusts the limit to the cost; `most` is the share of one processor that records may use. Returns the number of
    /// switches recorded since the last review and the processor time that they cost their threads; `None` if the next
    /// review is not due.
    fn review(&mut self, now: Instant, most: f64, each: Duration) -> Option<(u32, Duration)> {
        let window = now.saturating_duration_since(self.since);
        if window < REVIEW {
            return None;
        }
        let switches = u32::try_from(self.switches).unwrap_or(u32::MAX);
        let cost = each.saturating_mul(switches);
        let share = cost.as_secs_f64() / window.as_secs_f64();
        if share > most {
            self.most = (self.most / 2).max(LEAST_SWITCHES);
        } else if share < most / 4.0 {
            self.most = (self.most * 2).min(MOST_SWITCHES);
        }
        (self.switches, self.since) = (0, now);
        Some((switches, cost))
    }
}

/// The part that holds the records of a thread.
fn part_of_taken(thread: u32) -> usize {
    (thread / NEIGHBOURS) as usize % PARTS
}

impl Waits {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            places: Places::default(),
            unproven: Vec::new(),
            code: CodeRanges::default(),
            space_generation: None,
            leaving: VecDeque::new(),
            taken: [const { Vec::new() }; PARTS],
            awake: Vec::new(),
            awake_since: None,
            compared: 0,
            last: 0,
            costs: Costs { switches: 0, since: now, most: MOST_SWITCHES },
        }
    }

    /// The known stack of a place. Where stacks are native only, it may have been read from another thread.
    fn known(&mut self, place: Place, is_native: bool) -> Option<Standing> {
        let shared = if is_native { self.places.get(&place.of_any_thread()).cloned() } else { None };
        shared.or_else(|| self.places.get(&place).cloned())
    }

    /// A thread was given a processor, so the place where it waited need not be read any more. Rings are read one after
    /// the other: if the thread has left its processor again after `at`, the newer wait stays in the list.
    fn runs_since(&mut self, thread: u32, at: Instant) {
        if let Some(found) = self.awake.iter().position(|(id, left)| *id == thread && *left <= at) {
            self.awake.swap_remove(found);
        }
    }

    /// Whether records cost so much that threads with many switches may not be recorded.
    pub(super) fn are_dear(&self) -> bool {
        self.costs.most < MOST_SWITCHES
    }

    /// The largest number of switches per second with which a thread is recorded.
    pub(super) fn most_switches(&self) -> u64 {
        self.costs.most
    }
}

impl Active {
    /// Whether the stack of a place is all that has to be known of a thread that waits there: no interpreter frames, no
    /// context.
    fn stacks_are_native(&self) -> bool {
        self.attached.interpreters.is_empty() && !self.attached.contexts.is_read()
    }

    /// The index of the thread that a record is about. The thread may have started a moment ago.
    fn recorded(&mut self, id: u32) -> Option<usize> {
        // Successive records are mostly about the same thread, or about the next one if they are sorted.
        let last = self.waits.last;
        if let Some(next) = (last..last + 2).find(|&next| self.threads.get(next).is_some_and(|of| of.id() == id)) {
            self.waits.last = next;
            return Some(next);
        }
        let found = match self.watch {
            Watch::Group | Watch::Machine => Some(self.meet(id)),
            _ => self.find(id),
        };
        self.waits.last = found.unwrap_or(0);
        found
    }

    /// Notes the sample of a thread that is about to leave its processor. The switch record follows.
    pub(in crate::sampler) fn leaves(&mut self, thread: u32, at: Instant, registers: Registers, stack: &[u8]) {
        if !self.wants_blocked() {
            return;
        }
        let left = self.left(registers, stack);
        if self.waits.leaving.len() == MOST_LEAVING {
            self.waits.leaving.pop_front();
        }
        if matches!(left, Left::Unread(_)) && self.defers_records() {
            self.waits.awake.push((thread, at));
        }
        self.waits.leaving.push_back((thread, at, left));
    }

    /// Notes that a thread has left its processor, which it had been given at `since` if that is known.
    pub(in crate::sampler) fn had_turn(&mut self, since: Option<Instant>, at: Instant, sample: &OnCpuSample<'_>) {
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
            let known = self.left(registers, sample.stack);
            if matches!(known, Left::Unread(_)) {
                self.waits.awake.push((thread, at));
            }
            left = Some(known);
        }
        self.take(Taken { thread, at, what: What::Turn(since, cause), left });
    }

    /// The place of a thread that leaves its processor, with its stack where that is not known yet.
    fn left(&mut self, registers: Registers, stack: &[u8]) -> Left {
        let is_native = self.stacks_are_native();
        let Self { waits, attached, .. } = self;
        if waits.space_generation.replace(attached.space_generation) != Some(attached.space_generation) {
            let modules = attached.spaces.latest().modules().iter();
            waits.code = CodeRanges::new(modules.map(|module| (module.start, module.end)));
            waits.places.clear();
            waits.unproven.clear();
        }
        let (ip, sp) = (registers.instruction_pointer(), registers.stack_pointer());
        let place = Place::new(ip, sp, stack, &mut waits.code);
        match waits.known(place, is_native) {
            Some(standing) if is_native => Left::Known(standing),
            standing => Left::Unread(Box::new(Unread { place, standing, registers, stack: stack.to_vec() })),
        }
    }

    /// Handles a switch record, or the record of a thread's start or end.
    pub(in crate::sampler) fn happened(&mut self, happened: Happened) {
        let Happened { thread, at, what, .. } = happened;
        if matches!(what, What::In | What::Runs) && self.wants_blocked() {
            self.waits.costs.switches += u64::from(matches!(what, What::In));
            self.waits.runs_since(thread, at);
        }
        let leaving = self.waits.leaving.iter().rposition(|(of, ..)| *of == thread);
        let left = leaving
            .and_then(|leaving| self.waits.leaving.remove(leaving))
            .filter(|(_, left, _)| matches!(what, What::Out(_)) && at.saturating_duration_since(*left) < JUST_BEFORE);
        if left.is_none() && matches!(what, What::Out(Cause::Blocked)) && self.defers_records() {
            // Its registers are not known: the next tick examines the thread.
            self.waits.awake.push((thread, at));
        }
        self.take(Taken { thread, at, what, left: left.map(|(.., left)| left) });
    }

    /// Whether records are deferred until the state of a thread is needed. With events of processors they are: these
    /// report the switches of all threads of a process, most of which are not examined in any other way.
    pub(super) fn defers_records(&self) -> bool {
        let are_told = self.switches != Switches::Hidden && matches!(self.watch, Watch::Group | Watch::Machine);
        are_told && self.wants_blocked()
    }

    /// Whether switches are known from their samples alone, without switch records.
    pub(super) fn are_switches_sampled(&self) -> bool {
        self.switches == Switches::Sampled && self.defers_records()
    }

    fn take(&mut self, taken: Taken) {
        if !self.defers_records() {
            return self.apply(taken);
        }
        if matches!(taken.what, What::Started) {
            // The thread is added now, with a start after the last listing. When its record is applied, the threads may
            // have been listed again.
            self.meet(taken.thread);
        }
        let part = part_of_taken(taken.thread);
        self.waits.taken[part].push(taken);
        if self.waits.taken[part].len() >= MOST_TAKEN {
            self.apply_part(part);
        }
    }

    /// Applies all deferred records.
    pub(in crate::sampler) fn apply_records(&mut self) {
        (0..PARTS).for_each(|part| self.apply_part(part));
    }

    /// Applies the records of one part, sorted by thread: the states of thousands of threads fit into no cache, so each
    /// is loaded only once.
    fn apply_part(&mut self, part: usize) {
        let mut taken = std::mem::take(&mut self.waits.taken[part]);
        taken.sort_by_key(|taken| taken.thread);
        taken.drain(..).for_each(|taken| self.apply(taken));
        self.waits.taken[part] = taken;
    }

    fn apply(&mut self, taken: Taken) {
        let Taken { thread, at, what, left } = taken;
        let Some(index) = self.recorded(thread) else { return };
        let slot = self.slot;
        let thread = &mut self.threads[index];
        let Some(recording) = &mut thread.recording else { return };
        thread.idle_since = thread.idle_since.max(slot);
        let cause = match what {
            What::In => {
                // An estimate until the kernel's counters are read again.
                thread.sched.timeslices += 1;
                return recording.timeline.switched_in(at);
            }
            What::Runs => return recording.timeline.switched_in(at),
            What::Turn(since, cause) => {
                thread.sched.timeslices += 1;
                since.into_iter().for_each(|since| recording.timeline.switched_in(since));
                cause
            }
            What::Started => return recording.timeline.started(at),
            What::Ended => return recording.timeline.ended(at),
            What::Out(cause) => cause,
        };
        recording.preempted = None;
        let (standing, unread) = match left {
            Some(Left::Known(standing)) => (Some(standing), None),
            Some(Left::Unread(unread)) => (unread.standing.clone(), Some(unread)),
            None => (None, None),
        };
        recording.timeline.switched_out(at, cause, standing);
        if matches!(recording.timeline.latest(), Latest::Waiting { since, .. } if since == at) {
            (recording.incomplete_in, recording.vain) = (None, 0);
            recording.waits = unread;
        }
    }

    /// The threads to examine in this tick: all of them, or only those whose place the records leave open and that can
    /// still be found out.
    pub(in crate::sampler) fn threads_in_doubt(&mut self) -> Vec<u32> {
        let generations = (self.attached.space_generation, self.attached.contexts.generation());
        let known = self.defers_records().then_some(generations);
        let is_same = std::mem::replace(&mut self.waits.awake_since, known) == known;
        if known.is_none() || !is_same {
            self.apply_records();
            self.waits.awake.clear();
            return self.threads.iter().map(ThreadState::id).collect();
        }
        let mut awake: Vec<u32> = self.waits.awake.drain(..).map(|(id, _)| id).collect();
        awake.sort_unstable();
        awake.dedup();
        awake.iter().for_each(|id| self.apply_part(part_of_taken(*id)));
        awake
    }

    /// Schedules a thread for examination in the next tick.
    pub(super) fn look_again(&mut self, id: u32) {
        if self.defers_records() {
            self.waits.awake.push((id, Instant::now()));
        }
    }

    /// Records of unknown threads were lost.
    pub(in crate::sampler) fn lost(&mut self, shortfall: Shortfall) {
        shortfall.add_to(&mut self.attached.status);
        self.apply_records();
        self.waits.awake_since = None;
        self.threads.iter_mut().filter_map(|thread| thread.recording.as_mut()).for_each(|of| of.timeline.lost());
    }

    /// What has to be done for a thread in this tick, according to its records.
    pub(in crate::sampler) fn by_records(&self, index: usize) -> ByRecords {
        let Some(recording) = &self.threads[index].recording else { return ByRecords::Unknown };
        match recording.timeline.latest() {
            Latest::Unknown => ByRecords::Unknown,
            Latest::Running => ByRecords::Runs,
            Latest::Ended => ByRecords::Waits,
            Latest::Waiting { since, cause, placed } => {
                // Since the reading, the maps were read again, or an interpreter was found.
                let is_outdated = recording.incomplete_in.is_some_and(|known| known != self.attached.space_generation);
                let is_vain = (1..MOST_VAIN).contains(&recording.vain);
                if (is_outdated || is_vain) && recording.waits.is_some() {
                    return ByRecords::Stands;
                }
                let is_known = placed && !is_outdated && (recording.looked == Some(since) || self.stacks_are_native());
                match &recording.waits {
                    _ if is_known => ByRecords::Waits,
                    Some(_) if recording.looked != Some(since) => ByRecords::Stands,
                    None if cause == Cause::Blocked && (!placed || is_outdated) => ByRecords::Unknown,
                    None if self.may_be_compared(index) => ByRecords::Preempted,
                    _ => ByRecords::Waits,
                }
            }
        }
    }

    /// Unwinds the stack of a waiting thread from the registers with which it left its processor.
    pub(in crate::sampler) fn look_at_waiting(&mut self, index: usize, unwinder: &mut StackUnwinder) {
        let is_native = self.stacks_are_native();
        let Some(recording) = &mut self.threads[index].recording else { return };
        let (Some(left), Latest::Waiting { since, .. }) = (&recording.waits, recording.timeline.latest()) else {
            return;
        };
        // The registers are those at the beginning of the wait. The thread may have run since: the records of that
        // arrive later.
        let (mut place, registers, from) = (left.place, left.registers, since);
        if is_native
            && recording.incomplete_in.is_none()
            && self.waits.space_generation == Some(self.attached.space_generation)
        {
            if let Some(standing) = self.waits.known(place, true) {
                return recording.timeline.stood(from, from, standing);
            }
            // Another thread at the same place was read in this tick. If that reading is confirmed, it serves this
            // thread as well.
            let shared = place.of_any_thread();
            if self.waits.unproven.iter().take(MOST_COMPARED).any(|other| other.place == shared) {
                return;
            }
        }
        recording.looked = Some(since);
        let mut pieces = std::mem::take(&mut unwinder.pieces);
        let files = std::sync::Arc::clone(&self.attached.files);
        pieces.take(registers.stack_pointer(), &left.stack);
        let standing = self.stands_at(index, &registers);
        let mut memory = pieces.live(&files, None);
        let mut outcome = unwinder.unwind(self, &registers, &mut memory);
        let mut interpreted = Interpreted::default();
        self.capture_interpreted(index, UNSTOPPED, None, &mut interpreted);
        let worked = self.attached.contexts.is_read().then(|| self.standing(index));
        let until = Instant::now();
        let at_sample = AtSample { memory: &mut memory, copied: None, ran_on_since: None };
        let mut locations = Vec::new();
        let named = unwinder.name(self, &mut outcome, &interpreted, true, Some(at_sample), &mut locations);
        let is_copied = pieces.sufficed() && is_native;
        if is_copied && outcome.trust == Trust::Complete {
            place = place.of_any_thread();
        }
        unwinder.pieces = pieces;
        if self.are_switches_sampled() {
            // Without switch records, the thread is not known to run again until it leaves its processor the next time.
            let task = self.attached.files.task();
            let now = self.threads[index].files.schedstat(task).ok();
            if !is_copied && (standing.is_none() || now != standing) {
                return;
            }
        }
        // The kernel copied this stack at the moment when the thread left its processor.
        let until = if is_copied { from } else { until };
        let is_unknown = outcome.unknown_code.is_some();
        if is_unknown {
            self.attached.reload.want();
        }
        let generation = self.attached.space_generation;
        if let Some(recording) = &mut self.threads[index].recording {
            recording.incomplete_in = (outcome.trust != Trust::Complete).then_some(generation);
            let found = interpreted.is_any() || self.attached.interpreters.is_empty();
            recording.vain = if found { 0 } else { recording.vain.saturating_add(1) };
        }
        if outcome.unknown_code == Some(registers.instruction_pointer()) {
            // The stack is read again when the maps have been read. If the wait is over by then, its place stays
            // unknown.
            return;
        }
        let standing = Standing::new(outcome.trust, &locations, named, worked);
        let thread = self.threads[index].id();
        self.stood(index, from, until, standing.clone());
        self.waits.unproven.push(Unproven { thread, from, until, place, standing });
    }

    /// The counters of a thread if it is still blocked with these registers.
    fn stands_at(&mut self, index: usize, registers: &Registers) -> Option<SchedStat> {
        if !self.are_switches_sampled() {
            return None;
        }
        let task = self.attached.files.task();
        let files = &mut self.threads[index].files;
        let counters = files.schedstat(task).ok().filter(SchedStat::kept)?;
        match files.activity(task) {
            Ok(Activity::Blocked { sp, pc, .. })
                if (sp, pc) == (registers.stack_pointer(), registers.instruction_pointer()) =>
            {
                Some(counters)
            }
            _ => None,
        }
    }

    /// When a review is due, returns the number of switches recorded since the last one and the processor time that
    /// they cost their threads. If that is too much, the threads with the most switches are not recorded any more.
    pub(super) fn review_records(&mut self, now: Instant) -> Option<(u32, Duration)> {
        let (part, each) = match self.watch {
            _ if self.are_switches_sampled() => (FOR_MANY, SAMPLED_COST),
            watch if watch.hides_kernel() => (FOR_RECORDS, RECORD_COST),
            _ if self.threads.len() > THREADS => (FOR_MANY, SAMPLE_COST_OF_MANY),
            _ => (FOR_RECORDS, SAMPLE_COST),
        };
        self.waits.costs.review(now, self.attached.settings.max_cpu * part, each)
    }

    /// Whether records cost so much that threads with many switches may not be recorded.
    pub(in crate::sampler) fn are_records_dear(&self) -> bool {
        self.waits.are_dear()
    }

    /// Notes that a thread was found at a place.
    pub(super) fn stood(&mut self, index: usize, from: Instant, until: Instant, standing: Standing) {
        if let Some(recording) = &mut self.threads[index].recording {
            recording.timeline.stood(from, until, standing);
        }
    }

    /// Remembers the stacks that were read since the last call, if the records now show that their threads did not run
    /// meanwhile.
    pub(in crate::sampler) fn prove_places(&mut self) {
        for at in 0..self.waits.unproven.len() {
            self.apply_part(part_of_taken(self.waits.unproven[at].thread));
        }
        let most = PLACES + PLACES_OF_THREAD * self.threads.len();
        for Unproven { thread, from, until, place, standing } in std::mem::take(&mut self.waits.unproven) {
            let recording = self.find(thread).and_then(|index| self.threads[index].recording.as_ref());
            if recording.is_some_and(|recording| !recording.timeline.ran_between(from, until)) {
                self.waits.places.insert(place, standing.remembered(), most);
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

    /// Shares the time of a recorded thread up to now among its samples: by its records if they are complete, else by
    /// the kernel's counters.
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
            // The places of waits are right even if the records are incomplete.
            let preempted = waits.last().filter(|wait| wait.cause == Cause::Preempted && !wait.ended);
            let preempted_nano = preempted.map_or(0, |wait| wait.nano);
            waits.retain(|wait| wait.cause == Cause::Blocked && wait.place.is_some());
            Basis::Counters { preempted_nano }
        };
        if !self.attached.interpreters.is_empty() {
            recording.frames.complete(&mut waits);
        }
        recording.say_worked(&mut waits);
        let long = self.long_wait();
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

    /// The length, in nanoseconds, from which a wait is an observation of its own. In a process with thousands of
    /// threads, only a wait for the whole batch is one.
    fn long_wait(&self) -> u64 {
        let threads = self.threads.len();
        if threads > SUMMED_THREADS {
            return u64::try_from(self.flush_interval().as_nanos()).unwrap_or(u64::MAX);
        }
        self.event_period() / 2 * (1 + threads / MANY_THREADS) as u64
    }

    /// Whether this batch compares the counters of this thread with its records.
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
        // Short waits for a processor are added up, and are moved in time when they are placed. So their times do not
        // show what the thread worked on.
        let is_moved = waits_for_processor && nano < self.event_period();
        let worked = |process: &mut Self, found: &Found| {
            found.worked.as_ref().filter(|_| !is_moved).and_then(|worked| process.worked(worked, true))
        };
        let (stack, context) = match &place {
            None => {
                self.attached.status.not_placed_nano += nano;
                (self.batch.add_stack(Trust::Complete, &[top]), None)
            }
            Some(Standing(found)) if waits_for_processor => {
                let locations: Vec<_> = std::iter::once(top).chain(found.locations.iter().copied()).collect();
                (self.batch.add_stack(found.trust, &locations), worked(self, found))
            }
            Some(Standing(found)) => {
                let stack = self.batch.present(found.entry.get()).unwrap_or_else(|| {
                    let stack = self.batch.add_stack(found.trust, &found.locations);
                    found.entry.set(Some(self.batch.entry(stack)));
                    stack
                });
                (stack, worked(self, found))
            }
        };
        let sample = Sample { context, observations, ..self.sample(index, stack, at, 0, true) };
        let sample = self.batch.add_sample(sample);
        self.threads[index].ledger.waited(sample, at, nano);
        // The stack's properties are counted once, the observation as often as the sample stands for.
        let mut more = u64::from(observations);
        if let Some(Standing(found)) = &place {
            self.observed(found.trust, &found.named);
            more -= 1;
        }
        let trust = place.map_or(Trust::Complete, |Standing(found)| found.trust);
        let status = &mut self.attached.status;
        status.contexts += if context.is_some() { more } else { 0 };
        status.count(trust, more);
    }
}
