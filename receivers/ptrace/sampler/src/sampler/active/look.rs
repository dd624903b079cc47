//! Examines threads without stopping them, and unwinds those that are blocked.

use std::time::Instant;

use super::{Active, RecordedState, WaitStack};
use crate::arch;
use crate::discover::read_at_most;
use crate::message::{Location, Trust};
use crate::probe::{Activity, SchedStat, parse_stat};
use crate::sampler::interpreters::{AtSample, UNSTOPPED};
use crate::sampler::stack_unwinder::StackUnwinder;
use crate::sampler::states::{LastSeen, PendingCheck};
use crate::sampler::thread_state::Unwound;
use crate::stack_copy::StackPieces;
use crate::threads::is_end;
use crate::unwind::{FRAME_POINTER, Registers, StackMemory, UnwindOutcome};

/// A thread that has been idle for a second is examined in one of this many ticks.
const IDLE_STRIDE: u64 = 8;

/// If there are more threads than this, idle ones are examined less often, so that the number of idle threads examined
/// per tick does not grow with the number of threads.
const IDLE_THREADS: u64 = 1024;

/// If a process has more threads than this, a thread counts as idle after less than a second.
const MANY_THREADS: u64 = 256;

/// A thread that has not run for this fraction of a second (1/`STOPPED`) is checked once for a stop by a signal or a
/// debugger.
const STOPPED: u64 = 10;

/// The longest line of `/proc/PID/task/TID/stat`, in bytes.
const STAT: usize = 1024;

/// How many times a stack is read if the thread runs meanwhile.
const ATTEMPTS: usize = 2;

/// The result of examining a thread.
#[derive(Debug, Clone, Copy)]
pub(in crate::sampler) enum Examination {
    /// Nothing has to be done for the thread in this tick.
    Nothing,
    /// The thread has not run since its last sample.
    Unchanged,
    /// The thread runs.
    Running,
    /// According to its switch records the thread waits; its registers are known, but its stack is not.
    Stands,
    /// According to its switch records the thread waits for a processor; neither its stack nor its registers are known.
    Preempted,
    Blocked(BlockedAt),
    Ended,
}

/// A blocked thread as it was found: its counters, its system call and its stack.
#[derive(Debug, Clone, Copy)]
pub(in crate::sampler) struct BlockedAt {
    sched: SchedStat,
    call: i64,
    sp: u64,
    pc: u64,
    arguments: Option<[u64; 6]>,
}

/// The result of sampling a blocked thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sampler) enum Passive {
    /// The stack of the thread is known.
    Known,
    /// The thread ran meanwhile, so its stack is not known. The sample of the next tick will also cover this time.
    Ran,
    /// Unwinding needs the thread's frame pointer, which a stop would provide.
    Stop,
}

impl Active {
    /// Idle threads are examined in one of this many ticks.
    pub(in crate::sampler) fn idle_stride(&self) -> u64 {
        IDLE_STRIDE * (1 + self.threads.len() as u64 / IDLE_THREADS)
    }

    /// A thread that has not run for this many slots counts as idle: one second, or less if there are many threads.
    pub(in crate::sampler) fn idle_patience(&self) -> u64 {
        let threads = (self.threads.len() as u64).max(MANY_THREADS);
        self.slots_per_second() * MANY_THREADS / threads
    }

    /// Examines a thread. With `all`, idle threads are examined in every tick.
    pub(in crate::sampler) fn look(&mut self, index: usize, idle_stride: u64, all: bool) -> Examination {
        let known = match self.recorded_state(index) {
            RecordedState::Running => return Examination::Running,
            RecordedState::Placed => return Examination::Nothing,
            RecordedState::Unread => Some(Examination::Stands),
            RecordedState::Preempted => Some(Examination::Preempted),
            RecordedState::Unknown => None,
        };
        self.look_again(self.threads[index].id());
        if let Some(known) = known {
            return known;
        }
        let patience = self.idle_patience();
        let turn = self.slot / self.schedule.stride();
        let slot = self.slot;
        let space_generation = self.attached.space_generation;
        let context_generation = self.attached.contexts.generation();
        let wall = self.wants_blocked();
        let task = self.attached.files.task();
        let thread = &mut self.threads[index];
        if thread.stop_turn.is_asked() {
            return Examination::Nothing;
        }
        let idle = slot - thread.idle_since.min(slot) > patience;
        if idle && !all && !(turn + u64::from(thread.files.id)).is_multiple_of(idle_stride) {
            return Examination::Nothing;
        }
        // If the thread ran when it was last examined, check first whether it still runs: then its counters need not be
        // read.
        if thread.last_seen == LastSeen::Running && wall && matches!(thread.files.activity(task), Ok(Activity::Running))
        {
            return self.is_ready(index);
        }
        thread.last_seen.may_have_blocked();
        let sched = match thread.files.schedstat(task) {
            Ok(sched) => sched,
            Err(error) if is_end(&error) => return Examination::Ended,
            Err(_) => return Examination::Nothing,
        };
        thread.count_run(sched);
        // Incomplete stacks may be read again: after the maps were read, the code where one ended may be known.
        if thread.last_seen == LastSeen::Blocked(sched) && thread.blocked.is_final(space_generation, context_generation)
        {
            return Examination::Unchanged;
        }
        match thread.files.activity(task) {
            Ok(Activity::Running) => self.is_ready(index),
            Ok(activity) if activity.is_end() => Examination::Nothing,
            Ok(Activity::Blocked { call, sp, pc, arguments }) => {
                // Threads that run in short slices are seldom found running, but their counters show that they ran.
                if thread.moved {
                    thread.idle_since = slot;
                }
                Examination::Blocked(BlockedAt { sched, call, sp, pc, arguments })
            }
            Err(error) if is_end(&error) => Examination::Ended,
            Err(_) => Examination::Nothing,
        }
    }

