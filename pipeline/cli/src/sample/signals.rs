//! Ctrl-C: once to see what there is, twice to leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::signals::{ASKED_TWICE, Signals};
use crate::{Failure, terminal};

/// Whether somebody asked for the end.
#[derive(Debug, Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Whether somebody asked for the end by now.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Listens for SIGINT, SIGTERM and SIGHUP from now on, on a thread of its own. The second signal ends the program at once,
    /// whatever it is doing.
    pub(super) fn listen() -> Result<Self, Failure> {
        let failed =
            |error: &std::io::Error| Failure::new("the system does not let this process wait for signals", error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
        let entered = runtime.enter();
        let mut signals = Signals::listen().map_err(|error| failed(&error))?;
        drop(entered);
        let this = Self::default();
        let wanted = Arc::clone(&this.0);
        let wait = move || {
            runtime.block_on(signals.next());
            wanted.store(true, Ordering::Relaxed);
            runtime.block_on(signals.next());
            terminal::say("ended by a second signal; nothing more is written");
            #[allow(clippy::exit, reason = "whoever asks twice does not want to wait for anything")]
            std::process::exit(ASKED_TWICE.into());
        };
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(wait).map_err(|error| failed(&error))?;
        Ok(this)
    }
}
