//! Reduces the capabilities (capabilities(7)) and the permitted system calls (seccomp(2)) of the calling thread.

use std::io;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// The capabilities for sampling: tracing and reading other users' processes and their files, opening perf events and
/// mapping their buffers, and raising the priority.
const SAMPLING: CapabilitySet = CapabilitySet::SYS_PTRACE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    // To open files of processes through `/proc/PID/map_files`.
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// The capabilities of a process that listens on ports: to use low ports, to read and write files of other users, and
/// to see kernel addresses.
const SERVING: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SYSLOG);

/// System calls that profbridge never makes, and that would help an attacker who has taken it over.
const NEVER: &[i64] = &[
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_writev,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// System calls that a sampler without commands never makes: the data it reads leaves through its owner's socket only.
const NOT_SAMPLING: &[i64] = &[libc::SYS_execve, libc::SYS_execveat, libc::SYS_socket];

/// System calls that a process with pipelines never makes itself: only its sampler process does.
const NOT_SERVING: &[i64] =
    &[libc::SYS_execve, libc::SYS_execveat, libc::SYS_perf_event_open, libc::SYS_process_vm_readv, libc::SYS_ptrace];

/// The effective capabilities; none if the kernel does not report them.
pub(crate) fn in_effect() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |held| held.effective)
}

/// Drops all capabilities but `kept` from all sets of the calling thread, so that they cannot be regained.
pub(crate) fn keep(kept: CapabilitySet) -> io::Result<()> {
    let mut held = capabilities(None)?;
    held.effective &= kept;
    held.permitted &= kept;
    held.inheritable &= kept;
    Ok(set_capabilities(None, held)?)
}

/// Adds to `rights` the capability that grants the same on old kernels: before Linux 5.9, CAP_SYS_ADMIN permitted what
/// [`CapabilitySet::PERFMON`] and [`CapabilitySet::CHECKPOINT_RESTORE`] permit now.
fn or_older(rights: CapabilitySet) -> CapabilitySet {
    let newer = rights & (CapabilitySet::PERFMON | CapabilitySet::CHECKPOINT_RESTORE);
    if in_effect().contains(newer) { rights } else { rights | CapabilitySet::SYS_ADMIN }
}

/// The capabilities that a sampler keeps if it has those in `held`.
fn for_sampling(held: CapabilitySet) -> CapabilitySet {
    let mut kept = or_older(SAMPLING);
    if !held.contains(CapabilitySet::DAC_READ_SEARCH) {
        // Docker grants CAP_DAC_OVERRIDE but not CAP_DAC_READ_SEARCH.
        kept |= CapabilitySet::DAC_OVERRIDE;
    }
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim().parse::<i32>().is_ok_and(|level| level > 2) {
        // `perf_event_paranoid` above 2 exists on Debian and Ubuntu, whose kernels then do not accept CAP_PERFMON.
        kept |= CapabilitySet::SYS_ADMIN;
    }
    kept
}

/// Restricts the sampler process to what sampling needs. Without CAP_SYS_PTRACE it keeps all capabilities, because the
/// kernel then lets it read only processes with no more capabilities than its own (`cap_ptrace_access_check`). A
/// command that it starts must have all capabilities that the process was given, so a sampler with `commands` only
/// disables capabilities temporarily ([`restore`]), and no system calls can be forbidden, since that would be
/// inherited. Returns the effective capabilities from before. Must be called before other threads exist.
pub(crate) fn confine_sampler(commands: bool) -> io::Result<CapabilitySet> {
    let before = in_effect();
    let kept = if before.contains(CapabilitySet::SYS_PTRACE) { for_sampling(before) } else { CapabilitySet::all() };
    if commands {
        restore(before & kept)?;
    } else {
        keep(kept)?;
        forbid(NOT_SAMPLING)?;
    }
    Ok(before)
}

/// Makes exactly these of the permitted capabilities effective. Allocates nothing.
pub(crate) fn restore(effective: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?;
    Ok(set_capabilities(None, rustix::thread::CapabilitySets { effective, ..held })?)
}

