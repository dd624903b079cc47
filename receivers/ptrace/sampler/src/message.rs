//! The messages between the sampler process and its owner.
//!
//! These are plain values; `protocol` transports them. The owner decides which processes are sampled, when and how
//! often; the sampler process finds, attaches and samples them. Anything that the sampler process says about a target
//! may have been forged by that target, so the owner checks it (`protocol` refuses indices that point nowhere).

mod context;
mod samples;
mod settings;
mod status;

use std::fs::File;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::context::{AttributeValue, Context, SpanLink};
pub use self::samples::{Batch, Function, FunctionKind, Location, Sample, Stack, Thread, Trust};
pub use self::settings::{Mode, Select, Settings, Stops, Target};
pub use self::status::{Level, READ_CLASSES, Status, read_class, read_class_begins};

/// The number of a target, which is one entry of the configuration. The owner chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TargetId(pub u32);

/// The number of one life of a process. The sampler process chooses it and never uses it again: a process that executes
/// another program gets a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

impl Default for ProcessId {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

/// What the owner says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Command {
    /// Search for the processes of a target from now on, and attach to each.
    Watch(Target),
    /// Let go of a target's processes and forget it. A command that was started for it runs on.
    Unwatch(TargetId),
    /// Start or stop sampling an attached process. After attaching, it is not sampled until this command.
    Sample {
        /// The process.
        process: ProcessId,
        /// Whether it is sampled from now on.
        on: bool,
    },
    /// Start sampling an attached process that has not executed anything yet. Its next [`Status`] means that it may
    /// run.
    SampleFromStart(ProcessId),
    /// Let go of everything, send what is left, and end.
    Stop,
}

/// An event of the sampler process.
#[derive(Debug, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
pub enum Event {
    /// The sampler process has started and found out what it may do; it has not looked at any process yet.
    Ready(Rights),
    /// A process of a target was found and can be sampled.
    Attached(Box<Process>),
    /// A file is mapped executable into a process. Comes before the first batch that names it.
    Mapping(Mapping),
    /// Functions of a program that an interpreter runs. They come before the first batch that names them.
    Functions {
        /// The process.
        process: ProcessId,
        /// The number of the first one; the others follow. All functions of a process are numbered from 0 without gaps.
        first: u32,
        /// The functions.
        functions: Vec<Function>,
    },
    /// The resource that a process shows of itself in its memory (OTEP 4719): when that was found, and when it has
    /// changed.
    Resource {
        /// The process.
        process: ProcessId,
        /// Its attributes, each key once. The program chooses them freely.
        attributes: Vec<(String, AttributeValue)>,
    },
    /// Samples.
    Batch(Batch),
    /// Counters of a process: about once a second while it is sampled, and when that ends.
    Status(Status),
    /// A process or target that cannot be sampled, or only in part. Sent once per process and kind.
    Problem(Problem),
    /// A process is gone, or was let go. Nothing more is sent about it.
    Detached {
        /// The process.
        process: ProcessId,
        /// Why.
        why: Detached,
    },
    /// The command of a target ended: its exit code, or 128 and the signal's number.
    CommandEnded {
        /// The target.
        target: TargetId,
        /// The exit code.
        code: i32,
    },
    /// The process's perf map (`/tmp/perf-PID.map`, seen through its own root). Sent again when the file is replaced.
    // Last: what is skipped has no number in packets, and those behind it would have another one for each side.
    #[serde(skip)]
    PerfMap {
        /// The process.
        process: ProcessId,
        /// The map, open for reading.
        file: File,
    },
}

/// What the sampler process may do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rights {
    /// Whether it may trace processes of other users.
    pub trace_others: bool,
    /// Whether its priority could be raised, so that a stopped thread never waits for the sampler to be scheduled.
    pub raised_priority: bool,
    /// What is missing and how to get it: one line each, for a person.
    pub hints: Vec<String>,
}

