//! Registers and stacks that were taken from threads and wait to be unwound.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::active::{Active, FoundStack, PreemptedWait, WaitStack};
use super::batch::BatchEntry;
use super::contexts::TraceContextReading;
use super::cut::is_cut;
use super::evidence::Proof;
use super::interpreters::{AtSample, Interpreted, NamedFrames, UNSTOPPED, WHILE_STOPPED};
use super::pending_stops::PendingStop;
use super::rings::{MemoryReading, RunningSample};
use super::stack_unwinder::StackUnwinder;
use crate::arch::{self, RawRegisters};
use crate::message::{Location, ProcessId, Trust, read_class};
use crate::perf::record::{CpuMode, User};
use crate::process_files::Life;
use crate::stack_copy::StackPieces;
use crate::stop::StoppedThread;
use crate::unwind::{Frame, Registers, StackMemory, UnwindOutcome};

/// How many stacks may wait to be unwound. With more, the oldest is unwound at once, even if other threads are stopped
/// meanwhile.
pub(super) const MOST_CAPTURED: usize = 64;

/// How many stacks may wait for the maps to be read again. Further samples keep the part of their stack that could be
/// unwound.
const MOST_UNKNOWN: usize = 128;

/// Registers and stack of a thread, from a stop or a perf event.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) process: ProcessId,
    thread: u32,
    registers: Registers,
    /// The kernel's call chain, innermost function first.
    kernel: Vec<Location>,
    /// When registers and stack were taken.
    pub(super) at: Instant,
    space_generation: u64,
    /// Whether the thread was in a system call.
    in_call: bool,
    /// Whether the thread was blocked.
    blocked: bool,
    /// The preceding preempted wait, if this was taken to find its place.
    preempted: Option<PreemptedWait>,
    /// Whether the thread was stopped for this; otherwise the kernel sampled it while it ran.
    stopped: bool,
    /// How long after the sample a reader had read the thread's memory, and for how long the reader kept the thread off
    /// its processor.
    read: Option<(Duration, Duration)>,
    /// The running time that the sample covers, in nanoseconds.
    period_nano: u64,
    stack: CapturedStack,
    /// The interpreter frames; `None` if not read yet.
    interpreted: Option<Interpreted>,
    /// Whether data that was read after the sample is valid for it.
    proof: Proof,
    /// The trace context, if it was read before the thread continued.
    worked: Option<TraceContextReading>,
}

#[derive(Debug)]
enum CapturedStack {
    /// A copy that is to be unwound.
    Copied(StackPieces),
    /// A stack that was already unwound while the thread was stopped.
    Unwound(UnwindOutcome, Vec<Frame>),
}

/// A stack that ended in code outside of all known mappings. Its sample is already in the batch, with the part that
/// could be unwound.
///
/// This happens when a program starts or loads a library: it runs code that was mapped a moment ago.
#[derive(Debug)]
pub(super) struct UnknownCodeStack {
    process: ProcessId,
    sample: BatchEntry,
    trust: Trust,
    registers: Registers,
    kernel: Vec<Location>,
    pieces: StackPieces,
    interpreted: Interpreted,
    /// The result of naming the frames that could be unwound.
    named: NamedFrames,
    copied: Option<Instant>,
    ran_on_since: Option<Instant>,
}

/// Stacks that wait to be unwound, and spare buffers for more.
#[derive(Debug, Default)]
pub(super) struct Captures {
    pub(super) waiting: VecDeque<Captured>,
    unknown: Vec<UnknownCodeStack>,
    pub(super) spare: Vec<StackPieces>,
}

/// The result of taking registers and stack from a stopped thread.
pub(super) enum StopCapture {
    /// The stack is unwound, or waits to be unwound.
    Stack,
    /// The thread is a 32-bit thread.
    Architecture,
    /// The thread was killed during the stop, and still has to be reaped.
    Killed,
}

