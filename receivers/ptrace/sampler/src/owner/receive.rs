//! The thread that starts the sampler process, receives its events, and collects its exit status.
//!
//! This thread starts the process because the kernel ends the sampler together with the *thread* that created it
//! (`PR_SET_PDEATHSIG` of prctl(2)): a sampler started by a thread of a pool would end as soon as the pool ends that
//! thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::Signal;
use rustix::thread::CapabilitySet;

use crate::capability;
use crate::message;
use crate::owner::{Ending, Notice, StartOptions};
use crate::pidfd::{ChildStatus, PidFd};
use crate::protocol::socket::{self, ReceivedPacket};
use crate::protocol::{PacketChecker, Violation, decode_event};
use crate::separation::{self, Arguments};

/// How long the sampler may take to accept a command before the owner gives up on it.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// The state shared by the handle and the receiving thread.
#[derive(Debug)]
pub(super) struct ReceiverState {
    checker: Mutex<PacketChecker>,
    deadline: Mutex<Option<Instant>>,
    stop_timeout: Duration,
    wake: EventFd,
}

/// Longer timeouts are reduced to this: practically endless, but short enough to be added to a point in time.
const LONGEST_STOP: Duration = Duration::from_secs(86_400);

impl ReceiverState {
    /// Records a command before it is sent.
    pub(super) fn note(&self, command: &message::Command) {
        lock(&self.checker).note(command);
        if matches!(command, message::Command::Stop) {
            self.stop();
        }
    }

