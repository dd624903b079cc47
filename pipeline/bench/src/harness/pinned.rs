//! Measuring in one process that has a core to itself.

use std::{env, path::PathBuf, process::Stdio};

use clap::Args;

use super::{Error, TARGET_CORE, children};

/// How often and for how long to measure, and where the figures go.
#[derive(Args, Clone, Debug)]
pub struct PinnedBlocks {
    /// Pairs of blocks
    #[arg(long, default_value_t = 12)]
    pub pairs: usize,
    /// The least length of a block
    #[arg(long, default_value_t = 0.4)]
    pub seconds: f64,
    /// Write the figures as JSON
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Set in the process that measures, which has a core of its own
    #[arg(long, hide = true)]
    pinned: bool,
}

impl PinnedBlocks {
    /// Runs this command again on a core of its own and returns `true`, unless this is the process that does so.
    ///
    /// # Errors
    /// The other process cannot be started, or failed.
    pub fn runs_elsewhere(&self) -> Result<bool, Error> {
        if self.pinned {
            return Ok(false);
        }
        let mut command = children::pinned(TARGET_CORE, env::current_exe()?);
        let status = command.args(env::args_os().skip(1)).arg("--pinned").stdout(Stdio::inherit()).status()?;
        if status.success() { Ok(true) } else { Err(format!("the measuring process failed: {status}").into()) }
    }
}
