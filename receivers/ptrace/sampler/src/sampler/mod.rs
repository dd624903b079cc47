//! The sampling thread: the only tracer, for all processes.
//!
//! It never waits for one thread of a target, and computes nothing while it holds one stopped, except where a stack
//! cannot be copied in one piece (see `stack_copy`). What it costs its targets and itself is measured and bounded (see
//! `budget`).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::address_space::{AddressSpace, MappedAt};
use crate::context::Schema;
use crate::message::{Batch, Detached, Function, ProblemKind, ProcessId, Settings, Status};
use crate::os::signal::Waker;
use crate::process_files::ProcessFiles;

mod active;
mod attached;
mod batch;
mod budget;
mod captures;
mod contexts;
mod coverage;
mod cut;
mod events;
mod evidence;
mod harvest;
mod interpreters;
mod ledger;
mod lifecycle;
mod output_sender;
mod pending_stops;
mod places;
mod precedence;
mod processors;
mod reader;
mod rings;
mod run;
mod seizing;
mod shortfall;
mod stack_unwinder;
mod states;
mod stop_rules;
mod stopping;
mod thread_event;
mod thread_state;
mod tick;
mod tick_schedule;
mod timeline;
mod unseen;
mod user_bound;

/// What the sampling thread sends.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "few are alive at a time")]
pub enum Output {
    /// Samples of a process.
    Batch(Batch),
    /// Functions that an interpreter of a process names, numbered from `first` on. They come before the samples with
    /// these numbers.
    Functions {
        /// The process.
        process: ProcessId,
        /// The number of the first one.
        first: u32,
        /// The functions.
        functions: Vec<Function>,
    },
    /// Counters of a process.
    Status(Status),
    /// The process executes code that is in no known mapping, or has replaced code: its maps have to be read again.
    Reload {
        /// The process.
        process: ProcessId,
        /// What it mapped since the last time, as far as the kernel tells, in order of time.
        mapped: Vec<MappedAt>,
    },
    /// The process was let go; nothing more is sent about it.
    Gone {
        /// The process.
        process: ProcessId,
        /// Why.
        why: Detached,
    },
    /// The process cannot be sampled, or only in part. Sent once per process and kind.
    Problem {
        /// The process.
        process: ProcessId,
        /// What kind.
        kind: ProblemKind,
        /// What it is and what to do about it, for a person.
        message: String,
    },
}

/// How long a new command waits for the sampling thread to open its events, before it runs without them.
const START: Duration = Duration::from_secs(1);

/// How the sampling thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SamplerOptions {
    /// Whether it asks for the real-time scheduler's lowest priority instead of a nice value. No stopped thread then
    /// waits for the sampler, even on a saturated machine; but the kernel ends the process if the thread runs for too
    /// long without a pause (`RLIMIT_RTTIME`).
    pub realtime: bool,
}

/// The sampling thread's handle. Dropped without [`Sampler::stop`] it stops as well, without being waited for.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    waker: Waker,
    raised_priority: bool,
}

/// What the handle and the thread share.
#[derive(Debug, Default)]
struct Shared {
    commands: Mutex<VecDeque<Command>>,
    /// Set together with a command, so that the thread need not take the lock to find none.
    pending: AtomicBool,
}

impl Shared {
    fn push(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push_back(command);
        self.pending.store(true, Ordering::Release);
    }

    fn pop(&self) -> Option<Command> {
        if !self.pending.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let command = commands.pop_front();
        self.pending.store(!commands.is_empty(), Ordering::Release);
        command
    }
}

/// What the handle asks the sampling thread to do.
#[derive(Debug)]
enum Command {
    Attach { process: ProcessId, files: Arc<ProcessFiles>, space: Arc<AddressSpace>, settings: Settings },
    SampleFromStart(ProcessId, SyncSender<()>),
    SetSpace(ProcessId, Instant, Arc<AddressSpace>),
    SetPerfMap(ProcessId, Arc<File>),
    SetSchema(ProcessId, Option<Arc<Schema>>),
    Sample(ProcessId, bool),
    Detach(ProcessId),
    Stop,
}

impl Sampler {
    /// Starts the sampling thread. Its outputs go to `out`, and `wake` is called after each of them. Batches that find
    /// no room are dropped and counted ([`Status::lost_observations`]); other outputs are kept and sent when there is
    /// room.
    ///
    /// Every thread of the program should have SIGCHLD blocked at that time (block it in `main` before the first thread
    /// is started): stops are announced by that signal. If one has not, the sampling thread polls for stops instead,
    /// which costs more.
    ///
    /// # Errors
    ///
    /// The kernel's error where no thread can be started.
    pub fn start(
        options: SamplerOptions,
        out: SyncSender<Output>,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (ready_sender, ready) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("sampling".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || run::run(&shared, options, out, &wake, &ready_sender)
        })?;
        let started = ready.recv().map_err(|_| io::Error::other("the sampling thread ended before it began"))??;
        Ok(Self { shared, thread: Some(thread), waker: started.waker, raised_priority: started.raised_priority })
    }

    /// Whether the sampling thread has a raised priority, so that a stopped thread never waits for it to be scheduled.
    pub fn raised_priority(&self) -> bool {
        self.raised_priority
    }

    /// Adds a process. It is not sampled before [`Sampler::sample`].
    pub fn attach(&self, process: ProcessId, files: Arc<ProcessFiles>, space: Arc<AddressSpace>, settings: Settings) {
        self.send(Command::Attach { process, files, space, settings });
    }

    /// Sets what is known about where things were mapped at a moment, after [`Output::Reload`].
    pub fn set_space(&self, process: ProcessId, at: Instant, space: Arc<AddressSpace>) {
        self.send(Command::SetSpace(process, at, space));
    }

    /// Sets the perf map of a process, which tells how its code changes.
    pub fn set_perf_map(&self, process: ProcessId, file: Arc<File>) {
        self.send(Command::SetPerfMap(process, file));
    }

    /// Sets how the records are read by which a process shows what its threads work on; `None` if they are not.
    pub fn set_schema(&self, process: ProcessId, schema: Option<Arc<Schema>>) {
        self.send(Command::SetSchema(process, schema));
    }

    /// Samples a process from now on, or ends that and sends what was sampled.
    pub fn sample(&self, process: ProcessId, on: bool) {
        self.send(Command::Sample(process, on));
    }

    /// Samples a process that has not executed anything yet, and returns when it may run: where the kernel permits
    /// events, it is sampled from its first instruction on.
    pub fn sample_from_start(&self, process: ProcessId) {
        let (sender, ready) = std::sync::mpsc::sync_channel(1);
        self.send(Command::SampleFromStart(process, sender));
        // If the sampling thread gets no processor, the process rather starts unsampled than waits any longer.
        ready.recv_timeout(START).ok();
    }

    /// Lets go of a process: what was sampled is sent, then [`Output::Gone`].
    pub fn detach(&self, process: ProcessId) {
        self.send(Command::Detach(process));
    }

    /// Lets go of every process, and waits for the thread to end. What was sampled is put into the channel, so somebody
    /// has to read it; what finds no room is dropped after a second.
    pub fn stop(mut self) {
        self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, it has sent a problem about that, and there is nothing left to do.
            drop(thread.join());
        }
    }

    fn send(&self, command: Command) {
        self.shared.push(command);
        self.waker.wake();
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.send(Command::Stop);
        }
    }
}