/// Restricts the calling thread, and everything it starts afterwards, to what a process with pipelines needs. The host
/// program's `main` calls this before it starts other threads. A process that listens on ports should not also be able
/// to read all memory. `traces` keeps the capability to trace (`CAP_SYS_PTRACE`) and to open the files of processes.
///
/// With `samples`, [`crate::SamplerProcess::start`] regains the rights for sampling from the kernel by executing this
/// program: as root, or by the capabilities of the file. An attacker who has taken over the process can do the same;
/// so a process that does not sample is forbidden to execute anything, under `no_new_privs`.
///
/// # Errors
///
/// The kernel's error. A missing right is not an error.
pub fn confine_host(traces: bool, samples: bool) -> io::Result<()> {
    let tracing = CapabilitySet::SYS_PTRACE | CapabilitySet::CHECKPOINT_RESTORE;
    keep(match traces {
        true if in_effect().contains(CapabilitySet::SYS_PTRACE) => or_older(SERVING | tracing),
        // The sampler keeps all capabilities too without CAP_SYS_PTRACE, see [`confine_sampler`].
        true => CapabilitySet::all(),
        false => SERVING,
    })?;
    if samples { Ok(()) } else { forbid(NOT_SERVING) }
}

/// Whether a program that this thread executes gets at most the thread's rights: the rights are ambient, or the thread
/// is under `no_new_privs`.
pub fn hands_rights_on() -> bool {
    let ambient = |right| rustix::thread::capability_is_in_ambient_set(right).unwrap_or(false);
    rustix::thread::no_new_privs().unwrap_or(false) || in_effect().iter().any(ambient)
}

/// Makes system calls fail with EPERM, in the calling thread and everything it starts. Without effect on a kernel
/// without seccomp, in a container that forbids filters, and on an architecture without a filter.
fn forbid(calls: &[i64]) -> io::Result<()> {
    /// The bit that marks the x32 variant of a call on x86_64. Calls of other architectures never have this bit.
    const X32: i64 = 0x4000_0000;
    rustix::thread::set_no_new_privs(true)?;
    let Ok(architecture) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(()) };
    let numbers = NEVER.iter().chain(calls).flat_map(|call| [*call, *call | X32]);
    let rules = numbers.map(|number| (number, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture).map_err(io::Error::other)?;
    let program = BpfProgram::try_from(filter).map_err(io::Error::other)?;
    match apply_filter(&program) {
        Err(seccompiler::Error::Seccomp(error))
            if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)) =>
        {
            Ok(())
        }
        applied => applied.map_err(io::Error::other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a capability that was dropped is gone from this thread, and from no other.
    #[test]
    fn gone_from_the_thread_only() {
        let before = in_effect();
        std::thread::spawn(|| {
            keep(!CapabilitySet::SYS_PTRACE).unwrap();
            assert!(!in_effect().contains(CapabilitySet::SYS_PTRACE));
            assert!(!capabilities(None).unwrap().permitted.contains(CapabilitySet::SYS_PTRACE));
        })
        .join()
        .unwrap();
        assert_eq!(in_effect(), before);
    }

    /// Guarantees: a thread that serves is refused the sampler's system calls, under `no_new_privs`, and one that
    /// samples cannot execute programs or open sockets; what both need still works.
    #[test]
    fn forbidden_calls() {
        let error = |result: io::Result<()>| result.err().and_then(|error| error.raw_os_error());
        let execute = move || error(std::process::Command::new("/bin/true").spawn().map(drop));
        let connect = move || error(std::net::UdpSocket::bind("127.0.0.1:0").map(drop));
        let traces =
            move || error(nix::sys::ptrace::attach(nix::unistd::Pid::from_raw(i32::MAX)).map_err(io::Error::from));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                confine_host(false, false).unwrap();
                assert!(rustix::thread::no_new_privs().unwrap());
                assert_eq!((execute(), connect(), traces()), (Some(libc::EPERM), None, Some(libc::EPERM)));
            });
            scope.spawn(move || {
                confine_sampler(false).unwrap();
                assert_eq!((execute(), connect(), traces()), (Some(libc::EPERM), Some(libc::EPERM), Some(libc::ESRCH)));
            });
        });
    }
}
