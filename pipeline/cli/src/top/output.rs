//! What a command writes while a view is on its terminal: kept in a file, and shown when the view is closed.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::Failure;

/// So much of it is shown, the last of it.
const SHOWN: u64 = 1 << 20;

/// What a command wrote, and for a moment the standard streams that it is to inherit in place of ours.
#[derive(Debug)]
pub(super) struct CommandOutput {
    /// It has no name any more, and is gone with its last user.
    file: File,
    shown: u64,
    ours: Option<Streams>,
}

/// Our own streams; `None` of those that are no terminal and were left as they are.
#[derive(Debug)]
struct Streams {
    input: OwnedFd,
    output: Option<OwnedFd>,
    error: Option<OwnedFd>,
}

impl CommandOutput {
    /// Has the streams that are the terminal lead elsewhere until [`Self::give_back`]: input to nothing, since keys are
    /// the view's, output into a file.
    pub(super) fn redirect() -> Result<Self, Failure> {
        let failed = |error: &std::io::Error| Failure::new("what the command writes cannot be kept", error);
        let file = unnamed().map_err(|error| failed(&error))?;
        let streams = || -> std::io::Result<Streams> {
            let input = rustix::io::fcntl_dupfd_cloexec(stdin(), 3)?;
            let null = File::open("/dev/null")?;
            dup2_stdin(&null)?;
            let mut streams = Streams { input, output: None, error: None };
            if stdout().is_terminal() {
                streams.output = Some(rustix::io::fcntl_dupfd_cloexec(stdout(), 3)?);
                dup2_stdout(&file)?;
            }
            if stderr().is_terminal() {
                streams.error = Some(rustix::io::fcntl_dupfd_cloexec(stderr(), 3)?);
                dup2_stderr(&file)?;
            }
            Ok(streams)
        };
        let ours = Some(streams().map_err(|error| failed(&error))?);
        Ok(Self { file, shown: 0, ours })
    }

    /// Takes our streams back.
    pub(super) fn give_back(&mut self) -> Result<(), Failure> {
        let Some(Streams { input, output, error }) = self.ours.take() else { return Ok(()) };
        let mut results = vec![dup2_stdin(&input)];
        results.extend(output.map(|output| dup2_stdout(&output)));
        results.extend(error.map(|error| dup2_stderr(&error)));
        let result: Result<(), _> = results.into_iter().collect();
        result.map_err(|error| Failure::new("the terminal is lost", &std::io::Error::from(error)))
    }

    /// Shows what was written since the last time, as the command wrote it, the last MiB of it.
    pub(super) fn show(&mut self) {
        let Ok(length) = self.file.metadata().map(|file| file.len()) else { return };
        let mut at = self.shown.max(length.saturating_sub(SHOWN));
        self.shown = length;
        let mut bytes = vec![0; 64 << 10];
        let mut out = stdout().lock();
        while at < length {
            let most = bytes.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
            let Ok(count @ 1..) = self.file.read_at(&mut bytes[..most], at) else { break };
            if out.write_all(&bytes[..count]).is_err() {
                break;
            }
            at += count as u64;
        }
        out.flush().ok();
    }
}

/// A file that nobody else can open.
fn unnamed() -> std::io::Result<File> {
    let path = std::env::temp_dir().join(format!("profbridge-top-{}-{:016x}", std::process::id(), fastrand::u64(..)));
    let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
