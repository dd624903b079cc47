//! The messages between the sampler process and its owner.
//!
//! These are plain values; `protocol` transports them. The owner decides which processes are sampled, when and how
//! often; the sampler process finds, attaches and samples them. Anything that the sampler process says about a target
//! may have been forged by that target, so the owner checks it (`protocol` refuses indices that point nowhere).

use std::ffi::OsString;
use std::fs::File;
use std::time::Duration;

/// The number of a target, which is one entry of the configuration. The owner chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub u32);

/// The number of one life of a process. The sampler process chooses it and never uses it again: a process that executes
/// another program gets a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u64);

/// What the owner says.
#[derive(Debug)]
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

/// A target: which processes, and how they are sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Its number.
    pub id: TargetId,
    /// Which processes.
    pub select: Select,
    /// How.
    pub settings: Settings,
    /// The names of environment variables of the target that the owner wants to know. No others leave the sampler.
    pub environment: Vec<String>,
    /// Whether a process that appears is sampled from its first moment, without waiting for [`Command::Sample`].
    pub sample_at_once: bool,
}

/// Which processes belong to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Select {
    /// The process with this id in the sampler's PID namespace, but not a later process with the same id.
    Pid(u32),
    /// A command that the sampler process starts, with its own standard streams, and samples from the first
    /// instruction.
    Command(Vec<OsString>),
    /// Every process whose executable's path, or its base name where the pattern has no slash, matches the pattern (`*`
    /// any characters, `?` one).
    Executable(String),
    /// Every process whose arguments, joined by spaces, contain a match of the pattern (`*` any characters, `?` one),
    /// but for those that carry the arguments of a child that matches as well, such as `timeout` or a shell.
    CommandLine(String),
    /// Every process in this control group or below (a path as in `/proc/PID/cgroup`).
    ControlGroup(String),
    /// Every process of the container with this id, or an unambiguous prefix of at least 12 hexadecimal digits.
    Container(String),
}

/// How a target is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Average samples per second, 1 to 1000. Ticks are jittered around this rate to avoid lockstep.
    pub rate_hertz: f64,
    /// What is sampled.
    pub mode: Mode,
    /// The largest share of one core that sampling this target may use before the rate is lowered.
    pub max_cpu: f64,
    /// The largest share of time for which one thread of the target may be stopped before the rate is lowered.
    pub max_stopped: f64,
    /// How much of a thread's stack is copied in one piece at most, in bytes, while the thread is blocked or stopped.
    /// What perf events copy does not depend on it.
    pub max_stack: usize,
    /// How many processes of this target may be attached at the same time.
    pub max_processes: usize,
    /// Which running threads are stopped to be sampled.
    pub stops: Stops,
}

/// Which running threads are stopped to be sampled. A stop ends many long system calls early, as any signal may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stops {
    /// None where the kernel permits perf events. Elsewhere those that have spent nearly all of their time in their own
    /// code so far: they are rarely in a system call when they are stopped.
    #[default]
    UserBound,
    /// None: without perf events only the amount of time that threads run is known.
    Never,
    /// All, and perf events are not tried. Long system calls return early.
    Always,
}

impl Stops {
    /// A warning for whoever chooses this setting.
    pub fn warning(self) -> Option<&'static str> {
        (self == Self::Always).then_some(
            "stops: always stops running threads, which can end long system calls early: read, write, send and others then return a part of what \
             they were asked for (user-bound and never do not)",
        )
    }
}

/// How much can be seen of a running thread without stopping it. The levels are in ascending order: each shows more
/// than the one before, and needs more rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Nothing: no perf event is permitted, or none was tried yet.
    #[default]
    None,
    /// Samples of the program's own code. For the time in the kernel only the amount is known.
    User,
    /// Samples of the program's own code and of the kernel working for it, with the kernel's call chain.
    Kernel,
    /// The same, by events of processors instead of threads: each thread is sampled from its first moment on, and
    /// events cost hardly anything when threads are switched.
    Processors,
}

impl Level {
    /// A description of what is sampled with these settings, for a person.
    pub fn description(self, stops: Stops) -> &'static str {
        match (self, stops) {
            (Self::None, Stops::UserBound) => {
                "sampled by stopping those that stay in their own code (stops: user-bound); of others only the amount of time is known"
            }
            (Self::None, Stops::Never) => "not sampled (stops: never); only the amount of their time is known",
            (Self::None, Stops::Always) => {
                "sampled by stopping them (stops: always), which can end long system calls early"
            }
            (Self::User, _) => "sampled by perf events, without their time in the kernel",
            (Self::Kernel, _) => "sampled by perf events, with their time in the kernel",
            (Self::Processors, _) => "sampled by perf events of processors, with their time in the kernel",
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate_hertz: 101.0,
            mode: Mode::Wall,
            max_cpu: 0.10,
            max_stopped: 0.02,
            max_stack: 256 << 10,
            max_processes: 64,
            stops: Stops::default(),
        }
    }
}

