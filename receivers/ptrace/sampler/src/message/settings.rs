//! Targets: which processes are sampled, and how.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::TargetId;

/// A target: which processes, and how they are sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Its number.
    pub id: TargetId,
    /// Which processes.
    pub select: Select,
    /// How.
    pub settings: Settings,
    /// The names of environment variables of the target that the owner wants to know. No others leave the sampler.
    pub environment: Vec<String>,
    /// The attributes of threads that the owner wants to know, of those that programs show in their memory, at most
    /// [`crate::context::MAX_ALLOWED`]. No others leave the sampler.
    pub thread_attributes: Vec<String>,
    /// Whether a process that appears is sampled from its first moment, without waiting for
    /// [`Command::Sample`](super::Command::Sample).
    pub sample_at_once: bool,
}

/// Which processes belong to a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Every process whose name matches the pattern (`*` any characters, `?` one): the name that `ps` shows
    /// (`/proc/PID/comm`, which of a script is the script's), the base name of its executable or of its first argument;
    /// or the executable's path where the pattern has a slash.
    Name(String),
}

/// How a target is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Average samples per second, 1 to 1000. Ticks are jittered around this rate to avoid lockstep.
    pub rate_hertz: f64,
    /// What is sampled.
    pub mode: Mode,
    /// The largest share of one core that sampling this target may use before the rate is lowered.
    pub max_cpu: f64,
    /// The largest share of time for which one thread of the target may be stopped before the rate is lowered. While
    /// the sampling thread uses more of a processor than the smallest of all targets with interpreters, it is not
    /// executed on the processors of threads whose frames it reads.
    pub max_stopped: f64,
    /// How much of a thread's stack is copied in one piece at most, in bytes, while the thread is blocked or stopped.
    /// What perf events copy does not depend on it.
    pub max_stack: usize,
    /// How many processes of this target may be attached at the same time.
    pub max_processes: usize,
    /// Whether the processes that they start belong to the target as well, and those that these start, whatever they
    /// execute. Children whose parent has ended before they were found do not, nor those that are selected for a target
    /// by themselves.
    pub subprocesses: bool,
    /// Which running threads are stopped to be sampled.
    pub stops: Stops,
    /// Whether functions of interpreted programs are named from memory. Without it, stacks have the interpreter's own
    /// functions; what naming costs is the difference.
    pub interpreters: bool,
}

/// Which running threads are stopped to be sampled. A stop ends many long system calls early, as any signal may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate_hertz: 101.0,
            mode: Mode::Wall,
            max_cpu: 0.10,
            max_stopped: 0.02,
            max_stack: 256 << 10,
            max_processes: 64,
            subprocesses: false,
            stops: Stops::default(),
            interpreters: true,
        }
    }
}

/// What is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Mode {
    /// Samples all threads. A sample's weight is the time that passed.
    #[default]
    Wall,
    /// Samples threads that ran since they were last looked at. A sample's weight is the time for which the thread ran.
    Cpu,
}
