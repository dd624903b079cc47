//! The registers and stacks that were taken from threads and wait to be unwound.

use std::collections::VecDeque;
use std::time::Instant;

use super::active::{Active, Found, SampleRef};
use super::cut::is_cut;
use super::look::StackUnwinder;
use super::pending_stops::PendingStop;
use crate::arch::{self, RawRegisters};
use crate::message::{Location, ProcessId, Trust};
use crate::perf::record::{CpuMode, OnCpuSample, User};
use crate::process_files::Life;
use crate::stack_copy::StackPieces;
use crate::stop::StoppedThread;
use crate::unwind::{Outcome, Registers, StackMemory};

/// Stacks that wait to be unwound, at most: beyond, the oldest is unwound before more are taken, while other threads
/// may stand still.
pub(super) const MOST_CAPTURED: usize = 64;

/// Stacks that wait for the maps to be read again, at most. More are accounted for as they are.
const MOST_UNKNOWN: usize = 32;

/// What was taken from a thread that was stopped, or that the kernel sampled.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) process: ProcessId,
    thread: u32,
    registers: Registers,
    /// What the kernel did for it, the innermost first.
    kernel: Vec<Location>,
    at: Instant,
    space_generation: u64,
    /// Whether the thread was in a system call.
    in_call: bool,
    /// Whether it was blocked.
    blocked: bool,
    /// Whether it was stopped for it.
    stopped: bool,
    /// For how much running time it was taken.
    period_nano: u64,
    stack: CapturedStack,
}

#[derive(Debug)]
enum CapturedStack {
    /// A copy, to be unwound.
    Copied(StackPieces),
    /// It was unwound at once.
    Unwound(Outcome, Vec<Location>),
}

/// A stack that ended in code that no map told of yet, of a sample that was added with what was known.
///
/// A program that starts, and one that loads a library, runs in code that was mapped a moment ago.
#[derive(Debug)]
pub(super) struct Unknown {
    process: ProcessId,
    sample: SampleRef,
    trust: Trust,
    registers: Registers,
    kernel: Vec<Location>,
    pieces: StackPieces,
}

/// Copies that wait to be unwound, and buffers for more.
#[derive(Debug, Default)]
pub(super) struct Captures {
    pub(super) waiting: VecDeque<Captured>,
    unknown: Vec<Unknown>,
    spare: Vec<StackPieces>,
}

/// What came of taking registers and stack from a stopped thread.
pub(super) enum Taken {
    /// Its stack is known, or waits to be unwound.
    Stack,
    /// It is a 32-bit thread.
    Architecture,
    /// It was killed while it was stopped, and is still to be reaped.
    Killed,
}

impl Captures {
    /// Takes registers and stack from a stopped thread and lets it go. Its stop is counted from `since`, a moment
    /// before it was noticed.
    pub(super) fn take(
        &mut self,
        process: &mut Active,
        stopped: StoppedThread,
        stop: PendingStop,
        since: Instant,
        unwinder: &mut StackUnwinder,
    ) -> Taken {
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
            _ if !lives => Taken::Killed,
            Ok(None) => Taken::Architecture,
            _ => Taken::Stack,
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
            && is_cut(&process.files, thread, &short)
        {
            process.count_cut(index, short.name, at);
        }
        // Some calls tell by their result that the thread waited in them.
        let blocked = stop.blocked || arch::is_interrupted_wait(raw);
        if let Some(asked) = stop.asked.filter(|_| !blocked)
            && let Ok(sched) = process.threads[index].files.schedstat(process.files.task())
            && asked.was_queued(sched, at)
        {
            // It did not run, so what it would have done next is no sample of it running.
            return None;
        }
        let period_nano = process.event_period().saturating_mul(stop.periods);
        let state = &process.threads[index];
        let sp = arch::stack_pointer(raw);
        let mut pieces = self.spare.pop().unwrap_or_default();
        let size = if state.stopped_sp.is_none() { state.copy_size.at_first() } else { state.copy_size.bytes() };
        if !pieces.copy(&process.files, sp, size) {
            process.may_be_gone = true;
            if process.files.alive() != Life::Same {
                // It stopped at the first instruction of another program, of which nothing is known here.
                self.spare.push(pieces);
                return None;
            }
        }
        let registers = arch::registers(raw);
        let stack = if state.is_scattered(sp) {
            let mut locations = Vec::new();
            let files = std::sync::Arc::clone(&process.files);
            let mut memory = pieces.live(&files, None);
            let outcome = unwinder.unwind(process, &registers, &mut memory, &mut locations);
            self.spare.push(pieces);
            CapturedStack::Unwound(outcome, locations)
        } else {
            CapturedStack::Copied(pieces)
        };
        process.threads[index].pointer = arch::thread_pointer(raw);
        process.threads[index].stopped_sp = Some(sp);
        Some(Captured {
            process: process.id,
            thread,
            registers,
            kernel: Vec::new(),
            at,
            space_generation: process.space_generation,
            in_call: arch::is_in_call(raw),
            blocked,
            stopped: true,
            period_nano,
            stack,
        })
    }

