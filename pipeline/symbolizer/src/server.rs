//! The interface to servers of debug files.

use std::fmt::Debug;
use std::fs::File;
use std::time::Duration;

/// Downloads separate debug files in the background.
pub trait DebugFileServer: Debug + Send + Sync {
    /// The current knowledge about the debug file with a build id. Starts a download if nothing is known yet. May read
    /// from a disk, but blocks on nothing else.
    fn request(&self, build_id: &[u8]) -> Requested;

    /// The number of failed downloads, not counting files that no server has.
    fn failures(&self) -> u64 {
        0
    }
}

/// The current knowledge about a debug file.
#[derive(Debug)]
pub enum Requested {
    /// The file, open for reading. The caller checks it like any other file.
    Here(File),
    /// The file may be on its way.
    Coming {
        /// The time since the file was requested.
        since: Duration,
        /// Time since the last data of any file arrived.
        idle: Duration,
    },
    /// No server has the file, or no server answers.
    Missing,
}
