//! What the sampler process and its owner say to each other.
//!
//! These are plain values; how they travel is the business of `protocol`. The owner decides (which processes, when, how
//! often), the sampler process looks, attaches and samples. Everything the sampler process says about a target may have
//! been made up by that target, so the owner checks it (`protocol` refuses indices that point nowhere).

use std::ffi::OsString;
use std::fs::File;
use std::time::Duration;

/// Numbers a target: one entry of the configuration, chosen by the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetId(pub u32);

/// Numbers one life of a process, chosen by the sampler process and never used again: a process that executes another
/// program gets a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u64);

/// What the owner says.
#[derive(Debug)]
pub enum Command {
    /// Look for the processes of a target from now on, and attach to each.
    Watch(Target),
    /// Let go of a target's processes and forget it. A command that was started for it runs on.
    Unwatch(TargetId),
    /// Start or stop sampling an attached process. An attached process is not sampled until told so.
    Sample {
        /// The process.
        process: ProcessId,
        /// Whether it is sampled from now on.
        on: bool,
    },
    /// Start sampling an attached process that has not executed anything yet. Its [`Status`] says that it may from now
    /// on.
    SampleFromStart(ProcessId),
    /// Let go of everything, say what is left to say, and end.
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
    /// Names of variables of the target's environment that the owner wants to know; nothing else of it leaves the
    /// sampler.
    pub environment: Vec<String>,
    /// A process that appears is sampled from its first moment, without waiting for [`Command::Sample`].
    pub sample_at_once: bool,
}

/// Which processes belong to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Select {
    /// The process with this id, in the sampler's PID namespace; not its successors.
    Pid(u32),
    /// Started by the sampler process, with its standard streams, and sampled from its first instruction.
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
    /// Samples in a second, on average: ticks are jittered around it against lockstep. 1 to 1000.
    pub rate_hertz: f64,
    /// What is sampled.
    pub mode: Mode,
    /// The largest share of one core that sampling this target may use before the rate is lowered.
    pub max_cpu: f64,
    /// The largest share of time for which one thread of the target may be held stopped before the rate is lowered.
    pub max_stopped: f64,
    /// How much of a thread's stack is copied in one piece at most, in bytes, while the thread is blocked or held. What
    /// perf events copy does not depend on it.
    pub max_stack: usize,
    /// Processes of this target that are attached at the same time, at most.
    pub max_processes: usize,
    /// Which running threads are stopped to be sampled.
    pub stops: Stops,
}

/// Which running threads are stopped to be sampled. A stop ends many long system calls early, as any signal may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stops {
    /// None where the kernel permits perf events. Elsewhere those that have spent nearly all of their time in their own
    /// code so far, which are hardly ever in a system call when they are stopped.
    #[default]
    UserBound,
    /// None: without perf events it is only known for how long threads run.
    Never,
    /// All, and perf events are not tried: long system calls come back early.
    Always,
}

impl Stops {
    /// What whoever chooses it has to know, for a person.
    pub fn warning(self) -> Option<&'static str> {
        (self == Self::Always).then_some(
            "stops: always stops running threads, which can end long system calls early: read, write, send and others then return a part of what \
             they were asked for (user-bound and never do not)",
        )
    }
}

/// What can be seen of a running thread without stopping it: more on each rung than on the one below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Rung {
    /// Nothing: no perf event is permitted, or none was asked for yet.
    #[default]
    None,
    /// Its program, while that is what is executed. The time that it spends in the kernel is known, but not where.
    User,
    /// Its program, also while the kernel works for it, and what the kernel does.
    Kernel,
    /// The same of each thread from its first moment on, by events of the processors, which cost a thread hardly
    /// anything at each switch to another.
    Processors,
}

impl Rung {
    /// What it means with these settings, for a person.
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
    /// Every thread: a sample's weight is the time that passed.
    #[default]
    Wall,
    /// Threads that ran since they were last looked at: a sample's weight is the time for which the thread ran.
    Cpu,
}