    /// Records that the sampler is expected to end from now on.
    pub(super) fn stop(&self) {
        lock(&self.deadline).get_or_insert_with(|| Instant::now() + self.stop_timeout);
        // Writing fails only if the counter is full, and then the reader is already awake.
        self.wake.write(1).ok();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parts that the owner's handle needs from the started sampler process.
pub(super) struct StartedSampler {
    pub(super) socket: OwnedFd,
    pub(super) pid: u32,
    pub(super) shared: Arc<ReceiverState>,
}

/// Starts the receiving thread, which starts the sampler process.
pub(super) fn start(options: &StartOptions, deliver: Box<dyn FnMut(Notice) + Send>) -> io::Result<StartedSampler> {
    let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let StartOptions { realtime, commands, stop_timeout, .. } = *options;
    let stop_timeout = stop_timeout.min(LONGEST_STOP);
    let (checker, deadline) = (Mutex::new(PacketChecker::default()), Mutex::new(None));
    let shared = Arc::new(ReceiverState { checker, deadline, stop_timeout, wake });
    let (sender, receiver) = sync_channel(1);
    std::thread::Builder::new().name("sampler-events".to_owned()).spawn({
        let shared = Arc::clone(&shared);
        move || {
            let mut deliver = deliver;
            let spawned = spawn(realtime, commands);
            // The host may have dropped this capability for its own thread only, and this thread does not need it any
            // more. This fails only if the thread never had the capability.
            drop(capability::keep(!CapabilitySet::SYS_PTRACE));
            match spawned {
                Ok((socket, own_socket, pid, process)) => {
                    drop(sender.send(Ok((own_socket, pid))));
                    let ending = Receiving { socket, process, shared }.run(&mut deliver);
                    deliver(Notice::Ended(ending));
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        }
    })?;
    let (socket, pid) = receiver.recv().map_err(|_| io::Error::other("the thread that starts it ended"))??;
    Ok(StartedSampler { socket, pid, shared })
}

/// Executes this program again, with one end of a socket pair.
fn spawn(realtime: bool, commands: bool) -> io::Result<(OwnedFd, OwnedFd, u32, PidFd)> {
    let (socket, theirs) = socket::pair()?;
    socket::limit_sending(socket.as_fd(), SEND_TIMEOUT)?;
    let own = socket.try_clone()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(separation::PROCESS_NAME);
    command.args(Arguments { socket: theirs.as_raw_fd(), owner: std::process::id(), realtime, commands }.to_words());
    let number = theirs.as_raw_fd();
    #[allow(unsafe_code, reason = "std has no safe way to hand a descriptor on")]
    // SAFETY: the closure runs between fork and exec; it makes system calls only, allocates nothing and takes no lock.
    // The descriptor belongs to `theirs`, which lives until after the start.
    unsafe {
        command.pre_exec(move || hand_on_only(number));
    }
    let mut child = command.spawn()?;
    let pid = child.id();
    match PidFd::open(pid) {
        Ok(process) => Ok((socket, own, pid, process)),
        Err(error) => {
            // Without the pidfd the process could not be killed safely later.
            drop(child.kill());
            drop(child.wait());
            Err(error)
        }
    }
}

/// Keeps one descriptor across the exec and closes all others but the standard streams, even those that were opened
/// without close-on-exec. On kernels without `close_range` (before Linux 5.11) the latter stay open.
fn hand_on_only(number: i32) -> io::Result<()> {
    #[allow(unsafe_code, reason = "called between fork and exec, where system calls are all that is allowed")]
    // SAFETY: all these calls take only numbers.
    unsafe {
        let kept = number.unsigned_abs();
        libc::syscall(libc::SYS_close_range, 3, kept.saturating_sub(1), libc::CLOSE_RANGE_CLOEXEC);
        libc::syscall(libc::SYS_close_range, kept.saturating_add(1), u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        if libc::fcntl(number, libc::F_SETFD, 0) == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The receiving thread.
struct Receiving {
    socket: OwnedFd,
    process: PidFd,
    shared: Arc<ReceiverState>,
}

impl Receiving {
    fn run(&self, deliver: &mut dyn FnMut(Notice)) -> Ending {
        let received = self.receive_events(deliver);
        let asked = lock(&self.shared.deadline).is_some();
        let forced = match received {
            EventsEnd::Everything => None,
            EventsEnd::TooLong => Some(Ending::TimedOut),
            EventsEnd::Nonsense(what) => Some(Ending::Misbehaved(what)),
        };
        if forced.is_some() || !self.process.ended_within(self.shared.stop_timeout) {
            // This fails only if the process has just ended by itself.
            drop(self.process.signal(Signal::SIGKILL));
            self.process.ended_within(message::STOP_TIMEOUT);
        }
        let status = self.process.take_status().unwrap_or(ChildStatus::Taken);
        match (forced, status) {
            (Some(ending), _) => ending,
            (None, ChildStatus::Exited(0)) if asked => Ending::Stopped,
            (None, ChildStatus::Exited(code)) => Ending::Exited(code),
            (None, ChildStatus::Killed(signal)) => Ending::Killed(signal),
            (None, ChildStatus::Taken) => Ending::Unknown,
        }
    }

    fn receive_events(&self, deliver: &mut dyn FnMut(Notice)) -> EventsEnd {
        loop {
            match self.wait() {
                Wait::Readable => {}
                Wait::Again => continue,
                Wait::TooLong => return EventsEnd::TooLong,
            }
            let event = match socket::receive(self.socket.as_fd()) {
                Ok(ReceivedPacket::Packet { bytes, file, lost_file }) => match decode_event(&bytes, file) {
                    // This is not the sampler's fault: this process had no descriptor left for the file. The sampler
                    // sends the file again when it is replaced.
                    Err(Violation::File { .. }) if lost_file => continue,
                    event => event,
                },
                Ok(ReceivedPacket::End) => return EventsEnd::Everything,
                Ok(ReceivedPacket::Again) => continue,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return EventsEnd::Nonsense(error.to_string());
                }
                Err(_) => return EventsEnd::Everything,
            };
            let checked = event.and_then(|event| {
                lock(&self.shared.checker).check(&event)?;
                Ok(event)
            });
            match checked {
                Ok(event) => deliver(Notice::Event(event)),
                Err(error) => return EventsEnd::Nonsense(error.to_string()),
            }
        }
    }

    fn wait(&self) -> Wait {
        let deadline = *lock(&self.shared.deadline);
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Wait::TooLong;
                }
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut descriptors = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut descriptors, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Wait::Again,
            Err(_) => return Wait::TooLong,
        }
        if descriptors[1].any().unwrap_or(false) {
            // Only the wake-up matters, not the count.
            self.shared.wake.read().ok();
        }
        if descriptors[0].any().unwrap_or(true) { Wait::Readable } else { Wait::Again }
    }
}

enum EventsEnd {
    Everything,
    TooLong,
    Nonsense(String),
}

enum Wait {
    Readable,
    Again,
    TooLong,
}

/// Sets close-on-exec.
pub(crate) fn close_on_exec(descriptor: &OwnedFd) -> io::Result<()> {
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(())
}

#[cfg(test)]
mod tests;
