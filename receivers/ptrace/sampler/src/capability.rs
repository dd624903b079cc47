//! What the calling thread may ask of the kernel: its capabilities (capabilities(7)) and its system calls (seccomp(2)).

use std::io;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// What sampling uses: it traces and reads other users' processes and their files, opens perf events and their memory,
/// and raises its priority.
const SAMPLING: CapabilitySet = CapabilitySet::SYS_PTRACE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    // Files of processes by `map_files`.
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// What a process that listens on ports uses: low ports, files of others to read and to write, addresses of the kernel.
const SERVING: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SYSLOG);

/// System calls that no part of profbridge makes, and that would serve whoever takes it over.
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

/// What a sampler does not do that starts no commands: what it reads leaves by its owner's socket only.
const NOT_SAMPLING: &[i64] = &[libc::SYS_execve, libc::SYS_execveat, libc::SYS_socket];

/// What a process with pipelines leaves to the sampler.
const NOT_SERVING: &[i64] =
    &[libc::SYS_execve, libc::SYS_execveat, libc::SYS_perf_event_open, libc::SYS_process_vm_readv, libc::SYS_ptrace];

/// The capabilities in effect; none where the kernel does not say.
pub(crate) fn in_effect() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |held| held.effective)
}

/// Takes all other capabilities from the calling thread: from all sets, so that they cannot be taken back.
pub(crate) fn keep(kept: CapabilitySet) -> io::Result<()> {
    let mut held = capabilities(None)?;
    held.effective &= kept;
    held.permitted &= kept;
    held.inheritable &= kept;
    Ok(set_capabilities(None, held)?)
}

/// With `rights`, those that stand in for what an older kernel does not have: until Linux 5.9 CAP_SYS_ADMIN permitted
/// what [`CapabilitySet::PERFMON`] and [`CapabilitySet::CHECKPOINT_RESTORE`] do.
fn or_older(rights: CapabilitySet) -> CapabilitySet {
    let newer = rights & (CapabilitySet::PERFMON | CapabilitySet::CHECKPOINT_RESTORE);
    if in_effect().contains(newer) { rights } else { rights | CapabilitySet::SYS_ADMIN }
}

/// What a sampler with these rights keeps of them.
fn for_sampling(held: CapabilitySet) -> CapabilitySet {
    let mut kept = or_older(SAMPLING);
    if !held.contains(CapabilitySet::DAC_READ_SEARCH) {
        // Docker gives only the greater one of the two.
        kept |= CapabilitySet::DAC_OVERRIDE;
    }
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim().parse::<i32>().is_ok_and(|level| level > 2) {
        // Levels above 2 are Debian's and Ubuntu's, whose kernels do not ask for CAP_PERFMON there.
        kept |= CapabilitySet::SYS_ADMIN;
    }
    kept
}

/// Leaves the sampler process what sampling takes. Without CAP_SYS_PTRACE it keeps all: the kernel then lets it read only
/// processes with no more capabilities than its own (`cap_ptrace_access_check`). The command that it starts must have
/// all that the process was given, so one that starts `commands` only lays capabilities aside ([`restore`]), and can be
/// forbidden no calls, since that would be inherited. Returns the effective capabilities from before. To be called
/// before there are other threads.
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

/// Puts just these of the permitted capabilities into effect. Allocates nothing.
pub(crate) fn restore(effective: CapabilitySet) -> io::Result<()> {
    let held = capabilities(None)?;
    Ok(set_capabilities(None, rustix::thread::CapabilitySets { effective, ..held })?)
}

/// Leaves the calling thread, and all that it starts afterwards, what a process with pipelines uses: for the host
/// program's `main`, before it starts other threads. A process that listens on ports should not also read all memory.
/// `traces` leaves it the right to trace (`CAP_SYS_PTRACE`) and to open the files of processes.
///
/// With `samples`, [`crate::SamplerProcess::start`] gets the rights for sampling anew from the kernel by executing this
/// program: as root, or by the capabilities of the file. So can whoever takes over the process, for which reason one
/// that does not sample is forbidden to execute anything, under `no_new_privs`.
///
/// # Errors
///
/// The kernel's error. Not having a right is no error.
pub fn confine_host(traces: bool, samples: bool) -> io::Result<()> {
    let tracing = CapabilitySet::SYS_PTRACE | CapabilitySet::CHECKPOINT_RESTORE;
    keep(match traces {
        true if in_effect().contains(CapabilitySet::SYS_PTRACE) => or_older(SERVING | tracing),
        // As for the sampler.
        true => CapabilitySet::all(),
        false => SERVING,
    })?;
    if samples { Ok(()) } else { forbid(NOT_SERVING) }
}

/// Whether a program that this thread executes gets no rights but those that the thread has, or may lose some: what it
/// has is ambient, or it is under `no_new_privs`.
pub fn hands_rights_on() -> bool {
    let ambient = |right| rustix::thread::capability_is_in_ambient_set(right).unwrap_or(false);
    rustix::thread::no_new_privs().unwrap_or(false) || in_effect().iter().any(ambient)
}

/// Has the kernel refuse system calls with EPERM, in the calling thread and all that it starts. A kernel without seccomp,
/// a container that forbids filters, and an architecture without one leave them.
fn forbid(calls: &[i64]) -> io::Result<()> {
    /// The bit of the calls of x32 on x86_64, which are the same calls; elsewhere there is no call with it.
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

    /// Guarantees: a capability that was given up is gone from the thread, and from no other.
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

    /// Guarantees: a thread that serves is refused what the sampler does, under `no_new_privs`, and one that samples
    /// executes nothing and opens no socket; what both do goes on.
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