/// What the sampler process says.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
pub enum Event {
    /// It runs. What it may do was found out, but no process was looked at yet.
    Ready(Rights),
    /// A process of a target was found and can be sampled.
    Attached(Box<Process>),
    /// A file is mapped executable into a process. Comes before the first batch that names it.
    Mapping(Mapping),
    /// The process's perf map (`/tmp/perf-PID.map`, seen through its own root) as it is now; comes again when it was
    /// replaced.
    PerfMap {
        /// The process.
        process: ProcessId,
        /// The map, open for reading.
        file: File,
    },
    /// Samples.
    Batch(Batch),
    /// Counters, about once a second while a process is sampled, and at its end.
    Status(Status),
    /// A process or target that cannot be sampled, or not fully. Said once per process and kind.
    Problem(Problem),
    /// A process is gone, or was let go. Nothing more is said about it.
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
    /// It may trace processes of other users.
    pub trace_others: bool,
    /// Its priority could be raised, so a stopped thread never waits for the sampler to be scheduled.
    pub raised_priority: bool,
    /// What is missing and how to get it, for a person, one line each.
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
    /// Its id in its own, innermost PID namespace.
    pub namespace_pid: u32,
    /// When it started, in nanoseconds since the Unix epoch.
    pub start_unix_nano: u64,
    /// Tells what it executes from everything else that was ever executed on this machine: a one-way hash of the boot,
    /// the process's start and where the kernel put the program (`process_info`). It is the same whoever looks and
    /// whenever, and the program cannot change it.
    pub exec_id: u64,
    /// The path of its executable in its own mount namespace, by the name it was started by where the file has several.
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
    /// Numbers the mapping among the process's; from 0, without gaps.
    pub index: u32,
    /// Its path in the process's own mount namespace, `[vdso]`, or empty for memory without a file. The main executable
    /// has that of [`Process::executable`].
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
    /// Whether Go's compiler made it. Code in C that is linked into it is part of it.
    pub go: bool,
    /// The file, open for reading, as the process has it mapped: the right one even if it was replaced or deleted.
    pub file: Option<File>,
}

/// Samples of one process, with all that they refer to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// The process.
    pub process: ProcessId,
    /// The time between two ticks at the configured rate, in nanoseconds. A lowered rate shows in the weights.
    pub period_nano: u64,
    /// What is in [`Sample::weight_nano`].
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
    /// Its id in the process's own PID namespace: what `gettid` says there.
    pub namespace_id: u32,
    /// Its name (`/proc/PID/task/TID/comm`), at most 15 bytes.
    pub name: String,
    /// The thread pointer (on x86-64 the base of FS): glibc's `pthread_t`, which Python reports as a thread's ident. 0
    /// where it is not known: the thread never had to be stopped, and its C library is not glibc.
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
    /// Already moved back into the call for every frame that is a caller.
    pub address: u64,
}

impl Location {
    /// The thread ran, and no sample says where.
    pub const NOT_SAMPLED: Self = Self { mapping: None, address: 1 << 63 | 1 };
    /// The thread ran in the kernel, which may not be seen.
    pub const KERNEL_NOT_VISIBLE: Self = Self { mapping: None, address: 1 << 63 | 2 };
    /// The thread waited for a processor.
    pub const WAITING_FOR_PROCESSOR: Self = Self { mapping: None, address: 1 << 63 | 3 };
    /// The thread was blocked, and was never met so.
    pub const WAITING_NOT_SEEN: Self = Self { mapping: None, address: 1 << 63 | 4 };

    /// Nothing is known of the thread: the sampler process had ended, and another one was not there yet. Said by
    /// owners.
    pub const NO_SAMPLER: Self = Self { mapping: None, address: 1 << 63 | 5 };

    /// An instruction of the kernel.
    #[must_use]
    pub const fn kernel(address: u64) -> Self {
        Self { mapping: None, address: address | KERNEL }
    }

    /// Whether it is code of the kernel.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        self.mapping.is_none() && self.address >= KERNEL
    }

    /// What a location says that is no place in any code; `None` for all others. Their addresses are such as no code
    /// can have on x86-64.
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
    /// How much of it is known.
    pub trust: Trust,
    /// Its locations, by their place in [`Batch::locations`]; the leaf first.
    pub locations: Vec<u32>,
}

