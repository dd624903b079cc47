//! Finds out which right is missing, and how to get it.
//!
//! The kernel only returns `EACCES` or `EPERM`; this checks the possible reasons from ptrace(2), "Ptrace access mode
//! checking", one by one.

use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;

use rustix::thread::CapabilitySet;

use crate::capability;
use crate::message::{Level, ProblemKind, Rights, Stops};
use crate::perf::open::next_right;
use crate::process_info::StatusFile;

/// Whether this process runs in a container, as far as it can tell.
pub(crate) fn in_container() -> bool {
    let file = |path| fs::exists(path).unwrap_or(false);
    file("/.dockerenv") || file("/run/.containerenv") || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

/// Whether this process may receive the samples of the whole machine. With `kernel.perf_event_paranoid` of 0 or less
/// the kernel gives them to everybody; they are used only with a capability that was granted on purpose, since they
/// contain the stacks of other users' programs.
pub(crate) fn may_see_all() -> bool {
    let namespace = fs::metadata("/proc/self/ns/user").ok().map(|namespace| namespace.st_ino());
    sees_all(capability::in_effect(), namespace)
}

/// The same decision, for these capabilities and the number of the user namespace in which they are held.
fn sees_all(held: CapabilitySet, namespace: Option<u64>) -> bool {
    /// `PROC_USER_INIT_INO`: the inode number of the first user namespace. Capabilities in other user namespaces do not
    /// apply to the machine.
    const FIRST: u64 = 0xEFFF_FFFD;
    namespace == Some(FIRST) && held.intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN)
}

/// The right or setting, as text for the user, that would show more of running threads than this level with this
/// setting of `stops`; `None` if nothing would.
pub fn what_shows_more(level: Level, stops: Stops) -> Option<&'static str> {
    match (level, stops) {
        (Level::None, Stops::Always) => Some("perf events are not tried (stops: always): choose user-bound or never"),
        _ => next_right(level, in_container()),
    }
}

/// The rights that the kernel gives this process. They are read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Powers {
    /// `CAP_SYS_PTRACE`.
    pub(crate) trace_others: bool,
    /// The effective user.
    pub(crate) user: u32,
    /// `kernel.yama.ptrace_scope`, 0 without Yama.
    pub(crate) yama: u8,
    /// Whether this process runs in a container, as far as it can tell.
    pub(crate) container: bool,
}

impl Powers {
    /// Reads the rights of this process.
    pub(crate) fn read() -> Self {
        let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
        Self {
            trace_others: capability::in_effect().contains(CapabilitySet::SYS_PTRACE),
            user: nix::unistd::geteuid().as_raw(),
            yama: yama.ok().and_then(|scope| scope.trim().parse().ok()).unwrap_or(0),
            container: in_container(),
        }
    }

    /// The sampler's rights, as reported to the owner at the start.
    pub(crate) fn rights(self, raised_priority: bool) -> Rights {
        let mut hints = Vec::new();
        match (self.yama, self.trace_others) {
            (3, _) => hints.push(NO_TRACING.to_owned()),
            (2, false) => hints.push(format!("{ADMIN_ONLY}; {}", self.how_to_get())),
            (1, false) => hints.push(format!("{DESCENDANTS_ONLY}; {}", self.how_to_get())),
            (_, false) => hints.push(format!(
                "only processes of user {} can be sampled, and none that changed its user or its capabilities; for others {}",
                self.user,
                self.how_to_get()
            )),
            _ => {}
        }
        if !raised_priority {
            hints.push(
                "the sampling thread's priority could not be raised: on a busy machine a thread may be held stopped for longer than \
                 a millisecond; give it CAP_SYS_NICE, or a limit on nice (`ulimit -e 35`, LimitNICE= in systemd)"
                    .to_owned(),
            );
        }
        Rights { trace_others: self.trace_others && self.yama < 3, raised_priority, hints }
    }

