//! Resource limits of this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to the hard limit: each connection needs one, and so does each mapped file of a
/// process that is symbolized. The usual soft limit of 1024 protects programs that call `select`, which this program
/// does not.
///
/// A sampled command may call `select`, so it must get the original limit. Read that before calling this.
pub(crate) fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::debug!("the limit on open files could not be raised: {error}");
    }
}
