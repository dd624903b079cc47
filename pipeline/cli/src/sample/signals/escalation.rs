//! Decides the meaning of a signal from those before it.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

/// How long a command may take to end after a signal from a process: about the grace period of container runtimes and
/// service managers. Theirs cannot be queried; if it is shorter, they kill profbridge and with it the command.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// Signals this shortly after the first belong to it: `timeout` signals both the process and its group, service
/// managers send SIGTERM and SIGHUP, and no person presses a key twice so fast.
const TOGETHER: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalReaction {
    /// The first signal: sampling ends, and the command gets the signal.
    Begin,
    /// A different signal that accompanies the first one: the command gets it too.
    AsWell,
    /// The first signal again, shortly after it: ignored.
    Again,
    /// A second request: everything ends.
    End,
}

/// The signals so far.
#[derive(Debug, Default)]
pub(super) struct Escalation {
    first: Option<Instant>,
    received: Vec<Signal>,
    deadline: Option<Instant>,
}

impl Escalation {
    /// Handles a signal. One from the terminal sets no deadline: the user sees that the command continues, and may want
    /// that.
    pub(super) fn handle_signal(&mut self, signal: Signal, from_terminal: bool, now: Instant) -> SignalReaction {
        let Some(first) = self.first else {
            self.first = Some(now);
            self.received.push(signal);
            self.deadline = (!from_terminal).then(|| now + GRACE);
            return SignalReaction::Begin;
        };
        if now.saturating_duration_since(first) >= TOGETHER {
            return SignalReaction::End;
        }
        if self.received.contains(&signal) {
            return SignalReaction::Again;
        }
        self.received.push(signal);
        SignalReaction::AsWell
    }

    /// When the command must be killed.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns once that the command must be killed now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        self.deadline.take_if(|deadline| *deadline <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the first signal starts the end, the second one ends everything, and signals that arrive together
    /// are one request; each is forwarded to the command once.
    #[test]
    fn requests() {
        let start = Instant::now();
        let mut escalation = Escalation::default();
        assert_eq!(escalation.handle_signal(Signal::SIGTERM, false, start), SignalReaction::Begin);
        assert_eq!(escalation.handle_signal(Signal::SIGTERM, false, start + TOGETHER / 2), SignalReaction::Again);
        assert_eq!(escalation.handle_signal(Signal::SIGHUP, false, start + TOGETHER / 2), SignalReaction::AsWell);
        assert_eq!(escalation.handle_signal(Signal::SIGHUP, true, start + TOGETHER / 2), SignalReaction::Again);
        assert_eq!(escalation.handle_signal(Signal::SIGINT, true, start + TOGETHER), SignalReaction::End);
    }

    /// Guarantees: after a signal from a process the command is killed once when its grace period ends; after a signal
    /// from the terminal it is not.
    #[test]
    fn deadlines() {
        let start = Instant::now();
        let mut escalation = Escalation::default();
        assert_eq!(escalation.deadline(), None);
        escalation.handle_signal(Signal::SIGTERM, false, start);
        assert_eq!(escalation.deadline(), Some(start + GRACE));
        assert!(!escalation.is_due(start + GRACE / 2));
        assert!(escalation.is_due(start + GRACE));
        assert!(!escalation.is_due(start + GRACE * 2) && escalation.deadline().is_none());
        let mut escalation = Escalation::default();
        escalation.handle_signal(Signal::SIGINT, true, start);
        assert!(!escalation.is_due(start + GRACE * 2));
    }
}
