//! The descriptions of processes.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use super::*;

/// Starts a command that writes a line and waits for input.
fn start(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // The process exists before the kernel has set its arguments.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

fn described(child: &Child, asked: &[String], clock: BootClock) -> Process {
    let files = ProcessFiles::open(child.id()).unwrap();
    describe(&files, ProcessId(3), TargetId(4), asked, clock).unwrap().process
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Guarantees: the innermost id, the effective user, the tracer and whether the process has ended are read, and invalid
/// text yields zeros.
#[test]
fn status_lines() {
    let text = "Name:\tx y: z\nTgid:\t899\nPPid:\t3\nTracerPid:\t12\nUid:\t1\t2\t3\t4\nNSpid:\t900\t40\t1\n";
    let status = StatusFile { process: 899, parent: 3, ended: false, tracer: 12, user: 2, namespace_pid: 1 };
    assert_eq!(parse_status(text), status);
    assert_eq!(parse_status(&format!("State:\tZ (zombie)\n{text}")), StatusFile { ended: true, ..status });
    assert_eq!(parse_status(&format!("State:\tS (Zzz)\n{text}")), status);
    assert_eq!(parse_status("Uid:\nNSpid: x\n:\n\n"), StatusFile::default());
}

/// Guarantees: only requested variables are returned, and only under exactly the requested names.
#[test]
fn secrets_stay() {
    let environment = b"SECRET=hidden\0NAME=a=b\0NAMES=no\0NAME=second\0=odd\0flag\0EMPTY=\0";
    let asked = ["NAME".to_owned(), "EMPTY".to_owned(), "UNSET".to_owned(), "flag".to_owned()];
    let picked = pick(environment, &asked);
    assert_eq!(picked, [("NAME".to_owned(), "a=b".to_owned()), ("EMPTY".to_owned(), String::new())]);
    assert_eq!(pick(environment, &[]), []);
}

/// Guarantees: a real process is described correctly, without any variable that was not requested.
#[test]
fn describes_a_child() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo; read line", ""]).env_clear().env("ASKED", "yes").env("SECRET", "hidden");
    let child = start(&mut command);
    let process = described(&child, &["ASKED".to_owned()], BootClock::read().unwrap());
    assert_eq!((process.id, process.target, process.pid), (ProcessId(3), TargetId(4), child.id()));
    end(child);
    assert_eq!(process.arguments, ["/bin/sh", "-c", "echo; read line", ""]);
    // This path is a link to the distribution's preferred shell.
    assert_eq!(process.executable, std::fs::canonicalize("/bin").unwrap().join("sh").to_string_lossy());
    assert_eq!(process.environment, [("ASKED".to_owned(), "yes".to_owned())]);
    assert_eq!(process.user, nix::unistd::geteuid().as_raw());
    assert!(process.root.is_some());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let age = now.abs_diff(u128::from(process.start_unix_nano));
    assert!(age < 60_000_000_000, "{age}");
}

/// Guarantees: if an executable has several names in its folder, the one with which the process was started is used, if
/// it really is a name of that file: on Debian `redis-server` is a link to `redis-check-rdb`.
#[test]
fn started_by_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::copy("/bin/sh", path("check-rdb")).unwrap();
    std::os::unix::fs::symlink("check-rdb", path("server")).unwrap();
    std::fs::copy("/bin/sh", path("other")).unwrap();
    for (program, argument, expected) in [
        ("server", None, "server"),
        ("check-rdb", None, "check-rdb"),
        // redis, PostgreSQL and nginx write their status into their arguments like this.
        ("server", Some("server *:6379"), "server"),
        ("server", Some("-server"), "server"),
        // The name of the thread still is the name of the program.
        ("server", Some("anything"), "server"),
        ("check-rdb", Some("other"), "check-rdb"),
        ("check-rdb", Some("../other"), "check-rdb"),
        ("check-rdb", Some(".."), "check-rdb"),
        ("check-rdb", Some(""), "check-rdb"),
    ] {
        let mut command = Command::new(path(program));
        if let Some(argument) = argument {
            std::os::unix::process::CommandExt::arg0(&mut command, argument);
        }
        let child = start(command.args(["-c", "echo; read line", ""]));
        let executable = described(&child, &[], BootClock::read().unwrap()).executable;
        end(child);
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        assert_eq!(executable, folder.join(expected).to_string_lossy(), "{program} as {argument:?}");
    }
}

/// Guarantees: impossible times do not overflow.
#[test]
fn absurd_times() {
    let clock = BootClock { boot_seconds: u64::MAX, ticks_per_second: 100, boot_id: [0; 36] };
    assert_eq!(clock.unix_nano(u64::MAX), 0);
    let clock = BootClock { boot_seconds: 1, ticks_per_second: 100, boot_id: [0; 36] };
    assert_eq!(clock.unix_nano(250), 3_500_000_000);
}

/// Guarantees: the exec id of a process is the same at any time, whatever the wall clock shows; after another boot,
/// and after another exec of the same program in the same process, it differs.
#[test]
fn exec_ids() {
    let clock = BootClock::read().unwrap();
    assert!(clock.boot_id.iter().all(u8::is_ascii_graphic), "{:?}", clock.boot_id);
    let mut child = start(Command::new("/bin/sh").args(["-c", "echo; read line; exec /bin/sh -c 'echo; read line'"]));
    let id = |child: &Child, clock: BootClock| described(child, &[], clock).exec_id;
    let first = id(&child, clock);
    let again = id(&child, BootClock { boot_seconds: clock.boot_seconds + 1000, ..clock });
    let other_boot = id(&child, BootClock { boot_id: [7; 36], ..clock });
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let executed = id(&child, clock);
    end(child);
    assert_eq!(first, again);
    assert!(first != executed && first != other_boot && first != 0);
}

/// Guarantees: if the auxiliary vector cannot be read, the id is made from the executable and the start time.
#[test]
fn exec_ids_without_a_vector() {
    let folder = tempfile::tempdir().unwrap();
    let directory = File::open(folder.path()).unwrap();
    let id = |ticks| exec_id(directory.as_fd(), [1; 36], ticks);
    let nothing = id(1);
    std::os::unix::fs::symlink("/bin/sh", folder.path().join("exe")).unwrap();
    assert_eq!(id(1), id(1));
    assert!(id(1) != id(2) && id(1) != nothing);
}
