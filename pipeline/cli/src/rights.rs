//! Who may trace: where profbridge runs a pipeline, only its sampler process.
//!
//! A process that listens on ports should not be able to read the memory of all others. The sampler is this program,
//! executed once more: the kernel gives it the right anew, for root and for a file with capabilities (capabilities(7),
//! "Transformation of capabilities during execve"). A right that is ambient is different: it is handed on by the one who
//! has it and lost for both where that one gives it up.

use std::fs;

use profbridge_engine::config::Config;

/// `CAP_SYS_PTRACE` in the masks of `/proc/PID/status` (Linux, `capability.h`).
const SYS_PTRACE: u64 = 1 << 19;

/// Gives up the right to trace others in this thread and all that it starts, where the configuration has a sampler. To be
/// called before there are other threads.
pub(crate) fn leave_tracing_to_the_sampler(config: &Config) {
    let samples = config.receivers.iter().any(|(id, _)| id.kind == "ptrace");
    // This processor opens the files of others through `/proc/PID/root`, which takes the same right.
    let opens = config.processors.iter().any(|(id, _)| id.kind == "symbolize");
    if !samples || opens {
        return;
    }
    if is_ambient() {
        tracing::info!(
            "the right to trace is ambient, so this process has to keep it for its sampler; as a capability of the file \
             (setcap cap_sys_ptrace=ep) the sampler alone would have it"
        );
        return;
    }
    if let Err(error) = profbridge_ptrace::give_up_ptrace() {
        tracing::warn!("the right to trace could not be given up: {error}");
    }
}

fn is_ambient() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapAmb:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & SYS_PTRACE != 0)
}
