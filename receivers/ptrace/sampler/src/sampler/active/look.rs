//! Examines threads without touching them, and unwinds those that are blocked.

use std::time::Instant;

use super::{Active, ByRecords, Standing};
use crate::arch;
use crate::discover::read_at_most;
use crate::message::{Location, Trust};
use crate::probe::{Activity, SchedStat, parse_stat};
use crate::sampler::interpreters::{AtSample, UNSTOPPED};
use crate::sampler::stack_unwinder::StackUnwinder;
use crate::sampler::states::{Concern, LastSeen};
use crate::sampler::thread_state::Unwound;
use crate::stack_copy::StackPieces;
use crate::threads::is_end;
use crate::unwind::{FRAME_POINTER, Outcome, Registers, StackMemory};

/// A thread that was idle for a second is examined in one of this many ticks.
const IDLE_STRIDE: u64 = 8;

/// If there are more idle threads than this, they are looked at less often, so that no tick looks at more of them than
/// at this many.
const IDLE_THREADS: u64 = 1024;

/// If a process has more threads than this, they count as idle after less than a second.
const MANY_THREADS: u64 = 256;

/// A thread that has not run for one part in so many of a second is asked whether it has been stopped.
const STOPPED: u64 = 10;

/// The longest line of `stat`, in bytes.
const STAT: usize = 1024;

/// How many times a stack is read, if the thread runs while it is read.
const ATTEMPTS: usize = 2;

/// The result of examining a thread.
#[derive(Debug, Clone, Copy)]
pub(in crate::sampler) enum Look {
    /// Nothing is to be done for it in this tick.
    Nothing,
    /// It has not run since its last sample.
    Unchanged,
    /// It runs.
    Running,
    /// Records tell that it waits, but not where.
    Stands,
    /// Records tell that it waits for a processor, but not where, nor its registers.
    Preempted,
    /// It is blocked.
    Blocked(BlockedAt),
    /// It ended.
    Ended,
}

/// A blocked thread as it was seen: its counters, its system call and where its stack is.
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
    /// Its stack is known.
    Known,
    /// The thread ran meanwhile, so nothing is known. The next tick's sample will stand for this time as well.
    Ran,
    /// Its frame pointer is needed, and can be had by stopping the thread.
    Stop,
}

impl Active {
    /// In one of how many ticks idle threads are looked at.
    pub(in crate::sampler) fn idle_stride(&self) -> u64 {
        IDLE_STRIDE * (1 + self.threads.len() as u64 / IDLE_THREADS)
    }

    /// For how many slots a thread must not have run to count as idle: one second, or less where there are many
    /// threads.
    pub(in crate::sampler) fn idle_patience(&self) -> u64 {
        let threads = (self.threads.len() as u64).max(MANY_THREADS);
        self.slots_per_second() * MANY_THREADS / threads
    }

    /// Examines a thread. With `all`, idle threads are examined in every tick.
    pub(in crate::sampler) fn look(&mut self, index: usize, idle_stride: u64, all: bool) -> Look {
        let known = match self.by_records(index) {
            ByRecords::Runs => return Look::Running,
            ByRecords::Waits => return Look::Nothing,
            ByRecords::Stands => Some(Look::Stands),
            ByRecords::Preempted => Some(Look::Preempted),
            ByRecords::Unknown => None,
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
            return Look::Nothing;
        }
        let idle = slot - thread.idle_since.min(slot) > patience;
        if idle && !all && !(turn + u64::from(thread.files.id)).is_multiple_of(idle_stride) {
            return Look::Nothing;
        }
        // A thread that ran when it was last examined is first asked whether it still runs: then its counters need not
        // be read.
        if thread.last_seen == LastSeen::Running && wall && matches!(thread.files.activity(task), Ok(Activity::Running))
        {
            return self.is_ready(index);
        }
        thread.last_seen.may_have_blocked();
        let sched = match thread.files.schedstat(task) {
            Ok(sched) => sched,
            Err(error) if is_end(&error) => return Look::Ended,
            Err(_) => return Look::Nothing,
        };
        thread.count_run(sched);
        // The maps may have been read since an incomplete stack was unwound, so that the code in which it ended is
        // known now.
        if thread.last_seen == LastSeen::Blocked(sched) && thread.blocked.is_final(space_generation, context_generation)
        {
            return Look::Unchanged;
        }
        match thread.files.activity(task) {
            Ok(Activity::Running) => self.is_ready(index),
            Ok(activity) if activity.is_end() => Look::Nothing,
            Ok(Activity::Blocked { call, sp, pc, arguments }) => {
                // Threads that run in short turns are hardly ever met running: the counters tell that they do.
                if thread.moved {
                    thread.idle_since = slot;
                }
                Look::Blocked(BlockedAt { sched, call, sp, pc, arguments })
            }
            Err(error) if is_end(&error) => Look::Ended,
            Err(_) => Look::Nothing,
        }
    }