impl Captures {
    /// Takes registers and stack from a stopped thread and releases it. The length of the stop is counted from `since`,
    /// a moment before the stop was noticed.
    pub(super) fn capture_stopped(
        &mut self,
        process: &mut Active,
        stopped: StoppedThread,
        stop: PendingStop,
        since: Instant,
        unwinder: &mut StackUnwinder,
    ) -> StopCapture {
        let thread = stopped.thread();
        let raw = stopped.registers();
        let captured = match &raw {
            Ok(Some(raw)) => self.capture(process, thread, raw, stop, unwinder),
            _ => None,
        };
        let lives = stopped.release();
        let end = Instant::now();
        process.count_stop(thread, end.saturating_duration_since(since));
        self.waiting.extend(captured);
        match raw {
            _ if !lives => StopCapture::Killed,
            Ok(None) => StopCapture::Architecture,
            _ => StopCapture::Stack,
        }
    }

    fn capture(
        &mut self,
        process: &mut Active,
        thread: u32,
        raw: &RawRegisters,
        stop: PendingStop,
        unwinder: &mut StackUnwinder,
    ) -> Option<Captured> {
        let index = process.find(thread)?;
        let at = Instant::now();
        let short = arch::short_call(raw);
        let before = std::mem::replace(&mut process.threads[index].short_call, short.map(|short| short.mark));
        if let Some(short) = short
            && before != Some(short.mark)
            && is_cut(&process.attached.files, thread, &short)
        {
            process.count_cut(index, short.name, at);
        }
        // The results of some system calls show that the thread was waiting in the call.
        let blocked = stop.blocked || arch::is_interrupted_wait(raw);
        if let Some(asked) = stop.asked.filter(|_| !blocked)
            && let Ok(sched) = process.threads[index].files.schedstat(process.attached.files.task())
            && asked.was_queued(sched, at)
        {
            // The thread was waiting for a processor when it was asked to stop, so this is not a sample of a running
            // thread.
            return None;
        }
        let period_nano = process.event_period().saturating_mul(stop.periods);
        let state = &process.threads[index];
        let sp = arch::stack_pointer(raw);
        let mut pieces = self.spare.pop().unwrap_or_default();
        let size = if state.stopped_sp.is_none() { state.copy_size.at_first() } else { state.copy_size.bytes() };
        if !pieces.copy(&process.attached.files, sp, size) {
            process.concern.may_be_gone();
            if process.attached.files.alive() != Life::Same {
                // The thread stopped at the first instruction of another program, whose mappings are not known here.
                self.spare.push(pieces);
                return None;
            }
        }
        let is_scattered = state.is_scattered(sp);
        let registers = arch::registers(raw);
        process.threads[index].pointer = arch::thread_pointer(raw);
        let mut interpreted = Interpreted::default();
        let reading = Instant::now();
        process.capture_interpreted(index, WHILE_STOPPED, Some(&pieces), &mut interpreted);
        if interpreted.is_any() && !blocked {
            let took = u64::try_from(reading.elapsed().as_nanos()).unwrap_or(u64::MAX);
            process.attached.status.read_stopped[read_class(took)] += 1;
        }
        let worked = process.standing(index);
        let stack = if is_scattered {
            let files = std::sync::Arc::clone(&process.attached.files);
            let mut memory = pieces.live(&files, None);
            let outcome = unwinder.unwind(process, &registers, &mut memory);
            self.spare.push(pieces);
            CapturedStack::Unwound(outcome, unwinder.frames.clone())
        } else {
            CapturedStack::Copied(pieces)
        };
        process.threads[index].stopped_sp = Some(sp);
        Some(Captured {
            process: process.attached.id,
            thread,
            registers,
            kernel: Vec::new(),
            at,
            space_generation: process.attached.space_generation,
            in_call: arch::is_in_call(raw),
            blocked,
            preempted: None,
            stopped: true,
            read: None,
            period_nano,
            stack,
            interpreted: Some(interpreted),
            proof: Proof::Proven,
            worked: Some(worked),
        })
    }