/// What is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Samples all threads. A sample's weight is the time that passed.
    #[default]
    Wall,
    /// Samples threads that ran since they were last looked at. A sample's weight is the time for which the thread ran.
    Cpu,
}

/// An event of the sampler process.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
pub enum Event {
    /// The sampler process has started and found out what it may do; it has not looked at any process yet.
    Ready(Rights),
    /// A process of a target was found and can be sampled.
    Attached(Box<Process>),
    /// A file is mapped executable into a process. Comes before the first batch that names it.
    Mapping(Mapping),
    /// The process's perf map (`/tmp/perf-PID.map`, seen through its own root). Sent again when the file is replaced.
    PerfMap {
        /// The process.
        process: ProcessId,
        /// The map, open for reading.
        file: File,
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
}

/// What the sampler process may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights {
    /// Whether it may trace processes of other users.
    pub trace_others: bool,
    /// Whether its priority could be raised, so that a stopped thread never waits for the sampler to be scheduled.
    pub raised_priority: bool,
    /// What is missing and how to get it: one line each, for a person.
    pub hints: Vec<String>,
}

/// A process that can be sampled.
#[derive(Debug)]
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
    pub root: Option<File>,
}

/// A file that is mapped executable.
#[derive(Debug)]
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
    pub file: Option<File>,
}

/// Samples of one process, with everything that they refer to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// The process.
    pub process: ProcessId,
    /// The time between two ticks at the configured rate, in nanoseconds. A lowered rate shows in the weights only.
    pub period_nano: u64,
    /// The meaning of [`Sample::weight_nano`].
    pub mode: Mode,
    /// The threads that samples refer to.
    pub threads: Vec<Thread>,
    /// The locations that stacks refer to.
    pub locations: Vec<Location>,
    /// The stacks that samples refer to.
    pub stacks: Vec<Stack>,
    /// The samples, in ascending order of time for each thread.
    pub samples: Vec<Sample>,
}

impl Batch {
    /// A batch of the same kind without samples.
    pub(crate) fn emptied(&self) -> Self {
        let Self { process, period_nano, mode, threads: _, locations: _, stacks: _, samples: _ } = *self;
        Self { process, period_nano, mode, ..Self::default() }
    }
}

impl Default for ProcessId {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Thread {
    /// Its id in the sampler's PID namespace.
    pub id: u32,
    /// Its id in the process's own PID namespace, which `gettid` returns there.
    pub namespace_id: u32,
    /// Its name (`/proc/PID/task/TID/comm`), at most 15 bytes.
    pub name: String,
    /// The thread pointer (on x86-64 the base of FS): glibc's `pthread_t`, which Python reports as a thread's ident. 0
    /// if it is not known, because the thread was never stopped and its C library is not glibc.
    pub pointer: u64,
}

/// The kernel's half of the address space (Documentation/arch/x86/x86_64/mm.rst).
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// A place in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Location {
    /// The mapping, by [`Mapping::index`]; `None` for code outside of any file (compiled at run time).
    pub mapping: Option<u32>,
    /// The address in the file (ELF virtual address); without a mapping, the address in the process or in the kernel.
    /// In callers it is already moved back from the return address into the call.
    pub address: u64,
}

impl Location {
    /// A frame for time in which the thread ran, but no sample says where.
    pub const NOT_SAMPLED: Self = Self { mapping: None, address: 1 << 63 | 1 };
    /// A frame for time in which the thread ran in the kernel, which may not be seen.
    pub const KERNEL_NOT_VISIBLE: Self = Self { mapping: None, address: 1 << 63 | 2 };
    /// A frame for time in which the thread waited for a processor.
    pub const WAITING_FOR_PROCESSOR: Self = Self { mapping: None, address: 1 << 63 | 3 };
    /// A frame for time in which the thread was blocked, but no look found it so.
    pub const WAITING_NOT_SEEN: Self = Self { mapping: None, address: 1 << 63 | 4 };

