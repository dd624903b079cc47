//! Stops the threads of a process again and again, and prints how completely its stacks are unwound and how long that
//! takes.
//!
//!     cargo run --release -p profbridge-sampler --example unwind -- PID [STACKS] [--show] [--passive]
//!
//! With `--passive`, threads that are blocked are unwound as if they had not been stopped, by the stack pointer and the
//! program counter alone, and the result is compared with the stack unwound from all registers. Times are for unwinding
//! alone, with everything cached (each snapshot is unwound once before). With `--show`, a stack of each kind that is
//! not complete is printed.

#![allow(clippy::print_stdout, clippy::expect_used, missing_docs, reason = "a tool for the terminal")]

#[cfg(target_os = "linux")]
#[path = "../tests/unwinding/snapshot.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod snapshot;

#[cfg(target_os = "linux")]
fn main() {
    linux::run();
}

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use profbridge_sampler::address_space::AddressSpace;
    use profbridge_sampler::elf::ObjectCache;
    use profbridge_sampler::message::Trust;
    use profbridge_sampler::unwind::{Frame, Registers, UnwindOutcome};

    use crate::snapshot::{Snapshot, UnwoundProcess};

    const REPEATS: u32 = 20;

    pub(crate) fn run() {
        let arguments: Vec<_> = std::env::args().skip(1).collect();
        let show = arguments.iter().any(|argument| argument == "--show");
        let passive = arguments.iter().any(|argument| argument == "--passive");
        let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<u32>().ok());
        let pid = numbers.next().expect("the id of a process");
        let count = numbers.next().unwrap_or(500);

        let mut cache = ObjectCache::default();
        let loading = Instant::now();
        let mut process = UnwoundProcess::open(pid, &mut cache);
        println!(
            "loaded {} modules in {:?}, {} KiB of tables",
            process.space.modules().len(),
            loading.elapsed(),
            cache.memory() >> 10
        );
        for fault in process.space.faults() {
            println!("fault: {}: {}", fault.path, fault.reason);
        }
        let mut compared = BTreeMap::<(&str, &str), u32>::new();
        let mut trusts = BTreeMap::<&str, u32>::new();
        let mut kinds = BTreeMap::<String, (u32, String)>::new();
        let (mut time, mut frames_seen, mut stacks) = (Duration::ZERO, 0usize, 0u32);
        'sampling: loop {
            let before = stacks;
            for thread in threads(pid) {
                let Ok(mut snapshot) = Snapshot::take(&process.files, thread, 256 << 10) else { continue };
                let (mut frames, mut outcome) = snapshot.unwind(&process.files, &process.space, &mut process.unwinder);
                if outcome.unknown_code.is_some() {
                    process.reload(&mut cache);
                    (frames, outcome) = snapshot.unwind(&process.files, &process.space, &mut process.unwinder);
                }
                if passive {
                    // A thread that was stopped in a system call is still in that call.
                    if !is_blocked(pid, thread) {
                        continue;
                    }
                    let all = std::mem::take(&mut frames);
                    let registers = &mut snapshot.registers;
                    *registers = Registers::passive(registers.stack_pointer(), registers.instruction_pointer());
                    let registers = &snapshot.registers;
                    outcome = process.unwinder.unwind(&process.space, registers, &mut snapshot.stack, &mut frames);
                    let same = match (frames == all, all.starts_with(&frames)) {
                        (true, _) => "same",
                        (_, true) => "shorter",
                        _ => "other",
                    };
                    *compared.entry((name(outcome.trust), same)).or_default() += 1;
                    if show && same == "other" {
                        println!("{}instead of\n{}", stack(&process.space, &frames), stack(&process.space, &all));
                    }
                }
                let started = Instant::now();
                for _ in 0..REPEATS {
                    process.unwinder.unwind(&process.space, &snapshot.registers, &mut snapshot.stack, &mut frames);
                }
                time += started.elapsed();
                frames_seen += frames.len();
                stacks += 1;
                *trusts.entry(name(outcome.trust)).or_default() += 1;
                if outcome.trust != Trust::Complete {
                    let kind = kind(&process.space, &frames, &outcome);
                    let entry = kinds.entry(kind).or_insert_with(|| (0, stack(&process.space, &frames)));
                    entry.0 += 1;
                }
                if stacks == count {
                    break 'sampling;
                }
            }
            // All threads may be running just now, or have ended.
            if before == stacks && (!passive || loading.elapsed() > Duration::from_secs(20)) {
                break;
            }
        }
        let each = time / REPEATS / stacks.max(1);
        println!("{stacks} stacks, {:.1} frames each, {each:?} each", frames_seen as f64 / f64::from(stacks.max(1)));
        println!("{trusts:?}");
        if passive {
            println!("against all registers: {compared:?}");
        }
        for (kind, (count, stack)) in kinds {
            println!("{count} x {kind}");
            if show {
                println!("{stack}");
            }
        }
    }

    fn threads(pid: u32) -> Vec<i32> {
        let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    fn is_blocked(pid: u32, thread: i32) -> bool {
        let line = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall"));
        line.is_ok_and(|line| !line.starts_with("running"))
    }

    fn name(trust: Trust) -> &'static str {
        match trust {
            Trust::Complete | Trust::MissingCallers => "complete",
            Trust::Truncated => "truncated",
            Trust::Guessed => "guessed",
        }
    }

    fn kind(space: &AddressSpace, frames: &[Frame], outcome: &UnwindOutcome) -> String {
        let last = frames.last().map(|frame| place(space, frame)).unwrap_or_default();
        let UnwindOutcome { trust, needs_register, needs_memory, unknown_code } = outcome;
        let needs = (needs_register, needs_memory.is_some(), unknown_code.is_some());
        format!("{} (register, memory, code) {needs:?} after {last}", name(*trust))
    }

    fn place(space: &AddressSpace, frame: &Frame) -> String {
        let mapping = frame.location.mapping().and_then(|index| space.mappings().get(index as usize));
        let path = mapping.map_or("(generated)", |mapping| mapping.path.as_str());
        format!("{path}+{:#x}", frame.location.address())
    }

    fn stack(space: &AddressSpace, frames: &[Frame]) -> String {
        frames.iter().map(|frame| format!("    {:#x} {}\n", frame.pc, place(space, frame))).collect()
    }
}
