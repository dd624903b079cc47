//! The output of a command while a view uses its terminal: kept in a file, and shown when the view is closed.

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

/// The maximum size shown: the end of the output.
const SHOWN: u64 = 1 << 20;

/// How often the file is checked for exceeding that.
const TRIMMED: Duration = Duration::from_secs(1);

/// File systems free whole blocks of at most this size.
const BLOCK: u64 = 64 << 10;

/// The output of a command, and, while the command is started, the original standard streams.
#[derive(Debug)]
pub(super) struct CommandOutput {
    /// It is unlinked, so it disappears with its last user.
    file: File,
    shown: u64,
    ours: Option<Streams>,
    /// Ends the trimming thread.
    _trimming: Option<Sender<()>>,
}

/// The original streams; `None` for streams that are no terminal and were not changed.
#[derive(Debug)]
struct Streams {
    input: OwnedFd,
    output: Option<OwnedFd>,
    error: Option<OwnedFd>,
}

impl CommandOutput {
    /// Redirects the streams that are the terminal until [`Self::give_back`]: input to nothing, since keys belong to
    /// the view, output into a file.
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
        // A command may outlive the view, so a thread of its own does the trimming.
        let trimming = file.try_clone().ok().map(trim_always);
        Ok(Self { file, shown: 0, ours, _trimming: trimming })
    }

    /// Restores the original streams.
    pub(super) fn give_back(&mut self) -> Result<(), Failure> {
        let Some(Streams { input, output, error }) = self.ours.take() else { return Ok(()) };
        crate::logging::flush();
        let mut results = vec![dup2_stdin(&input)];
        results.extend(output.map(|output| dup2_stdout(&output)));
        results.extend(error.map(|error| dup2_stderr(&error)));
        let result: Result<(), _> = results.into_iter().collect();
        result.map_err(|error| Failure::new("the terminal is lost", &std::io::Error::from(error)))
    }

    /// Shows the last MiB of output written since the last call, unmodified, and reports the size of the omitted part.
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

/// How many bytes at the start of a file of this length will never be shown, however long it gets.
fn never_shown(length: u64) -> u64 {
    length.saturating_sub(SHOWN)
}

/// Trims a file until the returned sender is dropped.
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

/// Frees the space of output that will never be shown, once it exceeds the rest: `/tmp` may be in memory. The remaining
/// bytes keep their offsets. On file systems that cannot do this the file keeps its size.
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

/// Creates a file that nobody else can open.
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

    /// Guarantees: a file takes little more space than the part that is shown, which keeps its contents and offsets.
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
        // Only if the file system of the temporary folder supports it, as most do.
        let held = metadata.blocks() * 512;
        let mut first = [1; 4];
        file.read_exact_at(&mut first, 4).unwrap();
        assert!(first != [0; 4] || held <= 2 * SHOWN + 4 * BLOCK, "{held}");
    }
}