    /// Why a process with this status could not be opened for tracing.
    pub(crate) fn explain(self, pid: u32, status: Option<StatusFile>, error: &io::Error) -> (ProblemKind, String) {
        match error.raw_os_error() {
            Some(libc::ENOENT) => return (ProblemKind::Missing, format!("there is no process {pid}")),
            Some(libc::ESRCH) => return (ProblemKind::Missing, format!("process {pid} ended")),
            Some(libc::EMFILE | libc::ENFILE) => {
                let message = format!(
                    "process {pid} cannot be sampled: too many files are open; raise the limit (`ulimit -n`, LimitNOFILE= in systemd)"
                );
                return (ProblemKind::Permission, message);
            }
            Some(libc::EACCES | libc::EPERM) => {}
            _ => return (ProblemKind::Malformed, format!("the files of process {pid} cannot be read: {error}")),
        }
        let user = status.map(|status| status.user);
        let reason = if self.yama == 3 {
            NO_TRACING.to_owned()
        } else if self.trace_others {
            "CAP_SYS_PTRACE is held, but the process is in a user namespace in which that does not count, or seccomp, AppArmor \
             or SELinux forbids it; start the container with `--security-opt seccomp=unconfined` or a profile that allows ptrace"
                .to_owned()
        } else if self.yama == 2 {
            format!("{ADMIN_ONLY}; {}", self.how_to_get())
        } else if let Some(user) = user.filter(|user| *user != self.user) {
            format!(
                "it runs as user {user} and the sampler as user {}; run it as the same user, or {}",
                self.user,
                self.how_to_get()
            )
        } else if self.yama == 1 {
            format!("{DESCENDANTS_ONLY}; {}", self.how_to_get())
        } else {
            format!(
                "it has capabilities or changed its user or group, or asked not to be looked into (prctl PR_SET_DUMPABLE, or a program that \
                 may not be read); {}",
                self.how_to_get()
            )
        };
        (ProblemKind::Permission, format!("process {pid} cannot be traced: {reason}"))
    }

    /// Why no command can be traced from its start; `traced` says that another process traces it already.
    pub(crate) fn explain_command(self, traced: bool) -> String {
        if traced {
            return "the command cannot be traced: another process traces what profbridge starts (`strace -f`, a debugger), and \
                    a process has one tracer at a time; run profbridge without it"
                .to_owned();
        }
        if self.yama == 3 {
            return format!("the command cannot be traced: {NO_TRACING}");
        }
        if self.yama == 2 && !self.trace_others {
            return format!("the command cannot be traced: {ADMIN_ONLY}; {}", self.how_to_get());
        }
        let container = if self.container {
            ": a container's seccomp profile is the usual reason (`--security-opt seccomp=unconfined`, or a profile that allows ptrace)"
        } else {
            ": a seccomp filter or a security module is the usual reason"
        };
        format!("the command cannot be traced: the kernel forbids ptrace{container}")
    }

    /// How to get `CAP_SYS_PTRACE`.
    fn how_to_get(self) -> &'static str {
        if self.container {
            "give the container CAP_SYS_PTRACE (`--cap-add SYS_PTRACE`, in Kubernetes `capabilities: {add: [SYS_PTRACE]}`, and share the PID \
             namespace of what is to be sampled)"
        } else {
            "run as root, or with CAP_SYS_PTRACE (`setcap cap_sys_ptrace+ep` on the program, AmbientCapabilities=CAP_SYS_PTRACE in systemd)"
        }
    }
}

const NO_TRACING: &str =
    "this system allows no tracing at all (kernel.yama.ptrace_scope is 3, which lasts until the next boot)";
const ADMIN_ONLY: &str = "this system allows tracing with CAP_SYS_PTRACE only (kernel.yama.ptrace_scope is 2)";
const DESCENDANTS_ONLY: &str = "this system allows tracing of own descendants only (kernel.yama.ptrace_scope is 1): start the program as a \
                                command of profbridge, or set kernel.yama.ptrace_scope to 0";

#[cfg(test)]
mod tests {
    use super::*;

    const POWERS: Powers = Powers { trace_others: false, user: 1000, yama: 0, container: false };

    fn explain(powers: Powers, user: u32, error: i32) -> (ProblemKind, String) {
        let status = StatusFile { user, ..StatusFile::default() };
        powers.explain(7, Some(status), &io::Error::from_raw_os_error(error))
    }

