//! Where debug files come from that are not on this machine.

use std::fmt::Debug;
use std::fs::File;
use std::time::Duration;

/// Brings separate debug files from elsewhere, in the background.
pub trait DebugFileServer: Debug + Send + Sync {
    /// The debug file of a build id, as far as is known by now. Where nothing is known yet, it begins to bring the file.
    /// It may look at a disk, and waits for nothing else.
    fn request(&self, build_id: &[u8]) -> Requested;

    /// How many attempts to bring a file have failed, other than since nobody has it.
    fn failures(&self) -> u64 {
        0
    }
}

/// What is known about a debug file.
#[derive(Debug)]
pub enum Requested {
    /// It is here, open for reading. It is checked like any other file.
    Here(File),
    /// It may be on its way.
    Coming {
        /// How long ago it was requested.
        since: Duration,
        /// For how long nothing has come, of any file.
        idle: Duration,
    },
    /// Nobody has it, or nobody answers.
    Missing,
}
