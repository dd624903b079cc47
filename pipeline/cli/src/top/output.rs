//! What a command writes while a view is on its terminal: kept in a file, and shown when the view is closed.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FallocateFlags, fallocate};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::{Failure, terminal};

/// So much of it is shown, the last of it.
const SHOWN: u64 = 1 << 20;

/// How often it is looked at whether the file holds more than that.
const TRIMMED: Duration = Duration::from_secs(1);

/// What a file system gives back is a number of blocks, of at most this size.
const BLOCK: u64 = 64 << 10;

/// What a command wrote, and for a moment the standard streams that it is to inherit in place of ours.
#[derive(Debug)]
pub(super) struct CommandOutput {
    /// It has no name any more, and is gone with its last user.
    file: File,
    shown: u64,
    ours: Option<Streams>,
    /// Ends what trims the file.
    _trimming: Option<Sender<()>>,
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
        // A command may go on for long after the view, so it is not the view that does it.
        let trimming = file.try_clone().ok().map(trim_always);
        Ok(Self { file, shown: 0, ours, _trimming: trimming })
    }

    /// Takes our streams back.
    pub(super) fn give_back(&mut self) -> Result<(), Failure> {
        let Some(Streams { input, output, error }) = self.ours.take() else { return Ok(()) };
        crate::logging::flush();
        let mut results = vec![dup2_stdin(&input)];
        results.extend(output.map(|output| dup2_stdout(&output)));
        results.extend(error.map(|error| dup2_stderr(&error)));
        let result: Result<(), _> = results.into_iter().collect();
        result.map_err(|error| Failure::new("the terminal is lost", &std::io::Error::from(error)))
    }

    /// Shows what was written since the last time, as the command wrote it, the last MiB of it; how much is before that
    /// is said.
    pub(super) fn show(&mut self) {
        let Ok(length) = self.file.metadata().map(|file| file.len()) else { return };
        let mut at = self.shown.max(never_shown(length));
        let left_out = at - self.shown;
        if left_out > 0 {
            terminal::say(format!(
                "note: {} that the command wrote before this are left out",
                terminal::bytes(left_out)
            ));
        }
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

/// How much of the beginning of a file of some length is never shown, however long it becomes.
fn never_shown(length: u64) -> u64 {
    length.saturating_sub(SHOWN)
}

/// Trims a file until what is returned is dropped.
fn trim_always(file: File) -> Sender<()> {
    let (ends, end) = mpsc::channel();
    thread::spawn(move || {
        let mut trimmed = 0;
        while end.recv_timeout(TRIMMED) == Err(RecvTimeoutError::Timeout) {
            trim(&file, &mut trimmed);
        }
    });
    ends
}

/// Gives the space back of what is never shown, once there is as much of that as of what is: `/tmp` may be memory. What
/// remains keeps its place. Not every file system can do that, and then the file is as long as it is.
fn trim(file: &File, trimmed: &mut u64) {
    let Ok(length) = file.metadata().map(|file| file.len()) else { return };
    let until = never_shown(length) / BLOCK * BLOCK;
    let range = (i64::try_from(*trimmed), i64::try_from(until.saturating_sub(*trimmed)));
    let (Ok(start), Ok(count @ 1..)) = range else { return };
    if count.unsigned_abs() >= SHOWN {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(file, flags, start, count).ok();
        *trimmed = until;
    }
}

/// A file that nobody else can open.
fn unnamed() -> std::io::Result<File> {
    let path = std::env::temp_dir().join(format!("profbridge-top-{}-{:016x}", std::process::id(), fastrand::u64(..)));
    let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Guarantees: a file does not hold much more than what is shown of it, which is as it was written and where it
    /// was.
    #[test]
    fn trimmed() {
        let mut file = unnamed().unwrap();
        let (mut trimmed, mut written) = (0, Vec::new());
        for round in 1..41_u32 {
            let part: Vec<u8> = (0..70_000_u32).flat_map(|n| (n ^ round).to_le_bytes()).collect();
            file.write_all(&part).unwrap();
            written.extend_from_slice(&part);
            trim(&file, &mut trimmed);
        }
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), written.len() as u64);
        assert!(trimmed > 8 << 20 && trimmed <= never_shown(metadata.len()), "{trimmed}");
        let from = never_shown(metadata.len());
        let mut shown = vec![0; SHOWN as usize];
        file.read_exact_at(&mut shown, from).unwrap();
        assert!(shown == written[from as usize..]);
        // Only where the file system of the temporary folder can do it, of which most can.
        let held = metadata.blocks() * 512;
        let mut first = [1; 4];
        file.read_exact_at(&mut first, 4).unwrap();
        assert!(first != [0; 4] || held <= 2 * SHOWN + 4 * BLOCK, "{held}");
    }
}
