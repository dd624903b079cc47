//! The control thread of the sampler process. It does everything but sampling.
//!
//! It receives the owner's commands, finds and opens processes, reads their maps, starts commands, collects their exit
//! codes, and forwards the output of the sampling thread. It runs at normal priority, so sampling continues while it
//! reads a large file. It never waits for the owner except at the end, and then only briefly.

mod attach;
mod commands;
mod contexts;
mod finding;
mod outbox;
mod outputs;
mod standing;
mod upkeep;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::address_space::{AddressSpace, MappedAt};
use crate::command::Inherited;
use crate::discover::{Own, Scanner};
use crate::elf::ObjectCache;
use crate::message::{Command, Detached, Event, Problem, ProblemKind, ProcessId, Select, Target, TargetId};
use crate::perf_map;
use crate::pidfd::PidFd;
use crate::process_files::ProcessFiles;
use crate::process_info::BootClock;
use crate::protocol::decode_command;
use crate::protocol::socket::{ReceivedPacket, receive};
use crate::rights::Powers;
use crate::sampler::{SamplerOptions, SamplerOutput, SamplingThread};

/// How many outputs of the sampling thread may be queued while the control thread reads a file, before samples are
/// dropped.
const WAITING_OUTPUTS: usize = 1024;

/// How often processes are searched for and attached ones are checked.
const UPKEEP: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct AttachedProcess {
    target: TargetId,
    pid: u32,
    namespace_pid: u32,
    user: u32,
    files: Arc<ProcessFiles>,
    space: Arc<AddressSpace>,
    /// Becomes readable when the process has ended.
    process: PidFd,
    /// The path of the executable; if it has several hard links, the one that the process was started with.
    executable: String,
    root: Option<File>,
    perf_map: Option<perf_map::DeviceInode>,
    reload: upkeep::Reload,
    /// The mappings reported since the process's maps were last read.
    mapped: Vec<MappedAt>,
    /// By how many bytes the paths of functions' files grew because folders were put in front of them.
    folders: usize,
    /// The context that the process publishes.
    shown: contexts::PublishedContext,
    /// The reason for detaching from the process, if this thread knows it already; the sampling thread still has to
    /// confirm.
    ending: Option<Detached>,
}

impl AttachedProcess {
    /// The reason for detaching: the one this thread knows, if it ordered the detaching itself.
    fn why_gone(&self, why: Detached) -> Detached {
        if why == Detached::Asked { self.ending.unwrap_or(why) } else { why }
    }
}

/// The control thread.
struct Control {
    socket: OwnedFd,
    wake: Arc<EventFd>,
    outputs: Receiver<SamplerOutput>,
    sampler: SamplingThread,
    outbox: outbox::Outbox,
    inherited: Inherited,
    powers: Powers,
    own: Own,
    clock: BootClock,
    targets: BTreeMap<TargetId, Target>,
    attached: HashMap<ProcessId, AttachedProcess>,
    commands: Vec<commands::StartedCommand>,
    scanner: Scanner,
    children: finding::ChildWatch,
    /// For each target that gave an abbreviated container id, the full id.
    containers: HashMap<TargetId, String>,
    cache: ObjectCache,
    next_process: u64,
    next_upkeep: Instant,
    /// Processes to attach to again, because they were executing another program.
    again: Vec<attach::Again>,
    /// Processes that could not be sampled, by id and start time: they are not tried again.
    given_up: HashSet<(u32, u64)>,
    reported: HashSet<(TargetId, Option<u32>, ProblemKind)>,
}

/// Runs the sampler process until its owner stops it or is gone.
pub(crate) fn run(socket: OwnedFd, owner: u32, realtime: bool, inherited: Inherited) -> io::Result<()> {
    let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
    let (sender, outputs) = sync_channel(WAITING_OUTPUTS);
    let sampler = SamplingThread::start(SamplerOptions { realtime }, sender, {
        let wake = Arc::clone(&wake);
        // Writing fails only if the counter is full because it was not read for very long; then it is readable anyway.
        move || {
            wake.write(1).ok();
        }
    })?;
    let powers = Powers::read();
    let mut control = Control {
        socket,
        wake,
        outputs,
        outbox: outbox::Outbox::default(),
        inherited,
        powers,
        own: Own::new(owner),
        clock: BootClock::read()?,
        targets: BTreeMap::new(),
        attached: HashMap::new(),
        commands: Vec::new(),
        scanner: Scanner::default(),
        children: finding::ChildWatch::new(Instant::now()),
        containers: HashMap::new(),
        cache: ObjectCache::default(),
        next_process: 0,
        next_upkeep: Instant::now(),
        again: Vec::new(),
        given_up: HashSet::new(),
        reported: HashSet::new(),
        sampler,
    };
    let rights = powers.rights(control.sampler.raised_priority());
    control.outbox.push(Event::Ready(rights));
    let end = control.serve();
    control.finish(end);
    Ok(())
}

/// How the control thread ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The owner asked the sampler process to end, and reads the remaining samples.
    Asked,
    /// The owner is gone, so nobody reads the samples.
    OwnerGone,
}

/// The event sources that are ready.
struct Ready {
    socket: bool,
    commands: bool,
    processes: bool,
}