    /// Guarantees: each reason for a refusal has its own message, with the remedy.
    #[test]
    fn every_refusal_says_what_to_do() {
        for (powers, user, words) in [
            (Powers { yama: 3, ..POWERS }, 1000, &["ptrace_scope is 3"][..]),
            (Powers { yama: 3, trace_others: true, ..POWERS }, 1000, &["ptrace_scope is 3"]),
            (Powers { yama: 2, ..POWERS }, 1000, &["ptrace_scope is 2", "CAP_SYS_PTRACE"]),
            (Powers { yama: 1, ..POWERS }, 1000, &["ptrace_scope is 1", "command of profbridge"]),
            (Powers { yama: 1, ..POWERS }, 33, &["user 33", "user 1000"]),
            (POWERS, 0, &["user 0", "same user", "setcap"]),
            (Powers { container: true, ..POWERS }, 0, &["--cap-add SYS_PTRACE"]),
            (POWERS, 1000, &["PR_SET_DUMPABLE"]),
            (Powers { trace_others: true, ..POWERS }, 0, &["seccomp"]),
        ] {
            for error in [libc::EACCES, libc::EPERM] {
                let (kind, message) = explain(powers, user, error);
                assert_eq!(kind, ProblemKind::Permission);
                for word in words {
                    assert!(message.contains(word), "{powers:?}: {message}");
                }
            }
        }
        assert_eq!(explain(POWERS, 0, libc::ENOENT).0, ProblemKind::Missing);
        assert_eq!(explain(POWERS, 0, libc::ESRCH).0, ProblemKind::Missing);
        assert_eq!(explain(POWERS, 0, libc::EIO).0, ProblemKind::Malformed);
        assert!(explain(POWERS, 0, libc::EMFILE).1.contains("ulimit -n"));
    }

    /// Guarantees: if a command may not be traced, the message names the system rule that forbids it, or says that
    /// another process traces it.
    #[test]
    fn every_refusal_of_a_command() {
        for (powers, words) in [
            (Powers { yama: 3, trace_others: true, ..POWERS }, "ptrace_scope is 3"),
            (Powers { yama: 2, ..POWERS }, "CAP_SYS_PTRACE only"),
            (Powers { yama: 2, trace_others: true, ..POWERS }, "seccomp filter"),
            (Powers { yama: 1, ..POWERS }, "seccomp filter"),
            (Powers { container: true, ..POWERS }, "container's seccomp profile"),
        ] {
            let message = powers.explain_command(false);
            assert!(message.contains(words) && !message.contains("strace"), "{powers:?}: {message}");
            let message = powers.explain_command(true);
            assert!(message.contains("strace") && !message.contains("seccomp"), "{powers:?}: {message}");
        }
    }

    /// Guarantees: if running threads are not fully visible, the message says what would show more: a right, or another
    /// setting of `stops`; there is no message if it is unknown what the kernel permits.
    #[test]
    fn more_of_running_threads() {
        for level in [Level::Kernel, Level::Undecided] {
            assert_eq!(what_shows_more(level, Stops::UserBound), None);
        }
        for (level, stops, words) in [
            (Level::User, Stops::UserBound, "CAP_PERFMON"),
            (Level::None, Stops::UserBound, "CAP_PERFMON"),
            (Level::None, Stops::Never, "CAP_PERFMON"),
            (Level::None, Stops::Always, "user-bound or never"),
        ] {
            let more = what_shows_more(level, stops).unwrap();
            assert!(more.contains(words), "{more}");
        }
    }

    /// Guarantees: the whole machine is visible with CAP_PERFMON or CAP_SYS_ADMIN only, and never in a separate user
    /// namespace, where every user can have them.
    #[test]
    fn right_to_see_all() {
        let first = Some(0xEFFF_FFFD);
        for (capabilities, namespace, sees) in [
            (&[38][..], first, true),
            (&[21], first, true),
            (&[0, 19, 39], first, false),
            (&[], first, false),
            (&[21, 38], Some(4_026_532_200), false),
            (&[21, 38], None, false),
        ] {
            let held = capabilities.iter().map(|number| CapabilitySet::from_bits_retain(1 << number)).collect();
            assert_eq!(sees_all(held, namespace), sees, "{capabilities:?} {namespace:?}");
        }
    }

    /// Guarantees: a thread that dropped its capabilities may not see the whole machine any more.
    #[test]
    fn right_to_see_all_of_a_thread() {
        std::thread::spawn(|| {
            capability::keep(!(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN)).unwrap();
            assert!(!may_see_all());
        })
        .join()
        .unwrap();
    }

    /// Guarantees: if the process has all rights, none is reported as missing; otherwise every missing right is.
    #[test]
    fn hints_at_the_start() {
        let all = Powers { trace_others: true, ..POWERS };
        assert_eq!(all.rights(true), Rights { trace_others: true, raised_priority: true, hints: vec![] });
        assert_eq!(POWERS.rights(false).hints.len(), 2);
        assert!(!Powers { yama: 3, ..all }.rights(true).trace_others);
        for yama in 1..=3 {
            assert!(Powers { yama, ..POWERS }.rights(true).hints[0].contains(&format!("ptrace_scope is {yama}")));
        }
    }
}
