//! The signals that ask the process to stop: SIGTERM and SIGINT. By default, SIGHUP would kill the process with all
//! buffered data. It is sent when a terminal closes, or by users who expect it to reload the configuration. Neither is
//! a reason to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit status after a second signal, as shells report SIGINT.
pub(crate) const ASKED_TWICE: u8 = 130;

/// Waits for signals.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts listening. Must be called on tokio's runtime.
    ///
    /// # Errors
    ///
    /// If the system does not allow it.
    pub(crate) fn listen() -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup: signal(SignalKind::hangup())? })
    }

    /// Waits for the next signal that asks to stop, and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hangup.recv() => {
                    tracing::warn!("SIGHUP: going on as before; the configuration is read at the start only, so restart for \
                                    another");
                }
            }
        }
    }
}

/// Whether this process was started with SIGHUP ignored. Known only on Linux.
pub(crate) fn hangup_is_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

/// Parses `/proc/PID/status` (proc(5)): the mask of ignored signals is hexadecimal, and its lowest bit is signal 1,
/// SIGHUP.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the lowest bit of the mask is used, and an invalid mask ignores nothing.
    #[test]
    fn masks() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(!ignores_hangup("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup("SigIgn:\tnone\n") && !ignores_hangup(""));
    }
}
