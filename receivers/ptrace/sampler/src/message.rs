//! The messages between the sampler process and its owner.
//!
//! These are plain values; `protocol` transports them. The owner decides which processes are sampled, when and how
//! often; the sampler process finds, attaches and samples them. A target can forge everything that the sampler process
//! reports about it, so the owner checks the messages (`protocol` refuses indices out of range).

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
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TargetId(pub u32);

/// The number of a process, valid until the process ends or executes another program; then it gets a new number. The
/// sampler process chooses these numbers and never reuses one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

impl Default for ProcessId {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

/// A command of the owner to the sampler process.
#[derive(Debug, Serialize, Deserialize)]
pub enum Command {
    /// Find the processes of a target from now on, and attach to each.
    Watch(Target),
    /// Detach a target's processes and forget the target. If the target is a command, the command runs on.
    Unwatch(TargetId),
    /// Find the children of a target's processes from now on as well, as with
    /// [`subprocesses`](Settings::subprocesses).
    FindChildren(TargetId),
    /// Start or stop sampling an attached process. A newly attached process is not sampled until this command.
    Sample {
        /// The process.
        process: ProcessId,
        /// Whether the process is sampled from now on.
        on: bool,
    },
    /// Start sampling an attached process that has not executed anything yet. The next [`Status`] of the process means
    /// that it may run.
    SampleFromStart(ProcessId),
    /// Detach all processes, send the remaining samples, and end.
    Stop,
}

/// An event of the sampler process.
#[derive(Debug, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
pub enum Event {
    /// The sampler process has started and knows its rights; it has not examined any process yet.
    Ready(Rights),
    /// A process of a target was found and can be sampled.
    Attached(Box<Process>),
    /// A file is mapped executable into a process. Sent before the first batch that refers to it.
    Mapping(Mapping),
    /// Functions of a program that an interpreter runs. Sent before the first batch that refers to them.
    Functions {
        /// The process.
        process: ProcessId,
        /// The number of the first function; the others follow. The functions of a process are numbered from 0 without
        /// gaps.
        first: u32,
        /// The functions.
        functions: Vec<Function>,
    },
    /// The resource that a process publishes about itself in its memory (OTEP 4719). Sent when it is found, and when it
    /// has changed.
    Resource {
        /// The process.
        process: ProcessId,
        /// The attributes, each key once. The program chooses them freely.
        attributes: Vec<(String, AttributeValue)>,
    },
    /// Samples.
    Batch(Batch),
    /// Counters of a process: about once a second while it is sampled, and when sampling ends.
    Status(Status),
    /// A process or target cannot be sampled, or only in part. Sent once per process and kind.
    Problem(Problem),
    /// A process has ended or was detached. Nothing more is sent about it.
    Detached {
        /// The process.
        process: ProcessId,
        /// The reason.
        why: Detached,
    },
    /// The command of a target ended: its exit code, or 128 plus the signal's number.
    CommandEnded {
        /// The target.
        target: TargetId,
        /// The exit code.
        code: i32,
    },
    /// The process's perf map (`/tmp/perf-PID.map`, seen through its own root). Sent again when the file is replaced.
    // This variant has to be the last one: serde gives a skipped variant no number, so the two sides would number the
    // variants after it differently.
    #[serde(skip)]
    PerfMap {
        /// The process.
        process: ProcessId,
        /// The map, open for reading.
        file: File,
    },
}

/// The rights of the sampler process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rights {
    /// Whether the sampler process may trace processes of other users.
    pub trace_others: bool,
    /// Whether the sampler process's priority was raised, so that no stopped thread has to wait until the sampler is
    /// scheduled.
    pub raised_priority: bool,
    /// Missing rights and how to get them: one line each, for a person.
    pub hints: Vec<String>,
}