    /// Called when a thread runs or is ready to run: its wait is over.
    fn is_ready(&mut self, index: usize) -> Examination {
        let slot = self.slot;
        self.threads[index].is_active(slot);
        if self.may_be_compared(index) { Examination::Preempted } else { Examination::Running }
    }

    /// Reads the stack of a blocked thread without stopping it.
    pub(in crate::sampler) fn passive(
        &mut self,
        index: usize,
        seen: BlockedAt,
        unwinder: &mut StackUnwinder,
        now: Instant,
    ) -> Passive {
        let mut pieces = std::mem::take(&mut unwinder.pieces);
        let mut result = Passive::Ran;
        let mut seen = Some(seen);
        for _ in 0..ATTEMPTS {
            let Some(attempt) = seen else { break };
            let outcome = self.read_blocked(index, attempt, unwinder, &mut pieces);
            if self.concern != PendingCheck::None && self.attached.is_another() {
                // The process's memory could not be read: the thread is blocked in another program, whose mappings are
                // not known here.
                break;
            }
            seen = self.recheck(index, attempt);
            if seen.is_none() {
                result = self.blocked(index, attempt, outcome, now);
                break;
            }
        }
        if result == Passive::Ran {
            let slot = self.slot;
            self.threads[index].is_active(slot);
            self.threads[index].blocked.unwound = None;
        }
        unwinder.pieces = pieces;
        result
    }

    /// Unwinds a blocked thread's stack. `None` if all words that were read last time are unchanged, so that the stack
    /// is the same.
    fn read_blocked(
        &mut self,
        index: usize,
        seen: BlockedAt,
        unwinder: &mut StackUnwinder,
        pieces: &mut StackPieces,
    ) -> Option<UnwindOutcome> {
        let space_generation = self.attached.space_generation;
        let unwound = Unwound { sp: seen.sp, pc: seen.pc, space_generation };
        let thread = &mut self.threads[index];
        let mut known = std::mem::take(&mut thread.blocked);
        if known.stopped.take() == Some(true) {
            known.unwound = None;
        }
        let copied = known.unwound == Some(unwound)
            && known.arguments.is_none_or(|arguments| Some(arguments) == seen.arguments)
            && pieces.copy(&self.attached.files, seen.sp, known.extent);
        let context_generation = self.attached.contexts.generation();
        let mut worked = self.standing(index);
        if !seen.sched.kept() {
            // Without counters, nothing proves that the thread did not run meanwhile.
            worked.disbelieve();
        }
        let thread = &mut self.threads[index];
        if known.worked != worked || known.context_generation != context_generation {
            // Even if the stack is the same, a new sample is needed, because the trace context has changed.
            thread.run = None;
            known.standing = None;
            known.worked = worked;
            known.context_generation = context_generation;
        }
        let words_unchanged = copied && pieces.unchanged(&self.attached.files, &known.words);
        let mut interpreted = std::mem::take(&mut unwinder.interpreted);
        if words_unchanged {
            // An interpreter may have called other functions without any change of the native stack.
            self.capture_interpreted(index, UNSTOPPED, Some(pieces), &mut interpreted);
            if interpreted == known.interpreted {
                unwinder.interpreted = interpreted;
                if !self.attached.interpreters.is_empty() {
                    known.looked_for_frames(known.interpreted.is_any());
                }
                self.threads[index].blocked = known;
                return None;
            }
        }
        let thread = &mut self.threads[index];
        let size = thread.copy_size.bytes();
        let enough = copied && pieces.holds(size);
        if !enough && !pieces.copy(&self.attached.files, seen.sp, size) {
            self.concern.may_be_gone();
        }
        if !words_unchanged {
            self.capture_interpreted(index, UNSTOPPED, Some(pieces), &mut interpreted);
        }
        std::mem::swap(&mut interpreted, &mut known.interpreted);
        unwinder.interpreted = interpreted;
        let mut registers = Registers::passive(seen.sp, seen.pc);
        known.words.clear();
        known.arguments = None;
        let files = std::sync::Arc::clone(&self.attached.files);
        let mut memory = pieces.live(&files, Some(&mut known.words));
        let mut outcome = unwinder.unwind(self, &registers, &mut memory);
        if outcome.needs_register.is_some_and(|register| register != FRAME_POINTER) && seen.arguments.is_some() {
            // The registers of the system call differ from call to call, so they are used only if unwinding needs them
            // (glibc's `vfork` keeps its return address in one).
            registers = arch::blocked_registers(seen.sp, seen.pc, seen.arguments);
            known.arguments = seen.arguments;
            outcome = unwinder.unwind(self, &registers, &mut memory);
        }
        if outcome.needs_register.is_some() || outcome.trust == Trust::Guessed {
            let frame_pointer = self.threads[index].frame_pointer(seen.sp, seen.pc, |address| memory.read_u64(address));
            if let Some(value) = frame_pointer {
                registers.set(FRAME_POINTER, value);
                outcome = unwinder.unwind(self, &registers, &mut memory);
            }
        }
        // The frames are named before the check whether the thread ran meanwhile. If it did not, the names are valid.
        let at_sample = AtSample { memory: &mut memory, copied: None, ran_on_since: None };
        known.named =
            unwinder.name(self, &mut outcome, &known.interpreted, true, Some(at_sample), &mut known.locations);
        self.keep_calls(index, &unwinder.frames, || WaitStack::new(outcome.trust, &known.locations, known.named, None));
        if !self.attached.interpreters.is_empty() {
            known.looked_for_frames(known.interpreted.is_any());
        }
        known.unwound = Some(unwound);
        known.trust = outcome.trust;
        known.extent = pieces.extent();
        (known.stack, known.standing) = (None, None);
        let thread = &mut self.threads[index];
        thread.run = None;
        thread.blocked = known;
        Some(outcome)
    }

