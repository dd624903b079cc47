//! The sampling thread, which is the only tracer of all sampled processes.
//!
//! It never blocks while it waits for one thread of a target, and it computes nothing while it has a thread stopped,
//! unless the stack cannot be copied in one piece (see `stack_copy`). Its own cost and the cost to its targets are
//! measured and bounded (see `budget`).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::address_space::{AddressSpace, MappedAt};
use crate::context::AttributeSelection;
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
mod history;
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
pub enum SamplerOutput {
    /// Samples of a process.
    Batch(Batch),
    /// Functions of a program that an interpreter of the process runs, numbered from `first` on. They are sent before
    /// the first samples that refer to them.
    Functions {
        /// The process.
        process: ProcessId,
        /// The number of the first function.
        first: u32,
        /// The functions.
        functions: Vec<Function>,
    },
    /// Counters of a process.
    Status(Status),
    /// The process executes code outside of all known mappings, or has replaced code: its maps have to be read again.
    Reload {
        /// The process.
        process: ProcessId,
        /// Executable mappings that the kernel has reported since the last reload, in order of time.
        mapped: Vec<MappedAt>,
    },
    /// The process was detached; nothing more is sent about it.
    Gone {
        /// The process.
        process: ProcessId,
        /// The reason.
        why: Detached,
    },
    /// The process cannot be sampled, or only in part. Sent once per process and kind.
    Problem {
        /// The process.
        process: ProcessId,
        /// The kind of problem.
        kind: ProblemKind,
        /// The problem and a remedy, for the user.
        message: String,
    },
}

/// How long the start of a new command waits for the sampling thread to open events. After that the command runs
/// without them.
const START: Duration = Duration::from_secs(1);

/// Options of the sampling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SamplerOptions {
    /// Whether to use the lowest priority of the real-time scheduler instead of a nice value. Then no stopped thread
    /// has to wait for the sampler, even on a saturated machine; but the kernel kills the process if the sampling
    /// thread runs for too long without sleeping (`RLIMIT_RTTIME`).
    pub realtime: bool,
}

/// The handle of the sampling thread. Dropping it without [`SamplingThread::stop`] stops the thread as well, but does
/// not wait for it.
#[derive(Debug)]
pub struct SamplingThread {
    shared: Arc<CommandQueue>,
    thread: Option<JoinHandle<()>>,
    waker: Waker,
    raised_priority: bool,
}

/// The data that the handle and the thread share.
#[derive(Debug, Default)]
struct CommandQueue {
    commands: Mutex<VecDeque<ThreadCommand>>,
    /// Set when a command is added, so that the thread finds the queue empty without taking the lock.
    pending: AtomicBool,
}

impl CommandQueue {
    fn push(&self, command: ThreadCommand) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push_back(command);
        self.pending.store(true, Ordering::Release);
    }

    fn pop(&self) -> Option<ThreadCommand> {
        if !self.pending.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let command = commands.pop_front();
        self.pending.store(!commands.is_empty(), Ordering::Release);
        command
    }
}

/// A command from the handle to the sampling thread.
#[derive(Debug)]
enum ThreadCommand {
    Attach { process: ProcessId, files: Arc<ProcessFiles>, space: Arc<AddressSpace>, settings: Settings },
    SampleFromStart(ProcessId, SyncSender<()>),
    SetSpace(ProcessId, Instant, Arc<AddressSpace>),
    SetPerfMap(ProcessId, Arc<File>),
    SetSchema(ProcessId, Option<Arc<AttributeSelection>>),
    Sample(ProcessId, bool),
    Detach(ProcessId),
    Stop,
}

impl SamplingThread {
    /// Starts the sampling thread. Its outputs are sent to `out`, and `wake` is called after each of them. If the
    /// channel is full, batches are dropped and counted ([`Status::lost_observations`]); other outputs are kept and
    /// sent later.
    ///
    /// Every thread of the program should have SIGCHLD blocked by then (block it in `main` before the first thread is
    /// started): the kernel announces stops by that signal. If one thread has not blocked it, the sampling thread polls
    /// for stops instead, which costs more.
    ///
    /// # Errors
    ///
    /// The kernel's error if no thread can be started.
    pub fn start(
        options: SamplerOptions,
        out: SyncSender<SamplerOutput>,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(CommandQueue::default());
        let (ready_sender, ready) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("sampling".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || run::run(&shared, options, out, &wake, &ready_sender)
        })?;
        let started = ready.recv().map_err(|_| io::Error::other("the sampling thread ended before it began"))??;
        Ok(Self { shared, thread: Some(thread), waker: started.waker, raised_priority: started.raised_priority })
    }

    /// Whether the sampling thread has a raised priority, so that no stopped thread has to wait until it is scheduled.
    pub fn raised_priority(&self) -> bool {
        self.raised_priority
    }

    /// Adds a process. It is not sampled before [`SamplingThread::sample`].
    pub fn attach(&self, process: ProcessId, files: Arc<ProcessFiles>, space: Arc<AddressSpace>, settings: Settings) {
        self.send(ThreadCommand::Attach { process, files, space, settings });
    }

    /// Sets the address space of a process that is valid from a moment on, in answer to [`SamplerOutput::Reload`].
    pub fn set_space(&self, process: ProcessId, at: Instant, space: Arc<AddressSpace>) {
        self.send(ThreadCommand::SetSpace(process, at, space));
    }

    /// Sets the perf map of a process: when it grows, the process has compiled code.
    pub fn set_perf_map(&self, process: ProcessId, file: Arc<File>) {
        self.send(ThreadCommand::SetPerfMap(process, file));
    }

    /// Sets the schema of the records in which a process publishes trace contexts; `None` if they are not read.
    pub fn set_schema(&self, process: ProcessId, schema: Option<Arc<AttributeSelection>>) {
        self.send(ThreadCommand::SetSchema(process, schema));
    }

    /// Starts sampling a process, or stops it and sends the samples taken so far.
    pub fn sample(&self, process: ProcessId, on: bool) {
        self.send(ThreadCommand::Sample(process, on));
    }

    /// Samples a process that has not executed anything yet, and returns when the process may run. If the kernel
    /// permits events, it is sampled from its first instruction on.
    pub fn sample_from_start(&self, process: ProcessId) {
        let (sender, ready) = std::sync::mpsc::sync_channel(1);
        self.send(ThreadCommand::SampleFromStart(process, sender));
        // If the sampling thread gets no processor in this time, the process starts without being sampled.
        ready.recv_timeout(START).ok();
    }

    /// Detaches a process: its samples are sent, then [`SamplerOutput::Gone`].
    pub fn detach(&self, process: ProcessId) {
        self.send(ThreadCommand::Detach(process));
    }

    /// Detaches every process, and waits for the thread to end. The remaining samples are sent to the channel, so the
    /// receiver has to be read meanwhile; after a second, samples for which the channel has no room are dropped.
    pub fn stop(mut self) {
        self.send(ThreadCommand::Stop);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, it has already sent a problem, and nothing is left to do.
            drop(thread.join());
        }
    }

    fn send(&self, command: ThreadCommand) {
        self.shared.push(command);
        self.waker.wake();
    }
}

impl Drop for SamplingThread {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.send(ThreadCommand::Stop);
        }
    }
}
