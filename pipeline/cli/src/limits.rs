//! What the system allows this process, raised to what it would allow.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Allows as many open files as the system allows: each connection takes one, and each mapped file of a process whose
/// names are looked up. The usual soft limit of 1024 is kept small for programs that call `select`, which this is none
/// of.
///
/// Commands that are sampled are such programs, perhaps: they get the limit from before, which has to be asked for
/// until then.
pub(crate) fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::debug!("the limit on open files could not be raised: {error}");
    }
}