    /// Adds a sample that the kernel took of a running thread, either for its running time or right after a wait.
    /// Samples without registers are left out: they are of ending threads.
    pub(super) fn take_sample(
        &mut self,
        (process, space_generation): (ProcessId, u64),
        sample: RunningSample,
        period_nano: u64,
        preempted: Option<PreemptedWait>,
    ) {
        let User::Registers(registers) = sample.user else { return self.spare.push(sample.pieces) };
        let (interpreted, worked, proof, read) = match sample.read {
            Some(MemoryReading { interpreted, worked, proof, behind, held }) => {
                (Some(interpreted), worked.filter(|_| proof.holds()), proof, Some((behind, held)))
            }
            None => (None, None, Proof::None, None),
        };
        self.waiting.push_back(Captured {
            process,
            thread: sample.thread,
            registers,
            kernel: sample.kernel,
            at: sample.at,
            space_generation,
            in_call: sample.mode == CpuMode::Kernel,
            blocked: false,
            preempted,
            stopped: false,
            read,
            period_nano,
            stack: CapturedStack::Copied(sample.pieces),
            interpreted,
            proof,
            worked,
        });
    }

    /// Unwinds a captured stack, and adds the sample.
    pub(super) fn finish(
        &mut self,
        process: &mut Active,
        mut captured: Captured,
        unwinder: &mut StackUnwinder,
        locations: &mut Vec<Location>,
    ) {
        let sp = captured.registers.stack_pointer();
        let index = if captured.stopped {
            process.find(captured.thread)
        } else {
            Some(process.find_or_add_thread(captured.thread))
        };
        if let (Some(index), Some((behind, held))) = (index, captured.read) {
            process.count_reading(index, behind, held, captured.interpreted.as_ref().is_some_and(Interpreted::is_any));
        }
        let interpreted = captured.interpreted.take().unwrap_or_else(|| {
            // The thread has continued meanwhile, but frames that its stack and registers prove are still named.
            let mut interpreted = Interpreted::default();
            if let Some(index) = index {
                process.capture_interpreted(index, UNSTOPPED, None, &mut interpreted);
            }
            interpreted
        });
        let copied = (!captured.stopped).then_some(captured.at);
        let ran_on_since = (!captured.proof.holds()).then_some(captured.at);
        let mut worked = captured.worked;
        let (mut outcome, mut pieces) = match captured.stack {
            CapturedStack::Copied(mut pieces) => {
                if worked.is_none() {
                    worked = index.map(|index| process.copied(index, &pieces));
                }
                let outcome = unwinder.unwind_at(process, copied, &captured.registers, &mut pieces.copied());
                if let Some(index) = index {
                    match outcome.needs_memory {
                        needed if !captured.stopped => {
                            if needed.is_some() {
                                process.goes_on(index);
                            }
                        }
                        None => process.threads[index].copy_size.sufficed(pieces.extent()),
                        Some(address) => {
                            let thread = &mut process.threads[index];
                            let distance = address.wrapping_sub(sp);
                            if !thread.copy_size.fell_short(distance) {
                                thread.scattered(sp);
                            }
                        }
                    }
                    if captured.in_call {
                        let mut memory = pieces.copied();
                        process.threads[index].saw_site(&captured.registers, |address| memory.read_u64(address));
                    }
                }
                (outcome, Some(pieces))
            }
            CapturedStack::Unwound(outcome, unwound) => {
                unwinder.frames = unwound;
                (outcome, None)
            }
        };
        let mut memory = pieces.as_mut().map(StackPieces::copied);
        let at_sample = memory.as_mut().map(|memory| AtSample { memory, copied, ran_on_since });
        let named = name(process, &mut outcome, &interpreted, at_sample, unwinder, locations);
        let standing = || WaitStack::new(outcome.trust, locations, named, None);
        if let Some(preempted) = captured.preempted {
            if let Some(index) = index.filter(|_| outcome.unknown_code.is_none()) {
                process.place_preempted_wait(index, &preempted, &unwinder.frames, standing);
            }
            return self.spare.extend(pieces);
        }
        if let Some(index) = index.filter(|_| !captured.stopped) {
            process.keep_calls(index, &unwinder.frames, standing);
        }
        locations.splice(..0, captured.kernel.iter().copied());
        let unknown = outcome.unknown_code.is_some();
        if unknown && captured.space_generation == process.attached.space_generation {
            process.attached.reload.want();
        }
        let worked = worked.unwrap_or_default();
        let mut sample = None;
        if let Some(index) = index {
            // The stored stack of this blocked thread was unwound with fewer registers than the new one.
            process.threads[index].blocked.unwound = None;
            let found = FoundStack { trust: outcome.trust, locations, worked: &worked, at: captured.at };
            sample = if captured.blocked {
                process.account_met_blocked(index, found)
            } else {
                Some(process.account_on_cpu(index, found, captured.period_nano))
            };
        }
        match (sample, pieces) {
            (Some(sample), Some(pieces)) if unknown && self.unknown.len() < MOST_UNKNOWN => {
                let Captured { registers, kernel, .. } = captured;
                self.unknown.push(UnknownCodeStack {
                    process: process.attached.id,
                    sample,
                    trust: outcome.trust,
                    registers,
                    kernel,
                    pieces,
                    interpreted,
                    named,
                    copied,
                    ran_on_since,
                });
            }
            (sample, pieces) => {
                self.spare.extend(pieces);
                if sample.is_some() {
                    process.observed(outcome.trust, &named);
                }
            }
        }
    }