/// A process that can be sampled.
#[derive(Debug, Serialize, Deserialize)]
pub struct Process {
    /// Its number here.
    pub id: ProcessId,
    /// Its target.
    pub target: TargetId,
    /// Its id in the sampler's PID namespace.
    pub pid: u32,
    /// Its id in its own (innermost) PID namespace.
    pub namespace_pid: u32,
    /// When it started, in nanoseconds since the Unix epoch.
    pub start_unix_nano: u64,
    /// Identifies what it executes among everything that was ever executed on this machine: a one-way hash of the boot,
    /// the process's start and where the kernel put the program (`process_info`). It does not depend on who computes it
    /// or when, and the program cannot change it.
    pub exec_id: u64,
    /// The path of its executable in its own mount namespace. If the file has several names, the one it was started by.
    pub executable: String,
    /// Its arguments, cut at 4 KiB.
    pub arguments: Vec<String>,
    /// The user it runs as.
    pub user: u32,
    /// Its control group (the unified hierarchy's path, or the first one).
    pub control_group: Option<String>,
    /// The id of its container, from its control group or its mounts.
    pub container: Option<String>,
    /// The variables of its environment that were asked for and are set.
    pub environment: Vec<(String, String)>,
    /// Its root folder, as a descriptor that is good for `openat2` only: separate debug files are found through it.
    #[serde(skip)]
    pub root: Option<File>,
}

/// A file that is mapped executable.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Mapping {
    /// The process.
    pub process: ProcessId,
    /// The index of the mapping among the process's: from 0, without gaps.
    pub index: u32,
    /// Its path in the process's own mount namespace, `[vdso]`, or empty for memory without a file. The main executable
    /// has the path of [`Process::executable`].
    pub path: String,
    /// Where the executable part starts, as an address of the file (ELF virtual address).
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// The offset in the file that is mapped at `start`.
    pub file_offset: u64,
    /// The GNU build id.
    pub build_id: Option<Vec<u8>>,
    /// The file's hash as OTel's profiler defines it: the first 16 bytes of the SHA-256 of the first and the last 4096
    /// bytes and the length (`opentelemetry-specification` `specification/profiles/mappings.md`). `None` where there is
    /// no file.
    pub htlhash: Option<[u8; 16]>,
    /// Whether it is the process's main executable.
    pub main: bool,
    /// Whether Go's compiler made it. C code that is linked into such a file belongs to it.
    pub go: bool,
    /// The file, open for reading, as the process has it mapped: the same file even if the path was replaced or deleted
    /// since.
    #[serde(skip)]
    pub file: Option<File>,
}

/// A reason why something cannot be sampled, or only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The target.
    pub target: TargetId,
    /// The process's id in the sampler's PID namespace, if the problem is about one.
    pub pid: Option<u32>,
    /// What kind.
    pub kind: ProblemKind,
    /// What it is and what to do about it, for a person.
    pub message: String,
}

/// The kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProblemKind {
    /// No such process, or it ended before it could be sampled.
    Missing,
    /// A right is missing.
    Permission,
    /// Another process traces it: blocked threads are sampled, running ones are not.
    Traced,
    /// A 32-bit process, or one of another architecture.
    Architecture,
    /// A zombie.
    Zombie,
    /// Stopped by a signal: nothing of it runs, and the sampler does not make it run.
    Stopped,
    /// Its control group is frozen.
    Frozen,
    /// Its files or memory are malformed or exceed a limit. What could be read is used.
    Malformed,
    /// The command could not be started.
    Command,
    /// The kernel does not permit perf events of running threads that include their time in the kernel. The message
    /// says which right is missing.
    Events,
    /// Perf events need something that is used up, such as file descriptors: some threads, or all, have none.
    Lack,
    /// A stop ended a system call early: the thread is left alone for a while.
    CutCall,
    /// More processes match than are sampled at once.
    TooMany,
    /// The sampler failed on it: a defect of profbridge, which goes on with the others.
    Internal,
}

/// Why a process was let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detached {
    /// It ended.
    Exited,
    /// It executed another program: it is attached anew, with another number.
    Executed,
    /// The owner wished it.
    Asked,
    /// Sampling it failed; a [`Problem`] said why.
    Failed,
}

/// How long the owner waits for the sampler process to end after [`Command::Stop`] before it ends it, unless it was
/// told otherwise; the sampler process plans by this.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(2);