impl Control {
    fn serve(&mut self) -> End {
        loop {
            if self.outbox.flush(self.socket.as_fd()).is_err() {
                return End::OwnerGone;
            }
            let Ok(ready) = self.wait() else { return End::OwnerGone };
            self.receive_from_sampler();
            if ready.commands {
                self.reap();
            }
            if ready.processes {
                self.notice_ends();
            }
            if ready.socket
                && let Some(end) = self.receive_from_owner()
            {
                return end;
            }
            self.attend(Instant::now());
        }
    }

    fn wait(&self) -> io::Result<Ready> {
        let mut interest = PollFlags::POLLIN;
        let mut timeout = self.next_attention();
        if self.outbox.is_held_up() {
            timeout = Some(timeout.unwrap_or(outbox::RETRY).min(outbox::RETRY));
        } else if !self.outbox.is_empty() {
            interest |= PollFlags::POLLOUT;
        }
        let mut descriptors =
            vec![PollFd::new(self.socket.as_fd(), interest), PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        let running = self.commands.iter().filter(|command| command.code.is_none());
        descriptors.extend(running.map(|command| PollFd::new(command.process.as_fd(), PollFlags::POLLIN)));
        let commands = descriptors.len();
        let living = self.attached.values().filter(|attached| attached.ending.is_none());
        descriptors.extend(living.map(|attached| PollFd::new(attached.process.as_fd(), PollFlags::POLLIN)));
        // Round up, so that no work is still in the future after the wait.
        let timeout = timeout.map_or(PollTimeout::NONE, |time| {
            PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut descriptors, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready { socket: false, commands: false, processes: false }),
            Err(error) => return Err(error.into()),
        }
        let ready = |descriptor: &PollFd<'_>| descriptor.any().unwrap_or(true);
        if ready(&descriptors[1]) {
            // Only the wake-up matters, not the count.
            self.wake.read().ok();
        }
        let readable = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        Ok(Ready {
            socket: descriptors[0].revents().is_none_or(|events| events.intersects(readable)),
            commands: descriptors[2..commands].iter().any(ready),
            processes: descriptors[commands..].iter().any(ready),
        })
    }

    /// When the next timed work is due; `None` if there is none.
    fn next_attention(&self) -> Option<Duration> {
        let now = Instant::now();
        let upkeep = (self.is_finding() || !self.attached.is_empty()).then_some(self.next_upkeep);
        let again = self.again.iter().map(|again| again.due).min();
        let reload = self.attached.values().filter_map(|attached| attached.reload.due()).min();
        let children = self.next_look_for_children();
        [upkeep, again, reload, children].into_iter().flatten().min().map(|due| due.saturating_duration_since(now))
    }

    fn receive_from_owner(&mut self) -> Option<End> {
        loop {
            let bytes = match receive(self.socket.as_fd()) {
                Ok(ReceivedPacket::Packet { bytes, .. }) => bytes,
                Ok(ReceivedPacket::Again) => return None,
                Ok(ReceivedPacket::End) | Err(_) => return Some(End::OwnerGone),
            };
            match decode_command(&bytes) {
                Ok(Command::Watch(target)) => self.watch(target),
                Ok(Command::Unwatch(target)) => self.unwatch(target),
                Ok(Command::FindChildren(target)) => {
                    if let Some(target) = self.targets.get_mut(&target) {
                        target.settings.subprocesses = true;
                        self.children.attached(Instant::now());
                    }
                }
                Ok(Command::Sample { process, on }) => {
                    if self.attached.contains_key(&process) {
                        self.sampler.sample(process, on);
                    }
                }
                Ok(Command::SampleFromStart(process)) => {
                    if self.attached.contains_key(&process) {
                        self.sampler.sample_from_start(process);
                    }
                }
                Ok(Command::Stop) => return Some(End::Asked),
                // Owner and sampler process run the same executable, so the owner does not send malformed commands.
                Err(_) => return Some(End::OwnerGone),
            }
        }
    }

    fn watch(&mut self, target: Target) {
        let id = target.id;
        // If a target with this id exists, drop it first.
        self.unwatch(id);
        let select = target.select.clone();
        self.targets.insert(id, target);
        match select {
            Select::Pid(pid) => self.attach_named(id, pid),
            Select::Command(words) => self.start_command(id, &words),
            select => self.find_from_now_on(id, &select),
        }
    }

    fn unwatch(&mut self, target: TargetId) {
        if self.targets.remove(&target).is_none() {
            return;
        }
        self.again.retain(|again| again.target != target);
        self.containers.remove(&target);
        self.reported.retain(|(id, _, _)| *id != target);
        for (id, attached) in &mut self.attached {
            if attached.target == target && attached.ending.is_none() {
                attached.ending = Some(Detached::Asked);
                self.sampler.detach(*id);
            }
        }
    }

    /// Reports a problem, unless the same was reported before.
    fn report(&mut self, target: TargetId, pid: Option<u32>, kind: ProblemKind, message: String) {
        if self.reported.insert((target, pid, kind)) {
            self.outbox.push(Event::Problem(Problem { target, pid, kind, message }));
        }
    }
}
