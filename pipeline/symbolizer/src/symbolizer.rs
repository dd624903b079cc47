//! The [`Symbolizer`] handle and its background thread.

mod debug_file;
mod state;
mod store;
mod strings;
mod worker;

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::counters::{Counters, Counting};
use crate::{DebugFileServer, Object, ObjectId, Settings, SymbolAnswer};
use state::{Content, ObjectIdentity, SymbolizerState};

/// Finds names for addresses, in the background.
///
/// Clones share one background thread, which ends when the last clone is dropped. If a file system hangs, the thread
/// can end only with the program.
#[derive(Debug, Clone)]
pub struct Symbolizer {
    handle: Arc<Handle>,
}

/// Tells the thread to end when the last handle is dropped.
#[derive(Debug)]
struct Handle {
    shared: Arc<SharedState>,
}

/// State shared by the handles and the thread.
#[derive(Debug)]
struct SharedState {
    settings: Settings,
    counting: Counting,
    state: Mutex<SymbolizerState>,
    /// Signalled when there is work, and when the thread should end.
    work: Condvar,
    /// Signalled when no address is waiting.
    idle: Condvar,
    /// Whether the thread should end. For loops that run without the lock.
    stop: AtomicBool,
}

impl SharedState {
    /// Locks the state. No panic can leave the state inconsistent, so a poisoned lock can be used.
    fn state(&self) -> MutexGuard<'_, SymbolizerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.state().stop = true;
        self.shared.work.notify_all();
        self.shared.idle.notify_all();
    }
}

impl Symbolizer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn start(settings: Settings) -> io::Result<Self> {
        Self::with_server(settings, None)
    }

    /// Like [`Symbolizer::start`], but asks `server` for debug files that are not on this machine.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn with_server(settings: Settings, server: Option<Arc<dyn DebugFileServer>>) -> io::Result<Self> {
        let shared = Arc::new(SharedState {
            state: Mutex::new(SymbolizerState::new(&settings)),
            settings,
            counting: Counting::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        worker::start(Arc::clone(&shared), server)?;
        Ok(Self { handle: Arc::new(Handle { shared }) })
    }

    /// Registers an object. Objects with the same key are the same object; if its file was closed, the file of `object`
    /// replaces that file. No file is read until an address is requested.
    #[must_use]
    pub fn object(&self, object: Object) -> ObjectId {
        let shared = self.shared();
        let identity = ObjectIdentity::Object(object.key.clone());
        shared.state().object(identity, Content::new(object), &shared.counting)
    }

    /// Registers the code that a process compiles at run time, named by its perf map (`/tmp/perf-PID.map`, perf's
    /// `tools/perf/Documentation/jit-interface.txt`). `process` is any number that distinguishes processes.
    ///
    /// [`perf_map_place`](crate::perf_map_place) encodes each address to request, from an address in the process and an
    /// index into `lengths`: the length of the file, in bytes, when the address was executed. Every request reads the
    /// data that was appended to the file since. Another file for the same process replaces this one.
    #[must_use]
    pub fn perf_map(&self, process: u64, file: File, lengths: Arc<Vec<u32>>) -> ObjectId {
        let shared = self.shared();
        let content = Content::PerfMap(Arc::new(file), lengths);
        shared.state().object(ObjectIdentity::PerfMap(process), content, &shared.counting)
    }

    /// Registers the vDSO: code that the kernel maps into every process and that is in no file. It is read from this
    /// process, so it is right only for 64-bit processes on this machine.
    #[must_use]
    pub fn vdso(&self) -> ObjectId {
        let shared = self.shared();
        shared.state().object(ObjectIdentity::Vdso, Content::Vdso, &shared.counting)
    }

    /// Forgets an object and everything that is known about it, for instance a perf map whose process has ended.
    pub fn forget(&self, object: ObjectId) {
        let shared = self.shared();
        let mut state = shared.state();
        state.forget(object);
        if state.waiting == 0 {
            shared.idle.notify_all();
        }
        drop(state);
        shared.work.notify_one();
    }

    /// Requests the names of ELF virtual addresses. The caller must already have moved return addresses back into the
    /// call. Returns the number of addresses that were accepted or known already; the others were refused because too
    /// many are waiting.
    pub fn ask(&self, object: ObjectId, addresses: &[u64]) -> usize {
        let shared = self.shared();
        let taken = shared.state().ask(object, addresses, &shared.settings, &shared.counting);
        shared.work.notify_one();
        taken
    }

    /// The current knowledge about an address. Never waits for a file.
    #[must_use]
    pub fn answer(&self, object: ObjectId, address: u64) -> SymbolAnswer {
        self.shared().state().answer(object, address)
    }

    /// Like [`Symbolizer::answer`], for callers that cannot wait any longer: an answer that is not final is counted as
    /// late.
    #[must_use]
    pub fn last_answer(&self, object: ObjectId, address: u64) -> SymbolAnswer {
        let answer = self.answer(object, address);
        if answer.is_late() {
            Counting::add(&self.shared().counting.late, 1);
        }
        answer
    }

    /// Waits until no address is waiting, for at most `limit`, and returns whether that happened. Blocks the thread, so
    /// it is for programs that have nothing else to do.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let shared = self.shared();
        let deadline = Instant::now() + limit;
        let mut state = shared.state();
        while state.waiting > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = shared.idle.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The number of addresses that wait for the symbol table or for DWARF.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared().state().waiting
    }

    /// The current totals.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared().counting.read()
    }

    fn shared(&self) -> &SharedState {
        &self.handle.shared
    }
}