/// How much of a stack is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Trust {
    /// It reaches the thread's first function, and every step was by the rules.
    #[default]
    Complete,
    /// It ends early: what is there is right.
    Truncated,
    /// At least one step was a guess (a scan of the stack for return addresses behind calls).
    Guessed,
}

/// A sample: a thread had this stack for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// The thread, by its place in [`Batch::threads`].
    pub thread: u32,
    /// The stack, by its place in [`Batch::stacks`].
    pub stack: u32,
    /// Since when it stands for the thread, in nanoseconds since the Unix epoch: where the sample before it ends, which
    /// is at most a period before it was taken unless it came late. A run of the same blocked stack has the time of its
    /// start.
    pub time_unix_nano: u64,
    /// For how long it stands, in nanoseconds. Of a running thread that is processor time.
    pub weight_nano: u64,
    /// How often the thread was found with it.
    pub observations: u32,
    /// Whether the thread was blocked: then nothing was stopped to take it, unless its stack needed a register that was
    /// not known.
    pub blocked: bool,
}

/// What has been done for a process since it was attached. All are totals.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Status {
    /// The process.
    pub process: ProcessId,
    /// Its threads at the moment.
    pub threads: u64,
    /// The rate at the moment, in hertz: lower than the configured one while a budget is spent.
    pub rate_hertz: f64,
    /// Ticks.
    pub ticks: u64,
    /// Ticks at which the sampler itself was late by more than a period, and one for each time that the kernel took no
    /// more samples of running threads for a moment since there were too many (`PERF_RECORD_THROTTLE`).
    pub missed_ticks: u64,
    /// Ticks that were left out because a budget was spent.
    pub lowered_ticks: u64,
    /// Observations.
    pub observations: u64,
    /// Observations of complete stacks.
    pub complete: u64,
    /// Observations of truncated stacks.
    pub truncated: u64,
    /// Observations of stacks with a guess.
    pub guessed: u64,
    /// Threads that were stopped.
    pub stops: u64,
    /// Stops that another tracer, or the kernel, refused.
    pub refused_stops: u64,
    /// The time for which the sampler had threads stopped, in nanoseconds: from the last look at which they had not
    /// stopped yet, or from when they had been asked to, or from when the sampler was woken, until they were let go.
    pub stopped_nano: u64,
    /// Stops by their length: up to 1, 2, 4, ... 2^22 microseconds, and longer.
    pub stop_lengths: [u64; 24],
    /// The longest stop, in nanoseconds.
    pub longest_stop_nano: u64,
    /// Processor time of the sampler for all of its processes, in nanoseconds.
    pub sampler_cpu_nano: u64,
    /// Observations that were lost because the owner did not keep up.
    pub lost_observations: u64,
    /// What is seen of running threads without stopping them.
    pub rung: Rung,
    /// Samples of running threads that the kernel had no room for.
    pub lost_samples: u64,
    /// For how long threads ran without a sample that says where, in nanoseconds.
    pub not_sampled_nano: u64,
    /// System calls with a count that had moved a part of it when their thread was stopped in them, and came back with
    /// that.
    pub cut_calls: u64,
}

/// Why something cannot be sampled, or not fully.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The target.
    pub target: TargetId,
    /// The process's id in the sampler's PID namespace, where it is about one.
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
    /// Another tracer has it: blocked threads are sampled, running ones are not.
    Traced,
    /// A 32-bit process, or one of another architecture.
    Architecture,
    /// A zombie.
    Zombie,
    /// Stopped by a signal: nothing runs, and nothing is started.
    Stopped,
    /// Its control group is frozen.
    Frozen,
    /// Its files or memory make no sense, or exceed a limit: what could be read is used.
    Malformed,
    /// The command could not be started.
    Command,
    /// The kernel permits less than perf events of running threads with their time in the kernel: what is missing, and
    /// which right gives it.
    Events,
    /// Something is used up that perf events need, such as file descriptors: some threads or all have none.
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
