//! Finds the Ruby thread that a native thread executes.
//!
//! The virtual machine has a list of ractors, and each ractor a list of threads. A Ruby thread has the thread pointer
//! of the native thread that executes it, and the C library stores the native id in the memory to which that points. In
//! a forked process this id is the child's, whereas the id that Ruby 3.1 and later store is still the parent's.

use std::time::{Duration, Instant};

use super::layout::{RubyLayout, ThreadPointer};
use super::search::MACHINE_OF_THREAD;
use crate::arch::THREAD_IDS;
use crate::runtime::ThreadKey;
use crate::runtime::target::{TargetMemory, half, word};

/// Limits: ractors, and threads of all ractors.
const MAX_RACTORS: usize = 256;
const MAX_THREADS: u32 = 8192;
/// The shortest pause between two walks through the lists, and the part of it that is added for each thread seen.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_micros(200));
/// The offset of the list of ractors in the virtual machine.
const RACTORS: u64 = 8;
/// The threads found by the last walk: the native id and the address of each.
#[derive(Debug, Default)]
pub(super) struct RubyThreads {
    known: Vec<(u32, u64)>,
    not_before: Option<Instant>,
}

impl RubyThreads {
    /// The execution context of a native thread: that of its current fiber. `None` if it executes no Ruby thread.
    pub(super) fn context(
        &mut self,
        layout: &RubyLayout,
        machine: u64,
        thread: ThreadKey,
        now: Instant,
        target: &mut dyn TargetMemory,
    ) -> Option<u64> {
        for again in [false, true] {
            if again {
                if self.not_before.is_some_and(|due| now < due) {
                    return None;
                }
                let seen = self.walk(layout, machine, target);
                self.not_before = Some(now + PAUSE.0.max(PAUSE.1 * seen));
            }
            let found = self.known.iter().find(|(id, _)| *id == thread.id && *id != 0);
            if let Some((_, address)) = found.copied() {
                let is_still = word(target, address.wrapping_add(MACHINE_OF_THREAD)) == Some(machine)
                    && is_of(layout, address, thread.id, target);
                if is_still {
                    let context = word(target, address.wrapping_add(u64::from(layout.thread_context)));
                    return context.filter(|context| *context != 0);
                }
            }
        }
        None
    }

    /// Walks through the lists. Returns the number of threads seen, including those that no native thread executes.
    fn walk(&mut self, layout: &RubyLayout, machine: u64, target: &mut dyn TargetMemory) -> u32 {
        self.known.clear();
        let mut seen = 0;
        let ractors = machine.wrapping_add(RACTORS);
        let mut ractor = word(target, ractors);
        for _ in 0..MAX_RACTORS {
            let Some(node) = ractor.filter(|node| *node != ractors && *node != 0) else { break };
            let threads =
                node.wrapping_sub(u64::from(layout.ractor_node)).wrapping_add(u64::from(layout.ractor_threads));
            // The link to the next thread is the first field of a thread.
            let mut thread = word(target, threads);
            while let Some(address) = thread.filter(|thread| *thread != threads && *thread != 0)
                && seen < MAX_THREADS
            {
                // Every step counts, also for a thread without an id, which is not stored.
                seen += 1;
                for id in ids(layout, address, target) {
                    self.known.push((id, address));
                }
                thread = word(target, address);
            }
            ractor = word(target, node);
        }
        seen
    }
}

/// The native ids that a Ruby thread may have.
fn ids(layout: &RubyLayout, thread: u64, target: &mut dyn TargetMemory) -> impl Iterator<Item = u32> {
    let (of, at) = match layout.thread_pointer {
        ThreadPointer::Direct { at } => (Some(thread), at),
        ThreadPointer::Native { thread: native, at } => (word(target, thread.wrapping_add(u64::from(native))), at),
    };
    let pointer = of.filter(|of| *of != 0).and_then(|of| word(target, of.wrapping_add(u64::from(at))));
    let ids = pointer.map(|pointer| THREAD_IDS.map(|at| half(target, pointer.wrapping_add(at))));
    ids.into_iter().flatten().flatten().filter(|id| *id != 0)
}

fn is_of(layout: &RubyLayout, thread: u64, id: u32, target: &mut dyn TargetMemory) -> bool {
    ids(layout, thread, target).any(|known| known == id)
}
