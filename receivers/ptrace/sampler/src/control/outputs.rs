//! Forwards the sampling thread's output to the owner, and waits for the rest of it at the end.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::readlinkat;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{AttachedProcess, Control, End, WAITING_OUTPUTS, attach};
use crate::message::{Detached, Event, Function, FunctionKind, ProcessId, STOP_TIMEOUT};
use crate::runtime::{MAX_FILE, MAX_FOLDERS};
use crate::sampler::SamplerOutput;

/// How long the control thread may take to end: less than the time after which the owner kills the process.
const END: Duration = STOP_TIMEOUT.saturating_sub(Duration::from_millis(500));

/// How many mappings of a process may be queued until its maps are read. Further ones are dropped, as if the kernel had
/// not reported them.
const MOST_MAPPED: usize = 128;

impl Control {
    /// Forwards the output of the sampling thread.
    pub(super) fn receive_from_sampler(&mut self) {
        // The number is limited so that the owner's commands are served too.
        for _ in 0..WAITING_OUTPUTS {
            match self.outputs.try_recv() {
                Ok(output) => self.pass_on(output),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
        self.wake.write(1).ok();
    }

    fn pass_on(&mut self, output: SamplerOutput) {
        match output {
            SamplerOutput::Batch(batch) if self.attached.contains_key(&batch.process) => {
                self.outbox.push(Event::Batch(batch));
            }
            SamplerOutput::Status(status) if self.attached.contains_key(&status.process) => {
                self.outbox.push(Event::Status(status));
            }
            SamplerOutput::Functions { process, first, functions } => {
                if let Some(event) = functions_event(&mut self.attached, process, first, functions) {
                    self.outbox.push(event);
                }
            }
            SamplerOutput::Batch(_) | SamplerOutput::Status(_) => {}
            SamplerOutput::Reload { process, mapped } => {
                if let Some(attached) = self.attached.get_mut(&process) {
                    let room = MOST_MAPPED.saturating_sub(attached.mapped.len());
                    attached.mapped.extend(mapped.into_iter().take(room));
                    attached.reload.want(Instant::now());
                }
            }
            SamplerOutput::Gone { process, why } => self.forget(process, why),
            SamplerOutput::Problem { process, kind, message } => {
                if let Some(attached) = self.attached.get(&process) {
                    let (target, pid) = (attached.target, attached.pid);
                    self.report(target, Some(pid), kind, format!("process {pid}: {message}"));
                }
            }
        }
    }

    /// Called when the sampling thread has detached from a process.
    fn forget(&mut self, process: ProcessId, why: Detached) {
        let why = self.attached.get(&process).map_or(why, |attached| attached.why_gone(why));
        if why == Detached::Exited {
            // The process may have written its perf map since the last check, and the file outlives it. If it executed
            // another program, the file belongs to that program already.
            self.look_for_perf_map(process);
        }
        let Some(attached) = self.attached.remove(&process) else { return };
        let (target, pid, start) = (attached.target, attached.pid, attached.files.start_ticks());
        self.outbox.push(Event::Detached { process, why });
        match why {
            Detached::Executed => {
                self.again.push(attach::Again::at_once(target, pid, start));
            }
            Detached::Failed => {
                self.given_up.insert((pid, start));
            }
            Detached::Exited => self.reported.retain(|(_, process, _)| *process != Some(pid)),
            Detached::Asked => self.scanner.forget(pid),
        }
        self.report_ended_commands();
    }

    /// Ends the sampling thread, and forwards its remaining output.
    pub(super) fn finish(mut self, end: End) {
        let deadline = Instant::now() + END;
        let sampler = self.sampler;
        // A thread releases the stopped threads while this one sends the remaining output. If no thread can be started
        // for this, dropping the handle has the same effect.
        let stopping = std::thread::Builder::new().name("stopping".to_owned()).spawn(move || sampler.stop());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = match self.outputs.recv_timeout(left) {
                Ok(SamplerOutput::Batch(batch)) if self.attached.contains_key(&batch.process) => Event::Batch(batch),
                Ok(SamplerOutput::Functions { process, first, functions }) => {
                    let Some(event) = functions_event(&mut self.attached, process, first, functions) else { continue };
                    event
                }
                Ok(SamplerOutput::Status(status)) if self.attached.contains_key(&status.process) => {
                    Event::Status(status)
                }
                Ok(SamplerOutput::Gone { process, why }) => {
                    let Some(attached) = self.attached.remove(&process) else { continue };
                    Event::Detached { process, why: attached.why_gone(why) }
                }
                Ok(_) => continue,
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => break,
            };
            if end == End::Asked {
                self.outbox.push(event);
                if self.outbox.flush(self.socket.as_fd()).is_err() {
                    return;
                }
            }
        }
        drop(stopping);
        while end == End::Asked && !self.outbox.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut descriptors = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut descriptors, timeout) {
                Ok(0) if left.is_zero() => return,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
            if self.outbox.flush(self.socket.as_fd()).is_err() {
                return;
            }
        }
    }
}

/// The functions of an attached process, with absolute paths for Python's files: a script has the path with which it
/// was started; Python 3.9 and later put the current folder in front, and keep `.` and `..`. Like Sentry's SDK
/// (`os.path.abspath`), this resolves relative paths against the current folder.
fn functions_event(
    attached: &mut HashMap<ProcessId, AttachedProcess>,
    process: ProcessId,
    first: u32,
    mut functions: Vec<Function>,
) -> Option<Event> {
    let AttachedProcess { files, folders, .. } = attached.get_mut(&process)?;
    let relative = |function: &&mut Function| {
        let file = &*function.file;
        let is_whole = file.starts_with('/') && !file.contains("/./") && !file.contains("/../");
        function.kind == FunctionKind::CPython && !is_whole && file.ends_with(".py")
    };
    for function in functions.iter_mut().filter(relative) {
        let Ok(folder) = readlinkat(files.directory(), "cwd") else { break };
        let Some(path) = whole_path(folder.into(), &function.file) else { continue };
        let longer = *folders + path.len().saturating_sub(function.file.len());
        if longer <= MAX_FOLDERS {
            (*folders, function.file) = (longer, path);
        }
    }
    Some(Event::Functions { process, first, functions })
}

/// The absolute path of a file in a folder, without `.` and `..`; `None` if it cannot be determined.
fn whole_path(mut folder: PathBuf, file: &str) -> Option<String> {
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(folder.pop()),
            Component::CurDir | Component::Prefix(_) => {}
            part => folder.push(part),
        }
    }
    folder.into_os_string().into_string().ok().filter(|path| path.len() <= MAX_FILE && !path.contains(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a path is resolved as a shell does.
    #[test]
    fn whole_paths() {
        for (file, path) in [
            ("app.py", "/srv/shop/app.py"),
            ("./a/./b.py", "/srv/shop/a/b.py"),
            ("../x.py", "/srv/x.py"),
            ("/opt/./a.py", "/opt/a.py"),
        ] {
            assert_eq!(whole_path("/srv/shop".into(), file).as_deref(), Some(path));
        }
        assert_eq!(whole_path("/srv".into(), &"x".repeat(MAX_FILE)), None);
    }
}
