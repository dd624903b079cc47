//! The interface to servers of debug files.

use std::fmt::Debug;
use std::fs::File;
use std::time::Duration;

/// Downloads separate debug files in the background.
pub trait DebugFileServer: Debug + Send + Sync {
    /// The debug file with a build id, as far as it is known by now. Starts a download if nothing is known yet. May
    /// read from a disk, but blocks on nothing else.
    fn request(&self, build_id: &[u8]) -> Requested;

    /// How many downloads have failed, not counting files that no server has.
    fn failures(&self) -> u64 {
        0
    }
}

/// What is known about a debug file.
#[derive(Debug)]
pub enum Requested {
    /// The file, open for reading. It is checked like any other file.
    Here(File),
    /// It may be on its way.
    Coming {
        /// How long ago it was requested.
        since: Duration,
        /// Time since the last data of any file arrived.
        idle: Duration,
    },
    /// No server has it, or none answers.
    Missing,
}
