//! The handle that everybody asks, and its thread.

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
use crate::{Answer, DebugFileServer, Object, ObjectId, Settings};
use state::{Content, Identity, State};

/// Finds names for addresses, in the background.
///
/// Clones are handles to the same one. Its thread ends when the last handle is dropped, or on a defect of the machine
/// (a file system that hangs) with the program.
#[derive(Debug, Clone)]
pub struct Symbolizer {
    handle: Arc<Handle>,
}

/// Ends the thread when the last handle goes.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

/// What the handles and the thread have in common.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    counting: Counting,
    state: Mutex<State>,
    /// There is work, or the end has come.
    work: Condvar,
    /// Nothing waits.
    idle: Condvar,
    /// The end has come, for loops that run without the lock.
    stop: AtomicBool,
}

impl Shared {
    /// The state is whole after every statement that may panic, so a poisoned lock is as good as another.
    fn state(&self) -> MutexGuard<'_, State> {
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
    /// No thread could be started.
    pub fn start(settings: Settings) -> io::Result<Self> {
        Self::with_server(settings, None)
    }

    /// Starts the thread, which asks somebody for debug files that are not on this machine.
    ///
    /// # Errors
    ///
    /// No thread could be started.
    pub fn with_server(settings: Settings, server: Option<Arc<dyn DebugFileServer>>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(&settings)),
            settings,
            counting: Counting::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        worker::start(Arc::clone(&shared), server)?;
        Ok(Self { handle: Arc::new(Handle { shared }) })
    }

    /// Names an object. One with the same key is the same object; where its file is closed by now, that of `object`
    /// takes its place. Nothing is read before it is asked about.
    #[must_use]
    pub fn object(&self, object: Object) -> ObjectId {
        let shared = self.shared();
        let identity = Identity::Object(object.key.clone());
        shared.state().object(identity, Content::new(object), &shared.counting)
    }

    /// Names what a process compiles at run time, by its perf map (`/tmp/perf-PID.map`, perf's
    /// `tools/perf/Documentation/jit-interface.txt`). `process` is any number that tells processes apart.
    ///
    /// Addresses of it are those that [`perf_map_place`](crate::perf_map_place) makes of an address in the process and
    /// one of `lengths`: how long the file was, in bytes, when the address was executed. It is read again, as far as it
    /// has grown, whenever it is asked about; another file for the same process takes its place.
    #[must_use]
    pub fn perf_map(&self, process: u64, file: File, lengths: Arc<Vec<u32>>) -> ObjectId {
        let shared = self.shared();
        let content = Content::PerfMap(Arc::new(file), lengths);
        shared.state().object(Identity::PerfMap(process), content, &shared.counting)
    }

    /// Names the vDSO: the code that the kernel maps into every process, which no file holds. It is the one of this
    /// process, so it stands for 64-bit processes on this machine only.
    #[must_use]
    pub fn vdso(&self) -> ObjectId {
        let shared = self.shared();
        shared.state().object(Identity::Vdso, Content::Vdso, &shared.counting)
    }

    /// Forgets an object and all that is known about it, a perf map whose process has ended, say.
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

    /// Asks for the names of addresses: ELF virtual addresses, of callers already moved back into the call. Returns how
    /// many of them were taken or known; the others were refused since too much is waiting.
    pub fn ask(&self, object: ObjectId, addresses: &[u64]) -> usize {
        let shared = self.shared();
        let taken = shared.state().ask(object, addresses, &shared.settings, &shared.counting);
        shared.work.notify_one();
        taken
    }

    /// What is known about an address. Never waits for a file.
    #[must_use]
    pub fn answer(&self, object: ObjectId, address: u64) -> Answer {
        self.shared().state().answer(object, address)
    }

    /// Like [`Symbolizer::answer`], for whoever has to do with what is known by now: counts the answer as late where it
    /// is not final.
    #[must_use]
    pub fn last_answer(&self, object: ObjectId, address: u64) -> Answer {
        let answer = self.answer(object, address);
        if answer.is_late() {
            Counting::add(&self.shared().counting.late, 1);
        }
        answer
    }

    /// Waits until nothing that was asked waits any more, and returns whether that came true within `limit`. It blocks
    /// the thread, so it is for programs that have nothing else to do.
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

    /// How many addresses wait for the symbol table or for DWARF.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared().state().waiting
    }

    /// What has been done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared().counting.read()
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }
}