    /// A frame for time in which no sampler process existed, because one had ended and the next had not started. Only
    /// owners add it.
    pub const NO_SAMPLER: Self = Self { mapping: None, address: 1 << 63 | 5 };

    /// A location in the kernel.
    #[must_use]
    pub const fn kernel(address: u64) -> Self {
        Self { mapping: None, address: address | KERNEL }
    }

    /// Whether it is code of the kernel.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        self.mapping.is_none() && self.address >= KERNEL
    }

    /// The description of a location that is none in any code; `None` for all others. Such locations have addresses
    /// that no code can have on x86-64.
    pub fn explanation(self) -> Option<&'static str> {
        match self {
            Self::NOT_SAMPLED => Some("[processor time not sampled]"),
            Self::KERNEL_NOT_VISIBLE => Some("[kernel, not visible]"),
            Self::WAITING_FOR_PROCESSOR => Some("[waiting for a processor]"),
            Self::WAITING_NOT_SEEN => Some("[waiting, not seen]"),
            Self::NO_SAMPLER => Some("[no sampler process]"),
            _ => None,
        }
    }
}

/// A call stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Stack {
    /// How much of the stack is known.
    pub trust: Trust,
    /// Its locations, as indices into [`Batch::locations`], the leaf first.
    pub locations: Vec<u32>,
}

/// How much of a stack is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Trust {
    /// It reaches the thread's first function, and every step followed a rule.
    #[default]
    Complete,
    /// It ends early, but what is there is right.
    Truncated,
    /// At least one step was a guess (a scan of the stack for return addresses behind calls).
    Guessed,
}

/// A sample: a thread had this stack for a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// The thread, as an index into [`Batch::threads`].
    pub thread: u32,
    /// The stack, as an index into [`Batch::stacks`].
    pub stack: u32,
    /// The beginning of the time that it stands for, in nanoseconds since the Unix epoch. That is the end of the sample
    /// before, at most a period before the stack was taken, unless it was taken late. A run of equal blocked stacks is
    /// one sample, which begins with the first.
    pub time_unix_nano: u64,
    /// How long that time is, in nanoseconds. For a running thread it is processor time.
    pub weight_nano: u64,
    /// How often the thread was found with this stack.
    pub observations: u32,
    /// Whether the thread was blocked. Then it was not stopped for the sample, unless its stack needed a register that
    /// was not known.
    pub blocked: bool,
}

/// Counters of a process since it was attached. All are totals unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Status {
    /// The process.
    pub process: ProcessId,
    /// The present number of its threads.
    pub threads: u64,
    /// The present rate in hertz. It is lower than the configured one while a budget is overspent.
    pub rate_hertz: f64,
    /// Ticks.
    pub ticks: u64,
    /// Ticks that were skipped because the sampler was late by more than a period; and one for each time that the
    /// kernel paused the sampling of running threads because there were too many samples (`PERF_RECORD_THROTTLE`).
    pub missed_ticks: u64,
    /// Ticks that were left out because a budget was overspent.
    pub lowered_ticks: u64,
    /// Observations.
    pub observations: u64,
    /// Observations with complete stacks.
    pub complete: u64,
    /// Observations with truncated stacks.
    pub truncated: u64,
    /// Observations with stacks of which a part is guessed.
    pub guessed: u64,
    /// How often threads were stopped.
    pub stops: u64,
    /// Stops that another tracer, or the kernel, refused.
    pub refused_stops: u64,
    /// The time for which threads were stopped, in nanoseconds. A stop counts from the last moment at which the thread
    /// is known not to have stopped (the last look, the request, or when the sampler woke) until it was let go.
    pub stopped_nano: u64,
    /// The number of stops by their length: up to 1, 2, 4, ... 2^22 microseconds, and longer.
    pub stop_lengths: [u64; 24],
    /// The longest stop, in nanoseconds.
    pub longest_stop_nano: u64,
    /// Processor time of the sampler for all of its processes, in nanoseconds.
    pub sampler_cpu_nano: u64,
    /// Observations that were lost because the owner did not keep up.
    pub lost_observations: u64,
    /// How much is seen of running threads without stopping them.
    pub level: Level,
    /// Samples of running threads that found no room in the kernel's ring.
    pub lost_samples: u64,
    /// For how long threads ran without a sample that says where, in nanoseconds.
    pub not_sampled_nano: u64,
    /// System calls that a stop ended early: they had moved a part of their data and returned with that.
    pub cut_calls: u64,
}

/// A reason why something cannot be sampled, or only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// How long the owner waits for the sampler process to end after [`Command::Stop`] before it ends it.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(2);
