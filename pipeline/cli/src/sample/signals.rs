//! The signals that ask for the end, and their forwarding to the command.
//!
//! The first signal ends sampling and is forwarded to the command, the second one ends both. A signal from the terminal
//! has already reached the command, because a terminal signals its whole foreground process group. These signals are
//! recognised by `si_code` (sigaction(2)): `SI_KERNEL` for the terminal, `SI_USER` for kill(2). Whether kill(2) was
//! sent to one process or to a group cannot be seen, so its signals are always forwarded, as `sudo` does. The only
//! exception are signals from the command itself, which knows what it does.

mod escalation;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use profbridge_sampler::owner::Supervised;

use crate::signals::{ASKED_TWICE, hangup_is_ignored};
use crate::{Failure, terminal};
use escalation::{Escalation, GRACE, SignalReaction};

/// `SI_KERNEL`: sent by the kernel itself (sigaction(2); Linux, `include/uapi/asm-generic/siginfo.h`).
const FROM_KERNEL: i32 = 0x80;

/// How long a killed command may take to disappear. A command that waits for a disk ends only after that.
const DYING: Duration = Duration::from_secs(5);

/// Whether the end was requested. The default listens to no signals: each ends the program.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<SignalState>);

#[derive(Default)]
struct SignalState {
    wanted: AtomicBool,
    /// Set when the thread that handles signals ends the program.
    ending: AtomicBool,
    forwarding: Mutex<SignalForwarding>,
}

/// Where signals are forwarded.
#[derive(Default)]
struct SignalForwarding {
    command: Option<Arc<Supervised>>,
    /// The signals that arrived before there was a command.
    missed: Vec<Signal>,
    /// A callback to run before the program ends immediately.
    last: Option<Box<dyn FnOnce() + Send>>,
}

impl Interrupt {
    /// Handles SIGINT, SIGTERM and SIGHUP from now on, on its own thread. Must be called before any other thread is
    /// started, because the signals have to be blocked in all of them. The second signal ends the program immediately.
    ///
    /// # Errors
    ///
    /// The system does not allow it.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let failed =
            |error: &std::io::Error| Failure::new("the system does not let this process wait for signals", error);
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        // Blocking an ignored SIGHUP would no longer ignore it.
        if !hangup_is_ignored() {
            set.add(Signal::SIGHUP);
        }
        set.thread_block().map_err(|error| failed(&error.into()))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&set, flags).map_err(|error| failed(&error.into()))?;
        let this = Self::default();
        let shared = Arc::clone(&this.0);
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || shared.watch(&signals)).map_err(|error| failed(&error))?;
        Ok(this)
    }

    /// Whether the end was requested.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.wanted.load(Ordering::Relaxed)
    }

    /// Returns, unless a second signal is ending the program with its own exit status: then it blocks.
    pub(super) fn stay_if_ending(&self) {
        while self.0.ending.load(Ordering::SeqCst) {
            std::thread::park();
        }
    }

    /// Sets a callback for a second signal, which ends the program immediately: to restore the terminal.
    pub(crate) fn before_the_end(&self, last: impl FnOnce() + Send + 'static) {
        self.0.forwarding().last = Some(Box::new(last));
    }

    /// Forwards signals to a command from now on, including those that arrived before it was started.
    pub(super) fn pass_on_to(&self, command: &Arc<Supervised>) {
        let mut forwarding = self.0.forwarding();
        forwarding.command = Some(Arc::clone(command));
        for signal in std::mem::take(&mut forwarding.missed) {
            pass_on(command, signal);
        }
    }
}

impl SignalState {
    fn forwarding(&self) -> std::sync::MutexGuard<'_, SignalForwarding> {
        self.forwarding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for signals until the program ends.
    fn watch(&self, signals: &SignalFd) {
        let mut escalation = Escalation::default();
        loop {
            let left = escalation.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let timeout = left.map_or(PollTimeout::NONE, |left| {
                // Rounded up, so that the deadline has passed afterwards.
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            });
            // The result does not matter: the next lines read whatever has arrived.
            poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout).ok();
            while let Ok(Some(information)) = signals.read_signal() {
                self.handle_signal(&mut escalation, &information);
            }
            if escalation.is_due(Instant::now()) {
                self.lose_patience();
            }
        }
    }

    fn handle_signal(&self, escalation: &mut Escalation, information: &siginfo) {
        let Ok(signal) = Signal::try_from(information.ssi_signo.cast_signed()) else { return };
        let from_terminal = information.ssi_code == FROM_KERNEL;
        match escalation.handle_signal(signal, from_terminal, Instant::now()) {
            SignalReaction::Begin => {
                self.wanted.store(true, Ordering::Relaxed);
                self.forward(signal, from_terminal, information.ssi_pid, true);
            }
            SignalReaction::AsWell => self.forward(signal, from_terminal, information.ssi_pid, false),
            SignalReaction::Again => {}
            SignalReaction::End => self.end(),
        }
    }

    /// Forwards a signal, unless the command already has it.
    fn forward(&self, signal: Signal, from_terminal: bool, sender: u32, loud: bool) {
        let mut forwarding = self.forwarding();
        let Some(command) = &forwarding.command else {
            forwarding.missed.push(signal);
            return;
        };
        if command.exit_code().is_some() {
            return;
        }
        let pid = command.pid();
        let text = if from_terminal && command.is_in_own_group() {
            format!("the terminal sent {signal} to the command (process {pid}) as well; once more, and it is killed")
        } else if sender == pid {
            format!("{signal} was sent by the command (process {pid}) itself")
        } else if pass_on(command, signal) {
            let in_time = format!("it is killed if it has not ended in {} s", GRACE.as_secs());
            let grace = if from_terminal { "once more, and it is killed" } else { in_time.as_str() };
            format!("{signal} was passed on to the command (process {pid}); {grace}")
        } else {
            return;
        };
        if loud {
            terminal::say(text);
        }
    }

    /// Escalates because the command did not end in time.
    fn lose_patience(&self) {
        let forwarding = self.forwarding();
        let Some(command) = forwarding.command.as_ref().filter(|command| command.exit_code().is_none()) else { return };
        terminal::say(format!(
            "the command (process {}) has not ended in {} s, and is killed",
            command.pid(),
            GRACE.as_secs()
        ));
        pass_on(command, Signal::SIGKILL);
    }

    /// Ends the program after a second request.
    fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        let mut forwarding = self.forwarding();
        if let Some(last) = forwarding.last.take() {
            last();
        }
        let running = forwarding.command.as_ref().filter(|command| command.exit_code().is_none());
        match running {
            None => terminal::say("ended by a second signal; nothing more is written"),
            Some(command) => {
                terminal::say(format!(
                    "ended by a second signal, and the command (process {}) is killed; nothing more is written",
                    command.pid()
                ));
                pass_on(command, Signal::SIGKILL);
                command.ended_within(DYING);
            }
        }
        #[allow(clippy::exit, reason = "whoever asks twice does not want to wait for anything")]
        std::process::exit(ASKED_TWICE.into());
    }
}

/// Sends the command a signal. Returns whether the command still existed.
fn pass_on(command: &Supervised, signal: Signal) -> bool {
    // So that it receives the signal now, not when it would have been started.
    command.let_run();
    match command.signal(signal) {
        Ok(()) => true,
        Err(error) => {
            if command.exit_code().is_none() && error.raw_os_error() != Some(nix::errno::Errno::ESRCH as i32) {
                terminal::say(format!("{signal} cannot be passed on to process {}: {error}", command.pid()));
            }
            false
        }
    }
}