    /// Unwinds a stack that ended in unknown code again, after the maps were read.
    pub(super) fn retry(
        &mut self,
        process: &mut Active,
        mut unknown: UnknownCodeStack,
        unwinder: &mut StackUnwinder,
        locations: &mut Vec<Location>,
    ) {
        let mut pieces = unknown.pieces.copied();
        let mut outcome = unwinder.unwind_at(process, unknown.copied, &unknown.registers, &mut pieces);
        if outcome.unknown_code.is_some() {
            self.unknown.push(unknown);
            return;
        }
        let UnknownCodeStack { copied, ran_on_since, .. } = unknown;
        let at_sample = AtSample { memory: &mut unknown.pieces.copied(), copied, ran_on_since };
        let named = name(process, &mut outcome, &unknown.interpreted, Some(at_sample), unwinder, locations);
        locations.splice(..0, unknown.kernel.iter().copied());
        let replaced = process.replace_stack(unknown.sample, outcome.trust, locations);
        let (trust, named) = if replaced { (outcome.trust, named) } else { (unknown.trust, unknown.named) };
        process.observed(trust, &named);
        self.spare.push(unknown.pieces);
    }

    /// Whether samples of a process wait for its maps to be read.
    pub(super) fn has_unknown(&self, process: ProcessId) -> bool {
        self.unknown.iter().any(|unknown| unknown.process == process)
    }

    /// Counts the samples whose stacks ended in unknown code. Their stacks stay incomplete, because the batch is sent
    /// now.
    pub(super) fn settle_unknown(&mut self, process: &mut Active) {
        for unknown in self.take_unknown(process.attached.id) {
            process.observed(unknown.trust, &unknown.named);
            self.spare.push(unknown.pieces);
        }
    }

    /// Whether samples of this process that the kernel took wait to be unwound.
    pub(super) fn has_samples_of(&self, process: ProcessId) -> bool {
        self.waiting.iter().any(|captured| captured.process == process && !captured.stopped)
    }

    /// Drops the samples of a process that the kernel took.
    pub(super) fn drop_samples_of(&mut self, process: ProcessId) {
        self.waiting.retain(|captured| captured.process != process || captured.stopped);
    }

    /// Drops all waiting stacks of a process.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.waiting.retain(|captured| captured.process != process);
        self.unknown.retain(|unknown| unknown.process != process);
    }

    /// Takes the stacks of a process that ended in unknown code.
    pub(super) fn take_unknown(&mut self, process: ProcessId) -> Vec<UnknownCodeStack> {
        self.unknown.extract_if(.., |unknown| unknown.process == process).collect()
    }
}

/// Names the frames of the stack that was unwound last.
fn name(
    process: &mut Active,
    outcome: &mut UnwindOutcome,
    interpreted: &Interpreted,
    at_sample: Option<AtSample<'_>>,
    unwinder: &StackUnwinder,
    locations: &mut Vec<Location>,
) -> NamedFrames {
    let is_copied = at_sample.as_ref().is_some_and(|at| at.copied.is_some());
    let mut named = unwinder.name(process, outcome, interpreted, false, at_sample, locations);
    if is_copied && outcome.needs_memory.is_some() {
        // The copy of the stack ended here, and memory that was read later belongs to another moment.
        locations.push(Location::CALLERS_NOT_KNOWN);
        named.merged.missing_callers += 1;
    }
    named
}

#[cfg(test)]
mod tests;
