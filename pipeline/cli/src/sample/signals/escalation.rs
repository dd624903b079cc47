//! What a signal means after those before it.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

/// How long a command may take to end after a signal that a process sent: about what container runtimes and service
/// managers grant. They cannot be asked, and end profbridge, and the command with it, where they grant less.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// Signals so shortly after the first belong to it: `timeout` sends one to the process and another to its group,
/// service managers SIGTERM and SIGHUP, and no person presses a key twice so fast.
const TOGETHER: Duration = Duration::from_millis(200);

/// What is to be done about a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The first one: sampling ends, and the command is told.
    Begin,
    /// Another one that belongs to the first: the command is told.
    AsWell,
    /// The same once more, which belongs to the first: nothing.
    Again,
    /// The second one: everything ends.
    End,
}

/// The signals so far.
#[derive(Debug, Default)]
pub(super) struct Escalation {
    first: Option<Instant>,
    heard: Vec<Signal>,
    deadline: Option<Instant>,
}

impl Escalation {
    /// Takes a signal. One from the terminal sets no deadline: a person who sits there sees that the command goes on,
    /// and may wish it.
    pub(super) fn hear(&mut self, signal: Signal, from_terminal: bool, now: Instant) -> Answer {
        let Some(first) = self.first else {
            self.first = Some(now);
            self.heard.push(signal);
            self.deadline = (!from_terminal).then(|| now + GRACE);
            return Answer::Begin;
        };
        if now.saturating_duration_since(first) >= TOGETHER {
            return Answer::End;
        }
        if self.heard.contains(&signal) {
            return Answer::Again;
        }
        self.heard.push(signal);
        Answer::AsWell
    }

    /// When the command is to be killed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the command is to be killed now: said once.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.deadline.take_if(|deadline| *deadline <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the first signal begins the end, the second one ends everything, and what comes together is one
    /// request, of which the command is told each signal once.
    #[test]
    fn requests() {
        let start = Instant::now();
        let mut escalation = Escalation::default();
        assert_eq!(escalation.hear(Signal::SIGTERM, false, start), Answer::Begin);
        assert_eq!(escalation.hear(Signal::SIGTERM, false, start + TOGETHER / 2), Answer::Again);
        assert_eq!(escalation.hear(Signal::SIGHUP, false, start + TOGETHER / 2), Answer::AsWell);
        assert_eq!(escalation.hear(Signal::SIGHUP, true, start + TOGETHER / 2), Answer::Again);
        assert_eq!(escalation.hear(Signal::SIGINT, true, start + TOGETHER), Answer::End);
    }

    /// Guarantees: a command that was told by a process is killed after the time that it was granted, once; one that
    /// somebody at a terminal interrupted is not.
    #[test]
    fn deadlines() {
        let start = Instant::now();
        let mut escalation = Escalation::default();
        assert_eq!(escalation.deadline(), None);
        escalation.hear(Signal::SIGTERM, false, start);
        assert_eq!(escalation.deadline(), Some(start + GRACE));
        assert!(!escalation.is_due(start + GRACE / 2));
        assert!(escalation.is_due(start + GRACE));
        assert!(!escalation.is_due(start + GRACE * 2) && escalation.deadline().is_none());
        let mut escalation = Escalation::default();
        escalation.hear(Signal::SIGINT, true, start);
        assert!(!escalation.is_due(start + GRACE * 2));
    }
}