    /// Takes a sample of a running thread, which the kernel copied.
    pub(super) fn take_sample(&mut self, process: ProcessId, space_generation: u64, sample: &OnCpuSample<'_>) -> bool {
        let User::Registers(registers) = sample.user else { return false };
        let mut pieces = self.spare.pop().unwrap_or_default();
        pieces.take(registers.stack_pointer(), sample.stack);
        self.waiting.push_back(Captured {
            process,
            thread: sample.thread,
            registers,
            kernel: kernel(sample).collect(),
            at: Instant::now(),
            space_generation,
            in_call: sample.mode == CpuMode::Kernel,
            blocked: false,
            stopped: false,
            period_nano: sample.period_nano,
            stack: CapturedStack::Copied(pieces),
        });
        true
    }

    /// Unwinds what was taken from a thread, and accounts for it.
    pub(super) fn finish(
        &mut self,
        process: &mut Active,
        captured: Captured,
        unwinder: &mut StackUnwinder,
        locations: &mut Vec<Location>,
    ) {
        let sp = captured.registers.stack_pointer();
        let index = if captured.stopped { process.find(captured.thread) } else { Some(process.meet(captured.thread)) };
        let (outcome, pieces) = match captured.stack {
            CapturedStack::Copied(mut pieces) => {
                let mut outcome = unwinder.unwind(process, &captured.registers, &mut pieces.copied(), locations);
                if !captured.stopped && outcome.needs_memory.is_some() {
                    outcome = unwinder.unwind_further(process, &captured.registers, &mut pieces, locations, outcome);
                }
                if let Some(index) = index {
                    let thread = &mut process.threads[index];
                    match outcome.needs_memory {
                        _ if !captured.stopped => {}
                        None => thread.copy_size.sufficed(pieces.extent()),
                        Some(address) => {
                            let distance = address.wrapping_sub(sp);
                            if !thread.copy_size.fell_short(distance) {
                                thread.scattered(sp);
                            }
                        }
                    }
                    if captured.in_call {
                        let mut memory = pieces.copied();
                        thread.saw_site(&captured.registers, |address| memory.read_u64(address));
                    }
                }
                (outcome, Some(pieces))
            }
            CapturedStack::Unwound(outcome, unwound) => {
                *locations = unwound;
                (outcome, None)
            }
        };
        locations.splice(..0, captured.kernel.iter().copied());
        let unknown = outcome.unknown_code.is_some();
        if unknown && captured.space_generation == process.space_generation {
            process.want_reload();
        }
        let mut sample = None;
        if let Some(index) = index {
            // What was known of it as blocked was derived with fewer registers.
            process.threads[index].blocked.valid = false;
            let found = Found { trust: outcome.trust, locations, at: captured.at };
            sample = if captured.blocked {
                process.account_met_blocked(index, found)
            } else {
                Some(process.account_on_cpu(index, found, captured.period_nano))
            };
        }
        match (sample, pieces) {
            (Some(sample), Some(pieces)) if unknown && self.unknown.len() < MOST_UNKNOWN => {
                let Captured { registers, kernel, .. } = captured;
                self.unknown.push(Unknown {
                    process: process.id,
                    sample,
                    trust: outcome.trust,
                    registers,
                    kernel,
                    pieces,
                });
            }
            (sample, pieces) => {
                self.spare.extend(pieces);
                if sample.is_some() {
                    process.observed(outcome.trust);
                }
            }
        }
    }

    /// Unwinds once more what ended in unknown code, since the maps were read again.
    pub(super) fn retry(
        &mut self,
        process: &mut Active,
        mut unknown: Unknown,
        unwinder: &mut StackUnwinder,
        locations: &mut Vec<Location>,
    ) {
        let outcome = unwinder.unwind(process, &unknown.registers, &mut unknown.pieces.copied(), locations);
        if outcome.unknown_code.is_some() {
            self.unknown.push(unknown);
            return;
        }
        locations.splice(..0, unknown.kernel.iter().copied());
        let replaced = process.replace_stack(unknown.sample, outcome.trust, locations);
        process.observed(if replaced { outcome.trust } else { unknown.trust });
        self.spare.push(unknown.pieces);
    }

    /// Gives up on what ended in unknown code: the samples are as they are.
    pub(super) fn settle_unknown(&mut self, process: &mut Active) {
        for unknown in self.take_unknown(process.id) {
            process.observed(unknown.trust);
            self.spare.push(unknown.pieces);
        }
    }

    /// Whether samples that the kernel took of a process wait.
    pub(super) fn has_samples_of(&self, process: ProcessId) -> bool {
        self.waiting.iter().any(|captured| captured.process == process && !captured.stopped)
    }

    /// Forgets the samples that the kernel took of a process.
    pub(super) fn drop_samples_of(&mut self, process: ProcessId) {
        self.waiting.retain(|captured| captured.process != process || captured.stopped);
    }

    /// Forgets what waits of a process.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.waiting.retain(|captured| captured.process != process);
        self.unknown.retain(|unknown| unknown.process != process);
    }

    /// What ended in unknown code of a process.
    pub(super) fn take_unknown(&mut self, process: ProcessId) -> Vec<Unknown> {
        self.unknown.extract_if(.., |unknown| unknown.process == process).collect()
    }
}

/// What the kernel did for a thread: where it was, and the calls that led there, moved back from where they return to.
fn kernel(sample: &OnCpuSample<'_>) -> impl Iterator<Item = Location> {
    let addresses = sample.kernel.addresses().enumerate();
    addresses.map(|(depth, address)| Location::kernel(if depth == 0 { address } else { address.wrapping_sub(1) }))
}
