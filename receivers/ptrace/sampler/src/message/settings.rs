//! Targets: which processes are sampled, and how.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::TargetId;

/// A target: a selection of processes, and how they are sampled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The number of the target.
    pub id: TargetId,
    /// Which processes belong to the target.
    pub select: Select,
    /// How the selected processes are sampled.
    pub settings: Settings,
    /// The environment variables of the target that the owner wants to know. No others leave the sampler process.
    pub environment: Vec<String>,
    /// The thread attributes that the owner wants to know, of those that programs publish in their memory; at most
    /// [`crate::context::MAX_ALLOWED`]. No others leave the sampler process.
    pub thread_attributes: Vec<String>,
    /// Whether a newly found process is sampled from its first moment, without waiting for
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
    /// Every process whose executable matches the pattern (`*` any characters, `?` one). The pattern applies to the
    /// base name, or to the whole path if it has a slash.
    Executable(String),
    /// Every process whose arguments, joined by spaces, contain a match of the pattern (`*` any characters, `?` one).
    /// Wrappers such as `timeout` or a shell are left out: their arguments contain those of a child that matches as
    /// well.
    CommandLine(String),
    /// Every process in this control group or below (a path as in `/proc/PID/cgroup`).
    ControlGroup(String),
    /// Every process of the container with this id. An unambiguous prefix of at least 12 hexadecimal digits is enough.
    Container(String),
    /// Every process with a name that matches the pattern (`*` any characters, `?` one): the name that `ps` shows
    /// (`/proc/PID/comm`, for a script the script's name), or the base name of its executable or of its first argument.
    /// If the pattern has a slash, it applies to the executable's path.
    Name(String),
}

/// How a target is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Average samples per second, 1 to 1000. Ticks are jittered around this rate to avoid lockstep.
    pub rate_hertz: f64,
    /// Whether wall-clock time or processor time is sampled.
    pub mode: Mode,
    /// The largest share of one core that sampling this target may use. Beyond that the rate is lowered.
    pub max_cpu: f64,
    /// The largest share of time for which one thread of the target may be stopped. Beyond that the rate is lowered.
    pub max_stopped: f64,
    /// The largest part of a thread's stack that is copied in one piece while the thread is blocked or stopped, in
    /// bytes. What perf events copy does not depend on it.
    pub max_stack: usize,
    /// How many processes of this target may be attached at the same time.
    pub max_processes: usize,
    /// Whether all descendants of these processes belong to the target as well, whatever they execute. A child whose
    /// parent ended before the child was found does not belong to the target, nor does a process that another target
    /// selects by its properties.
    pub subprocesses: bool,
    /// Which running threads are stopped to be sampled.
    pub stops: Stops,
    /// Whether functions of interpreted programs are read from the interpreter's memory. Otherwise stacks show the
    /// interpreter's own functions, and sampling costs less.
    pub interpreters: bool,
}

/// Which running threads are stopped to be sampled. A stop ends many long system calls early, as any signal may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Stops {
    /// No thread if the kernel permits perf events. Otherwise threads that have spent nearly all of their time outside
    /// of the kernel so far: a stop rarely interrupts a system call of such threads.
    #[default]
    UserBound,
    /// No thread. Without perf events only the amount of running time is known.
    Never,
    /// All running threads, and perf events are not tried. Long system calls return early.
    Always,
}

impl Stops {
    /// A warning for users who choose this setting.
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

/// Which kind of time is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Mode {
    /// Samples all threads. A sample's weight is the elapsed time.
    #[default]
    Wall,
    /// Samples threads that ran since they were last examined. A sample's weight is the time for which the thread ran.
    Cpu,
}