    /// A thread runs, or is ready to: what it waited for is over.
    fn is_ready(&mut self, index: usize) -> Look {
        let slot = self.slot;
        self.threads[index].is_active(slot);
        if self.may_be_compared(index) { Look::Preempted } else { Look::Running }
    }

    /// Finds out the stack of a blocked thread without stopping it.
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
            if self.concern != Concern::None && self.attached.is_another() {
                // Its memory could not be read: it is blocked in another program, whose mappings are not known here.
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

    /// Unwinds a blocked thread's stack. `None` if all words that were read the last time are unchanged, so that the
    /// stack is the same.
    fn read_blocked(
        &mut self,
        index: usize,
        seen: BlockedAt,
        unwinder: &mut StackUnwinder,
        pieces: &mut StackPieces,
    ) -> Option<Outcome> {
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
            // Without counters nothing proves that the thread stood still.
            worked.disbelieve();
        }
        let thread = &mut self.threads[index];
        if known.worked != worked || known.context_generation != context_generation {
            // The stack may be the same: it is another sample all the same.
            thread.run = None;
            known.standing = None;
            known.worked = worked;
            known.context_generation = context_generation;
        }
        let words_unchanged = copied && pieces.unchanged(&self.attached.files, &known.words);
        let mut interpreted = std::mem::take(&mut unwinder.interpreted);
        if words_unchanged {
            // Interpreters call functions of the program without native calls, so their frames may still be others.
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
            // Registers of the system call are only used where unwinding needs them (glibc's `vfork` keeps its return
            // address in one), since they differ from call to call.
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
        // Before it is known whether the thread ran meanwhile: if it did not, these are the names at that moment.
        let at_sample = AtSample { memory: &mut memory, copied: None, ran_on_since: None };
        known.named =
            unwinder.name(self, &mut outcome, &known.interpreted, true, Some(at_sample), &mut known.locations);
        self.saw_calls(index, &unwinder.frames, || Standing::new(outcome.trust, &known.locations, known.named, None));
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

    /// Asks once whether a thread that has not run for a while has been stopped by a signal or a debugger. That is no
    /// waiting of its own, so its stack gets a frame that says it.
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

    /// Examines a thread once more that was seen blocked. `None` if it has not run since, else what to try again with.
    fn recheck(&mut self, index: usize, before: BlockedAt) -> Option<BlockedAt> {
        let task = self.attached.files.task();
        let files = &mut self.threads[index].files;
        let Ok(sched) = files.schedstat(task) else {
            // It may have ended, and have run before that.
            return Some(before);
        };
        if before.sched.kept() && sched == before.sched {
            return None;
        }
        // Either it ran after it was examined and before its stack was read, or the kernel keeps no counters.
        match files.activity(task) {
            Ok(Activity::Blocked { call, sp, pc, arguments }) => {
                let same = !sched.kept() && (sp, pc) == (before.sp, before.pc);
                (!same).then_some(BlockedAt { sched, call, sp, pc, arguments })
            }
            _ => Some(before),
        }
    }

    fn blocked(&mut self, index: usize, seen: BlockedAt, outcome: Option<Outcome>, now: Instant) -> Passive {
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
            // Look again in the next tick, when the new mapping may be known.
            thread.last_seen = LastSeen::Unknown;
        }
        let stop = outcome.needs_register.is_some()
            && outcome.trust != Trust::Complete
            && arch::survives_stop(seen.call)
            && thread.may_be_rescued(now);
        if stop { Passive::Stop } else { Passive::Known }
    }
}
