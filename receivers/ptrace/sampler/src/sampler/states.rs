//! The states of a process and of its threads, and the transitions between them.
//!
//! A process is attached ([`Attached`](super::attached::Attached)) and, for some of that time, also sampled
//! ([`Active`](super::active::Active), which owns everything that is valid only then). `lifecycle.rs` makes the
//! transitions:
//!
//! ```text
//!  attach               switch_on
//! --------> Attached -------------> Active --+
//!              ^   |    switch_off           | a panic
//!              +---|-------------------------+----------> gone
//!                  +--------------------------------------^
//!                    detached, executed, exited, failed
//! ```
//!
//! How the running threads of an active process are sampled is its [`RunningThreadMethod`]:
//!
//! ```text
//!             the kernel permits events                   review each second
//! Undecided ----------------------------> Threads { .. } <------------------> Group, Machine
//!   ^  |  |   it refuses, or `stops: always`
//!   |  |  +---------------------------------> Stops   ("stops: never": Not)
//!   |  +------------------------------------> Not     (nothing could be asked: too few descriptors and the like)
//!   +---- the kernel permits more or less than it did (not from Group and Machine)
//! ```
//!
//! What the next tick must check first is its [`PendingCheck`]. The states of a thread:
//!
//! | state | variants | changed by |
//! | --- | --- | --- |
//! | what it did when last examined | [`LastSeen`]: `Unknown`, `Running`, `Blocked` | `active/look.rs` |
//! | whether it may be stopped | [`StopTurn`]: `Forbidden`, `Waiting`, `Asked` | `stopping.rs`, `harvest.rs` |
//! | its own event | `ThreadState::event`: none or open | `events.rs`, `precedence.rs` |
//!
//! [`DutyCycle`](super::thread_event::DutyCycle) decides when a closed event may be opened again.

use super::coverage::Coverage;
use crate::message::{Level, Stops};
use crate::probe::SchedStat;

/// How running threads of a process are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunningThreadMethod {
    /// Not known yet.
    Undecided,
    /// By an event of each thread that ran recently. Without `kernel` the events take no samples in the kernel.
    Threads { kernel: bool },
    /// By events of processors that cover the process's control group.
    Group,
    /// By events of processors that cover the whole machine.
    Machine,
    /// By stopping threads, as far as the settings allow.
    Stops,
    /// Not at all: only the amount of their running time is known.
    Not,
}

impl RunningThreadMethod {
    /// The state for the best level that the kernel permits.
    pub(super) fn for_level(permitted: Level, stops: Stops) -> Self {
        match (permitted, stops) {
            (Level::Undecided | Level::None, Stops::Never) => Self::Not,
            (Level::Undecided | Level::None, _) => Self::Stops,
            (level, _) => Self::Threads { kernel: level > Level::User },
        }
    }

    /// The state for what events cover.
    pub(super) fn covering(coverage: Coverage) -> Self {
        match coverage {
            Coverage::Threads => Self::Threads { kernel: true },
            Coverage::Group => Self::Group,
            Coverage::Machine => Self::Machine,
        }
    }

    /// What the process's events cover; `None` if they do not sample the kernel, because then only threads can be
    /// covered.
    pub(super) fn coverage(self) -> Option<Coverage> {
        match self {
            Self::Threads { kernel: true } => Some(Coverage::Threads),
            Self::Group => Some(Coverage::Group),
            Self::Machine => Some(Coverage::Machine),
            Self::Undecided | Self::Threads { kernel: false } | Self::Stops | Self::Not => None,
        }
    }

    /// The level at which running threads are seen.
    pub(super) fn level(self) -> Level {
        match self {
            Self::Undecided => Level::Undecided,
            Self::Stops | Self::Not => Level::None,
            Self::Threads { kernel: false } => Level::User,
            Self::Threads { kernel: true } => Level::Kernel,
            Self::Group | Self::Machine => Level::Processors,
        }
    }

    /// Whether the events take no samples while a thread is in the kernel. That time is only counted.
    pub(super) fn hides_kernel(self) -> bool {
        self == Self::Threads { kernel: false }
    }
}

/// What a process's next tick has to check before it examines threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingCheck {
    None,
    /// Something happened that may mean that the process has ended.
    MayBeGone,
    /// A thread executes 32-bit code, whose stack cannot be unwound.
    OtherArchitecture,
}

impl PendingCheck {
    /// Called when the process may have ended, or may execute another program.
    pub(super) fn may_be_gone(&mut self) {
        if *self == Self::None {
            *self = Self::MayBeGone;
        }
    }
}

/// What a thread did when it was last examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastSeen {
    /// Not known: the thread was not examined yet, or the result is outdated.
    Unknown,
    Running,
    /// The thread was blocked. As long as its counters equal these, it has not run since.
    Blocked(SchedStat),
}

impl LastSeen {
    /// Called when a thread that was running may be blocked now.
    pub(super) fn may_have_blocked(&mut self) {
        if *self == Self::Running {
            *self = Self::Unknown;
        }
    }
}

/// Whether a thread may be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopTurn {
    /// The thread was not allowed to be stopped when it was last found running.
    Forbidden,
    /// The thread may be stopped. For this many ticks it was another thread's turn.
    Waiting { ticks: u64 },
    /// The thread was asked to stop and was not released since; `allowed` if it may be stopped while it runs.
    Asked { allowed: bool },
}

impl StopTurn {
    /// Sets whether the thread may be stopped now. Returns whether that has changed.
    pub(super) fn allow(&mut self, may: bool) -> bool {
        let changed = may != matches!(self, Self::Waiting { .. });
        if changed {
            *self = if may { Self::Waiting { ticks: 0 } } else { Self::Forbidden };
        }
        changed
    }

    /// For how many ticks the thread has waited for its turn.
    pub(super) fn waited(self) -> u64 {
        if let Self::Waiting { ticks } = self { ticks } else { 0 }
    }

    /// Called in a tick in which it was another thread's turn.
    pub(super) fn wait(&mut self) {
        if let Self::Waiting { ticks } = self {
            *ticks += 1;
        }
    }

    /// Called when the thread was asked to stop.
    pub(super) fn ask(&mut self) {
        *self = Self::Asked { allowed: matches!(self, Self::Waiting { .. } | Self::Asked { allowed: true }) };
    }

    /// Called when the thread was released, or ended.
    pub(super) fn end(&mut self) {
        if let Self::Asked { allowed } = *self {
            *self = if allowed { Self::Waiting { ticks: 0 } } else { Self::Forbidden };
        }
    }

    /// Whether the thread was asked to stop and was not released yet.
    pub(super) fn is_asked(self) -> bool {
        matches!(self, Self::Asked { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: `allow` returns true exactly when the permission changes; a stop resets the waiting time, and keeps
    /// the permission.
    #[test]
    fn turns() {
        let mut turn = StopTurn::Forbidden;
        assert!(!turn.allow(false) && turn.allow(true) && !turn.allow(true));
        turn.wait();
        turn.wait();
        assert_eq!(turn.waited(), 2);
        turn.ask();
        assert_eq!((turn.is_asked(), turn.waited()), (true, 0));
        turn.end();
        assert_eq!(turn, StopTurn::Waiting { ticks: 0 });
        turn.end();
        assert_eq!(turn, StopTurn::Waiting { ticks: 0 });
        assert!(turn.allow(false));
        turn.ask();
        turn.end();
        assert_eq!(turn, StopTurn::Forbidden);
    }
}