/// A process that can be sampled.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// The number of the process in these messages.
    pub id: ProcessId,
    /// The target to which the process belongs.
    pub target: TargetId,
    /// The process id in the sampler's PID namespace.
    pub pid: u32,
    /// The process id in the process's own (innermost) PID namespace.
    pub namespace_pid: u32,
    /// When the process started, in nanoseconds since the Unix epoch.
    pub start_unix_nano: u64,
    /// Identifies this program run among all that ever ran on this machine: a one-way hash of the boot id, the start
    /// time of the process and the addresses to which the kernel loaded the program (`process_info`). Everyone who
    /// computes it gets the same value at any time, and the program cannot change it.
    pub exec_id: u64,
    /// The path of the executable in the process's own mount namespace. If the file has several hard links, the one
    /// with which it was started.
    pub executable: String,
    /// The arguments of the process, cut at 4 KiB.
    pub arguments: Vec<String>,
    /// The user as whom the process runs.
    pub user: u32,
    /// The control group (the path in the unified hierarchy, or else in the first one).
    pub control_group: Option<String>,
    /// The id of the container, from the control group or the mounts.
    pub container: Option<String>,
    /// The environment variables that the owner asked for and that are set.
    pub environment: Vec<(String, String)>,
    /// The process's root folder, as a descriptor that can only be used for `openat2`: separate debug files are opened
    /// in it.
    #[serde(skip)]
    pub root: Option<File>,
}

/// A file that is mapped executable into a process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Mapping {
    /// The process.
    pub process: ProcessId,
    /// The index of the mapping within the process: from 0, without gaps.
    pub index: u32,
    /// The file's path in the process's own mount namespace, `[vdso]`, or empty for memory without a file. The main
    /// executable has the path of [`Process::executable`].
    pub path: String,
    /// The start of the executable part, as an address of the file (ELF virtual address).
    pub start: u64,
    /// The end of that part, as an address of the file.
    pub end: u64,
    /// The offset in the file that is mapped at `start`.
    pub file_offset: u64,
    /// The GNU build id.
    pub build_id: Option<Vec<u8>>,
    /// The file's hash as OTel's profiler defines it: the first 16 bytes of the SHA-256 of the first and the last 4096
    /// bytes and the length (`opentelemetry-specification` `specification/profiles/mappings.md`). `None` where there is
    /// no file.
    pub htlhash: Option<[u8; 16]>,
    /// Whether this is the process's main executable.
    pub main: bool,
    /// Whether Go compiled the file. C code that is linked into the file counts as part of it.
    pub go: bool,
    /// The file that the process has mapped, open for reading: the same file even if its path was replaced or deleted
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
    /// The kind of problem.
    pub kind: ProblemKind,
    /// The problem and a remedy, for a person.
    pub message: String,
}

/// The kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProblemKind {
    /// There is no such process, or it ended before it could be sampled.
    Missing,
    /// A right is missing.
    Permission,
    /// Another process traces this process: its blocked threads are sampled, its running threads are not.
    Traced,
    /// The process is a 32-bit process, or one of another architecture.
    Architecture,
    /// The process is a zombie.
    Zombie,
    /// A signal has stopped the process: no thread of it runs, and the sampler does not resume it.
    Stopped,
    /// The process's control group is frozen.
    Frozen,
    /// Files or memory of the process are malformed or exceed a limit. The readable part is used.
    Malformed,
    /// The command could not be started.
    Command,
    /// The kernel does not permit perf events that sample running threads with their time in the kernel. The message
    /// names the missing right.
    Events,
    /// A resource for perf events is exhausted, such as file descriptors: some threads, or all, have no event.
    Lack,
    /// A stop made a system call return early: the thread is not stopped again for a while.
    CutCall,
    /// More processes match than may be sampled at once.
    TooMany,
    /// An internal error, that is a defect of profbridge. The other processes are still sampled.
    Internal,
}

/// Why a process was detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detached {
    /// The process ended.
    Exited,
    /// The process executed another program: it is attached again, with another number.
    Executed,
    /// The owner requested it.
    Asked,
    /// Sampling the process failed, for the reason in a [`Problem`] that was sent before.
    Failed,
}

/// How long the owner waits after [`Command::Stop`] before it kills the sampler process, unless it is configured
/// otherwise. The sampler process finishes within this time.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(2);