    /// Checks once whether a thread that has not run for a while was stopped by a signal or a debugger. A stopped
    /// thread is not waiting by itself, so its stack gets a frame that shows the stop.
    pub(in crate::sampler) fn notice_stop(&mut self, index: usize) {
        let patience = self.slots_per_second() / STOPPED;
        let thread = &mut self.threads[index];
        let stands = self.slot - thread.idle_since.min(self.slot);
        if thread.blocked.stopped.is_some() || stands < patience {
            return;
        }
        let stat = read_at_most(self.attached.files.directory(), &format!("task/{}/stat", thread.files.id), STAT);
        let stat = stat.ok().and_then(|(line, _)| parse_stat(&line));
        let stopped = stat.is_some_and(|stat| matches!(stat.state, b'T' | b't'));
        thread.blocked.stopped = Some(stopped);
        if !stopped {
            return;
        }
        thread.blocked.locations.insert(0, Location::STOPPED);
        let stack = self.batch.add_stack(thread.blocked.trust, &thread.blocked.locations);
        thread.blocked.stack = Some(self.batch.entry(stack));
        if let Some(sample) = self.batch.present(thread.run) {
            self.batch.replace_stack(sample, stack);
        }
    }

    /// Examines a blocked thread again. `None` if it has not run since, otherwise its new state for another attempt.
    fn recheck(&mut self, index: usize, before: BlockedAt) -> Option<BlockedAt> {
        let task = self.attached.files.task();
        let files = &mut self.threads[index].files;
        let Ok(sched) = files.schedstat(task) else {
            // The thread may have ended, after running once more.
            return Some(before);
        };
        if before.sched.kept() && sched == before.sched {
            return None;
        }
        // Either the thread ran between its examination and the reading of its stack, or the kernel maintains no
        // counters.
        match files.activity(task) {
            Ok(Activity::Blocked { call, sp, pc, arguments }) => {
                let same = !sched.kept() && (sp, pc) == (before.sp, before.pc);
                (!same).then_some(BlockedAt { sched, call, sp, pc, arguments })
            }
            _ => Some(before),
        }
    }

    fn blocked(&mut self, index: usize, seen: BlockedAt, outcome: Option<UnwindOutcome>, now: Instant) -> Passive {
        let slot = self.slot;
        let thread = &mut self.threads[index];
        thread.sched = seen.sched;
        if seen.sched.kept() {
            let state = LastSeen::Blocked(seen.sched);
            if thread.last_seen != state {
                thread.idle_since = slot;
            }
            thread.last_seen = state;
        } else if outcome.is_some() {
            thread.idle_since = slot;
        }
        let Some(outcome) = outcome else { return Passive::Known };
        thread.copy_size.sufficed(thread.blocked.extent);
        if outcome.unknown_code.is_some() {
            self.attached.reload.want();
            // The thread is examined again in the next tick, when the new mapping may be known.
            thread.last_seen = LastSeen::Unknown;
        }
        let stop = outcome.needs_register.is_some()
            && outcome.trust != Trust::Complete
            && arch::survives_stop(seen.call)
            && thread.may_be_rescued(now);
        if stop { Passive::Stop } else { Passive::Known }
    }
}
