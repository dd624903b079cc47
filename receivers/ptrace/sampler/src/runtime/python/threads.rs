//! Finds the interpreter state of a thread.
//!
//! Each interpreter has a list of thread states. From 3.11 on a state has the thread's id. Older states have the thread
//! pointer, and the C library stores the id in the memory to which that points.

use std::time::{Duration, Instant};

use super::layout::ThreadLayout;
use super::place::PythonPlace;
use crate::arch::THREAD_IDS;
use crate::runtime::ThreadKey;
use crate::runtime::target::{TargetMemory, half, word, word_at};

/// Limits: interpreters in a process, and thread states of all interpreters.
const MAX_INTERPRETERS: usize = 64;
const MAX_STATES: usize = 8192;

/// The shortest pause between two walks through the lists, and the part of it that is added for each state found:
/// reading a state takes less than a microsecond.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_micros(100));
/// After this many such pauses, the lists are walked again for a thread that is known to execute nothing: it may have
/// entered another interpreter, where it has another state.
const IDLE_PAUSES: u32 = 10;

/// A thread's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InterpreterThread {
    pub(super) address: u64,
    /// The thread pointer.
    pub(super) thread_id: u64,
    /// The ids that the thread may have.
    ids: [u32; 2],
}

impl InterpreterThread {
    /// Parses the bytes of a state.
    fn parse(layout: &ThreadLayout, address: u64, bytes: &[u8]) -> Self {
        let native = layout.native_id.map_or(0, |at| word_at(bytes, at as usize) as u32);
        Self { address, thread_id: word_at(bytes, layout.thread_id as usize), ids: [native; 2] }
    }

    /// Whether these bytes still belong to the state of the same thread.
    pub(super) fn is_still(&self, layout: &ThreadLayout, bytes: &[u8]) -> bool {
        let now = Self::parse(layout, self.address, bytes);
        now.thread_id == self.thread_id && (layout.native_id.is_none() || now.ids == self.ids)
    }

    /// Whether this state belongs to a thread. From 3.11 on only the id is compared, since thread pointers are reused.
    fn is_of(&self, layout: &ThreadLayout, thread: ThreadKey) -> bool {
        self.has_id(thread) || (layout.native_id.is_none() && self.has_pointer(thread))
    }

    fn has_id(&self, thread: ThreadKey) -> bool {
        thread.id != 0 && self.ids.contains(&thread.id)
    }

    fn has_pointer(&self, thread: ThreadKey) -> bool {
        thread.pointer != 0 && thread.pointer == self.thread_id
    }
}

/// The words in which the C library may store the id of the thread with this thread pointer.
fn ids(target: &mut dyn TargetMemory, pointer: u64) -> [u32; 2] {
    THREAD_IDS.map(|at| half(target, pointer.wrapping_add(at)).unwrap_or(0))
}

/// The thread states found by the last walk.
#[derive(Debug, Default)]
pub(super) struct InterpreterThreads {
    known: Vec<InterpreterThread>,
    walked: Option<Instant>,
}

impl InterpreterThreads {
    /// The states of a thread.
    pub(super) fn of_thread(&self, place: &PythonPlace, thread: ThreadKey) -> impl Iterator<Item = InterpreterThread> {
        let layout = place.layout.thread;
        self.known.iter().filter(move |state| state.is_of(&layout, thread)).copied()
    }

    /// Whether states of a thread are known.
    pub(super) fn knows(&self, place: &PythonPlace, thread: ThreadKey) -> bool {
        self.known.iter().any(|state| state.is_of(&place.layout.thread, thread))
    }

    /// Drops the states of a thread, because one of them now belongs to another thread.
    pub(super) fn forget(&mut self, place: &PythonPlace, thread: ThreadKey) {
        self.known.retain(|state| !state.is_of(&place.layout.thread, thread));
    }

    /// Drops the states of ended threads whose thread pointer this thread has reused: its id is now in the memory to
    /// which the pointer points, and was not there during the last walk. If the C library stores ids somewhere else,
    /// nothing is dropped.
    pub(super) fn forget_ended(&mut self, place: &PythonPlace, thread: ThreadKey, target: &mut dyn TargetMemory) {
        let is_doubtful = |state: &InterpreterThread| state.has_pointer(thread) && !state.has_id(thread);
        if place.layout.thread.native_id.is_none()
            && self.known.iter().any(is_doubtful)
            && ids(target, thread.pointer).contains(&thread.id)
        {
            self.known.retain(|state| !is_doubtful(state));
        }
    }

    /// Walks through the lists to find a thread, unless that was done recently. Returns whether it did.
    pub(super) fn walk_for(
        &mut self,
        thread: ThreadKey,
        place: &PythonPlace,
        now: Instant,
        target: &mut dyn TargetMemory,
    ) -> bool {
        let pauses = if self.knows(place, thread) { IDLE_PAUSES } else { 1 };
        let pause = PAUSE.0.max(PAUSE.1 * self.known.len() as u32) * pauses;
        if self.walked.is_some_and(|at| now < at + pause) {
            return false;
        }
        self.walked = Some(now);
        self.walk(place, target);
        true
    }

    /// Walks through the lists.
    pub(super) fn walk(&mut self, place: &PythonPlace, target: &mut dyn TargetMemory) {
        self.known.clear();
        let layout = &place.layout;
        let mut interpreter = word(target, place.runtime.wrapping_add(u64::from(layout.interpreters)));
        let mut bytes = vec![0; layout.thread.size()];
        for _ in 0..MAX_INTERPRETERS {
            let Some(address) = interpreter.filter(|address| *address != 0) else { break };
            let mut next = word(target, address.wrapping_add(u64::from(layout.threads)));
            while let Some(address) = next.filter(|address| *address != 0)
                && self.known.len() < MAX_STATES
                && target.read(address, &mut bytes)
            {
                let mut state = InterpreterThread::parse(&layout.thread, address, &bytes);
                if layout.thread.native_id.is_none() {
                    state.ids = ids(target, state.thread_id);
                }
                self.known.push(state);
                next = Some(word_at(&bytes, layout.thread.next as usize));
            }
            interpreter = word(target, address.wrapping_add(u64::from(layout.interpreter_next)));
        }
    }
}
